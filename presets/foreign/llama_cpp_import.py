"""Import of llama.cpp's settings from four kinds of files.

- a command line
- the JSON body of a request to llama-server, and Jan's model files
- a section of an INI file (``--models-preset``); its keys are long or short option names, or environment variables
- the ``general.sampling.*`` keys of a GGUF file

llama.cpp rejects an INI file with a name that it does not know, such as top_p. Here such a name is read as the
option that it probably means, and reported.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import PresetError
from ..llama_cpp_flags import LlamaCppFlag, find_llama_cpp_flag
from ..overrides import read_sampler_sequence
from .command_line import find_command
from .conversion import Imported, ImportedChainBuilder, read_guidance
from .llama_cpp import (
    BODY_KEYS,
    DEFAULT_ORDER,
    OPTIONS_WITH_ESCAPES,
    TOOL,
    arrange_chain,
    read_steps,
    report_negative_windows,
    unescape,
)
from .preset_file import PresetFile
from .table import (
    DEFAULT_SECTION,
    INI_LINE_PATTERN,
    ForeignTable,
    IniSection,
    first_content_line,
    parse_ini,
    parse_json,
    parse_yaml_1_1,
)

METADATA_PREFIX = "general.sampling."  # start of the metadata keys with which a model's author recommends settings
GLOBAL_SECTION = "*"  # the section of an INI file that applies to all other sections
_DEFAULTS: Mapping[str, Any] = {"temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05}


@dataclass(frozen=True)
class _LlamaEntry:
    """The value of an option."""

    key_in_file: str  # the key or flag as the file writes it
    value: Any
    line: int = 0  # line number in an INI file, counted from 1; 0 if unknown


def read(file: PresetFile) -> Imported:
    """Read a command line, Jan's model file, a GGUF's metadata as JSON, a request, or a section of an INI file."""
    text, origin = file.text, file.origin
    if is_jan_model(text):
        return convert_jan(file.yaml_table(), origin).imported()
    if is_command(text):
        file.reject_section()
        return convert_command(text, origin).imported()
    if not text.lstrip().startswith("{"):
        return _read_ini(file)
    file.reject_section()
    settings = {str(key): value for key, value in file.json_table().items()}
    is_metadata = any(key.startswith(METADATA_PREFIX) for key in settings)
    return (convert_metadata if is_metadata else convert_body)(settings, origin).imported()


def is_command(text: str, origin: str = "") -> bool:
    """Return True if the text has a command line of llama.cpp, such as ``llama-cli --top-k 40``."""
    return find_command(text, origin) is not None


def is_jan_model(text: str) -> bool:
    """Return True if the text is Jan's model.yml, or its model.json with ``parameters``."""
    first_line = first_content_line(text)
    if first_line is None or INI_LINE_PATTERN.fullmatch(first_line):
        return False
    try:
        value = parse_yaml_1_1(text, "") if not text.lstrip().startswith(("[", "{")) else parse_json(text, "")
    except PresetError:
        return False
    if not isinstance(value, Mapping):
        return False
    is_json = isinstance(value.get("parameters"), Mapping) and {"settings", "engine"} & set(value)
    return bool(is_json) or (not text.lstrip().startswith("{") and len(set(value) & set(JAN_MARKS)) > 1)


def _read_ini(file: PresetFile) -> Imported:
    sections = parse_ini(file.text, file.origin)
    names = [
        name
        for name, entries in sections.items()
        if name != GLOBAL_SECTION and not _holds_version_only(name, entries)
    ]
    if file.section is None and not names:
        return convert(sections, None, file.origin).imported()
    chosen = names[file.choose(names)]
    is_only = names == [DEFAULT_SECTION]
    return convert(sections, chosen, file.origin).imported([] if is_only else names)


def _holds_version_only(name: str, entries: IniSection) -> bool:
    """Return True for the keys before the first header if the only key is the version of the format."""
    return name == DEFAULT_SECTION and set(entries.values) == {"version"}


