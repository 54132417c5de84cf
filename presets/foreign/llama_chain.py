"""llama.cpp's chain of samplers, as llama.cpp, Ollama and LM Studio run it.

The keys are llama.cpp's option names. Order and switches follow common/sampling.cpp: biases, then the listed
samplers, the temperature last; mirostat leaves only the temperature before it; a temperature of 0 and below
takes the most likely token; adaptive-p draws in the end, if it is listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .breakers import BREAKERS
from .draft import Draft

ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc", "temperature")
FRONT = ("ignore_eos", "ban", "logit_bias")
_TEMPERATURES = ("temperature", "dynatemp")

OFF: Mapping[str, Any] = {
    "temp": 1.0,
    "top-k": 0,
    "top-p": 1.0,
    "min-p": 0.0,
    "typical": 1.0,
    "top-n-sigma": -1.0,
    "xtc-probability": 0.0,
    "xtc-threshold": 0.1,
    "repeat-penalty": 1.0,
    "repeat-last-n": 64,
    "presence-penalty": 0.0,
    "frequency-penalty": 0.0,
    "dry-multiplier": 0.0,
    "dry-base": 1.75,
    "dry-allowed-length": 2,
    "dry-penalty-last-n": 64,
    "dynatemp-range": 0.0,
    "dynatemp-exp": 1.0,
    "mirostat": 0,
    "mirostat-ent": 5.0,
    "mirostat-lr": 0.1,
    "adaptive-target": -1.0,
    "adaptive-decay": 0.9,
}
"""Values with which no step acts, and the other parameters' usual ones."""

LLAMA_CPP: Mapping[str, Any] = {**OFF, "temp": 0.8, "top-k": 40, "top-p": 0.95, "min-p": 0.05}
"""llama.cpp's defaults."""


def put_steps(draft: Draft, defaults: Mapping[str, Any]) -> None:
    """Put every step into its slot."""
    _put_penalties(draft, defaults)
    _put_truncation(draft, defaults)
    _put_temperature(draft, defaults)
    _put_selectors(draft, defaults)


def arrange_chain(draft: Draft, defaults: Mapping[str, Any], order: Sequence[str] = ORDER) -> None:
    """End the chain: the biases, then the listed samplers; with mirostat only the temperature before it."""
    if draft.table.whole_number("mirostat", defaults["mirostat"]) in (1, 2):
        acting = (*FRONT, "temperature", "mirostat")
        draft.report_idle([step for slot, step in draft.slots.items() if slot not in acting], "mirostat is on")
        draft.take_chain(draft.arranged(acting))
        return
    listed = sorted(order, key=lambda name: name == "adaptive_p")  # it runs last, wherever it is listed
    unlisted = [slot for slot in draft.slots if slot not in (*listed, *FRONT)]
    draft.report_idle(draft.arranged(unlisted), "the list of samplers leaves it out")
    draft.take_chain(draft.arranged([*FRONT, *listed]))


def _put_penalties(draft: Draft, defaults: Mapping[str, Any]) -> None:
    table = draft.table
    last_n = table.whole_number("repeat-last-n", defaults["repeat-last-n"])
    params = {
        "repeat": table.number("repeat-penalty", defaults["repeat-penalty"]),
        "presence": table.number("presence-penalty", defaults["presence-penalty"]),
        "frequency": table.number("frequency-penalty", defaults["frequency-penalty"]),
        "last_n": max(last_n, -1),
    }
    keys = ["repeat-penalty", "presence-penalty", "frequency-penalty", "repeat-last-n"]
    draft.put("penalties", "penalties", params, keys)
    has_breakers = table.raw("dry-sequence-breaker") is not None
    params = {
        "multiplier": table.number("dry-multiplier", defaults["dry-multiplier"]),
        "base": table.number("dry-base", defaults["dry-base"]),
        "allowed_length": table.whole_number("dry-allowed-length", defaults["dry-allowed-length"]),
        "last_n": max(table.whole_number("dry-penalty-last-n", defaults["dry-penalty-last-n"]), -1),
        "breakers": table.texts("dry-sequence-breaker") if has_breakers else list(BREAKERS),
    }
    keys = ["dry-multiplier", "dry-base", "dry-allowed-length", "dry-penalty-last-n", "dry-sequence-breaker"]
    draft.put("dry", "dry", params, keys)


def _put_truncation(draft: Draft, defaults: Mapping[str, Any]) -> None:
    table = draft.table
    draft.put("top_n_sigma", "top_n_sigma", {"n": max(table.number("top-n-sigma", -1.0), -1.0)}, ["top-n-sigma"])
    draft.put("top_k", "top_k", {"k": max(table.whole_number("top-k", defaults["top-k"]), 0)}, ["top-k"])
    for key, name in (("typical", "typical"), ("top-p", "top_p")):
        draft.put(name, name, {"p": min(table.number(key, defaults[key]), 1.0)}, [key])
    draft.put("min_p", "min_p", {"p": max(table.number("min-p", defaults["min-p"]), 0.0)}, ["min-p"])
    probability = table.number("xtc-probability", defaults["xtc-probability"])
    threshold = table.number("xtc-threshold", defaults["xtc-threshold"])
    if probability > 0 and threshold <= 0.5:
        params = {"probability": probability, "threshold": threshold}
        draft.put("xtc", "xtc", params, ["xtc-probability", "xtc-threshold"])


def _put_temperature(draft: Draft, defaults: Mapping[str, Any]) -> None:
    table = draft.table
    temperature = table.number("temp", defaults["temp"])
    reach = table.number("dynatemp-range", defaults["dynatemp-range"])
    if reach > 0:
        params = {
            "temperature": max(temperature, 0.0),
            "range": reach,
            "exponent": table.number("dynatemp-exp", defaults["dynatemp-exp"]),
        }
        draft.put("temperature", "dynatemp", params, ["dynatemp-range", "temp", "dynatemp-exp"])
    elif temperature <= 0:
        draft.put_greedy("temperature", "temp", "a temperature of 0 takes the most likely token")
    else:
        draft.put("temperature", "temperature", {"t": temperature}, ["temp"])


def _put_selectors(draft: Draft, defaults: Mapping[str, Any]) -> None:
    table = draft.table
    version = table.whole_number("mirostat", defaults["mirostat"])
    if version not in (0, 1, 2):
        raise table.fault("mirostat", "0, 1 or 2")
    if version:
        params = {
            "tau": table.number("mirostat-ent", defaults["mirostat-ent"]),
            "eta": table.number("mirostat-lr", defaults["mirostat-lr"]),
        }
        name = "mirostat" if version == 1 else "mirostat_v2"
        draft.put("mirostat", name, params, ["mirostat", "mirostat-ent", "mirostat-lr"])
    target = table.number("adaptive-target", defaults["adaptive-target"])
    if target >= 0:
        params = {"target": target, "decay": table.number("adaptive-decay", defaults["adaptive-decay"])}
        draft.put("adaptive_p", "adaptive_p", params, ["adaptive-target", "adaptive-decay"])
