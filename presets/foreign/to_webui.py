"""A preset as text-generation-webui's YAML.

It takes the steps in any order, each of them once, with one window for the penalties and DRY. It starts from its
defaults, with which no step acts, and lays a preset over them (modules/presets.py, ``load_preset``), so only what
differs is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from .hijack import CUTOFF_UNITS, FRONT
from .outgoing import Exported, Outgoing, StepKeys
from .webui import ORDER as WEBUI_ORDER

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
KEYS = {
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
    values = chain_values(out, KEYS, WEBUI_ORDER)
    if values.get("adaptive_target") == 0:
        out.report(
            "adaptive_p.target 0", "text-generation-webui's adaptive-p is off at 0, and a plain draw follows"
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    out.values = {}
    out.take_extras({})
    return out.exported(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else "{}\n")


def chain_values(out: Outgoing, keys: Mapping[str, StepKeys], default: tuple[str, ...]) -> dict[str, Any]:
    """The keys of the chain, by text-generation-webui's names, with ``sampler_priority`` where it differs."""
    name = out.selector_name
    if name == "greedy":
        for step in [step for step in out.steps if step.about.name not in (*_ACTING_BEFORE_GREEDY, *FRONT)]:
            out.steps.remove(step)
            out.report(step.about.name, f"without do_sample, {out.tool} applies the penalties only")
    out.say_steps(keys)
    _windows(out)
    _units(out)
    slots = [slot for slot in out.order if slot not in FRONT]
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
            values[key] = float(f"{values[key] * CUTOFF_UNITS:.12g}")


def _say_order(values: dict[str, Any], slots: list[str], default: tuple[str, ...]) -> None:
    names = [name for slot in slots for name in (_PENALTIES if slot == "penalties" else (slot,))]
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
