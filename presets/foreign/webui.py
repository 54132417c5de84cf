"""Import and export of text-generation-webui's presets: flat YAML files with values that differ from the defaults.

The chain is the one that text-generation-webui runs with its transformers loaders. SillyTavern's presets are
written for this chain, too. The rules follow the tool's patch of transformers (modules/sampler_hijack.py) and its
default preset (modules/presets.py). Each step has a name, and a list of names gives the order. The tool's
llama.cpp loader differs:

- A range of 0 switches the penalties off.
- dynatemp replaces the temperature.
- do_sample is not read.
- Mirostat keeps only the temperature before it.
- tfs, top_a, the epsilon and eta cutoffs, smoothing, the encoder penalty and the n-grams are missing.

An export can have the steps in any order, each of them once, with one window for the penalties and DRY. The tool
applies a preset on top of its defaults, with which no step is on (modules/presets.py, ``load_preset``). So only
values that differ from the defaults are written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...samplers.registry import find_sampler
from ..yaml_writer import write_yaml
from . import lists
from .conversion import (
    DECODING_KEYS,
    ForeignStep,
    Imported,
    ImportedChainBuilder,
    merge_penalties,
    read_decoding,
)
from .exporter import PresetExporter
from .other_keys import other_keys
from .preset_file import PresetFile, known_share
from .registry import Format
from .sampler_keys import SamplerKeys, keys_by_sampler, off_values, sampler_keys, tool_key
from .table import ForeignTable, read_window

TOOL = "text-generation-webui"
# slots that come before all others, whatever the order
LEADING_SLOTS = ("ignore_eos", "min_tokens", "ban", "logit_bias")
_FLAT_PENALTY_SLOTS = ("repetition_penalty", "presence_penalty", "frequency_penalty")
# slots of the steps that have an effect without ``do_sample``, too
_PENALTY_SLOTS = (*_FLAT_PENALTY_SLOTS, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
TEMPERATURE_SLOTS = ("temperature", "dynamic_temperature", "quadratic_sampling")

# The order of the steps before the tool sorts them: first the steps of transformers, then the steps of the tool.
UNSORTED_SLOTS = (
    *("encoder_repetition_penalty", "no_repeat_ngram", "temperature", "top_k", "top_p", "min_p", "typical_p"),
    *("epsilon_cutoff", "eta_cutoff", "dry", *_FLAT_PENALTY_SLOTS, "tfs", "top_a", "top_n_sigma", "xtc"),
    *("dynamic_temperature", "quadratic_sampling", "mirostat", "adaptive_p"),
)

# The default order of a preset. The tool's code has another fallback, which presets never get.
_STEP_ORDER = (
    *(*_FLAT_PENALTY_SLOTS, "dry", "top_n_sigma", "temperature", "dynamic_temperature", "quadratic_sampling"),
    *("top_k", "top_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "tfs", "top_a", "min_p", "adaptive_p"),
    *("mirostat", "xtc", "encoder_repetition_penalty", "no_repeat_ngram"),
)


# The samplers of the names of steps, in this tool's lists and in Aphrodite's, that no sampler has here.
_SAMPLERS_OF_STEP: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("dynatemp", "dynamic_temperature"), ("temperature",)),
    "quadratic_sampling": ("quadratic",),
    "repetition_penalty": ("repetition_penalty", "penalties"),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), ("penalties",)),
    **dict.fromkeys(("mirostat", "adaptive_p"), ()),
    "top_p_top_k": ("top_p", "top_k"),
}


def samplers_of_step(name: str) -> Sequence[str]:
    """Return the samplers of a step of a list, without one that selects the token."""
    # Raises ``SamplingError`` for an unknown name.
    found = _SAMPLERS_OF_STEP.get(name)
    return (find_sampler(name).about.name,) if found is None else found


def _read_penalty_window(table: ForeignTable, key: str, default: int) -> int:
    """Return the penalty window in tokens; the tool's 0, or a number that no text reaches, means all tokens."""
    return read_window(table, key, default) or -1


