"""llama.cpp's settings and chain, for its own formats and those of the programs that run it.

A setting is called by the name of llama.cpp's option without dashes, whatever the kind of file. An absent setting
has llama.cpp's default, so an imported chain is complete. These files are imported:

- a command line
- the JSON body of a request to llama-server, and Jan's model files
- a section of an INI file (``--models-preset``); its keys are long or short option names, or environment variables
- the ``general.sampling.*`` keys of a GGUF file

The order of the steps follows common/sampling.cpp. Biases come first. Then come the listed samplers, in any order,
each of them once; by default the temperature is the last one. Mirostat keeps only the temperature before it. A
temperature of 0 or less takes the most likely token, so a greedy step is exported as temperature 0. adaptive-p
selects the token if it is listed. Ollama and LM Studio run this chain, too.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..errors import PresetError
from ..overrides import MIROSTAT_VERSIONS, read_sampler_sequence
from ..parameter_names import names_by_option
from ..preset import make_step
from .command_line import find_command
from .conversion import Imported, ImportedChainBuilder, read_guidance
from .exporter import PresetExporter
from .ini import DEFAULT_SECTION, INI_LINE_PATTERN, IniSection, ini_keys, parse_ini
from .llama_cpp_options import (
    OPTIONS_WITH_ESCAPES,
    FoundOptions,
    OptionValue,
    escape,
    is_ini_key,
    option_of_metadata,
    read_command,
    read_sections,
    unescape,
)
from .other_keys import other_keys
from .preset_file import PresetFile, known_share
from .registry import Format
from .sampler_keys import keys_by_sampler, off_values, sampler_keys
from .table import ForeignTable, read_window

TOOL = "llama.cpp"
DEFAULT_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc", "temperature")
_LEADING_SLOTS = ("ignore_eos", "ban", "logit_bias")


def _read_xtc_probability(table: ForeignTable, key: str, default: float) -> float:
    """Return the probability of xtc; 0 if the threshold is above 0.5, which turns xtc off."""
    probability = table.number(key, default)
    return probability if table.number("xtc-threshold", 0.1) <= 0.5 else 0.0


def _read_breakers(table: ForeignTable, key: str, default: Sequence[str]) -> list[str]:
    # A single string, as in an INI file, is one breaker; ``none`` means no breaker.
    text = table.raw_value(key)
    if text is None:
        return list(default)
    if isinstance(text, str):
        table.values[table.key_in_file(key)] = [] if text == "none" else [unescape(text)]
    return table.strings(key)


_keys = partial(sampler_keys, "llama.cpp")
_WINDOW = {"minimum": -1, "reader": read_window, "is_limited_window": True}
SAMPLER_KEYS = keys_by_sampler(
    _keys("penalties", {"last_n": _WINDOW}),
    _keys("dry", {"last_n": _WINDOW, "breakers": {"reader": _read_breakers}}),
    _keys("top_n_sigma", {"n": {"off_value": -1.0, "minimum": -1.0}}),
    *map(_keys, ("top_k", "typical", "top_p")),
    _keys("min_p", {"p": {"minimum": 0.0}}),
    _keys(
        "xtc",
        {"probability": {"reader": _read_xtc_probability}},
        is_active_at=lambda probability: probability > 0,
    ),
    _keys("temperature", {"t": {"minimum": 0.0}}),
    _keys("dynatemp", {"temperature": {"minimum": 0.0}}, slot="temperature", switch_key="dynatemp-range"),
    _keys("mirostat", switch_key="mirostat"),
    _keys("mirostat_v2", slot="mirostat", switch_key="mirostat"),
    _keys("adaptive_p", is_active_at=lambda target: target >= 0),
    *map(_keys, ("infill", "ignore_eos", "logit_bias")),
)
# for each option of a step, the value that turns the step off, or the usual value if there is no such value
OFF_VALUES: Mapping[str, Any] = off_values(SAMPLER_KEYS)
# the options that are imported; `llama_cpp_flags` has all names of each option
OPTIONS = (
    *OFF_VALUES,
    *("sampler-seq", "seed", "n-predict", "reverse-prompt", "json-schema", "json-schema-file", "grammar"),
    *("grammar-file", "system-prompt", "samplers", "ignore-eos", "reasoning-budget", "reasoning-budget-message"),
    *("cfg-scale", "cfg-negative-prompt"),
)
# the key of each option in the body of a request
BODY_KEYS: Mapping[str, str] = {
    **{option: option.replace("-", "_") for option in OPTIONS},
    **names_by_option("llama-server"),
    "reverse-prompt": "stop",
}


def report_negative_windows(builder: ImportedChainBuilder, present_meaning: str) -> None:
    """Report each negative penalty window. Until August 2026 llama.cpp read it as all tokens."""
    # ``present_meaning``: a clause that says how the tool reads it now
    for key, slot in (("repeat-last-n", "penalties"), ("dry-penalty-last-n", "dry")):
        window = builder.table.integer(key, 0)
        if window >= 0 or slot not in builder.step_by_slot:
            continue
        former_meaning = "its meaning until August 2026" if window == -1 else "as -1 until August 2026"
        builder.report_changed(key, f"read as all tokens, {former_meaning}; {present_meaning}")


def read_steps(builder: ImportedChainBuilder) -> None:
    builder.read_steps(SAMPLER_KEYS, *(name for name in DEFAULT_ORDER if name != "temperature"))
    builder.read_temperature(SAMPLER_KEYS["temperature"], "a temperature of 0 takes the most likely token")
    if builder.read_value(SAMPLER_KEYS["dynatemp"].key_by_parameter["range"]) > 0:
        builder.read_steps(SAMPLER_KEYS, "dynatemp")
    version = builder.table.integer("mirostat", 0)
    if version not in (0, 1, 2):
        raise builder.table.value_error("mirostat", "0, 1 or 2")
    if version:
        builder.read_steps(SAMPLER_KEYS, MIROSTAT_VERSIONS[version])
    builder.read_steps(SAMPLER_KEYS, "adaptive_p")


def arrange_chain(builder: ImportedChainBuilder, order: Sequence[str] = DEFAULT_ORDER) -> None:
    """Set the chain: biases, then the samplers in this order; mirostat keeps only biases and temperature."""
    if builder.table.integer("mirostat", 0) in (1, 2):
        builder.set_mirostat_chain((*_LEADING_SLOTS, "temperature"))
        return
    # llama.cpp runs adaptive_p last in any list.
    listed_slots = sorted(order, key=lambda name: name == "adaptive_p")
    slots = [*_LEADING_SLOTS, *(slot for slot in listed_slots if slot not in _LEADING_SLOTS)]
    unlisted_slots = [slot for slot in builder.step_by_slot if slot not in slots]
    builder.report_inactive_steps(builder.steps_in_order(unlisted_slots), "the list of samplers leaves it out")
    builder.set_chain(builder.steps_in_order(slots))


METADATA_PREFIX = "general.sampling."  # start of the metadata keys with which a model's author recommends settings
GLOBAL_SECTION = "*"  # the section of an INI file that applies to all other sections
_DEFAULTS: Mapping[str, Any] = {"temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05}
_OPTION_BY_KEY = {key: option for option, key in BODY_KEYS.items()} | {"max_tokens": "n-predict"}
_KNOWN_KEYS = frozenset((*_OPTION_BY_KEY, *other_keys("llama-server"), "min_keep"))


def recognize(file: PresetFile) -> float:
    """Return the share that llama.cpp knows; a command line and Jan's model file are known by their structure."""
    if find_command(file.text, file.origin) is not None or _is_jan_model(file):
        return 1.0
    if INI_LINE_PATTERN.fullmatch(file.first_line):
        keys = ini_keys(file.text)
        return known_share(keys, [key for key in keys if is_ini_key(key)])
    settings = file.json_object
    return 1.0 if _is_metadata(settings) else known_share(settings, _KNOWN_KEYS)


