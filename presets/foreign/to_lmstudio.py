"""A preset as LM Studio's ``*.preset.json``, in the form that it has since version 0.3.

Every field is written, also of what is off. A preset lies over the defaults of the model and of LM Studio, which
hold where it has no field; LM Studio's own switch on top_k, top_p, min_p, the repeat penalty and a temperature of
0.8 (lmstudio-js, packages/lms-kv-config/src/schema.ts). The order is taken to be llama.cpp's, as in an import.
"""

from __future__ import annotations

import json
from typing import Any

from .lmstudio import MIROSTAT, ORDER, SCOPE
from .outgoing import Exported, Outgoing, StepKeys

_KEYS = {
    "penalties": StepKeys(
        "penalties",
        {"repeat": "repeatPenalty", "presence": "llama.presencePenalty", "frequency": "llama.frequencyPenalty"},
    ),
    "top_k": StepKeys("top_k", {"k": "topKSampling"}),
    "tfs": StepKeys("tfs", {"z": "llama.tailFreeSampling"}, {"pad": False}),
    "typical": StepKeys("typical", {"p": "llama.locallyTypicalSampling"}),
    "top_p": StepKeys("top_p", {"p": "topPSampling"}),
    "min_p": StepKeys("min_p", {"p": "minPSampling"}),
    "xtc": StepKeys("xtc", {"probability": "llama.xtcProbability", "threshold": "llama.xtcThreshold"}),
    "temperature": StepKeys("temperature", {"t": "temperature"}),
}
_MIROSTAT_KEYS = StepKeys("mirostat", {"tau": "targetEntropy", "eta": "learningRate"})
_BARE_OFF: dict[str, Any] = {
    "temperature": 1.0,
    "topKSampling": 0,
    "stopStrings": [],
    "structured": {"type": "none"},
}
"""Fields that hold their value as it is, and the values with which they do nothing."""
_CHECKBOXES_OFF = {
    "repeatPenalty": 1.1,
    "minPSampling": 0.05,
    "topPSampling": 0.95,
    "seed": -1,
    "llama.presencePenalty": 0.0,
    "llama.frequencyPenalty": 0.0,
    "llama.xtcProbability": 0.5,
    "llama.xtcThreshold": 0.1,
    "llama.tailFreeSampling": 0.95,
    "llama.locallyTypicalSampling": 0.9,
}
"""Fields that hold {checked, value}, and LM Studio's values of those that are not checked."""
_LENGTH = "maxPredictedTokens"
_UNLIMITED = 1000
"""The value of a length that is not checked."""


def to_preset(out: Outgoing) -> Exported:
    """Return the JSON."""
    mirostat = {"version": 0, "learningRate": 0.1, "targetEntropy": 5.0}
    version = {"mirostat": 1, "mirostat_v2": 2}.get(out.selector_name, 0)
    dropped = {"temperature"} if out.selector_name == "greedy" else set()
    if version and out.selector is not None:
        out.say(out.selector, _MIROSTAT_KEYS)
        mirostat |= {"version": version, **out.values}
        out.values = {}
        dropped = set(_KEYS) - {"temperature"}
    elif out.selector_name not in ("dist", "greedy"):
        out.report(out.selector_name, "LM Studio does not draw so; a plain draw was written")
    for step in [step for step in out.steps if step.about.name in dropped]:
        out.steps.remove(step)
        reason = "mirostat leaves only the temperature before it" if version else "temperature 0 was written"
        out.report(step.about.name, reason)
    out.say_steps(_KEYS)
    if out.selector_name == "greedy":
        out.values["temperature"] = 0.0
        out.order.append("temperature")
    out.report_order(ORDER)
    values = {**_BARE_OFF, **out.values}
    out.values = {}
    out.take_extras(
        {
            "max_tokens": _LENGTH,
            "seed": "seed",
            "stop": "stopStrings",
            "system": "systemPrompt",
            "grammar": "grammar",
        },
        unlimited=-1,
    )
    values |= out.values
    values |= _structured(out, values.pop("grammar", None))
    boxes = {key: _checked(values.pop(key, None), off) for key, off in _CHECKBOXES_OFF.items()}
    if _LENGTH in values:
        limit = values.pop(_LENGTH)
        boxes[_LENGTH] = _checked(None if limit == -1 else limit, _UNLIMITED)
    fields = {**values, **boxes, MIROSTAT: mirostat}
    preset = {
        "identifier": f"@local:{out.name}",
        "name": out.name,
        "changed": False,
        "operation": {"fields": [{"key": SCOPE + key, "value": value} for key, value in fields.items()]},
        "load": {"fields": []},
    }
    return out.exported(json.dumps(preset, indent=2, ensure_ascii=False) + "\n")


def _checked(value: Any, off: Any) -> dict[str, Any]:
    return {"checked": value is not None, "value": off if value is None else value}


def _structured(out: Outgoing, grammar: Any) -> dict[str, Any]:
    """Return the field of a grammar or of a JSON Schema; what else names a grammar is reported."""
    if grammar is None:
        return {}
    if (text := out.grammar_text(grammar)) is not None:
        return {"structured": {"type": "gbnf", "gbnfGrammar": text}}
    if isinstance(grammar, dict) and set(grammar) == {"json_schema"} and isinstance(grammar["json_schema"], dict):
        return {"structured": {"type": "json", "jsonSchema": grammar["json_schema"]}}
    out.report("grammar", "LM Studio takes a grammar as text, or a JSON Schema")
    return {}
