"""Import of other tools' presets, with recognition of the tool, and export to their formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...common.renamed import supports_old_names
from ...common.text import nearest_name
from ...samplers.building import parse_chain
from ...samplers.errors import SamplingError
from ..errors import PresetError, preset_hint
from ..overrides import SETTING_NAMES
from ..preset import Preset, load_preset
from ..search import is_file_reference, is_path, split_section
from ..yaml_reader import check_table, parse_yaml, read_text
from . import (
    EXPORT_FORMATS,
    FORMATS,
    huggingface,
    kobold,
    llama_cpp,
    lmstudio,
    ollama,
    sillytavern,
    tabbyapi,
    webui,
)
from .conversion import ImportedChainBuilder, ImportedPreset, MissingSectionError, build_imported_preset
from .exporter import ExportedPreset, PresetExporter
from .table import DEFAULT_SECTION, IniSection, parse_ini, parse_json, parse_yaml_1_1, read_lines, unify_newlines

_Convert = Callable[[Mapping[Any, Any], str], ImportedChainBuilder]

_CONVERTER_BY_FORMAT: Mapping[str, _Convert] = {
    "sillytavern": sillytavern.convert,
    "huggingface": huggingface.convert,
    "lmstudio": lmstudio.convert,
}
_UNKNOWN_KEY_PHRASE = "does not know this key"
"""Part of every sentence about a key that the tool does not have."""
_FORMAT_ALIASES = {
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


def import_preset(path: str | Path, format: str | None = None, section: str | None = None) -> ImportedPreset:  # noqa: A002
    """Return the preset that a file of another tool describes.

    Args:
        path: the file.
        format: the format, one of `FORMATS`; None recognizes the format by the content.
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
        format: the format, one of `FORMATS`; None recognizes the format by the content.
        section: name of the preset, if the text holds several presets.

    Raises ``PresetError`` as `import_preset` does.
    """
    text = unify_newlines(text)
    text_format = _recognize_format(text, origin) if format is None else format_name(format)
    other_format = None if format is None else _different_format(text, text_format)
    try:
        builder, sections = _read_chosen_preset(text_format, text, section, origin)
    except MissingSectionError:
        raise
    except PresetError as error:
        raise PresetError(f"{error}; the content looks like {other_format}") if other_format else error from None
    has_unknown_key = any(_UNKNOWN_KEY_PHRASE in sentence for sentence in builder.unsupported_settings)
    is_doubtful = other_format is not None and has_unknown_key
    description = f"imported from {Path(origin).name} ({text_format})"
    imported = build_imported_preset(builder, text_format, origin, description, sections)
    return replace(imported, other_format=other_format) if is_doubtful else imported


def import_metadata(metadata: Mapping[str, Any]) -> ImportedPreset | None:
    """Return the preset that a model's author recommends in the metadata of the GGUF file.

    The preset is llama.cpp's complete chain with the values of the ``general.sampling.*`` keys. llama.cpp samples
    in the same way for this model if no flag is given.

    Args:
        metadata: the metadata of the GGUF file, by key.

    Returns None if the metadata has no ``general.sampling.*`` key that llama.cpp knows. Raises ``PresetError``
    that names the key, for a value that cannot be used.
    """
    if not llama_cpp.has_settings(metadata):
        return None
    builder = llama_cpp.convert_metadata(metadata, "")
    return build_imported_preset(builder, llama_cpp.TOOL, "model", "what the model's author recommends", [])


def preset_from_metadata(metadata: Mapping[str, str]) -> Preset | None:
    """Return the preset of `import_metadata` without the unsupported settings; None if there is no preset.

    Raises ``PresetError`` that names the key, for a value that cannot be used.
    """
    imported = import_metadata(metadata)
    return None if imported is None else imported.preset


def _different_format(text: str, format_key: str) -> str | None:
    """Return the format that the content of a text looks like, if it differs from the format ``format_key``."""
    try:
        recognized = _recognize_format(text, "")
    except PresetError:
        return None
    return recognized if recognized != format_key else None


def format_name(text: str) -> str:
    """Return the format with this name or alias; raise ``PresetError`` with the known names if there is none."""
    name = text.strip().lower().replace("_", "-")
    name = _FORMAT_ALIASES.get(name, name)
    if name in FORMATS:
        return name
    nearest = nearest_name(name, [*FORMATS, *_FORMAT_ALIASES])
    hint = f"; did you mean {nearest}?" if nearest else ""
    raise PresetError(f"unknown format {text!r}{hint}; known: {', '.join(FORMATS)}")


def _read_chosen_preset(
    format_key: str, text: str, section: str | None, origin: str
) -> tuple[ImportedChainBuilder, list[str]]:
    """Return the builder of the chosen preset, and the names of all presets if the file holds several.

    Args:
        format_key: name of the format.
        text: content of the file.
        section: name of the preset, if the file holds several presets.
        origin: path of the file, with which each error message begins.
    """
    if format_key in ("koboldai", "koboldcpp"):
        return _read_kobold(format_key, parse_json(text, origin), section, origin)
    if format_key == "llama.cpp" and not text.lstrip().startswith("{") and not is_command(text):
        return _read_ini_preset(text, section, origin)
    if section is not None:
        raise PresetError(f"{origin}: the file holds one preset only, and no section {section!r}")
    return _read_only_preset(format_key, text, origin), []


def _read_only_preset(format_key: str, text: str, origin: str) -> ImportedChainBuilder:
    """Return the builder of a file that holds one preset."""
    if format_key == "ollama":
        return ollama.convert(ollama.parse_modelfile(text, origin), origin)
    if format_key in ("webui", "tabbyapi"):
        value = parse_yaml_1_1(text, origin)
        values = _check_object({} if value is None else value, origin)  # in an empty file, all values are defaults
        return webui.convert(values, origin) if format_key == "webui" else tabbyapi.convert(values, origin)
    if format_key == "llama.cpp" and is_command(text):
        return llama_cpp.convert_command(text, origin)
    values = _check_object(parse_json(text, origin), origin)
    if format_key != "llama.cpp":
        return _CONVERTER_BY_FORMAT[format_key](values, origin)
    settings = {str(key): value for key, value in values.items()}
    is_metadata = any(key.startswith(llama_cpp.METADATA_PREFIX) for key in settings)
    return (
        llama_cpp.convert_metadata(settings, origin) if is_metadata else llama_cpp.convert_body(settings, origin)
    )


def _check_object(value: Any, origin: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise PresetError(f"{origin}: a table of keys and values is needed")
    return value


def _read_ini_preset(text: str, section: str | None, origin: str) -> tuple[ImportedChainBuilder, list[str]]:
    sections = parse_ini(text, origin)
    names = [
        name
        for name, entries in sections.items()
        if name != llama_cpp.GLOBAL_SECTION and not _holds_version_only(name, entries)
    ]
    if section is None and not names:
        return llama_cpp.convert(sections, None, origin), []
    index = _choose_preset_index(names, section, origin)
    is_only = names == [DEFAULT_SECTION]
    return llama_cpp.convert(sections, names[index], origin), [] if is_only else names


def _holds_version_only(name: str, entries: IniSection) -> bool:
    """Return True for the keys before the first header if the only key is the version of the format."""
    return name == DEFAULT_SECTION and set(entries.values) == {"version"}


def _read_kobold(
    name: str, value: Any, section: str | None, origin: str
) -> tuple[ImportedChainBuilder, list[str]]:
    is_list = isinstance(value, list)
    entries = [_check_object(entry, origin) for entry in (value if is_list else [value])]
    if not entries:
        raise PresetError(f"{origin}: the list holds no preset")
    labels = _unique_names(entries)
    if section is not None and labels[0] == "" and not is_list:
        raise PresetError(f"{origin}: the file holds one preset only, and no section {section!r}")
    chosen = entries[_choose_entry(entries, labels, section, origin)]
    builder = (
        kobold.convert_koboldcpp(chosen, origin)
        if name == "koboldcpp"
        else kobold.convert_koboldai(chosen, origin, is_list)
    )
    title = chosen.get("description")
    if isinstance(title, str) and title.strip():
        builder.description = title.strip()
    return builder, labels if is_list and len(labels) > 1 else []


def _choose_preset_index(names: Sequence[str], section: str | None, origin: str) -> int:
    """Return the index of the chosen preset.

    Args:
        names: names of the presets in the file.
        section: name of the chosen preset; None takes the only preset of the file.
        origin: path of the file, with which each error message begins.

    Raises ``MissingSectionError`` if the file holds several presets and ``section`` is None. Raises
    ``PresetError`` if no preset is named ``section``. Both messages list the names of the presets.
    """
    if section is None:
        if len(names) == 1:
            return 0
        raise MissingSectionError(origin, names)
    if section in names:
        return list(names).index(section)
    raise PresetError(f"{origin}: there is no section {section!r}; {preset_hint(section, names)}")


def _choose_entry(entries: list[Mapping[Any, Any]], labels: list[str], section: str | None, origin: str) -> int:
    """Return the index of the chosen preset. Presets with the same settings may share a name.

    Args:
        entries: the presets of the file.
        labels: a unique name for each preset.
        section: name of the chosen preset; None takes the only preset of the file.
        origin: path of the file, with which each error message begins.
    """
    titles = [_preset_title(entry) for entry in entries]
    indices = [index for index, title in enumerate(titles) if section is not None and title == section]
    if len(indices) > 1 and section not in labels:
        settings = [
            {key: value for key, value in entries[index].items() if key not in kobold.LABEL_KEYS}
            for index in indices
        ]
        if all(setting == settings[0] for setting in settings):
            return indices[0]
        names = ", ".join(labels[index] for index in indices)
        raise PresetError(f"{origin}: {len(indices)} presets have the name {section!r}; choose one of: {names}")
    return _choose_preset_index(labels, section, origin)


def _unique_names(entries: list[Mapping[Any, Any]]) -> list[str]:
    """Return a unique name for each preset. The model type, and then a number, is appended to ambiguous names."""
    titles = [_preset_title(entry) for entry in entries]
    names_with_type = [
        title if titles.count(title) == 1 else f"{title} ({entry.get('Model Type') or entry.get('Model Name')})"
        for title, entry in zip(titles, entries, strict=True)
    ]
    return [
        label if names_with_type.count(label) == 1 else f"{label} #{names_with_type[: number + 1].count(label)}"
        for number, label in enumerate(names_with_type)
    ]


def _preset_title(entry: Mapping[Any, Any]) -> str:
    return str(entry.get("preset") or entry.get("name") or "")


# Keys that occur in the JSON of a tool, and with some exceptions in no other tool's JSON.
_SILLYTAVERN_KEYS = {
    *("typical_p", "freq_pen", "presence_pen", "encoder_rep_pen", "temperature_last", "sampler_priority"),
    *("samplers_priorities", "mirostat_mode", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample"),
    *("dynatemp", "rep_pen_decay", "grammar_string", "num_beams", "samplers"),
}
_KOBOLD_KEYS = {
    "typical",
    "rep_pen_slope",
    "sampler_order",
    "use_default_badwordsids",
    "mirostat",
    "ikgen",
    "numseqs",
}
_KOBOLDCPP_KEYS = {
    *("preset", "dynatemp_range", "presence_penalty", "max_context_length", "sampler_seed", "typ_s", "tfs_s"),
    *("miro_type", "adaptivep_target", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"),
}
_SILLYTAVERN_ONLY_KEYS = _SILLYTAVERN_KEYS - {
    *("typical_p", "epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size", "do_sample", "num_beams", "samplers"),
}
"""Keys that occur in no other tool's JSON, whatever other keys the file has."""
_SHARED_KEYS = {"preset", "smoothing_factor", "dry_penalty_last_n", "stop_sequence"}
_KOBOLDCPP_ONLY_KEYS = (_KOBOLDCPP_KEYS - {"preset", "presence_penalty", "smoothing_factor"}) | {"sampler_order"}
"""Keys that identify KoboldCpp if no key of `_KOBOLD_FAMILY_KEYS` is present."""
_KOBOLD_FAMILY_KEYS = {"temp", "rep_pen", "rep_pen_range", "genamt"}
_KOBOLDCPP_REQUEST_KEYS = _KOBOLD_FAMILY_KEYS | {"sampler_order", "max_context_length"}
"""Keys that distinguish a request to KoboldCpp from a request to llama-server; both may have ``temperature``."""
_HUGGINGFACE_KEYS = {
    *("temperature", "do_sample", "top_k", "top_p", "min_p", "repetition_penalty", "transformers_version"),
    *("eos_token_id", "bos_token_id", "pad_token_id", "max_new_tokens", "max_length", "_from_model_config"),
    *("decoder_start_token_id", "num_beams", "suppress_tokens", "no_repeat_ngram_size", "typical_p", "min_length"),
    *("penalty_alpha", "epsilon_cutoff", "eta_cutoff", "stop_strings", "min_new_tokens", "use_cache"),
}
_LLAMA_SERVER_KEYS = {
    *(
        "n_predict",
        "repeat_penalty",
        "repeat_last_n",
        "samplers",
        "top_n_sigma",
        "dynatemp_exponent",
        "ignore_eos",
    ),
    *("cache_prompt", "n_probs", "xtc_probability", "dry_multiplier", "frequency_penalty", "presence_penalty"),
    "messages",
}
_LLAMA_SERVER_MIROSTAT_KEYS = {"temperature", "mirostat"}
_MODEL_LIST_KEYS = {"Model Type", "Model Name", "Model Size", "Model Category", "Preset Category", "uid"}

