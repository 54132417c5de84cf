"""text-generation-webui: a flat YAML file with what differs from the defaults.

The chain is the one of the transformers loaders, which SillyTavern's presets are written for, too. The rules
follow the tool's patch of transformers (modules/sampler_hijack.py) and its preset defaults
(modules/presets.py): each step has a nickname, and an order of nicknames says which comes first. The llama.cpp
loader differs:

- A range of 0 switches the penalties off.
- dynatemp replaces the temperature.
- do_sample is not read.
- Mirostat leaves only the temperature before it.
- tfs, top_a, the epsilon and eta cutoffs, smoothing, the encoder penalty and the n-grams are missing.

An export can apply the steps in any order, each of them once, with one window for the penalties and DRY. The
tool starts from its defaults, with which no step acts, and lays a preset over them (modules/presets.py,
``load_preset``), so only what differs is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from .conversion import (
    DECODING_KEYS,
    ExportedPreset,
    ForeignStep,
    ImportedChainBuilder,
    PresetExporter,
    merge_penalties,
    report_unsupported_decoding,
)
from .sampler_keys import SamplerKeys, ToolKey, by_sampler, off_values
from .table import BREAKERS, ForeignTable, read_breakers

TOOL = "text-generation-webui"
_CUTOFF_UNITS = 10_000
"""epsilon_cutoff and eta_cutoff are given in units of 1e-4."""
FRONT = ("ignore_eos", "min_tokens", "ban", "logit_bias")
"""Steps that no order names; they come before all others."""
_FLAT_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_PENALTIES = (*_FLAT_PENALTIES, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
"""The steps that act without ``do_sample``, too."""
_LAST = ("temperature", "dynamic_temperature", "quadratic_sampling")

# In which order the steps stand before they are sorted: first transformers' own, then the added ones.
_UNSORTED = (
    *("encoder_repetition_penalty", "no_repeat_ngram", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff", "dry", *_FLAT_PENALTIES, "tfs", "top_a", "top_n_sigma", "xtc"),
    *("dynamic_temperature", "quadratic_sampling", "mirostat", "adaptive_p"),
)

# The order that a preset gets when it has none. The code's own fallback differs, but presets do not get it.
_ORDER = (
    *(*_FLAT_PENALTIES, "dry", "top_n_sigma", "temperature", "dynamic_temperature", "quadratic_sampling"),
    *("top_k", "top_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "adaptive_p"),
    *("mirostat", "xtc", "encoder_repetition_penalty", "no_repeat_ngram"),
)


def _read_window(table: ForeignTable, key: str, default: int) -> int:
    """Return the window in tokens; the tool's 0 means all tokens."""
    return table.integer(key, default) or -1


def _read_cutoff(table: ForeignTable, key: str, default: float) -> float:
    return table.number(key, default) / _CUTOFF_UNITS