_keys = partial(sampler_keys, "webui")
_PENALTY_WINDOW_KEY = tool_key("webui", "penalties.last_n", off_value=0, reader=_read_penalty_window)
SAMPLER_KEYS = keys_by_sampler(
    _keys("penalties", {"last_n": _PENALTY_WINDOW_KEY}),
    _keys("dry", {"last_n": _PENALTY_WINDOW_KEY}, fixed_parameters={"match": "last_token"}),
    *map(_keys, ("encoder_repetition_penalty", "no_repeat_ngram", "temperature")),
    _keys("quadratic", slot="quadratic_sampling", is_active_at=lambda factor: factor > 0),
    *map(_keys, ("top_k", "top_p")),
    _keys("typical", slot="typical_p"),
    *map(_keys, ("tfs", "min_p", "top_a", "top_n_sigma")),
    _keys("epsilon_cutoff", comment="given in units of 1e-4"),
    _keys("eta_cutoff", comment="given in units of 1e-4"),
    _keys("xtc", fixed_parameters={"keep_special": "cancel"}, is_active_at=lambda probability: probability > 0),
    _keys("mirostat_v2", slot="mirostat", switch_key="mirostat_mode"),
    _keys("adaptive_p", is_active_at=lambda target: target > 0),
)
ORDER_KEYS = ("sampler_priority", "temperature_last")
# the keys of the chain that belong to no sampler
CHAIN_KEYS = (
    *("dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent", "do_sample", *ORDER_KEYS),
)
KNOWN_KEYS = (*off_values(SAMPLER_KEYS), *CHAIN_KEYS, *DECODING_KEYS)
# Parameters of a generation that the tool does not write into presets. A user may have added them by hand.
_GENERATION_KEYS = ("seed", "max_new_tokens", "ban_eos_token", "grammar_string", "custom_token_bans")
_IGNORED_KEYS = other_keys("webui")
# keys of former versions of the tool, and what each of them did
FORMER_KEYS = {
    "dynatemp": "early in 2024, it set a dynamic temperature of {temperature:g} plus and minus this value",
    "dynamic_temperature_low": "early in 2024, it set a dynamic temperature from this value to {temperature:g}",
    "min_length": "in 2023, it set the minimum number of tokens before the end",
}
_TOOL_DEFAULTS = {"repetition_penalty_range": 1024, "dynatemp_low": 1.0, "dynatemp_high": 1.0}


_ALL_KEYS = frozenset((*KNOWN_KEYS, *_GENERATION_KEYS, *_IGNORED_KEYS, *FORMER_KEYS))


def recognize(file: PresetFile) -> float:
    is_flat = not any(isinstance(value, Mapping) for value in file.yaml_object.values())
    return known_share(file.yaml_object, _ALL_KEYS) if is_flat else 0.0


def read(file: PresetFile) -> Imported:
    return convert(file.yaml_table(), file.origin).imported()