def read(file: PresetFile) -> Imported:
    """Read a command line, Jan's model file, a GGUF's metadata as JSON, a request, or a section of an INI file."""
    text, origin = file.text, file.origin
    if _is_jan_model(file):
        return _convert_jan(file.yaml_table(), origin).imported()
    if find_command(text) is not None:
        file.reject_section()
        return _convert_command(text, origin).imported()
    if not text.lstrip().startswith("{"):
        return _read_ini(file)
    file.reject_section()
    settings = {str(key): value for key, value in file.json_table().items()}
    if _is_metadata(settings):
        return convert_metadata(settings, origin).imported()
    return _convert_body(settings, origin).imported()


def _is_metadata(settings: Mapping[str, Any]) -> bool:
    """Return True for the metadata of a GGUF file."""
    return any(key.startswith(METADATA_PREFIX) for key in settings)


def _is_jan_model(file: PresetFile) -> bool:
    """Return True for Jan's model.yml, or its model.json with ``parameters``."""
    if file.json_object:
        has_parameters = isinstance(file.json_object.get("parameters"), Mapping)
        return has_parameters and not file.json_object.keys().isdisjoint(("settings", "engine"))
    if INI_LINE_PATTERN.fullmatch(file.first_line):
        return False
    keys_of_jan = file.yaml_object.keys() & set(other_keys("jan-only"))
    return len(keys_of_jan) > 1


