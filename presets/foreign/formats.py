"""Import of other tools' presets, with recognition of the tool, and export to their formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...samplers.building import parse_chain
from ...samplers.errors import SamplingError
from ..errors import PresetError
from ..preset import Preset, load_preset
from ..search import is_file_reference, is_path, split_section
from ..setting_table import SETTINGS
from ..yaml_reader import check_table, parse_yaml, read_text
from . import llama_cpp, webui
from .conversion import ImportedPreset, build_imported_preset
from .exporter import ExportedPreset, PresetExporter
from .preset_file import MissingSectionError, PresetFile
from .recognition import AmbiguousFormatError, recognize_format
from .registry import find_format
from .table import parse_json, read_lines, unify_newlines


def import_preset(path: str | Path, format: str | None = None, section: str | None = None) -> ImportedPreset:  # noqa: A002
    """Return the preset that a file of another tool describes.

    Args:
        path: the file.
        format: name or alias of the format; None recognizes the format by the content.
        section: name of the preset, if the file holds several presets.

    Raises ``PresetError`` that names the file, if the file cannot be read, is broken (with the line), fits no
    format or two formats, holds several presets and no section is named, or has a value that a sampler rejects.
    """
    origin = str(path)
    return import_text(read_lines(Path(path), origin), origin, format, section)


def import_text(
    text: str,
    origin: str,
    format: str | None = None,  # noqa: A002
    section: str | None = None,
) -> ImportedPreset:
    """Return the preset that a text describes, such as the content of a file.

    Args:
        text: the text.
        origin: the path of the file, or another name of the text for messages.
        format: name or alias of the format; None recognizes the format by the content.
        section: name of the preset, if the text holds several presets.

    Raises ``PresetError`` as `import_preset` does.
    """
    file = PresetFile(unify_newlines(text), origin, section)
    chosen = recognize_format(file) if format is None else find_format(format)
    other_format = None if format is None else _different_format(file, chosen.name)
    try:
        imported = chosen.read_file(file)
    except MissingSectionError:
        raise
    except PresetError as error:
        raise PresetError(f"{error}; the content looks like {other_format}") if other_format else error from None
    is_doubtful = other_format is not None and bool(imported.unknown_keys)
    description = f"imported from {Path(origin).name} ({chosen.name})"
    preset = build_imported_preset(imported, chosen.name, origin, origin, description)
    return replace(preset, other_format=other_format) if is_doubtful else preset


def import_metadata(metadata: Mapping[str, Any]) -> ImportedPreset | None:
    """Return the preset that a model's author recommends in a GGUF file; None if there is none."""
    # The preset is llama.cpp's complete chain with the values of the ``general.sampling.*`` keys. llama.cpp
    # samples in the same way for this model if no flag is given. Raises ``PresetError`` that names the key.
    if not llama_cpp.has_settings(metadata):
        return None
    imported = llama_cpp.convert_metadata(metadata, "").imported()
    return build_imported_preset(imported, llama_cpp.TOOL, "", "model", "what the model's author recommends")


def _different_format(file: PresetFile, format_name: str) -> str | None:
    """Return the format that a file looks like, if it differs from the named one."""
    try:
        recognized = recognize_format(file).name
    except PresetError:
        return None
    return recognized if recognized != format_name else None


# keys of logitsmith's presets that a preset of text-generation-webui may have, too
_WEBUI_KEYS_OF_PRESETS = {"seed"}


class LoadedPreset(NamedTuple):
    """A preset, and the settings that its import could not carry over.

    Attributes:
        preset: the preset.
        format: the format of the other tool, one of `FORMATS`; None for a preset of logitsmith.
        unsupported_settings: a sentence for each setting that could not be carried over as it is.
    """

    preset: Preset
    format: str | None = None
    unsupported_settings: tuple[str, ...] = ()


def load_any_preset(name_or_path: str) -> LoadedPreset:
    """Return the preset with a name, or the preset in a file. The file may be another tool's.

    Args:
        name_or_path: name of a preset on the search path, which takes precedence; path of a file; or
            ``FILE#SECTION`` for one of several presets in a file.

    Raises ``PresetError`` as `load_preset` and `import_preset` do.
    """
    if not is_file_reference(name_or_path):
        return LoadedPreset(load_preset(name_or_path))
    file, section = split_section(name_or_path)
    text = read_text(Path(file), file)
    table = _own_table(text, file)
    if table is None:
        imported = import_text(text, file, section=section)
        return LoadedPreset(imported.preset, imported.format, tuple(imported.unsupported_settings))
    if section is not None:
        raise PresetError(f"{file}: the file holds one preset only, and no section {section!r}")
    return LoadedPreset(Preset.from_table(table, origin=file, name=Path(file).stem, source=file))


