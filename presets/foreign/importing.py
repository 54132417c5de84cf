"""From a file of another tool to a preset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...common.text import nearest_name
from ..errors import PresetError
from ..foreign_formats import FORMATS
from . import huggingface, koboldai, koboldcpp, lmstudio, ollama, sillytavern, tabbyapi, webui
from .draft import Draft
from .imported import Imported, MissingSectionError, PresetOrigin, choose_section, import_draft
from .ini import DEFAULT_SECTION, IniSection, parse_ini
from .llama_cpp import GLOBAL_SECTION, PREFIX, TOOL, convert, convert_metadata, has_settings
from .llama_requests import convert_body, convert_command
from .modelfile import parse_modelfile
from .recognise import is_command, recognise
from .text import parse_json, parse_yaml_1_1, read_lines, unify_line_ends

_Convert = Callable[[Mapping[Any, Any], str], Draft]

_OBJECTS: Mapping[str, _Convert] = {
    "sillytavern": sillytavern.convert,
    "huggingface": huggingface.convert,
    "lmstudio": lmstudio.convert,
}
_UNKNOWN_KEY = "does not know this key"
"""In the sentences about keys that a tool does not have."""
_ALIASES = {
    "text-generation-webui": "webui",
    "oobabooga": "webui",
    "kobold": "koboldai",
    "kobold-lite": "koboldcpp",
    "hf": "huggingface",
    "transformers": "huggingface",
    "modelfile": "ollama",
    "tabby": "tabbyapi",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "lm-studio": "lmstudio",
}


def import_preset(path: str | Path, format: str | None = None, section: str | None = None) -> Imported:  # noqa: A002
    """Return the preset that a file of another tool describes.

    Args:
        path: the file.
        format: one of `FORMATS`; None: it is recognised by the content.
        section: which preset of a file with several.

    Raises ``PresetError`` that names the file: one that cannot be read, is broken (with its line), fits no
    format or two, holds several presets while none is named, or has a value that no sampler takes.
    """
    origin = str(path)
    return import_text(read_lines(Path(path), origin), origin, format, section)


def import_text(
    text: str,
    origin: str,
    format: str | None = None,  # noqa: A002
    section: str | None = None,
) -> Imported:
    """Return the preset that a text describes, such as the content of a file; see `import_preset`.

    Args:
        text: the text.
        origin: the path of the file, or what else messages call the text.
        format: one of `FORMATS`; None: it is recognised by the content.
        section: which preset of a text with several.
    """
    text = unify_line_ends(text)
    name = recognise(text, origin) if format is None else format_name(format)
    other = None if format is None else _other_format(text, name)
    try:
        draft, sections = _draft(name, text, section, origin)
    except MissingSectionError:
        raise
    except PresetError as error:
        raise PresetError(f"{error}; the content looks like {other}") if other else error from None
    is_doubtful = other is not None and any(_UNKNOWN_KEY in sentence for sentence in draft.reported)
    path = Path(origin)
    description = f"imported from {path.name} ({name})"
    imported = import_draft(draft, name, PresetOrigin(path.stem, origin, description), sections)
    return replace(imported, other_format=other) if is_doubtful else imported


def import_metadata(metadata: Mapping[str, Any]) -> Imported | None:
    """Return llama.cpp's whole chain with the values that a model's author put into the GGUF.

    They are the ``general.sampling.*`` keys among the metadata; None if there are none that llama.cpp knows. The
    result equals what llama.cpp samples with for this model, if no flag is given. Raises ``PresetError`` that
    names the key, for a value that cannot be used.
    """
    if not has_settings(metadata):
        return None
    origin = PresetOrigin("model", "model", "what the model's author recommends")
    return import_draft(convert_metadata(metadata, ""), TOOL, origin, [])


def _other_format(text: str, name: str) -> str | None:
    """Return the format that a text has by its content, if it is another one than ``name``."""
    try:
        recognised = recognise(text, "")
    except PresetError:
        return None
    return recognised if recognised != name else None


def format_name(text: str) -> str:
    """Return the format of a name or of an alias; raises ``PresetError`` for another, with the known ones."""
    name = text.strip().lower().replace("_", "-")
    name = _ALIASES.get(name, name)
    if name in FORMATS:
        return name
    near = nearest_name(name, [*FORMATS, *_ALIASES])
    hint = f"; did you mean {near}?" if near else ""
    raise PresetError(f"unknown format {text!r}{hint}; known: {', '.join(FORMATS)}")


def _draft(name: str, text: str, section: str | None, origin: str) -> tuple[Draft, list[str]]:
    """Return the draft of the chosen preset, and the names of all if there are several.

    Args:
        name: the format.
        text: the content of the file.
        section: which preset of a file with several.
        origin: what a message begins with.
    """
    if name in ("koboldai", "koboldcpp"):
        return _kobold(name, parse_json(text, origin), section, origin)
    if name == "llama.cpp" and not text.lstrip().startswith("{") and not is_command(text):
        return _ini(text, section, origin)
    if section is not None:
        raise PresetError(f"{origin}: the file holds one preset only, and no section {section!r}")
    return _only_draft(name, text, origin), []


def _only_draft(name: str, text: str, origin: str) -> Draft:
    """The draft of a file that holds one preset."""
    if name == "ollama":
        return ollama.convert(parse_modelfile(text, origin), origin)
    if name in ("webui", "tabbyapi"):
        value = parse_yaml_1_1(text, origin)
        values = _object({} if value is None else value, origin)  # an empty file is a preset of defaults
        return webui.convert(values, origin) if name == "webui" else tabbyapi.convert(values, origin)
    if name == "llama.cpp" and is_command(text):
        return convert_command(text, origin)
    values = _object(parse_json(text, origin), origin)
    if name != "llama.cpp":
        return _OBJECTS[name](values, origin)
    settings = {str(key): value for key, value in values.items()}
    is_metadata = any(key.startswith(PREFIX) for key in settings)
    return convert_metadata(settings, origin) if is_metadata else convert_body(settings, origin)


def _object(value: Any, origin: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise PresetError(f"{origin}: a table of keys and values is needed")
    return value


def _ini(text: str, section: str | None, origin: str) -> tuple[Draft, list[str]]:
    sections = parse_ini(text, origin)
    names = [name for name, entries in sections.items() if name != GLOBAL_SECTION and not _is_head(name, entries)]
    if section is None and not names:
        return convert(sections, None, origin), []
    number = choose_section(names, section, origin)
    is_only = names == [DEFAULT_SECTION]
    return convert(sections, names[number], origin), [] if is_only else names


def _is_head(name: str, entries: IniSection) -> bool:
    """True for what stands before the first header if it is the version of the format only."""
    return name == DEFAULT_SECTION and set(entries.values) == {"version"}


def _kobold(name: str, value: Any, section: str | None, origin: str) -> tuple[Draft, list[str]]:
    is_list = isinstance(value, list)
    entries = [_object(entry, origin) for entry in (value if is_list else [value])]
    if not entries:
        raise PresetError(f"{origin}: the list holds no preset")
    labels = _labels(entries)
    if section is not None and labels[0] == "" and not is_list:
        raise PresetError(f"{origin}: the file holds one preset only, and no section {section!r}")
    chosen = entries[_choose(entries, labels, section, origin)]
    draft = koboldcpp.convert(chosen, origin) if name == "koboldcpp" else koboldai.convert(chosen, origin, is_list)
    title = chosen.get("description")
    if isinstance(title, str) and title.strip():
        draft.description = title.strip()
    return draft, labels if is_list and len(labels) > 1 else []


def _choose(entries: list[Mapping[Any, Any]], labels: list[str], section: str | None, origin: str) -> int:
    """Return the index of the preset of a name; several may share it if they have the same settings.

    Args:
        entries: the presets of the file.
        labels: a unique name for each.
        section: the name; None: the file must hold one preset only.
        origin: what a message begins with.
    """
    same = [number for number, entry in enumerate(entries) if section is not None and _title(entry) == section]
    if len(same) > 1 and section not in labels:
        settings = [
            {key: value for key, value in entries[number].items() if key not in koboldai.LABELS} for number in same
        ]
        if all(setting == settings[0] for setting in settings):
            return same[0]
        names = ", ".join(labels[number] for number in same)
        raise PresetError(f"{origin}: {len(same)} presets have the name {section!r}; choose one of: {names}")
    return choose_section(labels, section, origin)


def _labels(entries: list[Mapping[Any, Any]]) -> list[str]:
    """A name for each preset; those that share one get the model type behind it, and then a number."""
    titles = [_title(entry) for entry in entries]
    typed = [
        title if titles.count(title) == 1 else f"{title} ({entry.get('Model Type') or entry.get('Model Name')})"
        for title, entry in zip(titles, entries, strict=True)
    ]
    return [
        label if typed.count(label) == 1 else f"{label} #{typed[: number + 1].count(label)}"
        for number, label in enumerate(typed)
    ]


def _title(entry: Mapping[Any, Any]) -> str:
    return str(entry.get("preset") or entry.get("name") or "")
