"""Loads a preset by its name, or from a file of ours or of another tool, which the content shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..errors import PresetError
from ..preset import Preset
from ..preset_loader import load_preset
from ..search import is_path, names_file, split_section
from ..yaml_reader import check_table, parse_yaml, read_text
from .importing import import_text
from .recognise import AmbiguousFormatError, recognise, webui_keys
from .text import parse_json

# Keys of ours that a preset of text-generation-webui may have too.
_SHARED_KEYS = {"seed"}


class LoadedPreset(NamedTuple):
    """A preset, and what its import could not carry over."""

    preset: Preset
    format: str | None = None
    """The tool's format; None: the file is a preset of ours."""
    reported: tuple[str, ...] = ()
    """A sentence for each thing that could not be carried over."""


def load_any_preset(name_or_path: str) -> LoadedPreset:
    """Return the preset of a name, or of a file: ours or another tool's, which the content shows.

    A name on the search path goes before a file. ``FILE#SECTION`` names one preset of a file with several. Raises
    ``PresetError`` as `load_preset` and `import_preset` do.
    """
    if not names_file(name_or_path):
        return LoadedPreset(load_preset(name_or_path))
    file, section = split_section(name_or_path)
    text = read_text(Path(file), file)
    table = own_table(text, file)
    if table is None:
        imported = import_text(text, file, section=section)
        return LoadedPreset(imported.preset, imported.format, tuple(imported.reported))
    if section is not None:
        raise PresetError(f"{file}: the file holds one preset only, and no section {section!r}")
    return LoadedPreset(Preset.from_table(table, origin=file, name=Path(file).stem, source=file))


def is_foreign(text: str, origin: str) -> bool:
    """True if a text is another tool's preset; False if it is a preset of gen, or faulty.

    Raises ``AmbiguousFormatError`` for a text that several tools could have written.
    """
    try:
        return own_table(text, origin) is None
    except AmbiguousFormatError:
        raise
    except PresetError:
        return False


def own_table(text: str, origin: str) -> dict[Any, Any] | None:
    """Return the keys and values of a preset of ours; None if the text is another tool's.

    Raises ``PresetError`` for a text that is neither, and for one that could be both.
    """
    value, fault = _parse(text, origin)
    if isinstance(value, dict):
        own = set(value) & set(Preset.model_fields)
        if "chain" in own or (own and len(own) == len(value)):
            return value
    if _is_foreign(value, text, origin):
        return None
    if fault is not None:
        raise fault
    return check_table(value, origin)


def _is_foreign(value: Any, text: str, origin: str) -> bool:
    """True if the text is another tool's; ``value``: what it holds as YAML, None if it is no YAML."""
    try:
        format_name = recognise(text, origin)
    except AmbiguousFormatError:
        raise
    except PresetError:
        if is_path(Path(origin).name):  # a YAML file; the faults of ours say more
            return False
        raise
    if format_name != "webui":
        return True
    theirs = webui_keys(text, origin)
    ours = sorted((set(value) & set(Preset.model_fields)) - _SHARED_KEYS) if isinstance(value, dict) else []
    if theirs and ours:
        raise PresetError(
            f"{origin}: {ours[0]} is a key of our presets, {theirs[0]} one of text-generation-webui's; for the"
            f" latter: gen presets import {origin} --from webui"
        )
    return bool(theirs)


def _parse(text: str, origin: str) -> tuple[Any, PresetError | None]:
    """The value of a YAML or JSON text, or what is wrong with it. A list is no preset of ours, and is not read."""
    first = text.lstrip()[:1]
    if first == "[":
        return [], None
    try:
        if first == "{":
            try:
                return parse_json(text, origin), None  # much faster than YAML
            except PresetError:
                pass
        return parse_yaml(text, origin), None
    except PresetError as error:
        return None, error