def convert_command(text: str, origin: str) -> ImportedChainBuilder:
    command = find_command(text, origin)
    if command is None:
        raise PresetError(f"{origin}: it has no command line of llama.cpp, such as llama-cli --top-k 40")
    entries: dict[str, _LlamaEntry] = {}
    flags_of_run = FlagsOfRun()
    for name, value in command.environment.items():
        flag = _find_flag_of_variable(name)
        if flag is not None and flag.is_imported:
            entries[flag.option] = _LlamaEntry(name, value)
        elif flag is not None:
            flags_of_run.add(flag, flag.names[-1], value)
    unknown_option_messages = _read_flags(command.words, entries, flags_of_run, origin)
    builder = _convert_entries(entries, origin)
    builder.unsupported_settings += unknown_option_messages
    flags_of_run.report(builder)
    if command.count > 1:
        builder.unsupported_settings.append(
            f"the text has {command.count} command lines of llama.cpp; the first one was read"
        )
    return builder


def _read_flags(
    command_words: Sequence[str], entries: dict[str, _LlamaEntry], flags_of_run: FlagsOfRun, origin: str
) -> list[str]:
    """Add flags to ``entries`` or ``flags_of_run``; return a sentence for each flag that llama.cpp lacks."""
    unknown_option_messages = []
    words = list(command_words)
    while words:
        word = words.pop(0)
        name, value = _split_flag(word)
        flag = None if name is None else find_llama_cpp_flag(name)
        if name is None:
            continue
        if flag is None:
            unknown_option_messages.append(f"{word}: llama.cpp does not know this option")
        elif flag.option == "ignore-eos":
            entries[flag.option] = _LlamaEntry(word, True)
        elif flag.is_imported:
            if value is None and not words:
                raise PresetError(f"{origin}: {word} has no value")
            _add_option(entries, flag.option, name, words.pop(0) if value is None else value)
        else:
            has_value = value is None and bool(words) and _split_flag(words[0])[0] is None
            flags_of_run.add(flag, name, words.pop(0) if has_value else value or "")
    return unknown_option_messages


_JOINED_VALUE_PATTERN = re.compile(r"(-[A-Za-z]{1,4})(-?\d+(?:\.\d+)?)")


def _split_flag(word: str) -> tuple[str | None, str | None]:
    """Return the flag and the value of a word such as ``--top_k=40`` or ``-n128``; None for what it lacks."""
    # As in llama.cpp, ``_`` may stand for ``-`` in a long flag.
    if not word.startswith("-") or re.fullmatch(r"--?(?:\d.*|\.\d.*)?", word):
        return None, None  # a value, such as -1
    name, sign, value = word.partition("=")
    if name.startswith("--"):
        name = name.replace("_", "-")
    joined = _JOINED_VALUE_PATTERN.fullmatch(word)
    if joined is not None and find_llama_cpp_flag(word) is None and find_llama_cpp_flag(joined[1]) is not None:
        return joined[1], joined[2]
    return name, value if sign else None


class FlagsOfRun:
    """Flags of llama.cpp that `gen run` has, but a preset does not hold, as they must be typed."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._sentences: list[str] = []

    def add(self, flag: LlamaCppFlag, name: str, value: str) -> None:
        """Add a flag if `gen run` has it. ``name``: as it is written, with dashes."""
        typed = f"{name} {shlex.quote(value)}" if value else name
        if flag.names[0] in _FLAGS_WITH_ADVICE:
            self._sentences.append(f"{typed}: {flag.meaning}; {flag.advice}")
        if not flag.is_of_run:
            return
        self._words[flag.names[0]] = typed
        if flag.names[0] in _FLAGS_THAT_CHANGE_THE_TEXT:
            self._sentences.append(f"{typed}: not part of a preset; gen run has this flag")

    def report(self, builder: ImportedChainBuilder) -> None:
        """Add the flags to the builder's notes, and those that matter for the text to its unsupported settings."""
        if self._words:
            builder.notes.append(f"not part of a preset, but flags of gen run: {' '.join(self._words.values())}")
        builder.unsupported_settings += self._sentences


# the first name of each flag without which `gen run` writes another text, or at another speed by drafts
_FLAGS_THAT_CHANGE_THE_TEXT = (
    *("--lora", "-md", "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min", "--override-kv"),
    *("--context-shift", "--keep", "--chat-template", "--chat-template-file", "--chat-template-kwargs"),
    *("--in-prefix", "--in-suffix"),
)
# the first name of each flag that `gen run` has under another name, and that matters for a preset's text
_FLAGS_WITH_ADVICE = ("--draft", "--draft-min", "--lora-scaled", "-sysf", "-rea", "--reasoning-effort", "-hfd")
_REPEATABLE_OPTIONS = ("logit-bias", *OPTIONS_WITH_ESCAPES)


