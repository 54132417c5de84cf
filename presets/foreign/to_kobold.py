"""A preset as KoboldAI's ``*.presets``, and as the JSON body of a request to KoboldCpp.

Every key is written, also of what is off. Where one is missing, KoboldAI takes a default that acts
(koboldai_settings.py, ``default_settings``), and so does KoboldCpp (koboldcpp.py, ``generate``).

KoboldAI takes its steps in any order, each of them once; its numbers are those of `orders`. min_p, mirostat and a
grammar are SillyTavern's additions to its presets, for KoboldCpp. KoboldCpp has the same numbers, but some
stand for several steps in a fixed order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...samplers.base import Sampler
from ..messages import make_step
from . import koboldai, koboldcpp
from .breakers import BREAKERS
from .orders import SAMPLERS
from .outgoing import Exported, Outgoing, StepKeys, has_halves

_TRUNCATION = {
    "top_k": StepKeys("top_k", {"k": "top_k"}),
    "top_a": StepKeys("top_a", {"a": "top_a"}),
    "top_p": StepKeys("top_p", {"p": "top_p"}),
    "typical": StepKeys("typical", {"p": "typical"}),
}
_KOBOLDAI_KEYS = {
    **_TRUNCATION,
    "tfs": StepKeys("tfs", {"z": "tfs"}),
    "temperature": StepKeys("temperature", {"t": "temp"}),
    "repetition_penalty": StepKeys(
        "repetition_penalty",
        {"penalty": "rep_pen", "range": "rep_pen_range", "slope": "rep_pen_slope"},
    ),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
}
_KOBOLDAI_SLOTS = {2: ("top_p", "min_p")}
_KOBOLDAI_UNDER_MIROSTAT = ("repetition_penalty", "temperature")
_SILLYTAVERN_ALONE = "KoboldAI does not read it; it was written for SillyTavern, which sends it to KoboldCpp"
_KOBOLDAI_OFF = {
    "temp": 1.0,
    "top_k": 0,
    "top_a": 0.0,
    "top_p": 1.0,
    "tfs": 1.0,
    "typical": 1.0,
    "rep_pen": 1.0,
    "rep_pen_range": 1024,
    "rep_pen_slope": 0.0,
    # SillyTavern's own, which it sends to KoboldCpp alone.
    "min_p": 0.0,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "grammar": "",
}
_KOBOLDAI_LABELS = {"Preset Category": "Custom", "Model Type": "", "Model Size": "", "Model Name": ""}
"""KoboldAI compares them with the model (aiserver.py, ``load_model``), and fails where one is missing."""

_KOBOLDCPP_KEYS = {
    **_TRUNCATION,
    "ignore_eos": StepKeys("ignore_eos", {}),
    "ban": StepKeys("ban", {"strings": "banned_tokens"}),
    "logit_bias": StepKeys("logit_bias", {"bias": "logit_bias"}),
    "dry": StepKeys(
        "dry",
        {
            "multiplier": "dry_multiplier",
            "base": "dry_base",
            "allowed_length": "dry_allowed_length",
            "last_n": "dry_penalty_last_n",
            "breakers": "dry_sequence_breakers",
        },
    ),
    "penalties": StepKeys(
        "repetition_penalty", {"repeat": "rep_pen", "presence": "presence_penalty", "last_n": "rep_pen_range"}
    ),
    "repetition_penalty": StepKeys(
        "repetition_penalty",
        {"penalty": "rep_pen", "range": "rep_pen_range", "slope": "rep_pen_slope"},
        {"shape": "halves"},
    ),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
    "tfs": StepKeys("tfs", {"z": "tfs"}, {"pad": False}),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
    "dynatemp": StepKeys(
        "temperature", {"temperature": "temperature", "range": "dynatemp_range", "exponent": "dynatemp_exponent"}
    ),
    "quadratic": StepKeys("quadratic", {"factor": "smoothing_factor", "curve": "smoothing_curve"}),
    "top_n_sigma": StepKeys("top_n_sigma", {"n": "nsigma"}),
    "xtc": StepKeys("xtc", {"probability": "xtc_probability", "threshold": "xtc_threshold"}),
}
_MIROSTAT = StepKeys("mirostat", {"tau": "mirostat_tau", "eta": "mirostat_eta"})
_MIROSTAT_VERSIONS = {"mirostat": 1, "mirostat_v2": 2}
_KOBOLDCPP_SELECTORS = {
    **dict.fromkeys(_MIROSTAT_VERSIONS, _MIROSTAT),
    "adaptive_p": StepKeys("adaptive_p", {"target": "adaptive_target", "decay": "adaptive_decay"}),
}
_KOBOLDCPP_OFF = {
    "temperature": 1.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "smoothing_factor": 0.0,
    "smoothing_curve": 1.0,
    "nsigma": 0.0,
    "top_k": 0,
    "top_a": 0.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "tfs": 1.0,
    "typical": 1.0,
    "rep_pen": 1.0,
    "rep_pen_range": 320,
    "rep_pen_slope": 1.0,
    "presence_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 320,
    "dry_sequence_breakers": BREAKERS,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.2,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "adaptive_target": -1.0,
    "adaptive_decay": 0.9,
    "logit_bias": {},
    "banned_tokens": [],
    "ban_eos_token": False,
    "sampler_seed": -1,
    "stop_sequence": [],
    "grammar": "",
}
_KOBOLDCPP_FRONT = ("ignore_eos", "ban", "logit_bias", "dry")
_UNDER_MIROSTAT = (*_KOBOLDCPP_FRONT, "repetition_penalty", "temperature", "quadratic")


def to_presets(out: Outgoing) -> Exported:
    """Return the JSON list with the one preset."""
    out.steps = [kept for step in out.steps if (kept := _as_repetition_penalty(out, step)) is not None]
    if out.selector_name == "greedy":
        out.report("greedy", "KoboldAI refuses temperature 0; top_k 1 was written, which takes the same token")
        out.steps = [step for step in out.steps if step.about.name != "top_k"]
        out.steps.append(make_step("top_k", {"k": 1}, "greedy"))
    elif out.selector_name in _MIROSTAT_VERSIONS:
        _leave_out_under_mirostat(out, _KOBOLDAI_KEYS, _KOBOLDAI_UNDER_MIROSTAT)
    elif out.selector_name != "dist":
        out.report(out.selector_name, "KoboldAI does not draw so; a plain draw was written")
    out.say_steps(_KOBOLDAI_KEYS)
    if "min_p" in out.order:
        out.report("min_p", _SILLYTAVERN_ALONE)
    if out.selector is not None and out.selector_name in _MIROSTAT_VERSIONS:
        out.say(out.selector, _MIROSTAT)
        out.values["mirostat"] = _MIROSTAT_VERSIONS[out.selector_name]
        out.report(out.selector_name, _SILLYTAVERN_ALONE)
        out.report_order(_KOBOLDAI_UNDER_MIROSTAT)
    values = {**_KOBOLDAI_OFF, **out.values}
    slots = {number: _KOBOLDAI_SLOTS.get(number, (SAMPLERS[number],)) for number in koboldai.PRESET_ORDER}
    values["sampler_order"] = _order_by_numbers(out, slots)
    out.report_order([slot for number in values["sampler_order"] for slot in slots[number]])
    out.values = {}
    out.take_extras({"max_tokens": "genamt", "grammar": "grammar"})
    _write_grammar(out, "SillyTavern")
    if "grammar" in out.values:
        out.report("grammar", _SILLYTAVERN_ALONE)
    preset = {"preset": out.name, "description": out.description, **_KOBOLDAI_LABELS, **values, **out.values}
    return out.exported(json.dumps([preset], indent=4, ensure_ascii=False) + "\n")


def _as_repetition_penalty(out: Outgoing, step: Sampler) -> Sampler | None:
    """Return the step; for ``penalties`` KoboldAI's penalty without a slope, or None if that would be off."""
    if step.about.name != "penalties":
        return step
    repeat, window = getattr(step, "repeat", 1.0), getattr(step, "last_n", 0)
    for name in ("presence", "frequency"):
        if getattr(step, name) != 0:
            out.report(f"penalties.{name} {getattr(step, name):g}", "KoboldAI has a repetition penalty only")
    if not getattr(step, "penalize_newline", True):
        out.report("penalties.penalize_newline false", "KoboldAI always has true there")
    if repeat == 1:
        return None
    return make_step("repetition_penalty", {"penalty": repeat, "range": max(window, 0)}, "penalties")