def _read_ini(file: PresetFile) -> Imported:
    sections = parse_ini(file.text, file.origin)
    names = [
        name
        for name, entries in sections.items()
        if name != GLOBAL_SECTION and not _holds_version_only(name, entries)
    ]
    if file.section is None and not names:
        return _convert_sections(sections, None, file.origin).imported()
    chosen = names[file.choose(names)]
    has_headers = names != [DEFAULT_SECTION]
    return _convert_sections(sections, chosen, file.origin).imported(names if has_headers else [])


def _holds_version_only(name: str, entries: IniSection) -> bool:
    """Return True for the keys before the first header if the only key is the version of the format."""
    return name == DEFAULT_SECTION and set(entries.values) == {"version"}


def _convert_sections(sections: Mapping[str, IniSection], chosen: str | None, origin: str) -> ImportedChainBuilder:
    """Return the builder for ``[*]`` of an INI file, and for a chosen section, which takes precedence."""
    names = [GLOBAL_SECTION] if chosen is None else [GLOBAL_SECTION, chosen]
    found = read_sections([sections[name] for name in names if name in sections])
    builder = _convert_options(found, origin)
    builder.unsupported_settings[:0] = found.unsupported_settings
    builder.changed_settings[:0] = found.changed_settings
    _report_flags_of_run(builder, found)
    if GLOBAL_SECTION in sections and chosen is not None:
        builder.notes.append(f"section [{chosen}] over [*]")
    return builder


def _convert_command(text: str, origin: str) -> ImportedChainBuilder:
    command = find_command(text, origin)
    if command is None:
        raise PresetError(f"{origin}: it has no command line of llama.cpp, such as llama-cli --top-k 40")
    found = read_command(command, origin)
    builder = _convert_options(found, origin)
    builder.unsupported_settings += found.unsupported_settings
    _report_flags_of_run(builder, found)
    if command.count > 1:
        builder.unsupported_settings.append(
            f"the text has {command.count} command lines of llama.cpp; the first one was read"
        )
    return builder


def _report_flags_of_run(builder: ImportedChainBuilder, found: FoundOptions) -> None:
    if found.flags_of_run:
        words = " ".join(found.flags_of_run.values())
        builder.notes.append(f"not part of a preset, but flags of gen run: {words}")
    builder.unsupported_settings += found.reports_of_flags