_INI_LINE_PATTERN = re.compile(r"[ \t]*\[[^\]=,{}\"]*\][ \t]*([;#].*)?|[A-Za-z_][\w.-]*[ \t]*=.*")
_COMMAND_PATTERN = re.compile(r"(?:\S*llama-[\w.-]+\s+)?--?[a-z][a-z-]*(?:\s|$)")
_INSTRUCTION_PATTERN = re.compile(rf"[ \t]*(?:{'|'.join(ollama.INSTRUCTIONS)})[ \t]+\S", re.IGNORECASE)


class AmbiguousFormatError(PresetError):
    """The content of a file fits two formats, so that the user must name the format."""


def _recognize_format(text: str, origin: str) -> str:
    """Return the format of a text.

    Raises ``AmbiguousFormatError`` if the text fits two formats; the message names both, and the keys that would
    decide. Raises ``PresetError`` if the text fits no format, or is broken JSON or YAML.
    """
    first_line = _first_content_line(text)
    if first_line is None:
        raise PresetError(f"{origin}: the file is empty")
    if _INI_LINE_PATTERN.fullmatch(first_line):
        return "llama.cpp"
    if is_command(text):
        return "llama.cpp"
    if first_line.lstrip()[:1] in ("{", "["):
        return _recognize_json_format(parse_json(text, origin), origin)
    if _INSTRUCTION_PATTERN.match(first_line):
        return "ollama"
    return _recognize_yaml_format(parse_yaml_1_1(text, origin), origin)