def convert(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(values, origin)
    builder = ImportedChainBuilder(TOOL, table, _TOOL_DEFAULTS)
    builder.notes.append("as text-generation-webui's transformers loaders sample; its llama.cpp loader differs")
    read_steps(builder)
    builder.read_steps(SAMPLER_KEYS, "adaptive_p")
    _read_other_settings(builder)
    read_decoding(builder)
    order = table.read("sampler_priority", lists.read_names) if table.is_set("sampler_priority") else None
    if order is None:
        builder.notes.append("order: text-generation-webui's default")
    arrange_chain(builder, _STEP_ORDER if order is None else order, table.boolean("temperature_last", False))
    if looks_at_all_tokens(builder):
        builder.notes.append("repetition_penalty_range 0: all tokens; off for the tool's llama.cpp loader")
    for key, former_effect in FORMER_KEYS.items():
        if table.is_set(key):
            effect = former_effect.format(temperature=table.number("temperature", 1.0))
            builder.report_unsupported(key, f"{TOOL} no longer knows this key; {effect}")
    builder.report_unknown(_ALL_KEYS)
    return builder


def looks_at_all_tokens(builder: ImportedChainBuilder) -> bool:
    """Return whether a penalty or DRY of the chain has no window, because the file has 0 as their range."""
    default = builder.defaults.get("repetition_penalty_range", 0)
    has_window = builder.table.integer("repetition_penalty_range", default) != 0
    uses_window = any(step.name in ("penalties", "dry") for step in builder.steps)
    return uses_window and not has_window


def _read_other_settings(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_settings({"max_tokens": "max_new_tokens", "seed": "seed", "grammar": "grammar_string"})
    builder.read_ignore_eos("ban_eos_token")
    if table.is_set("custom_token_bans"):
        ids = table.read("custom_token_bans", lists.read_token_ids)
        builder.put_step("ban", "ban", {"tokens": ids} if ids else {}, ["custom_token_bans"])


def read_steps(builder: ImportedChainBuilder) -> None:
    """Read every step except adaptive-p into its slot."""
    # The builder's table must translate text-generation-webui's names of the keys.
    for parameter in ("repeat", "presence", "frequency"):  # separate steps, because the order may separate them
        key = SAMPLER_KEYS["penalties"].key_by_parameter[parameter]
        builder.read_step(SamplerKeys("penalties", {parameter: key, "last_n": _PENALTY_WINDOW_KEY}, slot=key.name))
    builder.read_steps(SAMPLER_KEYS, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
    builder.read_temperature(SAMPLER_KEYS["temperature"])
    if builder.table.boolean("dynamic_temperature", False):
        _read_dynatemp(builder)
    builder.read_steps(
        SAMPLER_KEYS, "quadratic", "top_k", "top_p", "typical", "tfs", "min_p", "top_a", "top_n_sigma"
    )
    builder.read_steps(SAMPLER_KEYS, "epsilon_cutoff", "eta_cutoff", "xtc")
    mode = builder.table.integer("mirostat_mode", 0)
    if mode == 2:
        builder.read_steps(SAMPLER_KEYS, "mirostat_v2")
    elif mode != 0:
        builder.report_unsupported(
            "mirostat_mode", "text-generation-webui's transformers loaders know mode 2 only"
        )


def temperature_range(low: float, high: float) -> dict[str, float]:
    """Return the parameters of a dynamic temperature from its lowest to its highest temperature."""
    return {"temperature": round((low + high) / 2, 12), "range": round((high - low) / 2, 12)}


def _read_dynatemp(builder: ImportedChainBuilder) -> None:
    """Read the dynamic temperature, which the tool gives as a lowest and a highest temperature."""
    table = builder.table
    low = table.number("dynatemp_low", builder.defaults["dynatemp_low"])
    high = table.number("dynatemp_high", builder.defaults["dynatemp_high"])
    for key, temperature in (("dynatemp_low", low), ("dynatemp_high", high)):
        if temperature < 0:
            raise table.value_error(key, "a temperature of at least 0")
    if low > high and table.is_set("dynatemp_low"):
        raise table.value_error("dynatemp_low", f"at most {table.key_in_file('dynatemp_high')} {high:g}")
    if low > high:
        default = f"at least {table.key_in_file('dynatemp_low')}, which is {low:g} by default"
        raise table.value_error("dynatemp_high", default)
    params = temperature_range(low, high) | {"exponent": table.number("dynatemp_exponent", 1.0)}
    keys = ["dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent"]
    builder.put_step("dynamic_temperature", "dynatemp", params, keys, f"from {low:g} to {high:g}")


def arrange_chain(builder: ImportedChainBuilder, order: Sequence[str], temperature_last: bool) -> None:
    """Set the chain: the steps in the given order. Without ``do_sample``, only the penalties are kept."""
    # slots that are not in ``order`` come first. ``temperature_last`` moves the temperatures and the smoothing to
    # the end, in the order of the tool's code.
    order = list(dict.fromkeys(order))
    for name in order:
        if name not in UNSORTED_SLOTS:
            builder.unsupported_settings.append(
                f"sampler_priority {name!r}: {builder.tool} does not know this step; it was left out"
            )
    if temperature_last:
        order = [name for name in order if name not in TEMPERATURE_SLOTS]
        order += TEMPERATURE_SLOTS
    steps = builder.steps_in_order([name for name in UNSORTED_SLOTS if name not in order])
    steps += builder.steps_in_order(order)
    leading_steps = builder.steps_in_order(LEADING_SLOTS)
    if not builder.table.boolean("do_sample", True):
        penalty_ids = {id(step) for step in builder.steps_in_order(_PENALTY_SLOTS)}
        penalties = [step for step in steps if id(step) in penalty_ids]
        inactive_steps = [step for step in steps if id(step) not in penalty_ids and not _is_greedy(step)]
        builder.report_inactive_steps(inactive_steps, "do_sample is false")
        steps = [*penalties, ForeignStep("greedy", keys=("do_sample",), comment="false: the most likely token")]
    builder.set_chain([*leading_steps, *merge_penalties(steps)])


def _is_greedy(step: ForeignStep) -> bool:
    """Return True if the step takes the most likely token, as the chain does anyway without ``do_sample``."""
    return step.name == "greedy" or (step.name == "top_k" and step.params.get("k") == 1)


# The keys for exports. `chain_values` replaces ``dry_range``, ``middle`` and ``reach`` by keys of the tool.
EXPORT_SAMPLER_KEYS = SAMPLER_KEYS | keys_by_sampler(
    replace(
        SAMPLER_KEYS["dry"],
        key_by_parameter={
            **SAMPLER_KEYS["dry"].key_by_parameter,
            "last_n": tool_key("webui-export", "dry.last_n", off_value=0),
        },
    ),
    sampler_keys("webui-export", "dynatemp", slot="dynamic_temperature"),
)
_SAMPLERS_BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def to_yaml(exporter: PresetExporter) -> str:
    """Return the YAML with the values that differ from the defaults, and with the order of the steps."""
    values = request_values(exporter)
    if values.get("adaptive_target") == 0:
        exporter.report_unsupported(
            "adaptive_p.target 0",
            "at 0, text-generation-webui's adaptive-p is off, and tokens are drawn plainly",
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    values |= exporter.take_guidance("guidance_scale", None)
    exporter.convert_other_settings({})
    return write_yaml(values)


def request_values(exporter: PresetExporter) -> dict[str, Any]:
    values = chain_values(exporter, EXPORT_SAMPLER_KEYS, _STEP_ORDER)
    reason = "0 was written, which is all tokens to the transformers loaders, and off to the llama.cpp loader"
    replace_unlimited_window(exporter, 0, reason)
    return values


def replace_unlimited_window(exporter: PresetExporter, number: int, reason: str) -> None:
    """Replace the range of the penalties by a number if it is -1, all tokens, and report the reason."""
    if exporter.values.get("repetition_penalty_range") == -1:
        exporter.values["repetition_penalty_range"] = number
        parameter = "penalties.last_n" if "penalties" in exporter.written_slots else "dry.last_n"
        exporter.report_unsupported(f"{parameter} -1", reason)


def chain_values(
    exporter: PresetExporter, sampler_keys: Mapping[str, SamplerKeys], default_order: tuple[str, ...]
) -> dict[str, Any]:
    # Another order than ``default_order`` is written as ``sampler_priority``.
    name = exporter.selector_name
    if name == "greedy":
        kept_samplers = (*_SAMPLERS_BEFORE_GREEDY, *LEADING_SLOTS)
        ignored_samplers = [step.about.name for step in exporter.steps if step.about.name not in kept_samplers]
        exporter.remove_steps(ignored_samplers, f"without do_sample, {exporter.tool} applies the penalties only")
    exporter.write_steps(sampler_keys)
    _merge_penalty_windows(exporter)
    _write_temperature_range(exporter)
    slots = [slot for slot in exporter.written_slots if slot not in LEADING_SLOTS]
    selector = exporter.write_selector(sampler_keys)
    if name == "greedy":
        exporter.values["do_sample"] = False
    elif selector is not None:
        slots.append(selector.slot)
        if name == "mirostat_v2":
            exporter.values["mirostat_mode"] = 2
    elif name != "dist":
        exporter.report_replaced_selector()
    _write_order(exporter.values, slots, default_order)
    return exporter.values


def _write_temperature_range(exporter: PresetExporter) -> None:
    """Write dynatemp as a lowest and a highest temperature."""
    values = exporter.values
    if "middle" in values:
        middle = values.pop("middle")
        half_range = values.pop("reach")
        if half_range > middle:
            exporter.report_unsupported(
                f"dynatemp.range {half_range:g}",
                f"{exporter.tool} has no temperatures below 0; the range was cut at 0",
            )
        values["dynamic_temperature"] = True
        values["dynatemp_low"] = max(round(middle - half_range, 12), 0.0)
        values["dynatemp_high"] = round(middle + half_range, 12)


def _write_order(values: dict[str, Any], slots: list[str], default_order: tuple[str, ...]) -> None:
    names = [name for slot in slots for name in (_FLAT_PENALTY_SLOTS if slot == "penalties" else (slot,))]
    if names != sorted(names, key=default_order.index):
        values["sampler_priority"] = [*names, *(name for name in default_order if name not in names)]


def _merge_penalty_windows(exporter: PresetExporter) -> None:
    """Write one window for penalties and DRY, where -1 means all tokens; also if it is the tool's default."""
    values = exporter.values
    dry_window = values.pop("dry_range", None)
    shared_window = values.get("repetition_penalty_range", dry_window)
    if dry_window is not None and dry_window != shared_window:
        exporter.report_unsupported(
            f"dry.last_n {dry_window}",
            f"{exporter.tool} has one window for penalties and DRY, {shared_window} here",
        )
    if shared_window is not None:
        values["repetition_penalty_range"] = shared_window


FORMATS = (
    Format(
        name="webui",
        tool=TOOL,
        description="a preset of text-generation-webui",
        read=read,
        write=to_yaml,
        recognize=recognize,
        aliases=("text-generation-webui", "oobabooga"),
    ),
)