def _convert_body(body: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    found = FoundOptions()
    for key, value in body.items():
        option = _OPTION_BY_KEY.get(key)
        if option == "samplers" and isinstance(value, list):
            samplers = ";".join(str(name) for name in value)
            found.values[option] = OptionValue(key, samplers)
        elif option is not None:
            found.values[option] = OptionValue(key, value)
        elif key not in _KNOWN_KEYS:
            found.report_unknown(key, f"{key}: llama-server does not know this key; it was left out")
    builder = _convert_options(found, origin)
    if body.get("min_keep") not in (None, 0, 1):
        builder.unsupported_settings.append(
            f"min_keep {body['min_keep']}: each step would have kept at least this many tokens"
        )
    builder.unsupported_settings += found.unsupported_settings
    return builder


def _convert_jan(values: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder for the inference parameters of Jan's model.yml or model.json, which llama.cpp runs."""
    settings = dict(values)
    parameters = values.get("parameters")
    if isinstance(parameters, Mapping):
        settings |= parameters
    other_names = (*other_keys("jan"), "parameters")
    body = {key: value for key, value in settings.items() if key not in other_names}
    builder = _convert_body(body, origin)
    builder.notes.append("the inference parameters of Jan's model file")
    return builder


def convert_metadata(metadata: Mapping[str, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder for what a model's author recommends in a GGUF file; other metadata is ignored."""
    found = FoundOptions()
    for key, value in _settings_of_metadata(metadata).items():
        option = option_of_metadata(key.removeprefix(METADATA_PREFIX))
        if option is None:
            found.report_unknown(key, f"{key} {value}: {TOOL} does not know this key; it was left out")
        else:
            found.values[option] = OptionValue(key, value)
    builder = _convert_options(found, origin, "llama.cpp now reads it as 0, off")
    builder.unsupported_settings += found.unsupported_settings
    return builder


def has_settings(metadata: Mapping[str, Any]) -> bool:
    """Return True if the metadata has a setting, recommended by the model's author, that llama.cpp knows."""
    names = (key.removeprefix(METADATA_PREFIX) for key in _settings_of_metadata(metadata))
    return any(option_of_metadata(name) is not None for name in names)


def _settings_of_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling settings, without texts of only spaces and semicolons."""
    settings = {key: value for key, value in metadata.items() if key.startswith(METADATA_PREFIX)}
    return {key: value for key, value in settings.items() if not _is_blank(value)}


def _is_blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip(" ;")


def _convert_options(
    found: FoundOptions, origin: str, meaning_of_negative_windows: str = "llama.cpp now rejects it"
) -> ImportedChainBuilder:
    options = found.values
    table = ForeignTable(
        {option.key_in_file: option.value for option in options.values()},
        origin,
        {name: (option.key_in_file,) for name, option in options.items()},
        {option.key_in_file: option.line for option in options.values() if option.line},
    )
    builder = ImportedChainBuilder(TOOL, table, _DEFAULTS)
    builder.unknown_keys = found.unknown_keys
    read_steps(builder)
    builder.read_ignore_eos("ignore-eos")
    builder.read_steps(SAMPLER_KEYS, "logit_bias")
    report_negative_windows(builder, meaning_of_negative_windows)
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
    table = builder.table
    names_or_letters: Sequence[str]
    if table.is_set("samplers"):
        key = "samplers"
        names_or_letters = (table.string(key) or "").split(";")
    elif table.is_set("sampler-seq"):
        key = "sampler-seq"
        names_or_letters = table.string(key) or ""  # one letter for each sampler
    else:
        return None
    order: list[str] = []
    for name in names_or_letters:
        try:
            order += read_sampler_sequence(name, key)
        except PresetError:
            builder.report_unsupported(key, f"{name.strip()!r} is not a sampler of llama.cpp, which skips it")
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
    for kind, key in {**_GRAMMAR_FILE_OPTIONS, "json_schema": "json-schema"}.items():
        value = table.raw_value(key)
        if value is not None and "grammar" not in builder.other_settings:
            builder.other_settings["grammar"] = {kind: value}


def _read_reasoning_budget(builder: ImportedChainBuilder) -> None:
    """Read the maximum length of the reasoning as a phase before the answer; -1 is no limit."""
    budget = builder.table.integer("reasoning-budget", -1)
    message = builder.table.string("reasoning-budget-message")
    if budget >= 0:
        reasoning: dict[str, Any] = {"max_tokens": budget, "adds_end": True}
        if message:
            reasoning["then"] = message
        answer: dict[str, Any] = {}
        builder.other_settings["phases"] = [reasoning, answer]
    elif message:
        builder.report_unsupported("reasoning-budget-message", "no effect without reasoning-budget")


_SETTING_OPTIONS = {"max_tokens": "n-predict", "seed": "seed", "stop": "reverse-prompt"}
_GRAMMAR_OPTIONS = {"gbnf": "grammar", "json_schema": "json-schema"}
_GRAMMAR_FILE_OPTIONS = {"file": "grammar-file", "json_schema_file": "json-schema-file"}
_ALLOWED_GRAMMARS = "a grammar or a JSON Schema as text"


def to_command(exporter: PresetExporter) -> str:
    # Biases of strings are reported, and so is a grammar that is neither text, a JSON Schema nor a file.
    values = _write_chain_values(exporter)
    grammar = exporter.take_grammar({**_GRAMMAR_OPTIONS, **_GRAMMAR_FILE_OPTIONS}, _ALLOWED_GRAMMARS)
    keys = {**_SETTING_OPTIONS, "system": "system-prompt"}
    values |= exporter.convert_other_settings(keys, unlimited_value=-1) | grammar
    for key in OPTIONS_WITH_ESCAPES:
        if key in values:
            values[key] = [escape(text) for text in values[key]]
    if values.get("dry-sequence-breaker") == []:
        values["dry-sequence-breaker"] = ["none"]
    if "logit-bias" in values:
        values["logit-bias"] = _bias_option_values(exporter, values["logit-bias"])
    words = ["llama-cli"]
    for key, value in values.items():
        values_of_key = value if isinstance(value, list) else [value]  # a list repeats the flag
        for item in values_of_key:
            words.append(f"--{key}")
            if item is not True:
                words.append(shlex.quote(item if isinstance(item, str) else json.dumps(item)))
    return " ".join(words) + "\n"


def to_body(exporter: PresetExporter) -> str:
    # A system message, which belongs to the request's messages, is reported.
    # A key that the body does not have keeps the value that the server was started with
    # (tools/server/server-task.cpp, params_from_json_cmpl). The list of samplers turns off all other samplers,
    # except mirostat and the range of a dynamic temperature. So the body always sets these two.
    values = _write_chain_values(exporter)
    if "temp" in values:
        values.setdefault("dynatemp-range", 0.0)
    values.setdefault("mirostat", 0)
    grammar = exporter.take_grammar(_GRAMMAR_OPTIONS, _ALLOWED_GRAMMARS)
    values |= exporter.convert_other_settings(_SETTING_OPTIONS, unlimited_value=-1) | grammar
    if "logit-bias" in values:
        biases: list[list[Any]] = []
        for token, number in values["logit-bias"].items():
            is_ban = number == float("-inf")
            biases.append([token, False if is_ban else number])
        values["logit-bias"] = biases
    if "samplers" in values:
        values["samplers"] = values["samplers"].split(";")
    body = {BODY_KEYS[key]: value for key, value in values.items()}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _write_chain_values(exporter: PresetExporter) -> dict[str, Any]:
    """Write the chain into the exporter, and return the values of the options that express the chain."""
    _replace_bans_by_biases(exporter)
    exporter.replace_greedy()
    if exporter.mirostat_version:
        reason = "llama.cpp applies only the temperature before mirostat"
        exporter.remove_steps_without_slot(SAMPLER_KEYS, ("ignore_eos", "logit_bias", "temperature"), reason)
    exporter.write_steps(SAMPLER_KEYS)
    leading_slots = exporter.leading_slots(("ignore_eos", "logit_bias"))
    exporter.written_slots = [slot for slot in exporter.written_slots if slot not in leading_slots]
    if "ignore_eos" in leading_slots:
        exporter.values["ignore-eos"] = True
    if exporter.mirostat_version:
        exporter.values["mirostat"] = exporter.mirostat_version
    elif exporter.selector_name == "adaptive_p":
        exporter.written_slots.append("adaptive_p")
    elif exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.write_selector(SAMPLER_KEYS)
    if not exporter.written_slots:
        # llama.cpp reads an empty list as its default list. A temperature of 1 changes nothing.
        exporter.written_slots = ["temperature"]
        exporter.values["temp"] = 1.0
    if exporter.mirostat_version:
        return exporter.values
    samplers = ["typ_p" if slot == "typical" else slot for slot in exporter.written_slots]
    return {"samplers": ";".join(samplers), **exporter.values}


def _replace_bans_by_biases(exporter: PresetExporter) -> None:
    """Replace the first ban of token ids by biases of -inf, if the chain has no biases."""
    if any(step.about.name == "logit_bias" for step in exporter.steps):
        return
    for index, step in enumerate(exporter.steps):
        tokens = getattr(step, "tokens", ())
        strings = getattr(step, "strings", ())
        if step.about.name == "ban" and tokens and not strings:
            biases = dict.fromkeys(tokens, float("-inf"))
            exporter.steps[index] = make_step("logit_bias", {"bias": biases}, "ban")
            exporter.report_unsupported("ban", "llama.cpp has no bans; biases of -inf were written instead")
            return


def _bias_option_values(exporter: PresetExporter, bias: dict[int | str, float]) -> list[str]:
    words = []
    for key, number in bias.items():
        if isinstance(key, str):
            exporter.report_unsupported(f"logit_bias.bias {key!r}", "llama.cpp's option takes token ids only")
        else:
            words.append(f"{key}{number:+}" if number != float("-inf") else f"{key}-inf")
    return words


FORMATS = (
    Format(
        name="llama.cpp",
        tool=TOOL,
        description="settings of llama.cpp",
        read=read,
        write=to_command,
        recognize=recognize,
        aliases=("llamacpp", "llama-cpp"),
        holds_several=True,
    ),
    Format(
        name="llama-server",
        tool="llama-server",
        description="the body of a request to llama-server",
        write=to_body,
    ),
)