def to_request(out: Outgoing) -> Exported:
    """Return the JSON body, without a prompt; a system message is reported, since it is a part of the prompt."""
    out.flatten_repetition_penalty(keeps_halves=True)
    presence = _take_presence(out)
    _end(out)
    out.say_steps(_KOBOLDCPP_KEYS)
    out.values |= {"presence_penalty": presence} if presence else {}
    if out.selector is not None and out.selector_name in _KOBOLDCPP_SELECTORS:
        out.say(out.selector, _KOBOLDCPP_SELECTORS[out.selector_name])
    elif out.selector_name == "greedy":
        out.values["temperature"] = 0.0
        out.order.append("temperature")
    out.widen_window("rep_pen_range", "penalties.last_n")
    out.widen_window("dry_penalty_last_n", "dry.last_n")
    values = {**_KOBOLDCPP_OFF, **out.values, "sampler_order": _numbers(out)}
    biases = out.finite_biases(values["logit_bias"])
    values["logit_bias"] = {str(token): number for token, number in biases.items()}
    values["ban_eos_token"] = "ignore_eos" in out.order
    values["mirostat"] = _MIROSTAT_VERSIONS.get(out.selector_name, 0)
    return out.exported(json.dumps({**values, **_settings(out)}, indent=4, ensure_ascii=False) + "\n")


