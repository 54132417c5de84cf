"""llama.cpp's settings and chain, for its own formats and those of the programs that run it.

A setting is called by the name of llama.cpp's option without dashes, whatever the kind of file. An absent setting
has llama.cpp's default, so an imported chain is complete.

The order of the steps follows common/sampling.cpp. Biases come first. Then come the listed samplers, in any order,
each of them once; by default the temperature is the last one. Mirostat keeps only the temperature before it. A
temperature of 0 or less takes the most likely token, so a greedy step is exported as temperature 0. adaptive-p
selects the token if it is listed. Ollama and LM Studio run this chain, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..overrides import MIROSTAT_VERSIONS
from ..parameter_names import names_by_option
from .conversion import ImportedChainBuilder
from .sampler_keys import keys_by_sampler, off_values, sampler_keys
from .table import ForeignTable, read_window

TOOL = "llama.cpp"
DEFAULT_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typical", "top_p", "min_p", "xtc", "temperature")
_LEADING_SLOTS = ("ignore_eos", "ban", "logit_bias")


def _read_xtc_probability(table: ForeignTable, key: str, default: float) -> float:
    """Return the probability of xtc; 0 if the threshold is above 0.5, which turns xtc off."""
    probability = table.number(key, default)
    return probability if table.number("xtc-threshold", 0.1) <= 0.5 else 0.0


def _read_breakers(table: ForeignTable, key: str, default: Sequence[str]) -> list[str]:
    # A single string, as in an INI file, is one breaker; ``none`` means no breaker.
    text = table.raw_value(key)
    if text is None:
        return list(default)
    if isinstance(text, str):
        table.values[table.key_in_file(key)] = [] if text == "none" else [unescape(text)]
    return table.strings(key)


_keys = partial(sampler_keys, "llama.cpp")
_WINDOW = {"minimum": -1, "reader": read_window}
SAMPLER_KEYS = keys_by_sampler(
    _keys("penalties", {"last_n": _WINDOW}),
    _keys("dry", {"last_n": _WINDOW, "breakers": {"reader": _read_breakers}}),
    _keys("top_n_sigma", {"n": {"off_value": -1.0, "minimum": -1.0}}),
    *map(_keys, ("top_k", "typical", "top_p")),
    _keys("min_p", {"p": {"minimum": 0.0}}),
    _keys(
        "xtc",
        {"probability": {"reader": _read_xtc_probability}},
        is_active_at=lambda probability: probability > 0,
    ),
    _keys("temperature", {"t": {"minimum": 0.0}}),
    _keys("dynatemp", {"temperature": {"minimum": 0.0}}, slot="temperature", switch_key="dynatemp-range"),
    _keys("mirostat", switch_key="mirostat"),
    _keys("mirostat_v2", slot="mirostat", switch_key="mirostat"),
    _keys("adaptive_p", is_active_at=lambda target: target >= 0),
    *map(_keys, ("infill", "ignore_eos", "logit_bias")),
)
# for each option of a step, the value that turns the step off, or the usual value if there is no such value
OFF_VALUES: Mapping[str, Any] = off_values(SAMPLER_KEYS)
# the options that are imported; `llama_cpp_flags` has all names of each option
OPTIONS = (
    *OFF_VALUES,
    *("sampler-seq", "seed", "n-predict", "reverse-prompt", "json-schema", "json-schema-file", "grammar"),
    *("grammar-file", "system-prompt", "samplers", "ignore-eos", "reasoning-budget", "reasoning-budget-message"),
    *("cfg-scale", "cfg-negative-prompt"),
)
OPTIONS_WITH_ESCAPES = ("dry-sequence-breaker", "reverse-prompt")
# the key of each option in the body of a request
BODY_KEYS: Mapping[str, str] = {
    **{option: option.replace("-", "_") for option in OPTIONS},
    **names_by_option("llama-server"),
    "reverse-prompt": "stop",
}


def report_negative_windows(builder: ImportedChainBuilder, present_meaning: str) -> None:
    """Report each negative penalty window. Until August 2026 llama.cpp read it as all tokens."""
    # ``present_meaning``: a clause that says how the tool reads it now
    for key, slot in (("repeat-last-n", "penalties"), ("dry-penalty-last-n", "dry")):
        window = builder.table.integer(key, 0)
        if window >= 0 or slot not in builder.step_by_slot:
            continue
        former_meaning = "its meaning until August 2026" if window == -1 else "as -1 until August 2026"
        builder.report_changed(key, f"read as all tokens, {former_meaning}; {present_meaning}")


_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    """Return the text with llama.cpp's escapes, such as a backslash and n, replaced by the characters."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), text)


def escape(text: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(escapes.get(char, char) for char in text)


def read_steps(builder: ImportedChainBuilder) -> None:
    builder.read_steps(SAMPLER_KEYS, *(name for name in DEFAULT_ORDER if name != "temperature"))
    builder.read_temperature(SAMPLER_KEYS["temperature"], "a temperature of 0 takes the most likely token")
    if builder.read_value(SAMPLER_KEYS["dynatemp"].key_by_parameter["range"]) > 0:
        builder.read_steps(SAMPLER_KEYS, "dynatemp")
    version = builder.table.integer("mirostat", 0)
    if version not in (0, 1, 2):
        raise builder.table.value_error("mirostat", "0, 1 or 2")
    if version:
        builder.read_steps(SAMPLER_KEYS, MIROSTAT_VERSIONS[version])
    builder.read_steps(SAMPLER_KEYS, "adaptive_p")


def arrange_chain(builder: ImportedChainBuilder, order: Sequence[str] = DEFAULT_ORDER) -> None:
    """Set the chain: biases, then the samplers in this order; mirostat keeps only biases and temperature."""
    if builder.table.integer("mirostat", 0) in (1, 2):
        builder.set_mirostat_chain((*_LEADING_SLOTS, "temperature"))
        return
    # llama.cpp runs adaptive_p last in any list.
    listed_slots = sorted(order, key=lambda name: name == "adaptive_p")
    slots = [*_LEADING_SLOTS, *(slot for slot in listed_slots if slot not in _LEADING_SLOTS)]
    unlisted_slots = [slot for slot in builder.step_by_slot if slot not in slots]
    builder.report_inactive_steps(builder.steps_in_order(unlisted_slots), "the list of samplers leaves it out")
    builder.set_chain(builder.steps_in_order(slots))
