"""Import and export of ``sampler_overrides/*.yml`` of TabbyAPI and YALS: {override, force, additive} by name.

The order of the steps is the one of the exllamav3 back end. Settings that only the former exllamav2 back end
applied are reported. An import reads only ``override``. An override of null counts as absent.

An export writes only overrides of steps that are on. An absent override means TabbyAPI's default, with which no
step is on (common/sampling.py, ``get_default_sampler_value``), because a file replaces all overrides of the file
loaded before (``overrides_from_file``). ``force`` is false, so a request takes precedence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..parameter_names import spellings
from ..yaml_writer import write_yaml
from .conversion import Imported, ImportedChainBuilder, read_guidance
from .exporter import PresetExporter
from .other_keys import other_keys
from .preset_file import PresetFile
from .registry import Format
from .sampler_keys import keys_by_sampler, off_values, sampler_keys, tool_key
from .table import ForeignTable

TOOL = "TabbyAPI"
_STEP_ORDER = (
    *("logit_bias", "penalties", "ignore_eos", "min_tokens", "ban", "top_n_sigma", "temperature"),
    *("top_k", "top_p", "min_p", "temperature_last", "xtc", "adaptive_p"),
)
KEY_SPELLINGS = {
    "max_tokens": ("max_tokens", "max_length"),
    **spellings("tabbyapi"),
    "stop": ("stop", "stop_sequence"),
    "allowed_tokens": ("allowed_tokens", "allowed_token_ids"),
    "typical": ("typical", "typical_p"),
    "min_temp": ("min_temp", "dynatemp_low"),
    "max_temp": ("max_temp", "dynatemp_high"),
    "temp_exponent": ("temp_exponent", "dynatemp_exponent"),
    "dry_range": ("dry_range", "dry_penalty_last_n"),
    "ban_eos_token": ("ban_eos_token", "ignore_eos"),
    "cfg_scale": ("cfg_scale", "guidance_scale"),
    "repetition_decay": ("repetition_decay", "rep_pen_decay"),
}
_SETTING_KEYS = {"max_tokens": "max_tokens", "seed": "seed", "stop": "stop"}
_GRAMMAR_KEYS = {"gbnf": "grammar_string", "json_schema": "json_schema", "regex": "regex_pattern"}
_keys = partial(sampler_keys, "tabbyapi")
SAMPLER_KEYS = keys_by_sampler(
    _keys("logit_bias"),
    _keys("penalties", {"last_n": {"off_value": -1, "minimum": -1}}),
    *map(_keys, ("ignore_eos", "min_tokens")),
    _keys("ban", {"strings": tool_key("tabbyapi-file", "ban.strings")}),
    *map(_keys, ("temperature", "top_k")),
    _keys("top_p", fixed_parameters={"boundary": "exclude"}, comment="exllamav3 drops the token that crosses"),
    _keys("min_p"),
    _keys("xtc", fixed_parameters={"keep_special": True}, is_active_at=lambda probability: probability > 0),
    _keys(
        "adaptive_p",
        {"target": {"off_value": 1.0}},
        is_active_at=lambda target: 0 <= target < 1,  # SillyTavern's -0.01 is off
    ),
)
YALS_SIGMA_KEYS = sampler_keys("yals", "top_n_sigma", comment="YALS only")
_KNOWN_KEYS = (
    *(*off_values(SAMPLER_KEYS), "nsigma"),
    *("temperature_last", "smoothing_factor", "top_a", "tfs", "skew", "dry_multiplier", "dry_base"),
    *("dry_allowed_length", "dry_sequence_breakers", "mirostat_mode", "mirostat_tau", "mirostat_eta"),
    *("json_schema", "regex_pattern", "grammar_string", "seed", "cfg_scale", "negative_prompt"),
)
# Keys that only the former back end applies: the value without an effect, and the effect of other values.
_FORMER_KEYS = {
    "smoothing_factor": (0.0, "changed the logits by a quadratic curve"),
    "top_a": (0.0, "dropped tokens below a share of the squared best probability"),
    "tfs": (1.0, "cut off the tail of the tokens"),
    "typical": (1.0, "kept the typical tokens"),
    "skew": (0.0, "skewed the distribution"),
    "dry_multiplier": (0.0, "made repetitions less likely"),
    "mirostat_mode": (0.0, "kept the surprise of the text constant"),
}


def recognize(file: PresetFile) -> float:
    """Return the share of the entries that are overrides."""
    entries = file.yaml_object.values()
    overrides = [entry for entry in entries if isinstance(entry, Mapping) and "override" in entry]
    return len(overrides) / len(entries) if entries else 0.0


def read(file: PresetFile) -> Imported:
    return convert(file.yaml_table(), file.origin).imported()


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    overrides = {key: value.get("override") if isinstance(value, dict) else value for key, value in values.items()}
    table = ForeignTable(overrides, origin, KEY_SPELLINGS)
    builder = ImportedChainBuilder(TOOL, table)
    builder.notes.append("as TabbyAPI's exllamav3 back end samples")
    _read_bans(builder)
    _read_steps(builder)
    _read_other_settings(builder)
    builder.set_chain(builder.steps_in_order(_STEP_ORDER))
    _report_unsupported_keys(builder)
    return builder


def _read_steps(builder: ImportedChainBuilder) -> None:
    builder.read_steps(SAMPLER_KEYS, "penalties")
    temperature = SAMPLER_KEYS["temperature"]
    is_last = builder.table.boolean("temperature_last", False)
    if is_last:
        temperature = replace(temperature, slot="temperature_last")
    builder.read_temperature(temperature)
    builder.read_step(YALS_SIGMA_KEYS)
    builder.read_steps(SAMPLER_KEYS, "top_k", "top_p", "min_p", "xtc", "adaptive_p")


def _read_bans(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_ignore_eos("ban_eos_token")
    builder.read_steps(SAMPLER_KEYS, "logit_bias", "min_tokens")
    tokens = _read_token_ids(table, "banned_tokens")
    builder.put_step("ban", "ban", {"tokens": tokens} if tokens else {}, ["banned_tokens"])
    builder.read_strings("banned_strings", "bans")
    if _read_token_ids(table, "allowed_tokens"):
        builder.report_unsupported(
            "allowed_tokens", "exllamav3 ignores it; the former exllamav2 back end banned all other tokens"
        )


def _read_token_ids(table: ForeignTable, key: str) -> list[int]:
    """Return token ids from a list, or from a string with commas, in which parts without a number are skipped."""
    value = table.raw_value(key) or []
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return [int(part) for part in str(value).split(",") if part.strip().isdecimal()]
    if not isinstance(value, list) or not all(isinstance(token, int) and token is not True for token in value):
        raise table.value_error(key, "a list of token ids")
    return value


def _read_other_settings(builder: ImportedChainBuilder) -> None:
    table = builder.table
    stops = table.raw_value("stop")
    if isinstance(stops, list) and any(isinstance(stop, int) for stop in stops):
        ids = [stop for stop in stops if isinstance(stop, int)]
        builder.unsupported_settings.append(
            f"stop {ids}: token ids would have ended the text; here, only strings end it"
        )
        table.values[table.key_in_file("stop")] = [stop for stop in stops if not isinstance(stop, int)]
    builder.read_settings(_SETTING_KEYS)
    builder.read_grammar(_GRAMMAR_KEYS)


def _report_unsupported_keys(builder: ImportedChainBuilder) -> None:
    table = builder.table
    for key, (neutral_value, effect) in _FORMER_KEYS.items():
        value = table.number(key, neutral_value)
        is_absent = key == "tfs" and value == 0  # as TabbyAPI reads it
        if value != neutral_value and not is_absent:
            builder.report_unsupported(key, f"exllamav3 ignores it; the former exllamav2 back end {effect}")
    low = table.number("min_temp", 1.0) or 1.0
    high = table.number("max_temp", 1.0) or 1.0
    if low < high:
        for key in ("min_temp", "max_temp"):
            if table.is_set(key):
                builder.report_unsupported(
                    key, "exllamav3 has no dynamic temperature; the former exllamav2 back end had one"
                )
    builder.report_unless("repetition_decay", 0, "the penalty would have faded over this many tokens")
    read_guidance(builder, "cfg_scale")
    if "guidance" in builder.other_settings:
        builder.report_changed("cfg_scale", "applied here; of TabbyAPI's back ends only exllamav2 applies it")
    if "penalties" not in builder.step_by_slot and table.integer("penalty_range", -1) == 0:
        key_by_parameter = dict(SAMPLER_KEYS["penalties"].key_by_parameter)
        del key_by_parameter["last_n"]
        if any(builder.read_value(key) != key.off_value for key in key_by_parameter.values()):
            builder.report_unsupported("penalty_range", "a range of 0 switches the penalties off")
    builder.report_unknown({*_KNOWN_KEYS, *other_keys("tabbyapi")})


_CUT_SLOTS = ("top_k", "top_p", "min_p")
# overrides with the field ``additive``: a request can add to the list
_ADDITIVE_LISTS = ("stop", "banned_tokens", "banned_strings")


def to_overrides(exporter: PresetExporter) -> str:
    """Return the YAML. TabbyAPI's file has no system message, so a system message is reported."""
    values = {key: value for key, value in chain_values(exporter).items() if value != []}
    if "logit_bias" in values:
        values["logit_bias"] = exporter.finite_biases(values["logit_bias"])
    if "banned_tokens" in values:
        values["banned_tokens"] = _ids_without_strings(exporter, values["banned_tokens"])
    if "ignore_eos" in exporter.written_slots:
        values["ban_eos_token"] = True
    values |= _convert_other_settings(exporter)
    overrides = {key: _override_entry(key, value) for key, value in values.items()}
    return write_yaml(overrides)