_WINDOW = ToolKey("repetition_penalty_range", 0, reader=_read_window)
_SAMPLER_KEYS = by_sampler(
    SamplerKeys(
        "penalties",
        {
            "repeat": ToolKey("repetition_penalty", 1.0),
            "presence": ToolKey("presence_penalty", 0.0),
            "frequency": ToolKey("frequency_penalty", 0.0),
            "last_n": _WINDOW,
        },
    ),
    SamplerKeys(
        "dry",
        {
            "multiplier": ToolKey("dry_multiplier", 0.0),
            "base": ToolKey("dry_base", 1.75),
            "allowed_length": ToolKey("dry_allowed_length", 2),
            "last_n": _WINDOW,
            "breakers": ToolKey("dry_sequence_breakers", BREAKERS, reader=read_breakers),
        },
        fixed_parameters={"match": "last_token"},
    ),
    SamplerKeys("encoder_repetition_penalty", {"penalty": ToolKey("encoder_repetition_penalty", 1.0)}),
    SamplerKeys("no_repeat_ngram", {"n": ToolKey("no_repeat_ngram_size", 0)}),
    SamplerKeys("temperature", {"t": ToolKey("temperature", 1.0)}),
    SamplerKeys(
        "quadratic",
        {"factor": ToolKey("smoothing_factor", 0.0), "curve": ToolKey("smoothing_curve", 1.0)},
        slot="quadratic_sampling",
        is_active_at=lambda factor: factor > 0,
    ),
    SamplerKeys("top_k", {"k": ToolKey("top_k", 0, minimum=0)}),
    SamplerKeys("top_p", {"p": ToolKey("top_p", 1.0, maximum=1.0)}),
    SamplerKeys("typical", {"p": ToolKey("typical_p", 1.0, maximum=1.0)}, slot="typical_p"),
    SamplerKeys("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}),
    SamplerKeys("min_p", {"p": ToolKey("min_p", 0.0)}),
    SamplerKeys("top_a", {"a": ToolKey("top_a", 0.0)}),
    SamplerKeys("top_n_sigma", {"n": ToolKey("top_n_sigma", 0.0)}),
    SamplerKeys(
        "epsilon_cutoff",
        {"epsilon": ToolKey("epsilon_cutoff", 0.0, reader=_read_cutoff)},
        comment="given in units of 1e-4",
    ),
    SamplerKeys(
        "eta_cutoff",
        {"epsilon": ToolKey("eta_cutoff", 0.0, reader=_read_cutoff)},
        comment="given in units of 1e-4",
    ),
    SamplerKeys(
        "xtc",
        {"probability": ToolKey("xtc_probability", 0.0), "threshold": ToolKey("xtc_threshold", 0.1)},
        fixed_parameters={"keep_special": "cancel"},
        is_active_at=lambda probability: probability > 0,
    ),
    SamplerKeys(
        "mirostat_v2",
        {"tau": ToolKey("mirostat_tau", 5.0), "eta": ToolKey("mirostat_eta", 0.1)},
        slot="mirostat",
        switch_key="mirostat_mode",
    ),
    SamplerKeys(
        "adaptive_p",
        {"target": ToolKey("adaptive_target", -1.0), "decay": ToolKey("adaptive_decay", 0.9)},
        is_active_at=lambda target: target > 0,
    ),
)
KNOWN = (
    *off_values(_SAMPLER_KEYS),
    *("dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent", "do_sample"),
    *("sampler_priority", "temperature_last", *DECODING_KEYS),
)
# Parameters of a generation that do not stand in presets, but that a hand may have added.
_SETTINGS = ("seed", "max_new_tokens", "ban_eos_token", "grammar_string", "custom_token_bans")
_SILENT = (
    *("negative_prompt", "add_bos_token", "skip_special_tokens", "truncation_length", "auto_max_new_tokens"),
    *("max_tokens_second", "prompt_lookup_num_tokens", "stream", "static_cache", "enable_thinking"),
    *("reasoning_effort", "name"),
)
FORMER_KEYS = {
    "dynatemp": "known early in 2024 only: a temperature of {temperature:g} plus and minus this",
    "dynamic_temperature_low": "known early in 2024 only: a dynamic temperature from this to {temperature:g}",
    "min_length": "known in 2023: the least number of tokens before the end",
}


_DEFAULTS = {"repetition_penalty_range": 1024, "dynatemp_low": 1.0, "dynatemp_high": 1.0}


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    """Return the builder of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin)
    builder = ImportedChainBuilder(TOOL, table, _DEFAULTS)
    builder.notes.append("as text-generation-webui's transformers loaders sample; its llama.cpp loader differs")
    read_steps(builder)
    builder.read_steps(_SAMPLER_KEYS, "adaptive_p")
    _read_settings(builder)
    report_unsupported_decoding(builder)
    order = _read_order(table, "sampler_priority")
    if order is None:
        builder.notes.append("order: text-generation-webui's default")
    arrange_chain(builder, _ORDER if order is None else order, table.boolean("temperature_last", False))
    for key, effect in FORMER_KEYS.items():
        if table.is_set(key):
            words = effect.format(temperature=table.number("temperature", 1.0))
            builder.report_unsupported(key, f"{TOOL} does not know this key today; {words}")
    builder.report_unknown({*KNOWN, *_SETTINGS, *_SILENT, *FORMER_KEYS})
    return builder


def _read_settings(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_max_tokens("max_new_tokens")
    builder.read_seed("seed")
    builder.read_string("grammar_string", "grammar")
    if table.boolean("ban_eos_token", False):
        builder.put_step("ignore_eos", "ignore_eos", {}, ["ban_eos_token"])
    bans = table.string("custom_token_bans")
    if bans is not None:
        ids = [part.strip() for part in bans.split(",")]
        if not all(part.isdecimal() for part in ids):
            raise table.value_error("custom_token_bans", "token ids separated by commas")
        builder.put_step("ban", "ban", {"tokens": [int(part) for part in ids]}, ["custom_token_bans"])


def _read_order(table: ForeignTable, key: str) -> list[str] | None:
    """The order of an entry: a list, or one text split at line breaks and commas; None if it is absent."""
    value = table.raw_value(key)
    if value is None:
        return None
    parts = value.replace(",", "\n").split("\n") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise table.value_error(key, "a list of names")
    return [part.strip() for part in parts if part.strip()]


def read_steps(builder: ImportedChainBuilder) -> None:
    """Put every step but adaptive-p into its slot.

    The builder's table knows the keys by text-generation-webui's names.
    """
    for parameter in ("repeat", "presence", "frequency"):  # an order places each of them alone
        key = _SAMPLER_KEYS["penalties"].key_by_parameter[parameter]
        builder.read_step(SamplerKeys("penalties", {parameter: key, "last_n": _WINDOW}, slot=key.name))
    builder.read_steps(_SAMPLER_KEYS, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
    builder.read_temperature(_SAMPLER_KEYS["temperature"])
    if builder.table.boolean("dynamic_temperature", False):
        _read_dynatemp(builder)
    builder.read_steps(
        _SAMPLER_KEYS, "quadratic", "top_k", "top_p", "typical", "tfs", "min_p", "top_a", "top_n_sigma"
    )
    builder.read_steps(_SAMPLER_KEYS, "epsilon_cutoff", "eta_cutoff", "xtc")
    mode = builder.table.integer("mirostat_mode", 0)
    if mode == 2:
        builder.read_steps(_SAMPLER_KEYS, "mirostat_v2")
    elif mode != 0:
        builder.report_unsupported(
            "mirostat_mode", "text-generation-webui's transformers loaders know mode 2 only"
        )


def _read_dynatemp(builder: ImportedChainBuilder) -> None:
    """Put the dynamic temperature, which the tool gives by its two ends."""
    table = builder.table
    low, high = (table.number(key, builder.defaults[key]) for key in ("dynatemp_low", "dynatemp_high"))
    if low > high:
        raise table.value_error("dynatemp_low", f"at most {table.key_in_file('dynatemp_high')} {high:g}")
    params = {
        "temperature": round((low + high) / 2, 12),
        "range": round((high - low) / 2, 12),
        "exponent": table.number("dynatemp_exponent", 1.0),
    }
    keys = ["dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent"]
    builder.put_step("dynamic_temperature", "dynatemp", params, keys, f"from {low:g} to {high:g}")


def arrange_chain(builder: ImportedChainBuilder, order: Sequence[str], temperature_last: bool) -> None:
    """Sort the steps by the order and end the chain; without ``do_sample`` only the penalties act.

    Steps that the order does not name come first. ``temperature_last`` moves the temperatures and the smoothing
    behind everything, in the order of the tool's code.
    """
    order = list(dict.fromkeys(order))
    for name in order:
        if name not in _UNSORTED:
            builder.unsupported_settings.append(
                f"sampler_priority {name!r}: {builder.tool} does not know this step; it was left out"
            )
    if temperature_last:
        order = [*(name for name in order if name not in _LAST), *_LAST]
    steps = builder.steps_in_order([name for name in _UNSORTED if name not in order])
    steps += builder.steps_in_order(order)
    front = builder.steps_in_order(FRONT)
    if not builder.table.boolean("do_sample", True):
        acting = builder.steps_in_order(_PENALTIES)
        kept = [step for step in steps if any(step is penalty for penalty in acting)]
        idle = [step for step in steps if all(step is not penalty for penalty in acting)]
        builder.report_inactive_steps([step for step in idle if not _takes_the_best(step)], "do_sample is false")
        steps = [*kept, ForeignStep("greedy", keys=("do_sample",), comment="false: the most likely token")]
    builder.set_chain([*front, *merge_penalties(steps)])


def _takes_the_best(step: ForeignStep) -> bool:
    return step.name == "greedy" or (step.name == "top_k" and step.params.get("k") == 1)


EXPORT_SAMPLER_KEYS = _SAMPLER_KEYS | by_sampler(
    replace(
        _SAMPLER_KEYS["dry"],
        key_by_parameter={**_SAMPLER_KEYS["dry"].key_by_parameter, "last_n": ToolKey("dry_range", 0)},
    ),
    SamplerKeys(
        "dynatemp",
        {
            "temperature": ToolKey("middle", 1.0),
            "range": ToolKey("reach", 0.0),
            "exponent": ToolKey("dynatemp_exponent", 1.0),
        },
        slot="dynamic_temperature",
    ),
)
"""The rows of exports; `chain_values` puts the tool's keys in place of ``dry_range``, ``middle`` and ``reach``."""
_ACTING_BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def to_yaml(exporter: PresetExporter) -> ExportedPreset:
    """Return the YAML; what differs from the defaults, and the order."""
    values = chain_values(exporter, EXPORT_SAMPLER_KEYS, _ORDER)
    if values.get("adaptive_target") == 0:
        exporter.report_unsupported(
            "adaptive_p.target 0", "text-generation-webui's adaptive-p is off at 0, and a plain draw follows"
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    exporter.convert_other_settings({})
    return exporter.make_result(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else "{}\n")


def chain_values(
    exporter: PresetExporter, sampler_keys: Mapping[str, SamplerKeys], default: tuple[str, ...]
) -> dict[str, Any]:
    """The keys of the chain, by text-generation-webui's names, with ``sampler_priority`` where it differs."""
    name = exporter.selector_name
    if name == "greedy":
        acting = (*_ACTING_BEFORE_GREEDY, *FRONT)
        idle = [step.about.name for step in exporter.steps if step.about.name not in acting]
        exporter.remove_steps(idle, f"without do_sample, {exporter.tool} applies the penalties only")
    exporter.write_steps(sampler_keys)
    _windows(exporter)
    _units(exporter)
    slots = [slot for slot in exporter.order if slot not in FRONT]
    selector = exporter.write_selector(sampler_keys)
    if name == "greedy":
        exporter.values["do_sample"] = False
    elif selector is not None:
        slots.append(selector.slot)
        exporter.values |= {"mirostat_mode": 2} if name == "mirostat_v2" else {}
    elif name != "dist":
        exporter.report_plain_draw()
    _write_order(exporter.values, slots, default)
    return exporter.values


def _units(exporter: PresetExporter) -> None:
    """dynatemp as its two ends, and the cutoffs in units of 1e-4."""
    values = exporter.values
    if "middle" in values:
        middle, reach = values.pop("middle"), values.pop("reach")
        if reach > middle:
            exporter.report_unsupported(
                f"dynatemp.range {reach:g}", f"{exporter.tool} has no range below 0; from 0 up was written"
            )
        values |= {"dynamic_temperature": True, "dynatemp_low": max(round(middle - reach, 12), 0.0)}
        values["dynatemp_high"] = round(middle + reach, 12)
    for key in ("epsilon_cutoff", "eta_cutoff"):
        if key in values:
            values[key] = float(f"{values[key] * _CUTOFF_UNITS:.12g}")


def _write_order(values: dict[str, Any], slots: list[str], default: tuple[str, ...]) -> None:
    names = [name for slot in slots for name in (_FLAT_PENALTIES if slot == "penalties" else (slot,))]
    if names != sorted(names, key=default.index):
        values["sampler_priority"] = [*names, *(name for name in default if name not in names)]


def _windows(exporter: PresetExporter) -> None:
    """The one window of penalties and DRY, where 0 means all; it is written even if it is the tool's default."""
    values = exporter.values
    dry = values.pop("dry_range", None)
    shared = values.get("repetition_penalty_range", dry)
    if dry is not None and dry != shared:
        exporter.report_unsupported(
            f"dry.last_n {dry}", f"{exporter.tool} has one window for penalties and DRY, {shared} here"
        )
    if shared is not None:
        values["repetition_penalty_range"] = max(shared, 0)
