"""A preset as text-generation-webui's YAML, and as SillyTavern's text-completion JSON.

Both take the steps in any order, each of them once, with one window for the penalties and DRY.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from .hijack import CUTOFF_UNITS
from .outgoing import Exported, Outgoing, StepKeys
from .sillytavern import ORDER as SILLYTAVERN_ORDER
from .sillytavern import SPELLINGS
from .webui import ORDER as WEBUI_ORDER

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_KEYS = {
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
_FRONT = {
    "ignore_eos": StepKeys("ignore_eos", {}),
    "min_tokens": StepKeys("min_tokens", {"n": "min_length"}),
    "ban": StepKeys("ban", {"tokens": "tokens", "strings": "strings"}),
    "logit_bias": StepKeys("logit_bias", {"bias": "logit_bias"}),
}
_SELECTORS = {
    "mirostat_v2": StepKeys("mirostat", {"tau": "mirostat_tau", "eta": "mirostat_eta"}),
    "adaptive_p": StepKeys("adaptive_p", {"target": "adaptive_target", "decay": "adaptive_decay"}),
}
_ACTING_BEFORE_GREEDY = ("penalties", "dry", "encoder_repetition_penalty", "no_repeat_ngram")


def to_yaml(out: Outgoing) -> Exported:
    """Return the YAML; what differs from the defaults, and the order."""
    values = _values(out, _KEYS, WEBUI_ORDER)
    if values.get("adaptive_target") == 0:
        out.report(
            "adaptive_p.target 0", "text-generation-webui's adaptive-p is off at 0, and a plain draw follows"
        )
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])[1:-1]
    out.values = {}
    out.take_extras({})
    return out.exported(yaml.safe_dump(values, sort_keys=False, allow_unicode=True) if values else "{}\n")


def to_json(out: Outgoing) -> Exported:
    """Return the JSON; a system message and stop texts stand elsewhere in SillyTavern, and are reported."""
    values = _values(out, {**_KEYS, **_FRONT}, SILLYTAVERN_ORDER)
    values.setdefault("typical_p", 1)  # the key that tells SillyTavern's JSON from KoboldAI's
    values.setdefault("temperature_last", False)
    if values.pop("dynamic_temperature", False):
        values["dynatemp"] = True
        if "temperature" in out.order:
            out.report("temperature", "SillyTavern does not use it beside dynatemp")
            values.pop("temperature", None)
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])
    _front(out, values)
    out.values = {}
    out.take_extras({"max_tokens": "genamt", "seed": "seed", "grammar": "grammar_string"})
    values |= out.values
    grammar = values.get("grammar_string")
    if isinstance(grammar, dict):
        del values["grammar_string"]
        if set(grammar) == {"json_schema"} and isinstance(grammar["json_schema"], dict):
            values["json_schema"] = grammar["json_schema"]
        else:
            out.report("grammar", "SillyTavern takes a grammar as text, or a JSON Schema")
    spelled = {SPELLINGS.get(key, (key,))[0]: value for key, value in values.items()}
    return out.exported(json.dumps(spelled, indent=4, ensure_ascii=False) + "\n")


def _values(out: Outgoing, keys: Mapping[str, StepKeys], default: tuple[str, ...]) -> dict[str, Any]:
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


def _front(out: Outgoing, values: dict[str, Any]) -> None:
    """Biases and bans in SillyTavern's forms."""
    front = [slot for slot in _FRONT if slot in out.order]
    if out.order[: len(front)] != front:
        out.report("order", f"SillyTavern applies {', '.join(front)} before all others")
    if "ignore_eos" in front:
        values["ban_eos_token"] = True
    tokens, strings = values.pop("tokens", []), values.pop("strings", [])
    lines = [json.dumps([token for token in tokens if isinstance(token, int)])] if tokens else []
    for text in [token for token in tokens if isinstance(token, str)] + [f'"{text}"' for text in strings]:
        if "\n" in text or (text in tokens and text[:1] in '["'):
            out.report(f"ban {text!r}", "SillyTavern's list of bans cannot hold it")
        else:
            lines.append(text)
    if lines:
        values["banned_tokens"] = "\n".join(lines)
    bias = values.pop("logit_bias", {})
    if bias:
        values["logit_bias"] = []
    for key, number in bias.items():
        if number == float("-inf"):
            out.report(f"logit_bias.bias {key!r}", "SillyTavern has no bias of -inf; banned_tokens can hold it")
        else:  # in braces, SillyTavern takes a text as it stands
            values["logit_bias"].append(
                {"text": f"{{{key}}}" if isinstance(key, str) else f"[{key}]", "value": number}
            )