def chain_values(exporter: PresetExporter) -> dict[str, Any]:
    exporter.replace_greedy()
    exporter.write_steps(SAMPLER_KEYS)
    exporter.write_selector(SAMPLER_KEYS)
    name = exporter.selector_name
    if name == "adaptive_p" and exporter.values["adaptive_target"] >= 1:
        exporter.report_unsupported(
            "adaptive_p.target 1", "at 1, TabbyAPI's adaptive-p is off, and tokens are drawn plainly"
        )
    elif name not in ("dist", "adaptive_p"):
        exporter.report_replaced_selector()
    _write_order(exporter)
    return exporter.values


def _override_entry(key: str, value: Any) -> dict[str, Any]:
    entry = {"override": value, "force": False}
    if key in _ADDITIVE_LISTS:
        entry["additive"] = False
    return entry


def _write_order(exporter: PresetExporter) -> None:
    """Write ``temperature_last`` for a temperature after the cuts, and report any other order than TabbyAPI's."""
    if "temperature" in exporter.written_slots:
        position = exporter.written_slots.index("temperature")
        if any(slot in _CUT_SLOTS for slot in exporter.written_slots[:position]):
            exporter.written_slots[position] = "temperature_last"
            exporter.values["temperature_last"] = True
    exporter.report_order(_STEP_ORDER)


