"""A preset as llama.cpp's command line, and as the JSON body of a request to llama-server.

llama.cpp takes its samplers in any order, each of them once. A greedy end is a temperature of 0 behind the
others, and mirostat leaves only the temperature before it.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from ..messages import make_step
from .llama_requests import BODY_KEYS
from .outgoing import Exported, Outgoing, StepKeys

_KEYS = {
    "penalties": StepKeys(
        "penalties",
        {
            "repeat": "repeat-penalty",
            "presence": "presence-penalty",
            "frequency": "frequency-penalty",
            "last_n": "repeat-last-n",
        },
    ),
    "dry": StepKeys(
        "dry",
        {
            "multiplier": "dry-multiplier",
            "base": "dry-base",
            "allowed_length": "dry-allowed-length",
            "last_n": "dry-penalty-last-n",
            "breakers": "dry-sequence-breaker",
        },
    ),
    "top_n_sigma": StepKeys("top_n_sigma", {"n": "top-n-sigma"}),
    "top_k": StepKeys("top_k", {"k": "top-k"}),
    "typical": StepKeys("typical", {"p": "typical"}),
    "top_p": StepKeys("top_p", {"p": "top-p"}),
    "min_p": StepKeys("min_p", {"p": "min-p"}),
    "xtc": StepKeys("xtc", {"probability": "xtc-probability", "threshold": "xtc-threshold"}),
    "temperature": StepKeys("temperature", {"t": "temp"}),
    "dynatemp": StepKeys(
        "temperature", {"temperature": "temp", "range": "dynatemp-range", "exponent": "dynatemp-exp"}
    ),
    "infill": StepKeys("infill", {}),
    "ignore_eos": StepKeys("ignore_eos", {}),
    "logit_bias": StepKeys("logit_bias", {"bias": "logit-bias"}),
}
_SELECTORS = {
    "mirostat": StepKeys("mirostat", {"tau": "mirostat-ent", "eta": "mirostat-lr"}),
    "mirostat_v2": StepKeys("mirostat", {"tau": "mirostat-ent", "eta": "mirostat-lr"}),
    "adaptive_p": StepKeys("adaptive_p", {"target": "adaptive-target", "decay": "adaptive-decay"}),
}
_TEMPERATURES = ("temp", "dynatemp-range", "dynatemp-exp")
_NAMES = {"typical": "typ_p"}


def to_command(out: Outgoing) -> Exported:
    """Return the command line.

    Reported: biases of texts, and a grammar given as a table, unless it is a JSON Schema or a file.
    """
    values = _values(out)
    out.values = {}
    out.take_extras(
        {
            "max_tokens": "n-predict",
            "seed": "seed",
            "stop": "reverse-prompt",
            "system": "system-prompt",
            "grammar": "grammar",
        },
        unlimited=-1,
    )
    values |= out.values
    values |= _grammar(out, values.pop("grammar", None), has_files=True)
    for key in ("dry-sequence-breaker", "reverse-prompt"):
        if key in values:
            values[key] = [_escaped(text) for text in values[key]]
    if values.get("dry-sequence-breaker") == []:
        values["dry-sequence-breaker"] = ["none"]
    if "logit-bias" in values:
        values["logit-bias"] = _flag_biases(out, values["logit-bias"])
    words = ["llama-cli"]
    for key, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            words += [f"--{key}"] if item is True else [f"--{key}", shlex.quote(_word(item))]
    return out.exported(" ".join(words) + "\n")


def to_body(out: Outgoing) -> Exported:
    """Return the JSON body; a system message belongs to the messages of a request, and is reported.

    What a body leaves out is as the server was started (tools/server/server-task.cpp, params_from_json_cmpl). A
    list of samplers leaves out all others, but neither mirostat nor the range of a dynamic temperature.
    """
    values = _values(out)
    if "temp" in values:
        values.setdefault("dynatemp-range", 0.0)
    values.setdefault("mirostat", 0)
    out.values = {}
    keys = {"max_tokens": "n-predict", "seed": "seed", "stop": "reverse-prompt", "grammar": "grammar"}
    out.take_extras(keys, unlimited=-1)
    values |= out.values
    values |= _grammar(out, values.pop("grammar", None), has_files=False)
    if "logit-bias" in values:
        bias = values["logit-bias"]
        values["logit-bias"] = [
            [key, False if number == float("-inf") else number] for key, number in bias.items()
        ]
    if "samplers" in values:
        values["samplers"] = values["samplers"].split(";")
    body = {BODY_KEYS[key]: value for key, value in values.items()}
    return out.exported(json.dumps(body, indent=2, ensure_ascii=False) + "\n")


def _values(out: Outgoing) -> dict[str, Any]:
    """The options of the chain."""
    _bans_as_biases(out)
    out.say_steps(_KEYS)
    front = [slot for slot in ("ignore_eos", "logit_bias") if slot in out.order]
    if out.order[: len(front)] != front:
        out.report("order", f"llama.cpp applies {' and '.join(front)} before all others")
    out.order = [slot for slot in out.order if slot not in front]
    if "ignore_eos" in front:
        out.values["ignore-eos"] = True
    if out.selector_name in ("mirostat", "mirostat_v2"):
        _keep_temperature(out)
    elif out.selector_name == "greedy":
        _end_greedily(out)
    elif out.selector_name == "adaptive_p":
        out.order.append("adaptive_p")
    elif out.selector_name != "dist":
        out.report(out.selector_name, "llama.cpp does not draw so; a plain draw was written")
    if out.selector is not None and out.selector_name in _SELECTORS:
        out.say(out.selector, _SELECTORS[out.selector_name])
    _windows(out)
    if "mirostat" in out.values:
        return out.values
    if not out.order:
        # A list that is empty would mean llama.cpp's own; a temperature of 1 changes nothing.
        out.order, out.values["temp"] = ["temperature"], 1.0
    return {"samplers": ";".join(_NAMES.get(slot, slot) for slot in out.order), **out.values}


def _keep_temperature(out: Outgoing) -> None:
    for slot in [slot for slot in out.order if slot != "temperature"]:
        out.drop(slot, _keys_of(slot), "llama.cpp applies only the temperature before mirostat")
    if not out.order:
        out.values["temp"] = 1.0
    out.values["mirostat"] = 1 if out.selector_name == "mirostat" else 2


def _end_greedily(out: Outgoing) -> None:
    if "temperature" in out.order:
        out.drop("temperature", _TEMPERATURES, "the most likely token is taken, which is temperature 0 there")
    out.order.append("temperature")
    out.values["temp"] = 0.0


def _keys_of(slot: str) -> list[str]:
    return [key for keys in _KEYS.values() if keys.slot == slot for key in keys.keys.values()]


def _windows(out: Outgoing) -> None:
    for key, subject in (("repeat-last-n", "penalties.last_n"), ("dry-penalty-last-n", "dry.last_n")):
        out.widen_window(key, subject)


def _bans_as_biases(out: Outgoing) -> None:
    """Write banned token ids as biases of -inf, if there are no other biases; strings have no counterpart."""
    for number, sampler in enumerate(out.steps):
        if sampler.about.name == "ban" and not any(step.about.name == "logit_bias" for step in out.steps):
            tokens = getattr(sampler, "tokens", ())
            if tokens and not getattr(sampler, "strings", ()):
                out.steps[number] = make_step("logit_bias", {"bias": dict.fromkeys(tokens, float("-inf"))}, "ban")
                out.report("ban", "llama.cpp has biases of -inf for it, which were written")


def _flag_biases(out: Outgoing, bias: dict[int | str, float]) -> list[str]:
    words = []
    for key, number in bias.items():
        if isinstance(key, str):
            out.report(f"logit_bias.bias {key!r}", "llama.cpp's option takes token ids only")
        else:
            words.append(f"{key}{number:+}" if number != float("-inf") else f"{key}-inf")
    return words


def _grammar(out: Outgoing, grammar: Any, has_files: bool) -> dict[str, Any]:
    """The grammar by its option; a name of a library's grammar and other kinds are reported."""
    if grammar is None:
        return {}
    table = {"gbnf": grammar} if isinstance(grammar, str) and "::=" in grammar else grammar
    keys = {"gbnf": "grammar", "json_schema": "json-schema"}
    keys |= {"file": "grammar-file", "json_schema_file": "json-schema-file"} if has_files else {}
    if isinstance(table, dict) and len(table) == 1:
        ((kind, value),) = table.items()
        if kind in keys:
            is_text = has_files and not isinstance(value, str)
            return {keys[kind]: json.dumps(value) if is_text else value}
    out.report("grammar", f"{out.tool} takes a grammar or a JSON Schema as text")
    return {}


def _escaped(text: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(escapes.get(char, char) for char in text)


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
