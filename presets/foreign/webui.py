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
from dataclasses import dataclass
from typing import Any

import yaml

from .draft import SEARCH_KEYS, Draft, Exported, ForeignStep, Outgoing, StepKeys, merged_penalties, report_searches
from .table import ForeignTable, read_breakers

TOOL = "text-generation-webui"
_CUTOFF_UNITS = 10_000
"""epsilon_cutoff and eta_cutoff are given in units of 1e-4."""
_FRONT = ("ignore_eos", "min_tokens", "ban", "logit_bias")
"""Steps that no order names; they come before all others."""
_FLAT_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_PENALTIES = (*_FLAT_PENALTIES, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
"""The steps that act without ``do_sample``, too."""
_LAST = ("temperature", "dynamic_temperature", "quadratic_sampling")

# In which order the steps stand before they are sorted: first transformers' own, then the added ones.
_UNSORTED = (
    "encoder_repetition_penalty",
    "no_repeat_ngram",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "dry",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "tfs",
    "top_a",
    "top_n_sigma",
    "xtc",
    "dynamic_temperature",
    "quadratic_sampling",
    "mirostat",
    "adaptive_p",
)

# The order that a preset gets when it has none. The code's own fallback differs, but presets do not get it.
_ORDER = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry",
    "top_n_sigma",
    "temperature",
    "dynamic_temperature",
    "quadratic_sampling",
    "top_k",
    "top_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "tfs",
    "top_a",
    "min_p",
    "adaptive_p",
    "mirostat",
    "xtc",
    "encoder_repetition_penalty",
    "no_repeat_ngram",
)
KNOWN = (
    *(set(_ORDER) - {"quadratic_sampling", "dry", "adaptive_p", "mirostat", "xtc", "no_repeat_ngram"}),
    *("dynatemp_low", "dynatemp_high", "dynatemp_exponent", "smoothing_factor", "smoothing_curve"),
    *("xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("dry_sequence_breakers", "repetition_penalty_range", "no_repeat_ngram_size", "mirostat_mode"),
    *("mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "do_sample", "sampler_priority"),
    *("temperature_last", *SEARCH_KEYS),
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


@dataclass(frozen=True)
class HijackDefaults:
    """Values that hold where a file is silent, as far as text-generation-webui and SillyTavern differ."""

    range: int
    """Window of the penalties and DRY in tokens; 0: all."""
    dynatemp: tuple[float, float]
    """Both ends of the dynamic temperature."""
    least_target: float | None
    """The lowest adaptive_target that switches adaptive-p on; None: any above 0."""


_DEFAULTS = HijackDefaults(range=1024, dynatemp=(1.0, 1.0), least_target=None)


def convert(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin)
    draft = Draft(TOOL, table)
    draft.notes.append("as text-generation-webui's transformers loaders sample; its llama.cpp loader differs")
    put_steps(draft, _DEFAULTS)
    _take_settings(draft)
    report_searches(draft)
    order = _read_order(table, "sampler_priority")
    if order is None:
        draft.notes.append("order: text-generation-webui's default")
    arrange_chain(draft, _ORDER if order is None else order, table.flag("temperature_last", False))
    for key, effect in FORMER_KEYS.items():
        if table.is_given(key):
            words = effect.format(temperature=table.number("temperature", 1.0))
            draft.report(key, f"{TOOL} does not know this key today; {words}")
    draft.report_unknown({*KNOWN, *_SETTINGS, *_SILENT, *FORMER_KEYS})
    return draft


def _take_settings(draft: Draft) -> None:
    table = draft.table
    draft.take_max_tokens("max_new_tokens")
    draft.take_seed("seed")
    draft.take_text("grammar_string", "grammar")
    if table.flag("ban_eos_token", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["ban_eos_token"])
    bans = table.text("custom_token_bans")
    if bans is not None:
        ids = [part.strip() for part in bans.split(",")]
        if not all(part.isdecimal() for part in ids):
            raise table.fault("custom_token_bans", "token ids separated by commas")
        draft.put("ban", "ban", {"tokens": [int(part) for part in ids]}, ["custom_token_bans"])


def _read_order(table: ForeignTable, key: str) -> list[str] | None:
    """The order of an entry: a list, or one text split at line breaks and commas; None if it is absent."""
    value = table.raw(key)
    if value is None:
        return None
    parts = value.replace(",", "\n").split("\n") if isinstance(value, str) else value
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise table.fault(key, "a list of names")
    return [part.strip() for part in parts if part.strip()]


def put_steps(draft: Draft, defaults: HijackDefaults) -> None:
    """Put every step into its slot; the draft's table knows the keys by text-generation-webui's names."""
    _put_penalties(draft, defaults.range)
    _put_temperatures(draft, defaults.dynatemp)
    _put_truncation(draft)
    _put_selectors(draft, defaults.least_target)


def _put_penalties(draft: Draft, default_range: int) -> None:
    table = draft.table
    last_n = table.whole_number("repetition_penalty_range", default_range) or -1  # 0 means all tokens
    for key, parameter, neutral in (
        ("repetition_penalty", "repeat", 1.0),
        ("presence_penalty", "presence", 0.0),
        ("frequency_penalty", "frequency", 0.0),
    ):
        params = {parameter: table.number(key, neutral), "last_n": last_n}
        draft.put(key, "penalties", params, [key, "repetition_penalty_range"])
    draft.put(
        "dry",
        "dry",
        {
            "multiplier": table.number("dry_multiplier", 0.0),
            "base": table.number("dry_base", 1.75),
            "allowed_length": table.whole_number("dry_allowed_length", 2),
            "last_n": last_n,
            "breakers": read_breakers(table, "dry_sequence_breakers", ["\n", ":", '"', "*"]),
            "match": "last_token",
        },
        ["dry_multiplier", "dry_base", "dry_allowed_length", "repetition_penalty_range", "dry_sequence_breakers"],
    )
    key = "encoder_repetition_penalty"
    draft.put(key, key, {"penalty": table.number(key, 1.0)}, [key])
    key = "no_repeat_ngram_size"
    draft.put("no_repeat_ngram", "no_repeat_ngram", {"n": table.whole_number(key, 0)}, [key])


def _put_temperatures(draft: Draft, dynatemp: tuple[float, float]) -> None:
    table = draft.table
    temperature = table.number("temperature", 1.0)
    if temperature == 0:
        draft.put_greedy("temperature", "temperature", "temperature 0 takes the most likely token")
    else:
        draft.put("temperature", "temperature", {"t": temperature}, ["temperature"])
    if table.flag("dynamic_temperature", False):
        low, high = table.number("dynatemp_low", dynatemp[0]), table.number("dynatemp_high", dynatemp[1])
        if low > high:
            raise table.fault("dynatemp_low", f"at most {table.spelled('dynatemp_high')} {high:g}")
        params = {
            "temperature": round((low + high) / 2, 12),
            "range": round((high - low) / 2, 12),
            "exponent": table.number("dynatemp_exponent", 1.0),
        }
        keys = ["dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent"]
        draft.put("dynamic_temperature", "dynatemp", params, keys, f"from {low:g} to {high:g}")
    factor = table.number("smoothing_factor", 0.0)
    if factor > 0:
        params = {"factor": factor, "curve": table.number("smoothing_curve", 1.0)}
        draft.put("quadratic_sampling", "quadratic", params, ["smoothing_factor", "smoothing_curve"])


def _put_truncation(draft: Draft) -> None:
    table = draft.table
    draft.put("top_k", "top_k", {"k": max(table.whole_number("top_k", 0), 0)}, ["top_k"])
    for key, name, parameter in (("top_p", "top_p", "p"), ("typical_p", "typical", "p"), ("tfs", "tfs", "z")):
        draft.put(key, name, {parameter: min(table.number(key, 1.0), 1.0)}, [key])
    for key, parameter in (("min_p", "p"), ("top_a", "a"), ("top_n_sigma", "n")):
        draft.put(key, key, {parameter: table.number(key, 0.0)}, [key])
    for key in ("epsilon_cutoff", "eta_cutoff"):
        draft.put(key, key, {"epsilon": table.number(key, 0.0) / _CUTOFF_UNITS}, [key], "given in units of 1e-4")
    probability = table.number("xtc_probability", 0.0)
    if probability > 0:
        params = {
            "probability": probability,
            "threshold": table.number("xtc_threshold", 0.1),
            "keep_special": "cancel",
        }
        draft.put("xtc", "xtc", params, ["xtc_probability", "xtc_threshold"])


def _put_selectors(draft: Draft, least_target: float | None) -> None:
    table = draft.table
    mode = table.whole_number("mirostat_mode", 0)
    if mode == 2:
        params = {"tau": table.number("mirostat_tau", 5.0), "eta": table.number("mirostat_eta", 0.1)}
        draft.put("mirostat", "mirostat_v2", params, ["mirostat_mode", "mirostat_tau", "mirostat_eta"])
    elif mode != 0:
        draft.report("mirostat_mode", "text-generation-webui's transformers loaders know mode 2 only")
    target = table.number("adaptive_target", -1.0)
    if target > 0 if least_target is None else target >= least_target:
        params = {"target": target, "decay": table.number("adaptive_decay", 0.9)}
        draft.put("adaptive_p", "adaptive_p", params, ["adaptive_target", "adaptive_decay"])


def arrange_chain(draft: Draft, order: Sequence[str], temperature_last: bool) -> None:
    """Sort the steps by the order and end the chain; without ``do_sample`` only the penalties act.

    Steps that the order does not name come first. ``temperature_last`` moves the temperatures and the smoothing
    behind everything, in the order of the tool's code.
    """
    order = list(dict.fromkeys(order))
    for name in order:
        if name not in _UNSORTED:
            draft.reported.append(
                f"sampler_priority {name!r}: {draft.tool} does not know this step; it was left out"
            )
    if temperature_last:
        order = [*(name for name in order if name not in _LAST), *_LAST]
    steps = draft.arranged([name for name in _UNSORTED if name not in order])
    steps += draft.arranged(order)
    front = draft.arranged(_FRONT)
    if not draft.table.flag("do_sample", True):
        acting = draft.arranged(_PENALTIES)
        kept = [step for step in steps if any(step is penalty for penalty in acting)]
        idle = [step for step in steps if all(step is not penalty for penalty in acting)]
        draft.report_idle([step for step in idle if not _takes_the_best(step)], "do_sample is false")
        steps = [*kept, ForeignStep("greedy", keys=("do_sample",), comment="false: the most likely token")]
    draft.take_chain([*front, *merged_penalties(steps)])


def _takes_the_best(step: ForeignStep) -> bool:
    return step.name == "greedy" or (step.name == "top_k" and step.params.get("k") == 1)


KEYS: Mapping[str, StepKeys] = {
    "penalties": StepKeys(
        "penalties",
        {
            "repeat": "repetition_penalty",
            "presence": "presence_penalty",
            "frequency": "frequency_penalty",
            "last_n": "repetition_penalty_range",
        },
    ),
    "dry": StepKeys(
        "dry",
        {
            "multiplier": "dry_multiplier",
            "base": "dry_base",
            "allowed_length": "dry_allowed_length",
            "last_n": "dry_range",
            "breakers": "dry_sequence_breakers",
        },
        {"match": "last_token"},
    ),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
    "dynatemp": StepKeys(
        "dynamic_temperature",
        {"temperature": "middle", "range": "reach", "exponent": "dynatemp_exponent"},
    ),
    "quadratic": StepKeys("quadratic_sampling", {"factor": "smoothing_factor", "curve": "smoothing_curve"}),
    "xtc": StepKeys(
        "xtc",
        {"probability": "xtc_probability", "threshold": "xtc_threshold"},
        {"keep_special": "cancel"},
    ),
    "top_k": StepKeys("top_k", {"k": "top_k"}),
    "top_p": StepKeys("top_p", {"p": "top_p"}),
    "typical": StepKeys("typical_p", {"p": "typical_p"}),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
    "top_a": StepKeys("top_a", {"a": "top_a"}),
    "tfs": StepKeys("tfs", {"z": "tfs"}),
    "top_n_sigma": StepKeys("top_n_sigma", {"n": "top_n_sigma"}),
    "epsilon_cutoff": StepKeys("epsilon_cutoff", {"epsilon": "epsilon_cutoff"}),
    "eta_cutoff": StepKeys("eta_cutoff", {"epsilon": "eta_cutoff"}),
    "encoder_repetition_penalty": StepKeys(
        "encoder_repetition_penalty", {"penalty": "encoder_repetition_penalty"}
    ),
    "no_repeat_ngram": StepKeys("no_repeat_ngram", {"n": "no_repeat_ngram_size"}),
}
_SELECTORS = {
    "mirostat_v2": StepKeys("mirostat", {"tau": "mirostat_tau", "eta": "mirostat_eta"}),
    "adaptive_p": StepKeys("adaptive_p", {"target": "adaptive_target", "decay": "adaptive_decay"}),
}
_ACTING_BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def to_yaml(out: Outgoing) -> Exported:
    """Return the YAML; what differs from the defaults, and the order."""
    values = chain_values(out, KEYS, _ORDER)
    if values.get("adaptive_target") == 0:
        out.report(
            "adaptive_p.target 0", "text-generation-webui's adaptive-p is off at 0, and a plain draw follows"
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    out.take_extras({})
    return out.exported(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else "{}\n")


def chain_values(out: Outgoing, keys: Mapping[str, StepKeys], default: tuple[str, ...]) -> dict[str, Any]:
    """The keys of the chain, by text-generation-webui's names, with ``sampler_priority`` where it differs."""
    name = out.selector_name
    if name == "greedy":
        for step in [step for step in out.steps if step.about.name not in (*_ACTING_BEFORE_GREEDY, *_FRONT)]:
            out.steps.remove(step)
            out.report(step.about.name, f"without do_sample, {out.tool} applies the penalties only")
    out.say_steps(keys)
    _windows(out)
    _units(out)
    slots = [slot for slot in out.order if slot not in _FRONT]
    if name == "greedy":
        out.values["do_sample"] = False
    elif name in _SELECTORS and out.selector is not None:
        out.say(out.selector, _SELECTORS[name])
        slots.append(_SELECTORS[name].slot)
        out.values |= {"mirostat_mode": 2} if name == "mirostat_v2" else {}
    elif name != "dist":
        out.report(name, f"{out.tool} does not draw so; a plain draw was written")
    _say_order(out.values, slots, default)
    return out.values


def _units(out: Outgoing) -> None:
    """dynatemp as its two ends, and the cutoffs in units of 1e-4."""
    values = out.values
    if "middle" in values:
        middle, reach = values.pop("middle"), values.pop("reach")
        if reach > middle:
            out.report(f"dynatemp.range {reach:g}", f"{out.tool} has no range below 0; from 0 up was written")
        values |= {"dynamic_temperature": True, "dynatemp_low": max(round(middle - reach, 12), 0.0)}
        values["dynatemp_high"] = round(middle + reach, 12)
    for key in ("epsilon_cutoff", "eta_cutoff"):
        if key in values:
            values[key] = float(f"{values[key] * _CUTOFF_UNITS:.12g}")


def _say_order(values: dict[str, Any], slots: list[str], default: tuple[str, ...]) -> None:
    names = [name for slot in slots for name in (_FLAT_PENALTIES if slot == "penalties" else (slot,))]
    if names != sorted(names, key=default.index):
        values["sampler_priority"] = [*names, *(name for name in default if name not in names)]


def _windows(out: Outgoing) -> None:
    """The one window of penalties and DRY, where 0 means all; it is written even if it is the tool's default."""
    values = out.values
    dry = values.pop("dry_range", None)
    shared = values.get("repetition_penalty_range", dry)
    if dry is not None and dry != shared:
        out.report(f"dry.last_n {dry}", f"{out.tool} has one window for penalties and DRY, {shared} here")
    if shared is not None:
        values["repetition_penalty_range"] = max(shared, 0)
