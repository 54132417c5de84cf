"""LM Studio's ``*.preset.json``.

The program is closed source: its order, and what it does with absent keys, are not known. It runs llama.cpp, so
the chain has llama.cpp's order, and only what the file says makes a step. Up to version 0.2 the settings are in
``inference_params``; from 0.3 on in ``operation.fields``, a list of {key, value}, where a value may be
{checked, value}, and unchecked means off.

An export has the newer form. Every field is written, also of what is off. A preset lies over the defaults of
the model and of LM Studio, which hold where it has no field; LM Studio's defaults switch on top_k, top_p,
min_p, the repeat penalty and a temperature of 0.8 (lmstudio-js, packages/lms-kv-config/src/schema.ts).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import PresetError
from . import llama_cpp as llama_chain
from .draft import Draft, Exported, Outgoing
from .rows import StepRow, ToolKey, renamed_rows
from .table import ForeignTable

TOOL = "LM Studio"
_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "tfs", "typical", "top_p", "min_p", "xtc", "temperature")

_OLD_SILENT = (
    *("input_prefix", "input_suffix", "pre_prompt_prefix", "pre_prompt_suffix", "n_keep", "multiline_input"),
    *("n_threads", "color", "prompt", "interactive", "in_prefix", "in_suffix", "context_overflow_policy"),
    *("n_batch", "n_ctx", "n_parts", "instruct", "logit_bias", "seed", "mirostat", "penalize_nl", "cpu_threads"),
)

_SCOPE = "llm.prediction."
_LENGTH = "maxPredictedTokens"
_NAMES = {
    "temp": ("temp", "temperature"),
    "top-k": ("top_k", "topKSampling"),
    "top-p": ("top_p", "topPSampling"),
    "min-p": ("min_p", "minPSampling"),
    "typical": ("typical_p", "llama.locallyTypicalSampling"),
    "tfs": ("tfs_z", "llama.tailFreeSampling"),
    "repeat-penalty": ("repeat_penalty", "repeatPenalty"),
    "repeat-last-n": ("repeat_last_n", None),
    "presence-penalty": ("presence_penalty", "llama.presencePenalty"),
    "frequency-penalty": ("frequency_penalty", "llama.frequencyPenalty"),
    "xtc-probability": (None, "llama.xtcProbability"),
    "xtc-threshold": (None, "llama.xtcThreshold"),
    "mirostat-ent": ("mirostat_tau", None),
    "mirostat-lr": ("mirostat_eta", None),
    "max-tokens": ("n_predict", _LENGTH),
    "seed": ("seed", "seed"),
    "stop": ("antiprompt", "stopStrings"),
    "system": ("pre_prompt", "systemPrompt"),
}
"""LM Studio's name of llama.cpp's option, and of other settings: up to version 0.2, and from 0.3 on."""
_OLD = {key: old for key, (old, _) in _NAMES.items() if old is not None}
_NEW = {key: new for key, (_, new) in _NAMES.items() if new is not None}
_MIROSTAT = "llama.mirostatSampling"
_TFS = StepRow("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}, fixed={"pad": False})
_NEW_SILENT = (
    *("promptTemplate", "contextPrefill", "contextOverflowPolicy", "tools", "toolCallStopStrings", "vision"),
    *("llama.cpuThreads", "llama.logProbs", "llama.reasoning", "reasoning", "reasoning.parsing", "logProbs"),
    *("speculativeDecoding.draftModel", "toolNaming", "promptPreprocessor", "rawTools", "envVars"),
)


def convert(data: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    old = data.get("inference_params")
    if isinstance(old, dict):
        return _convert_old(old, origin)
    operation = data.get("operation")
    fields = operation.get("fields") if isinstance(operation, dict) else data.get("fields")
    if not isinstance(fields, list) or not all(isinstance(entry, dict) and "key" in entry for entry in fields):
        raise PresetError(f"{origin}: operation.fields is needed, a list of {{key, value}}")
    return _convert_new(fields, origin)


def _convert_old(values: Mapping[Any, Any], origin: str) -> Draft:
    table = ForeignTable(values, origin, {key: (name,) for key, name in _OLD.items()})
    draft = Draft(TOOL, table)
    if str(table.raw("penalize_nl")).lower() == "false":
        draft.report("penalize_nl", "the penalties would have spared the newline")
    bias = table.raw("logit_bias")
    if isinstance(bias, dict) and bias and all(str(key).isdecimal() for key in bias):
        draft.put_logit_bias()
    elif bias:
        draft.report("logit_bias", "it is no table of token ids and numbers")
    draft.take_seed("seed")
    draft.report_unknown(_OLD_SILENT)
    return _finished(draft)


def _convert_new(fields: list[dict[str, Any]], origin: str) -> Draft:
    values: dict[str, Any] = {}
    for entry in fields:
        value = entry.get("value")
        if isinstance(value, dict) and "checked" in value:
            off = -1 if entry["key"] == _SCOPE + _LENGTH else None  # a length that is unchecked is no limit
            value = value.get("value") if value["checked"] else off
        values[str(entry["key"])] = value
    spellings = {key: (_SCOPE + name,) for key, name in _NEW.items()}
    mirostat = values.get(_SCOPE + _MIROSTAT)
    if isinstance(mirostat, dict):
        values |= {_SCOPE + _MIROSTAT: mirostat.get("version")}
        values |= {"targetEntropy": mirostat.get("targetEntropy"), "learningRate": mirostat.get("learningRate")}
        spellings |= {"mirostat-ent": ("targetEntropy",), "mirostat-lr": ("learningRate",)}
    spellings |= {"mirostat": (_SCOPE + _MIROSTAT,)}
    table = ForeignTable(values, origin, spellings)
    draft = Draft(TOOL, table)
    draft.take_seed("seed")
    structured = values.get(_SCOPE + "structured")
    if isinstance(structured, dict) and structured.get("type") == "json" and structured.get("jsonSchema"):
        draft.extras["grammar"] = {"json_schema": structured["jsonSchema"]}
    elif isinstance(structured, dict) and structured.get("type") == "gbnf" and structured.get("gbnfGrammar"):
        draft.extras["grammar"] = structured["gbnfGrammar"]
    silent = (_SCOPE + name for name in (*_NEW_SILENT, "structured"))
    known = {*silent, *(key for key in table.values if not key.startswith(_SCOPE))}
    draft.report_unknown(known)
    return _finished(draft)


def _finished(draft: Draft) -> Draft:
    draft.notes.append("order: llama.cpp's; LM Studio's own is not known")
    draft.notes.append("what the file does not say makes no step; LM Studio's own defaults are not known")
    draft.defaults_of = "llama.cpp"
    llama_chain.put_steps(draft)
    draft.put_row(_TFS)
    llama_chain.arrange_chain(draft, _ORDER)
    draft.take_max_tokens("max-tokens", (-1,))
    draft.take_texts("stop", "stop")
    draft.take_text("system", "system")
    return draft


_MIROSTAT_NAMES = {"mirostat": "version", "mirostat-ent": "targetEntropy", "mirostat-lr": "learningRate"}
_ROWS = renamed_rows({**llama_chain.ROWS, "tfs": _TFS}, {**_NEW, **_MIROSTAT_NAMES})
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
_UNLIMITED = 1000
"""The value of a length that is not checked."""


def to_preset(out: Outgoing) -> Exported:
    """Return the JSON."""
    mirostat = {"version": 0, "learningRate": 0.1, "targetEntropy": 5.0}
    version = {"mirostat": 1, "mirostat_v2": 2}.get(out.selector_name, 0)
    dropped = {"temperature"} if out.selector_name == "greedy" else set()
    if version:
        out.say_selector(_ROWS)
        mirostat |= {"version": version, **out.values}
        out.values = {}
        dropped = set(_ROWS) - {"temperature"}
    elif out.selector_name not in ("dist", "greedy"):
        out.report_plain_draw()
    reason = "mirostat leaves only the temperature before it" if version else "temperature 0 was written"
    out.leave_out(dropped, reason)
    out.say_steps(_ROWS)
    if out.selector_name == "greedy":
        out.values["temperature"] = 0.0
        out.order.append("temperature")
    out.report_order(_ORDER)
    values = {**_BARE_OFF, **out.values}
    keys = {"max_tokens": _LENGTH, "seed": "seed", "stop": "stopStrings", "system": "systemPrompt"}
    values |= out.take_extras({**keys, "grammar": "grammar"}, unlimited=-1)
    values |= _structured(out, values.pop("grammar", None))
    boxes = {key: _checked(values.pop(key, None), off) for key, off in _CHECKBOXES_OFF.items()}
    if _LENGTH in values:
        limit = values.pop(_LENGTH)
        boxes[_LENGTH] = _checked(None if limit == -1 else limit, _UNLIMITED)
    fields = {**values, **boxes, _MIROSTAT: mirostat}
    preset = {
        "identifier": f"@local:{out.name}",
        "name": out.name,
        "changed": False,
        "operation": {"fields": [{"key": _SCOPE + key, "value": value} for key, value in fields.items()]},
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
    if (schema := out.grammar_schema(grammar)) is not None:
        return {"structured": {"type": "json", "jsonSchema": schema}}
    out.report("grammar", "LM Studio takes a grammar as text, or a JSON Schema")
    return {}