def _ids_without_strings(exporter: PresetExporter, tokens: list[int | str]) -> list[int]:
    ids = [token for token in tokens if isinstance(token, int)]
    for token in tokens:
        if isinstance(token, str):
            exporter.report_unsupported(f"ban.tokens {token!r}", "TabbyAPI's file holds token ids only")
    return ids


def _convert_other_settings(exporter: PresetExporter) -> dict[str, Any]:
    """Return the settings other than the chain. Without ``max_tokens``, TabbyAPI's only limit is the context."""
    if exporter.other_settings.get("max_tokens") == -1:
        del exporter.other_settings["max_tokens"]
    phrases = exporter.take_banned_phrases()
    guidance = exporter.take_guidance("cfg_scale")
    if guidance:
        exporter.report_unsupported("guidance", "TabbyAPI applies it with exllamav2 only")
    grammar = exporter.take_grammar(_GRAMMAR_KEYS, "a grammar as text, a JSON Schema or a regular expression")
    settings = guidance | exporter.convert_other_settings(_SETTING_KEYS) | grammar
    if phrases:
        settings["banned_strings"] = [*exporter.values.get("banned_strings", []), *phrases]
    return settings


FORMATS = (
    Format(
        name="tabbyapi",
        tool=TOOL,
        description="sampler overrides of TabbyAPI",
        read=read,
        write=to_overrides,
        recognize=recognize,
        aliases=("tabby",),
    ),
)