def _take_presence(out: Outgoing) -> float:
    """Return the presence penalty right after KoboldCpp's slope, which KoboldCpp applies in the same step."""
    for sloped, step in zip(out.steps, out.steps[1:], strict=False):
        is_same_window = getattr(step, "last_n", 0) == getattr(sloped, "range", -1)
        if has_halves(sloped) and step.about.name == "penalties" and is_same_window:
            presence: float = getattr(step, "presence", 0.0)
            if step == make_step("penalties", {"presence": presence, "last_n": getattr(step, "last_n", 0)}, ""):
                out.steps.remove(step)
                return presence
    return 0.0


def _end(out: Outgoing) -> None:
    """Remove the steps that KoboldCpp does not apply before the one that selects."""
    name = out.selector_name
    if name == "greedy":
        reason = "the most likely token is taken, which is temperature 0 there"
        _leave_out(out, [step for step in out.steps if step.about.name in ("temperature", "dynatemp")], reason)
    elif name in _MIROSTAT_VERSIONS:
        _leave_out_under_mirostat(out, _KOBOLDCPP_KEYS, _UNDER_MIROSTAT)
    elif name not in ("dist", "adaptive_p"):
        out.report(name, "KoboldCpp does not draw so; a plain draw was written")


def _leave_out_under_mirostat(
    out: Outgoing, keys_by_sampler: Mapping[str, StepKeys], acting: Sequence[str]
) -> None:
    """Remove the steps that KoboldCpp does not apply before mirostat; ``acting``: the slots of the others."""
    idle = [
        step
        for step in out.steps
        if (keys := keys_by_sampler.get(step.about.name)) is not None and keys.slot not in acting
    ]
    _leave_out(out, idle, "KoboldCpp applies only penalties, biases and temperature before mirostat")


def _leave_out(out: Outgoing, steps: Sequence[Sampler], reason: str) -> None:
    for step in steps:
        out.report(step.about.name, reason)
    out.steps = [step for step in out.steps if all(step is not other for other in steps)]


def _numbers(out: Outgoing) -> list[int]:
    """Return ``sampler_order``; an order that its numbers cannot say is reported."""
    slots = {number: koboldcpp.SLOTS.get(number, (SAMPLERS[number],)) for number in koboldcpp.ORDER}
    numbers = _order_by_numbers(out, slots)
    out.report_order([*_KOBOLDCPP_FRONT, *(slot for number in numbers for slot in slots[number]), "xtc"])
    return numbers


def _order_by_numbers(out: Outgoing, slots: Mapping[int, Sequence[str]]) -> list[int]:
    """Return the numbers in the order of the steps, and behind them the others in the order of ``slots``."""
    number_of = {slot: number for number, names in slots.items() for slot in names}
    return list(dict.fromkeys([*(number_of[slot] for slot in out.order if slot in number_of), *slots]))


def _settings(out: Outgoing) -> dict[str, Any]:
    """Return the settings beside the chain by KoboldCpp's keys."""
    out.values = {}
    keys = {"max_tokens": "max_length", "seed": "sampler_seed", "stop": "stop_sequence", "grammar": "grammar"}
    out.take_extras(keys)
    if out.values.get("sampler_seed") == 0:
        del out.values["sampler_seed"]
        out.report("seed 0", "KoboldCpp takes it for a random one")
    _write_grammar(out, "KoboldCpp")
    return out.values


def _write_grammar(out: Outgoing, reader: str) -> None:
    """Write a grammar as text; one that has none is reported, as what ``reader`` does not take."""
    if "grammar" in out.values:
        text = out.grammar_text(out.values.pop("grammar"))
        if text is None:
            out.report("grammar", f"{reader} takes a grammar as text")
        else:
            out.values["grammar"] = text
