"""A preset as TabbyAPI's ``sampler_overrides/*.yml``. The order is that of the exllamav3 back end.

Only what acts is written: an override that is missing is TabbyAPI's own default, with which no step acts
(common/sampling.py, ``get_default_sampler_value``), since a file replaces all overrides of the one before it
(``overrides_from_file``). ``force`` is false, so a request takes precedence.
"""

from __future__ import annotations

from typing import Any

import yaml

from .outgoing import Exported, Outgoing, StepKeys
from .tabbyapi import ORDER

_KEYS = {
    "logit_bias": StepKeys("logit_bias", {"bias": "logit_bias"}),
    "penalties": StepKeys(
        "penalties",
        {
            "repeat": "repetition_penalty",
            "presence": "presence_penalty",
            "frequency": "frequency_penalty",
            "last_n": "penalty_range",
        },
    ),
    "ignore_eos": StepKeys("ignore_eos", {}),
    "min_tokens": StepKeys("min_tokens", {"n": "min_tokens"}),
    "ban": StepKeys("ban", {"tokens": "banned_tokens", "strings": "banned_strings"}),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
    "top_k": StepKeys("top_k", {"k": "top_k"}),
    "top_p": StepKeys("top_p", {"p": "top_p"}, {"boundary": "exclude"}),
    "min_p": StepKeys("min_p", {"p": "min_p"}),
    "xtc": StepKeys(
        "xtc", {"probability": "xtc_probability", "threshold": "xtc_threshold"}, {"keep_special": True}
    ),
}
_ADAPTIVE_P = StepKeys("adaptive_p", {"target": "adaptive_target", "decay": "adaptive_decay"})
_TRUNCATION = ("top_k", "top_p", "min_p")
_LISTS = ("stop", "banned_tokens", "banned_strings")
"""Overrides that a request can add to."""


def to_overrides(out: Outgoing) -> Exported:
    """Return the YAML; a system message is not a part of it, and is reported."""
    name = out.selector_name
    if name == "greedy":
        for step in [step for step in out.steps if step.about.name == "temperature"]:
            out.steps.remove(step)
            out.report("temperature", "the most likely token is taken, which is temperature 0 there")
    out.say_steps(_KEYS)
    if name == "greedy":
        out.values["temperature"] = 0.0
        out.order.append("temperature")
    elif name == "adaptive_p" and out.selector is not None:
        out.say(out.selector, _ADAPTIVE_P)
        if out.values["adaptive_target"] >= 1:
            out.report("adaptive_p.target 1", "TabbyAPI's adaptive-p is off at 1, and a plain draw follows")
    elif name != "dist":
        out.report(name, "TabbyAPI does not draw so; a plain draw was written")
    _order(out)
    values = {key: value for key, value in out.values.items() if value != []}
    if "logit_bias" in values:
        values["logit_bias"] = out.finite_biases(values["logit_bias"])
    if "banned_tokens" in values:
        values["banned_tokens"] = _ids(out, values["banned_tokens"])
    values |= {"ban_eos_token": True} if "ignore_eos" in out.order else {}
    values |= _settings(out)
    overrides = {key: _override(key, value) for key, value in values.items()}
    return out.exported(yaml.safe_dump(overrides, sort_keys=False, allow_unicode=True) if overrides else "{}\n")


def _override(key: str, value: Any) -> dict[str, Any]:
    return {"override": value, "force": False, **({"additive": False} if key in _LISTS else {})}


def _order(out: Outgoing) -> None:
    """Write the switch of a temperature after the truncation, and report an order that TabbyAPI does not have."""
    if "temperature" in out.order:
        place = out.order.index("temperature")
        if any(slot in _TRUNCATION for slot in out.order[:place]):
            out.order[place] = "temperature_last"
            out.values["temperature_last"] = True
    out.report_order(ORDER)


def _ids(out: Outgoing, tokens: list[int | str]) -> list[int]:
    ids = [token for token in tokens if isinstance(token, int)]
    for token in tokens:
        if isinstance(token, str):
            out.report(f"ban.tokens {token!r}", "TabbyAPI's file holds token ids only")
    return ids


def _settings(out: Outgoing) -> dict[str, Any]:
    """Return the settings beside the chain; without a length, TabbyAPI has no limit but the context."""
    if out.extras.get("max_tokens") == -1:
        del out.extras["max_tokens"]
    out.values = {}
    out.take_extras({"max_tokens": "max_tokens", "seed": "seed", "stop": "stop", "grammar": "grammar"})
    grammar = out.values.pop("grammar", None)
    keys = {"json_schema": "json_schema", "regex": "regex_pattern"}
    if (text := out.grammar_text(grammar)) is not None:
        out.values["grammar_string"] = text
    elif isinstance(grammar, dict) and len(grammar) == 1 and set(grammar) <= set(keys):
        ((kind, value),) = grammar.items()
        out.values[keys[kind]] = value
    elif grammar is not None:
        out.report("grammar", "TabbyAPI takes a grammar as text, a JSON Schema or a regular expression")
    return out.values