def is_command(text: str) -> bool:
    """Return True if the text is a command line of llama.cpp, such as ``llama-cli --top-k 40``."""
    first_line = _first_content_line(text)
    return first_line is not None and _COMMAND_PATTERN.match(first_line) is not None


def _first_content_line(text: str) -> str | None:
    """Return the first line with text that is not a comment; None if there is no such line."""
    lines = (line for line in text.split("\n") if line.strip())
    return next((line for line in lines if not line.lstrip().startswith(("#", ";"))), None)


def _recognize_json_format(value: Any, origin: str) -> str:
    if isinstance(value, list):
        entries = [entry for entry in value if isinstance(entry, dict)]
        keys = {key for entry in entries for key in entry}
        if entries and len(entries) == len(value) and keys & (_KOBOLD_FAMILY_KEYS | _KOBOLD_KEYS):
            is_koboldcpp = keys & (_KOBOLDCPP_KEYS - {"preset"}) and not keys & _MODEL_LIST_KEYS
            return "koboldcpp" if is_koboldcpp else "koboldai"
        raise _unknown_format_error(origin)
    if not isinstance(value, dict):
        raise _unknown_format_error(origin)
    keys = {str(key) for key in value}
    if "inference_params" in keys or isinstance(value.get("operation"), dict) or "fields" in keys:
        return "lmstudio"
    if any(key.startswith("general.sampling.") for key in keys):
        return "llama.cpp"
    inner_preset = value.get("preset")
    if isinstance(inner_preset, dict) and _KOBOLD_FAMILY_KEYS & {str(key) for key in inner_preset}:
        return "sillytavern"
    return _recognize_json_keys(keys, origin)


