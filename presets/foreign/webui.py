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

from .draft import SEARCH_KEYS, Draft, Exported, ForeignStep, Outgoing, merged_penalties, report_searches
from .rows import StepRow, ToolKey, off_values, rows_by_sampler
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
    return table.whole_number(key, default) or -1


def _read_cutoff(table: ForeignTable, key: str, default: float) -> float:
    return table.number(key, default) / _CUTOFF_UNITS


_WINDOW = ToolKey("repetition_penalty_range", 0, reader=_read_window)
_ROWS = rows_by_sampler(
    StepRow(
        "penalties",
        {
            "repeat": ToolKey("repetition_penalty", 1.0),
            "presence": ToolKey("presence_penalty", 0.0),
            "frequency": ToolKey("frequency_penalty", 0.0),
            "last_n": _WINDOW,
        },
    ),
    StepRow(
        "dry",
        {
            "multiplier": ToolKey("dry_multiplier", 0.0),
            "base": ToolKey("dry_base", 1.75),
            "allowed_length": ToolKey("dry_allowed_length", 2),
            "last_n": _WINDOW,
            "breakers": ToolKey("dry_sequence_breakers", BREAKERS, reader=read_breakers),
        },
        fixed={"match": "last_token"},
    ),
    StepRow("encoder_repetition_penalty", {"penalty": ToolKey("encoder_repetition_penalty", 1.0)}),
    StepRow("no_repeat_ngram", {"n": ToolKey("no_repeat_ngram_size", 0)}),
    StepRow("temperature", {"t": ToolKey("temperature", 1.0)}),
    StepRow(
        "quadratic",
        {"factor": ToolKey("smoothing_factor", 0.0), "curve": ToolKey("smoothing_curve", 1.0)},
        slot="quadratic_sampling",
        acts=lambda factor: factor > 0,
    ),
    StepRow("top_k", {"k": ToolKey("top_k", 0, minimum=0)}),
    StepRow("top_p", {"p": ToolKey("top_p", 1.0, maximum=1.0)}),
    StepRow("typical", {"p": ToolKey("typical_p", 1.0, maximum=1.0)}, slot="typical_p"),
    StepRow("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}),
    StepRow("min_p", {"p": ToolKey("min_p", 0.0)}),
    StepRow("top_a", {"a": ToolKey("top_a", 0.0)}),
    StepRow("top_n_sigma", {"n": ToolKey("top_n_sigma", 0.0)}),
    StepRow(
        "epsilon_cutoff",
        {"epsilon": ToolKey("epsilon_cutoff", 0.0, reader=_read_cutoff)},
        comment="given in units of 1e-4",
    ),
    StepRow(
        "eta_cutoff",
        {"epsilon": ToolKey("eta_cutoff", 0.0, reader=_read_cutoff)},
        comment="given in units of 1e-4",
    ),
    StepRow(
        "xtc",
        {"probability": ToolKey("xtc_probability", 0.0), "threshold": ToolKey("xtc_threshold", 0.1)},
        fixed={"keep_special": "cancel"},
        acts=lambda probability: probability > 0,
    ),
    StepRow(
        "mirostat_v2",
        {"tau": ToolKey("mirostat_tau", 5.0), "eta": ToolKey("mirostat_eta", 0.1)},
        slot="mirostat",
        switch="mirostat_mode",
    ),
    StepRow(
        "adaptive_p",
        {"target": ToolKey("adaptive_target", -1.0), "decay": ToolKey("adaptive_decay", 0.9)},
        acts=lambda target: target > 0,
    ),
)
KNOWN = (
    *off_values(_ROWS),
    *("dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent", "do_sample"),
    *("sampler_priority", "temperature_last", *SEARCH_KEYS),
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


def convert(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin)
    draft = Draft(TOOL, table, _DEFAULTS)
    draft.notes.append("as text-generation-webui's transformers loaders sample; its llama.cpp loader differs")
    put_steps(draft)
    draft.put_rows(_ROWS, "adaptive_p")
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


def put_steps(draft: Draft) -> None:
    """Put every step but adaptive-p into its slot.

    The draft's table knows the keys by text-generation-webui's names.
    """
    for parameter in ("repeat", "presence", "frequency"):  # an order places each of them alone
        key = _ROWS["penalties"].keys[parameter]
        draft.put_row(StepRow("penalties", {parameter: key, "last_n": _WINDOW}, slot=key.name))
    draft.put_rows(_ROWS, "dry", "encoder_repetition_penalty", "no_repeat_ngram")
    draft.put_temperature(_ROWS["temperature"])
    if draft.table.flag("dynamic_temperature", False):
        _put_dynatemp(draft)
    draft.put_rows(_ROWS, "quadratic", "top_k", "top_p", "typical", "tfs", "min_p", "top_a", "top_n_sigma")
    draft.put_rows(_ROWS, "epsilon_cutoff", "eta_cutoff", "xtc")
    mode = draft.table.whole_number("mirostat_mode", 0)
    if mode == 2:
        draft.put_rows(_ROWS, "mirostat_v2")
    elif mode != 0:
        draft.report("mirostat_mode", "text-generation-webui's transformers loaders know mode 2 only")


def _put_dynatemp(draft: Draft) -> None:
    """Put the dynamic temperature, which the tool gives by its two ends."""
    table = draft.table
    low, high = (table.number(key, draft.defaults[key]) for key in ("dynatemp_low", "dynatemp_high"))
    if low > high:
        raise table.fault("dynatemp_low", f"at most {table.spelled('dynatemp_high')} {high:g}")
    params = {
        "temperature": round((low + high) / 2, 12),
        "range": round((high - low) / 2, 12),
        "exponent": table.number("dynatemp_exponent", 1.0),
    }
    keys = ["dynamic_temperature", "dynatemp_low", "dynatemp_high", "dynatemp_exponent"]
    draft.put("dynamic_temperature", "dynatemp", params, keys, f"from {low:g} to {high:g}")


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
    front = draft.arranged(FRONT)
    if not draft.table.flag("do_sample", True):
        acting = draft.arranged(_PENALTIES)
        kept = [step for step in steps if any(step is penalty for penalty in acting)]
        idle = [step for step in steps if all(step is not penalty for penalty in acting)]
        draft.report_idle([step for step in idle if not _takes_the_best(step)], "do_sample is false")
        steps = [*kept, ForeignStep("greedy", keys=("do_sample",), comment="false: the most likely token")]
    draft.take_chain([*front, *merged_penalties(steps)])


def _takes_the_best(step: ForeignStep) -> bool:
    return step.name == "greedy" or (step.name == "top_k" and step.params.get("k") == 1)


EXPORT_ROWS = _ROWS | rows_by_sampler(
    replace(_ROWS["dry"], keys={**_ROWS["dry"].keys, "last_n": ToolKey("dry_range", 0)}),
    StepRow(
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


def to_yaml(out: Outgoing) -> Exported:
    """Return the YAML; what differs from the defaults, and the order."""
    values = chain_values(out, EXPORT_ROWS, _ORDER)
    if values.get("adaptive_target") == 0:
        out.report(
            "adaptive_p.target 0", "text-generation-webui's adaptive-p is off at 0, and a plain draw follows"
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    out.take_extras({})
    return out.exported(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else "{}\n")


def chain_values(out: Outgoing, rows: Mapping[str, StepRow], default: tuple[str, ...]) -> dict[str, Any]:
    """The keys of the chain, by text-generation-webui's names, with ``sampler_priority`` where it differs."""
    name = out.selector_name
    if name == "greedy":
        acting = (*_ACTING_BEFORE_GREEDY, *FRONT)
        idle = [step.about.name for step in out.steps if step.about.name not in acting]
        out.leave_out(idle, f"without do_sample, {out.tool} applies the penalties only")
    out.say_steps(rows)
    _windows(out)
    _units(out)
    slots = [slot for slot in out.order if slot not in FRONT]
    selector = out.say_selector(rows)
    if name == "greedy":
        out.values["do_sample"] = False
    elif selector is not None:
        slots.append(selector.slot)
        out.values |= {"mirostat_mode": 2} if name == "mirostat_v2" else {}
    elif name != "dist":
        out.report_plain_draw()
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
