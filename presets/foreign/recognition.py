"""Which tool wrote a file: the one that knows most of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...common.text import join_alternatives
from ..errors import PresetError
from .other_keys import other_keys
from .preset_file import MissingSectionError, PresetFile
from .registry import Format, format_names, own_formats, plugin_formats
from .table import parse_yaml_1_1

_MIN_KNOWN_SHARE = 0.5
_MAX_SHOWN_KEYS = 6


class AmbiguousFormatError(PresetError):
    """The content of a file fits two formats, or none well, so that the user must name the format."""


def recognize_format(file: PresetFile) -> Format:
    """Return the format whose tool knows the largest share of a file."""
    # Raises ``AmbiguousFormatError`` if several tools know the same share, or none knows half of the file.
    other_file = _error_about_other_file(file)
    formats = plugin_formats() if other_file else (*own_formats(), *plugin_formats())
    known_shares = {
        candidate: _known_share(candidate, file) for candidate in formats if candidate.read is not None
    }
    best_share = max(known_shares.values(), default=0.0)
    best = _winners_of_tie([candidate for candidate, share in known_shares.items() if share == best_share])
    if best_share < _MIN_KNOWN_SHARE and other_file:
        raise other_file
    if best_share == 0:
        raise _unknown_format_error(file)
    if best_share < _MIN_KNOWN_SHARE:
        raise _mostly_unknown_error(best[0], file)
    if len(best) > 1:
        names = join_alternatives([candidate.name for candidate in best])
        raise AmbiguousFormatError(f"{file.origin}: the content fits {names}; name the format")
    return best[0]


def _winners_of_tie(formats: Sequence[Format]) -> list[Format]:
    """Return the formats that win a tie: own formats over plug-ins, and the extended format over its extension."""
    tied_own_formats = [candidate for candidate in formats if candidate in own_formats()]
    if not tied_own_formats:
        return list(formats)
    names = {candidate.name for candidate in tied_own_formats}
    return [candidate for candidate in tied_own_formats if names.isdisjoint(candidate.extends)]


def _known_share(candidate: Format, file: PresetFile) -> float:
    """Return the share of a file that the tool of a format knows; 0 if it cannot read the file."""
    if candidate.recognize is not None:
        return candidate.recognize(file)
    try:
        return candidate.read_file(file).known_share
    except MissingSectionError:
        return 1.0
    except PresetError:
        return 0.0


def _mostly_unknown_error(best: Format, file: PresetFile) -> PresetError:
    try:
        unknown_keys = best.read_file(file).unknown_keys
    except PresetError:
        unknown_keys = ()
    shown_keys = list(unknown_keys[:_MAX_SHOWN_KEYS])
    if len(unknown_keys) > _MAX_SHOWN_KEYS:
        shown_keys.append("…")
    unknown_part = f"most of its keys ({', '.join(shown_keys)})" if shown_keys else "most of it"
    return AmbiguousFormatError(
        f"{file.origin}: the content looks like a preset of {best.tool}, which does not know {unknown_part};"
        " if it is a preset of a known tool, name the format"
    )


def _unknown_format_error(file: PresetFile) -> PresetError:
    """Return the error about a file of no known format. If the file is broken, the error says where."""
    if not file.first_line:
        return PresetError(f"{file.origin}: the file is empty")
    try:
        if file.first_line.lstrip()[0] in "{[":
            file.json()
        else:
            parse_yaml_1_1(file.text, file.origin)
    except PresetError as error:
        return error
    return PresetError(
        f"{file.origin}: the content has no known format; known formats: {', '.join(format_names())}"
    )


_REQUEST_KEYS = {"messages", "prompt", "input", "model"}


def _error_about_other_file(file: PresetFile) -> PresetError | None:
    """Return the error about a file that is known, but is no preset of another tool; None for other files."""
    keys = {str(key) for key in file.json_object}
    parameters = file.json_object.get("parameters")
    all_keys = keys | {str(key) for key in parameters} if isinstance(parameters, Mapping) else keys
    is_novelai = len(all_keys & set(other_keys("novelai"))) > 1
    has_keys_of_vllm = not keys.isdisjoint(other_keys("vllm"))
    has_penalty_of_vllm = "repetition_penalty" in keys and "repeat_penalty" not in keys
    if is_novelai:
        description = "a preset of NovelAI, whose samplers and their order differ; gen does not import it"
    elif keys & _REQUEST_KEYS and (has_keys_of_vllm or has_penalty_of_vllm):
        description = (
            "the body of a request to vLLM, and no preset; gen serve answers such requests, and"
            " gen batch lines of them"
        )
    elif "architectures" in keys:
        description = "a model's config.json; the settings of its author are in generation_config.json"
    elif "chain" in file.yaml_object:
        description = "a preset of logitsmith itself, and needs no import"
    else:
        return None
    return PresetError(f"{file.origin}: this is {description}")