def _recognize_json_keys(keys: set[str], origin: str) -> str:
    """Return the format of a flat JSON object with these keys."""
    if keys & _SILLYTAVERN_ONLY_KEYS and not keys & _KOBOLD_FAMILY_KEYS:
        return "sillytavern"
    if (keys & _LLAMA_SERVER_KEYS or keys >= _LLAMA_SERVER_MIROSTAT_KEYS) and not keys & _KOBOLDCPP_REQUEST_KEYS:
        return "llama.cpp"
    if keys & set(kobold.SETTINGS_FILE_KEYS) and keys & _KOBOLD_FAMILY_KEYS:
        return "koboldai"
    if keys & _KOBOLD_FAMILY_KEYS or (keys & _KOBOLD_KEYS and "temperature" not in keys):
        return _recognize_kobold_family(keys, origin)
    if keys & _KOBOLDCPP_ONLY_KEYS:
        return "koboldcpp"
    if "architectures" in keys:
        raise PresetError(
            f"{origin}: this is a model's config.json; the settings of its author are in generation_config.json"
        )
    if keys & _HUGGINGFACE_KEYS:
        return "huggingface"
    raise _unknown_format_error(origin)


def _recognize_kobold_family(keys: set[str], origin: str) -> str:
    """Return the format of a JSON object of SillyTavern, KoboldAI or KoboldCpp, which share most keys."""
    sillytavern_found = sorted(keys & _SILLYTAVERN_KEYS)
    koboldcpp_found = sorted(keys & _KOBOLDCPP_KEYS - _SHARED_KEYS)
    if sillytavern_found and koboldcpp_found:
        raise AmbiguousFormatError(
            f"{origin}: the content fits sillytavern (by {sillytavern_found[0]}) and koboldcpp"
            f" (by {koboldcpp_found[0]}); name the format"
        )
    if sillytavern_found:
        return "sillytavern"
    if koboldcpp_found or keys & _KOBOLDCPP_KEYS:
        return "koboldcpp"
    if keys & _KOBOLD_KEYS:
        return "koboldai"
    raise AmbiguousFormatError(
        f"{origin}: the content fits sillytavern and koboldai: typical_p, freq_pen or do_sample would make it"
        " SillyTavern's text completion, typical, rep_pen_slope or sampler_order KoboldAI's; name the format"
    )