def is_foreign(text: str, origin: str) -> bool:
    """Return True if a text is another tool's preset; False if it is a preset of logitsmith, or broken."""
    # Raises ``AmbiguousFormatError`` for a text that several tools could have written.
    try:
        return _own_table(text, origin) is None
    except AmbiguousFormatError:
        raise
    except PresetError:
        return False


def _own_table(text: str, origin: str) -> dict[Any, Any] | None:
    """Return the keys and values of a preset of logitsmith; None if the text is another tool's preset."""
    value, error = _parse_value(text, origin)
    if isinstance(value, dict):
        own_keys = set(value) & set(Preset.model_fields)
        has_only_own_keys = bool(own_keys) and len(own_keys) == len(value)
        if "chain" in own_keys or has_only_own_keys:
            return value
    if _is_foreign(PresetFile(unify_newlines(text), origin)):
        return None
    if error is not None:
        raise error
    return check_table(value, origin)


def _is_foreign(file: PresetFile) -> bool:
    try:
        format_name = recognize_format(file).name
    except AmbiguousFormatError:
        raise
    except PresetError:
        is_yaml_file = is_path(Path(file.origin).name)
        if is_yaml_file:  # the error about a preset of logitsmith is more helpful
            return False
        raise
    if format_name != "webui":
        return True
    webui_keys = [key for key in file.yaml_object if key in webui.KNOWN_KEYS or key in webui.FORMER_KEYS]
    own_keys = sorted((set(file.yaml_object) & set(Preset.model_fields)) - _WEBUI_KEYS_OF_PRESETS)
    if webui_keys and own_keys:
        raise PresetError(
            f"{file.origin}: {own_keys[0]} is a key of logitsmith's presets, {webui_keys[0]} is one of"
            f" text-generation-webui's; for the latter: gen presets import {file.origin} --from webui"
        )
    return bool(webui_keys)


def _parse_value(text: str, origin: str) -> tuple[Any, PresetError | None]:
    """Return the value of a YAML or JSON text, or the error. A list is not read, because no preset is a list."""
    first_character = text.lstrip()[:1]
    if first_character == "[":
        return [], None
    try:
        if first_character == "{":
            try:
                return parse_json(text, origin), None  # PyYAML would read it, too, but much more slowly
            except PresetError:
                pass
        return parse_yaml(text, origin), None
    except PresetError as error:
        return None, error


def export_preset(preset: Preset | str | Sequence[Any], format: str) -> ExportedPreset:  # noqa: A002
    """Return a preset in another tool's format.

    Args:
        preset: a preset; or a chain, as a list of steps or in the compact notation. A step is written as in a
            preset, or as ``[name, {parameter: value}]``.
        format: name or alias of the format, one of `EXPORT_FORMATS` or of a plug-in.

    An import of the text gives the same chain, except for the unsupported settings. Raises ``PresetError`` for an
    unknown format, and for a chain that cannot be used.
    """
    chosen = find_format(format, written=True)
    other_settings: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    if isinstance(preset, Preset):
        samplers = preset.samplers()
        labels = (preset.name, preset.description)
        settings = {name: getattr(preset, name) for name in SETTINGS}
        other_settings = {name: value for name, value in settings.items() if value not in (None, [], "")}
    else:
        chain = preset if isinstance(preset, str) else [_as_step(step) for step in preset]
        try:
            samplers = parse_chain(chain)
        except SamplingError as error:
            raise PresetError.of(error) from None
    exporter = PresetExporter(chosen.tool, samplers, other_settings, *labels)
    if not chosen.has_penalty_slope:
        exporter.flatten_repetition_penalty()
    assert chosen.write is not None  # noqa: S101 - `find_format` returns only formats that write
    return exporter.make_result(chosen.write(exporter))


def _as_step(step: Any) -> Any:
    """Return a step as a preset writes it; the step may be ``[name, {parameter: value}]``."""
    is_pair = isinstance(step, (list, tuple)) and len(step) == 2 and isinstance(step[0], str)
    return {step[0]: step[1]} if is_pair else step
