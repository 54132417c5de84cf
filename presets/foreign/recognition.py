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
    shares = {each: _known_share(each, file) for each in formats if each.read is not None}
    best_share = max(shares.values(), default=0.0)
    best = _winners_of_tie([each for each, share in shares.items() if share == best_share])
    if best_share < _MIN_KNOWN_SHARE and other_file:
        raise other_file
    if best_share == 0:
        raise _unknown_format_error(file)
    if best_share < _MIN_KNOWN_SHARE:
        raise _mostly_unknown_error(best[0], file)
    if len(best) > 1:
        names = join_alternatives([each.name for each in best])
        raise AmbiguousFormatError(f"{file.origin}: the content fits {names}; name the format")
    return best[0]


def _winners_of_tie(formats: Sequence[Format]) -> list[Format]:
    own = [each for each in formats if each in own_formats()]
    names = {each.name for each in own}
    return [each for each in own if names.isdisjoint(each.extends)] if own else list(formats)


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
        unknown = best.read_file(file).unknown_keys
    except PresetError:
        unknown = ()
    listed = ", ".join(unknown[:_MAX_SHOWN_KEYS]) + (", …" if len(unknown) > _MAX_SHOWN_KEYS else "")
    most = f"most of its keys ({listed})" if listed else "most of it"
    return AmbiguousFormatError(
        f"{file.origin}: the content looks like a preset of {best.tool}, which does not know {most}; if it is a"
        " preset of a known tool, name the format"
    )


def _unknown_format_error(file: PresetFile) -> PresetError:
    """Return the error about a file of no known format: what is broken in it, if it is broken."""
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
    inner = file.json_object.get("parameters")
    inner_keys = {str(key) for key in inner} if isinstance(inner, Mapping) else set()
    if len((keys | inner_keys) & {*other_keys("novelai")}) > 1:
        what = "a preset of NovelAI, whose samplers and their order differ; gen does not import it"
    elif keys & _REQUEST_KEYS and (
        keys & {*other_keys("vllm")} or ("repetition_penalty" in keys and "repeat_penalty" not in keys)
    ):
        what = (
            "the body of a request to vLLM, and no preset; gen serve answers such requests, and"
            " gen batch lines of them"
        )
    elif "architectures" in keys:
        what = "a model's config.json; the settings of its author are in generation_config.json"
    elif "chain" in file.yaml_object:
        what = "a preset of logitsmith itself, and needs no import"
    else:
        return None
    return PresetError(f"{file.origin}: this is {what}")