def _recognize_yaml_format(value: Any, origin: str) -> str:
    if isinstance(value, Mapping) and value:
        tables = [entry for entry in value.values() if isinstance(entry, Mapping)]
        if any("override" in entry for entry in tables):
            return "tabbyapi"
        if "chain" in value:
            raise PresetError(f"{origin}: this is a preset of logitsmith itself, and needs no import")
        if not tables:
            return "webui"
    raise _unknown_format_error(origin)


def _unknown_format_error(origin: str) -> PresetError:
    return PresetError(f"{origin}: the content has no known format; known formats: {', '.join(FORMATS)}")


def _known_webui_keys(text: str, origin: str) -> list[str]:
    """Return the keys of a YAML text that text-generation-webui knows, in the file's order."""
    value = parse_yaml_1_1(text, origin)
    return (
        [key for key in value if key in webui.KNOWN_KEYS or key in webui.FORMER_KEYS]
        if isinstance(value, Mapping)
        else []
    )


_WEBUI_KEYS_OF_PRESETS = {"seed"}
"""Keys of logitsmith's presets that a preset of text-generation-webui may have, too."""


@supports_old_names
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
    """Return True if a text is another tool's preset; False if it is a preset of logitsmith, or broken.

    Raises ``AmbiguousFormatError`` for a text that several tools could have written.
    """
    try:
        return _own_table(text, origin) is None
    except AmbiguousFormatError:
        raise
    except PresetError:
        return False


def _own_table(text: str, origin: str) -> dict[Any, Any] | None:
    """Return the keys and values of a preset of logitsmith; None if the text is another tool's preset.

    Raises ``PresetError`` for a text that is not a preset, and for one that could be either kind of preset.
    """
    value, error = _parse_value(text, origin)
    if isinstance(value, dict):
        own_keys = set(value) & set(Preset.model_fields)
        if "chain" in own_keys or (own_keys and len(own_keys) == len(value)):
            return value
    if _is_foreign(value, text, origin):
        return None
    if error is not None:
        raise error
    return check_table(value, origin)