def _add_option(entries: dict[str, _LlamaEntry], option: str, word: str, value: str) -> None:
    """Set an option. The value of a repeatable option is appended to the earlier values."""
    if option not in _REPEATABLE_OPTIONS:
        entries[option] = _LlamaEntry(word, value)
        return
    earlier_value: Any = entries[option].value if option in entries else []
    if option == "logit-bias":
        entries[option] = _LlamaEntry(word, f"{earlier_value},{value}" if earlier_value else value)
    elif value == "none" and option == "dry-sequence-breaker":
        entries[option] = _LlamaEntry(word, earlier_value)
    else:
        entries[option] = _LlamaEntry(word, [*earlier_value, unescape(value)])


_OPTION_BY_KEY = {key: option for option, key in BODY_KEYS.items()} | {"max_tokens": "n-predict"}
_IGNORED_KEYS = (
    *("prompt", "messages", "model", "stream", "cache_prompt", "n_keep", "n_probs", "id_slot", "t_max_predict_ms"),
    *("return_tokens", "timings_per_token", "post_sampling_probs", "lora", "n_indent", "response_fields", "tools"),
    *("grammar_lazy", "chat_format", "logprobs", "top_logprobs", "n", "user", "stream_options"),
    "preserved_tokens",
)


def convert_body(body: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    entries = {}
    for key, value in body.items():
        option = _OPTION_BY_KEY.get(key)
        if option is not None:
            is_order = option == "samplers" and isinstance(value, list)
            entries[option] = _LlamaEntry(key, ";".join(map(str, value)) if is_order else value)
    builder = _convert_entries(entries, origin)
    builder.key_count = len(body)
    if body.get("min_keep") not in (None, 0, 1):
        builder.unsupported_settings.append(
            f"min_keep {body['min_keep']}: each step would have kept at least this many tokens"
        )
    for key in body:
        if key not in (*_OPTION_BY_KEY, *_IGNORED_KEYS, "min_keep"):
            builder.unsupported_settings.append(f"{key}: llama-server does not know this key; it was left out")
    return builder


_JAN_KEYS = (
    *("name", "id", "model", "version", "files", "model_path", "mmproj_path", "size_bytes", "embedding", "sha256"),
    *("prompt_template", "ctx_len", "n_parallel", "ngl", "engine", "object", "created", "owned_by", "cpu_threads"),
    *("text_model", "vision_model", "sources", "metadata", "format", "description", "author", "tags"),
    *("model_sha256", "stream", "min_keep", "n_probs", "penalize_nl", "gpu_layers", "arch", "mmproj_sha256"),
    *("mmproj_size_bytes", "ai_template", "system_template", "user_template", "llama_model_path", "precision"),
    *("max_model_len", "tp", "caching_enabled", "os", "gpu_arch", "system_prompt", "instructions", "settings"),
    "quantization_method",
)
# keys of Jan's model.yml that no preset has
JAN_MARKS = ("prompt_template", "ctx_len", "engine", "model_path", "ngl", "llama_model_path")


def convert_jan(values: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder for the inference parameters of Jan's model.yml or model.json, which llama.cpp runs."""
    parameters = values.get("parameters")
    body = {key: value for key, value in values.items() if key not in (*_JAN_KEYS, "parameters")}
    body |= {
        key: value
        for key, value in (parameters.items() if isinstance(parameters, Mapping) else ())
        if key not in _JAN_KEYS
    }
    builder = convert_body(body, origin)
    builder.key_count = len(values)
    builder.notes.append("the inference parameters of Jan's model file")
    return builder


def convert(sections: Mapping[str, IniSection], chosen_section: str | None, origin: str) -> ImportedChainBuilder:
    """Return the builder for a section of an INI file, which takes precedence over ``[*]``; None: only ``[*]``."""
    entries: dict[str, _LlamaEntry] = {}
    unsupported_settings: list[str] = []
    changed_settings: list[str] = []
    flags_of_run = FlagsOfRun()
    for name in (GLOBAL_SECTION, chosen_section):
        if name is not None and name in sections:
            entries.update(_read_section(sections[name], unsupported_settings, changed_settings, flags_of_run))
    builder = _convert_entries(entries, origin)
    builder.unsupported_settings[:0] = unsupported_settings
    builder.changed_settings[:0] = changed_settings
    flags_of_run.report(builder)
    if GLOBAL_SECTION in sections and chosen_section is not None:
        builder.notes.append(f"section [{chosen_section}] over [*]")
    return builder


_MEANT_OPTIONS = {"repetition-penalty": "repeat-penalty", "rep-pen": "repeat-penalty", "max-tokens": "n-predict"}
# Starts of the names of llama.cpp's environment variables, which an INI file may use in place of options.
# Variables that do not belong to a sampler are left out of an import without a report.
_IGNORED_VARIABLES = ("LLAMA_ARG_", "LLAMA_API_KEY", "LLAMA_LOG_", "LLAMA_CACHE", "HF_TOKEN", "MODEL_ENDPOINT")


def _read_section(
    section: IniSection,
    unsupported_settings: list[str],
    changed_settings: list[str],
    flags_of_run: FlagsOfRun,
) -> dict[str, _LlamaEntry]:
    # As in llama.cpp, the alphabetically last of two names of an option counts. A sentence is appended to
    # ``unsupported_settings`` for each key that llama.cpp reads differently, or not at all. If the value is
    # carried over, it is appended to ``changed_settings``, too.
    entries: dict[str, _LlamaEntry] = {}
    for key in sorted(section.values):
        value, name = section.values[key], key.lower().replace("_", "-").lstrip("-")
        flag = _find_flag(key) or _find_flag_of_variable(key)
        similar = _find_flag(_MEANT_OPTIONS.get(name, name))
        if similar is not None and similar.is_imported and (flag is None or not flag.is_imported):
            flag = similar
            unsupported_settings.append(
                f"{key} {value}: llama.cpp rejects the file, since no option has this name; "
                f"it was read as {flag.option}"
            )
            changed_settings.append(unsupported_settings[-1])
        flag = flag or similar
        if flag is None or not flag.is_imported:
            if flag is not None:
                flags_of_run.add(flag, flag.names[-1], value)
            elif not key.startswith(_IGNORED_VARIABLES):
                unsupported_settings.append(
                    f"{key} {value}: llama.cpp does not know this key, and rejects the file"
                )
            continue
        entries[flag.option] = _LlamaEntry(key, value, section.line_numbers[key])
        if key in section.cut_off_text_by_key:
            unsupported_settings.append(
                f"{key} {value}: llama.cpp takes {section.cut_off_text_by_key[key]!r} as a comment"
            )
            changed_settings.append(unsupported_settings[-1])
    return entries


# environment variables of llama.cpp, without ``LLAMA_ARG_``, that are not named after their option
_VARIABLE_NAMES = {
    "THINK_BUDGET": "reasoning-budget",
    "DRAFT_MAX": "spec-draft-n-max",
    "DRAFT_MIN": "spec-draft-n-min",
}


def _find_flag_of_variable(key: str) -> LlamaCppFlag | None:
    """Return the flag of an environment variable such as LLAMA_ARG_TOP_K; None if there is none."""
    name = key.removeprefix("LLAMA_ARG_")
    if name == key:
        return None
    return _find_flag(_VARIABLE_NAMES.get(name, name.lower().replace("_", "-")))


def _find_flag(name: str) -> LlamaCppFlag | None:
    """Return llama.cpp's flag with a name without dashes; None if there is none."""
    return find_llama_cpp_flag(f"-{name}") or find_llama_cpp_flag(f"--{name}")


# Options whose metadata key is not the option's name with underscores.
_OPTION_BY_METADATA_NAME = {
    "penalty-last-n": "repeat-last-n",
    "penalty-repeat": "repeat-penalty",
    "mirostat-tau": "mirostat-ent",
    "mirostat-eta": "mirostat-lr",
    "sequence": "samplers",
}


def convert_metadata(metadata: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder for what a model's author recommends in a GGUF file; other metadata is ignored."""
    entries: dict[str, _LlamaEntry] = {}
    unknown_key_messages = []
    for key, value in metadata.items():
        if not key.startswith(METADATA_PREFIX) or _is_empty_text(value):
            continue
        option = _option_of_metadata(key)
        if option is None:
            unknown_key_messages.append(f"{key} {value}: {TOOL} does not know this key; it was left out")
        else:
            entries[option] = _LlamaEntry(key, value)
    builder = _convert_entries(entries, origin)
    builder.unsupported_settings += unknown_key_messages
    return builder


def has_settings(metadata: Mapping[str, Any]) -> bool:
    """Return True if the metadata has a setting, recommended by the model's author, that llama.cpp knows."""
    return any(
        key.startswith(METADATA_PREFIX) and _option_of_metadata(key) is not None and not _is_empty_text(value)
        for key, value in metadata.items()
    )


def _is_empty_text(value: Any) -> bool:
    """Return True for a string without characters other than spaces and semicolons."""
    return isinstance(value, str) and not value.strip(" ;")


def _option_of_metadata(key: str) -> str | None:
    name = key[len(METADATA_PREFIX) :].replace("_", "-")
    flag = _find_flag(_OPTION_BY_METADATA_NAME.get(name, name))
    return flag.option if flag is not None and flag.is_imported else None


def _convert_entries(entries: Mapping[str, _LlamaEntry], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(
        {entry.key_in_file: entry.value for entry in entries.values()},
        origin,
        {option: (entry.key_in_file,) for option, entry in entries.items()},
        {entry.key_in_file: entry.line for entry in entries.values() if entry.line},
    )
    builder = ImportedChainBuilder(TOOL, table, _DEFAULTS)
    read_steps(builder)
    builder.read_ignore_eos("ignore-eos")
    builder.read_logit_bias("logit-bias")
    is_metadata = any(entry.key_in_file.startswith(METADATA_PREFIX) for entry in entries.values())
    report_negative_windows(
        builder, "llama.cpp now reads it as 0, off" if is_metadata else "llama.cpp now rejects it"
    )
    order = _read_sampler_list(builder)
    if order is None:
        builder.notes.append("order: llama.cpp's default")
    elif "infill" in order:
        builder.put_step("infill", "infill", {}, ["samplers" if table.is_set("samplers") else "sampler-seq"])
    arrange_chain(builder, DEFAULT_ORDER if order is None else order)
    if not table.is_set("dry-penalty-last-n") and any(step.name == "dry" for step in builder.steps):
        builder.notes.append(
            "dry.last_n: 64 is llama.cpp's default since August 2026; before, it was -1, all tokens"
        )
    _read_other_settings(builder)
    return builder


def _read_sampler_list(builder: ImportedChainBuilder) -> list[str] | None:
    """Return logitsmith's names of the listed samplers; None if the file has no list of samplers."""
    # ``samplers`` takes precedence over ``sampler-seq``. Unknown names are skipped, as in llama.cpp, and reported.
    key = next((key for key in ("samplers", "sampler-seq") if builder.table.is_set(key)), None)
    if key is None:
        return None
    order: list[str] = []
    text = builder.table.string(key) or ""
    for part in text if key == "sampler-seq" else text.split(";"):
        try:
            order += read_sampler_sequence(part, key)
        except PresetError:
            builder.report_unsupported(key, f"{part.strip()!r} is not a sampler of llama.cpp, which skips it")
    return order


def _read_other_settings(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_max_tokens("n-predict", (-1, -2))
    if table.integer("n-predict") == 0:
        builder.report_unsupported("n-predict", "it would have read the prompt only, which -n 0 does here")
    builder.read_seed("seed")
    builder.read_string("system-prompt", "system")
    stop_string = table.raw_value("reverse-prompt")
    if isinstance(stop_string, str):
        table.values[table.key_in_file("reverse-prompt")] = [unescape(stop_string)]
    builder.read_strings("reverse-prompt", "stop")
    _read_reasoning_budget(builder)
    read_guidance(builder, "cfg-scale", "cfg-negative-prompt")
    builder.read_string("grammar", "grammar")
    for key, kind in (("grammar-file", "file"), ("json-schema-file", "json_schema_file"), ("json-schema", None)):
        value = table.raw_value(key)
        if value is not None and "grammar" not in builder.other_settings:
            builder.other_settings["grammar"] = {kind or "json_schema": value}


def _read_reasoning_budget(builder: ImportedChainBuilder) -> None:
    """Read the maximum length of the reasoning as a phase before the answer; -1 is no limit."""
    budget = builder.table.integer("reasoning-budget", -1)
    message = builder.table.string("reasoning-budget-message")
    if budget >= 0:
        phase: dict[str, Any] = {"max_tokens": budget, "adds_end": True}
        builder.other_settings["phases"] = [phase | ({"then": message} if message else {}), {}]
    elif message:
        builder.report_unsupported("reasoning-budget-message", "no effect without reasoning-budget")