def _is_foreign(value: Any, text: str, origin: str) -> bool:
    """Return True if the text is another tool's preset.

    Args:
        value: value of the text as YAML; None if the text is not YAML.
        text: content of the file.
        origin: path of the file, with which each error message begins.
    """
    try:
        format_name = _recognize_format(text, origin)
    except AmbiguousFormatError:
        raise
    except PresetError:
        if is_path(Path(origin).name):  # for a .yaml file, the error about a preset of logitsmith is more helpful
            return False
        raise
    if format_name != "webui":
        return True
    webui_keys = _known_webui_keys(text, origin)
    keys = set(value) if isinstance(value, dict) else set()
    own_keys = sorted((keys & set(Preset.model_fields)) - _WEBUI_KEYS_OF_PRESETS)
    if webui_keys and own_keys:
        raise PresetError(
            f"{origin}: {own_keys[0]} is a key of logitsmith's presets, {webui_keys[0]} is one of"
            f" text-generation-webui's; for the latter: gen presets import {origin} --from webui"
        )
    return bool(webui_keys)


def _parse_value(text: str, origin: str) -> tuple[Any, PresetError | None]:
    """Return the value of a YAML or JSON text, or the error. A list is not read, since no preset is a list."""
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


_EXPORTERS: Mapping[str, tuple[str, Callable[[PresetExporter], ExportedPreset]]] = {
    "llama.cpp": ("llama.cpp", llama_cpp.to_command),
    "llama-server": ("llama-server", llama_cpp.to_body),
    "webui": ("text-generation-webui", webui.to_yaml),
    "sillytavern": ("SillyTavern", sillytavern.to_json),
    "koboldai": ("KoboldAI", kobold.to_presets),
    "koboldcpp": ("KoboldCpp", kobold.to_request),
    "ollama": ("Ollama", ollama.to_modelfile),
    "huggingface": ("transformers", huggingface.to_config),
    "tabbyapi": ("TabbyAPI", tabbyapi.to_overrides),
    "lmstudio": ("LM Studio", lmstudio.to_preset),
}
_FORMATS_WITH_SLOPE = ("koboldai", "koboldcpp")
"""Formats whose repetition penalty can have a slope."""


def export_preset(preset: Preset | str | Sequence[Any], format: str) -> ExportedPreset:  # noqa: A002
    """Return a preset in another tool's format.

    Args:
        preset: a preset; or a chain, as a list of steps or in the compact notation. A step is written as in a
            preset, or as ``[name, {parameter: value}]``.
        format: one of `EXPORT_FORMATS`.

    An import of the text gives the same chain, except for the unsupported settings. Raises ``PresetError`` for an
    unknown format, and for a chain that cannot be used.
    """
    format_key = format.strip().lower().replace("_", "-")
    if format_key not in _EXPORTERS:
        nearest = nearest_name(format_key, EXPORT_FORMATS)
        hint = f"; did you mean {nearest}?" if nearest else ""
        raise PresetError(f"unknown format {format!r}{hint}; known: {', '.join(EXPORT_FORMATS)}")
    other_settings: dict[str, Any] = {}
    labels: tuple[str, ...] = ()
    if isinstance(preset, Preset):
        samplers = preset.samplers()
        labels = (preset.name, preset.description)
        other_settings = {
            key: getattr(preset, key) for key in SETTING_NAMES if getattr(preset, key) not in (None, [], "")
        }
    else:
        try:
            samplers = parse_chain(preset if isinstance(preset, str) else [_as_step(step) for step in preset])
        except SamplingError as error:
            raise PresetError(str(error)) from None
    tool, write = _EXPORTERS[format_key]
    exporter = PresetExporter(tool, samplers, other_settings, *labels)
    if format_key not in _FORMATS_WITH_SLOPE:
        exporter.flatten_repetition_penalty()
    return write(exporter)


def _as_step(step: Any) -> Any:
    """Return a step as a preset writes it; the step may be ``[name, {parameter: value}]``."""
    is_pair = isinstance(step, (list, tuple)) and len(step) == 2 and isinstance(step[0], str)
    return {step[0]: step[1]} if is_pair else step
