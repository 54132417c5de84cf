"""A preset as SillyTavern's text-completion JSON.

It takes the steps as text-generation-webui does, with biases and bans before them. Every key is written, also of
what is off, and the orders for the other back ends, as far as those have the steps: SillyTavern leaves a setting
as it was in the session if a preset has no key for it (public/scripts/textgen-settings.js, ``setSettingByName``).
Not written is what SillyTavern keeps out of the presets that it saves: models, servers, and the global bans.
Two lengths stay as they are: that of the context, and that of an answer if the preset says nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .breakers import BREAKERS
from .koboldcpp import ORDER as KOBOLDCPP_ORDER
from .outgoing import Exported, Outgoing, StepKeys
from .sillytavern import ORDER, SPELLINGS
from .to_webui import KEYS, chain_values

_FRONT = {
    "ignore_eos": StepKeys("ignore_eos", {}),
    "min_tokens": StepKeys("min_tokens", {"n": "min_length"}),
    "ban": StepKeys("ban", {"tokens": "tokens", "strings": "strings"}),
    "logit_bias": StepKeys("logit_bias", {"bias": "logit_bias"}),
}
_OFF: Mapping[str, Any] = {
    "temp": 1,
    "temperature_last": False,
    "top_p": 1,
    "top_k": 0,
    "top_a": 0,
    "tfs": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "typical_p": 1,
    "min_p": 0,
    "rep_pen": 1,
    "rep_pen_range": 0,
    "rep_pen_decay": 0,
    "rep_pen_slope": 1,
    "rep_pen_size": 0,
    "no_repeat_ngram_size": 0,
    "penalty_alpha": 0,
    "num_beams": 1,
    "length_penalty": 1,
    "min_length": 0,
    "encoder_rep_pen": 1,
    "freq_pen": 0,
    "presence_pen": 0,
    "skew": 0,
    "do_sample": True,
    "early_stopping": False,
    "dynatemp": False,
    "min_temp": 0,
    "max_temp": 2,
    "dynatemp_exponent": 1,
    "smoothing_factor": 0,
    "smoothing_curve": 1,
    "dry_allowed_length": 2,
    "dry_multiplier": 0,
    "dry_base": 1.75,
    "dry_sequence_breakers": json.dumps(BREAKERS),
    "dry_penalty_last_n": 0,
    "mirostat_mode": 0,
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "adaptive_target": -0.01,
    "adaptive_decay": 0.9,
    "xtc_threshold": 0.1,
    "xtc_probability": 0,
    "nsigma": 0,
    "min_keep": 0,
    "guidance_scale": 1,
    "negative_prompt": "",
    "seed": -1,
    "add_bos_token": True,
    "ban_eos_token": False,
    "ignore_eos_token": False,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "speculative_ngram": False,
    "send_banned_tokens": True,
    "banned_tokens": "",
    "logit_bias": [],
    "grammar_string": "",
    "json_schema": None,
    "json_schema_allow_empty": False,
    "extensions": {},
}
_KOBOLDCPP_NUMBERS = {
    "penalties": 6,
    "top_k": 0,
    "top_a": 1,
    "tfs": 3,
    "typical_p": 4,
    "top_p": 2,
    "min_p": 2,
    **dict.fromkeys(("temperature", "dynamic_temperature", "quadratic_sampling", "top_n_sigma"), 5),
}
_LLAMA_CPP_NAMES = {
    "penalties": "penalties",
    "dry": "dry",
    "top_n_sigma": "top_n_sigma",
    "top_k": "top_k",
    "typical_p": "typ_p",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc": "xtc",
    "temperature": "temperature",
    "dynamic_temperature": "temperature",
    "adaptive_p": "adaptive_p",
}
_APHRODITE_NAMES = {
    "dry": "dry",
    "penalties": "penalties",
    "no_repeat_ngram": "no_repeat_ngram",
    "temperature": "temperature",
    "dynamic_temperature": "temperature",
    "top_n_sigma": "top_nsigma",
    "top_p": "top_p_top_k",
    "top_k": "top_p_top_k",
    "top_a": "top_a",
    "min_p": "min_p",
    "tfs": "tfs",
    "eta_cutoff": "eta_cutoff",
    "epsilon_cutoff": "epsilon_cutoff",
    "typical_p": "typical_p",
    "quadratic_sampling": "quadratic",
    "xtc": "xtc",
}
_OTHER_ORDERS: Mapping[str, tuple[Mapping[str, Any], Sequence[Any]]] = {
    "sampler_order": (_KOBOLDCPP_NUMBERS, KOBOLDCPP_ORDER),
    "samplers": (_LLAMA_CPP_NAMES, tuple(dict.fromkeys(_LLAMA_CPP_NAMES.values()))),
    "samplers_priorities": (_APHRODITE_NAMES, tuple(dict.fromkeys(_APHRODITE_NAMES.values()))),
}
"""The orders of SillyTavern's other back ends: their names of our slots, and their default."""


def to_json(out: Outgoing) -> Exported:
    """Return the JSON; a system message and stop texts stand elsewhere in SillyTavern, and are reported."""
    values = chain_values(out, {**KEYS, **_FRONT}, ORDER)
    values.setdefault("sampler_priority", list(ORDER))
    if values.pop("dynamic_temperature", False):
        values["dynatemp"] = True
        if "temperature" in out.order:
            out.report("temperature", "SillyTavern does not use it beside dynatemp")
            values.pop("temperature", None)
    if "dry_sequence_breakers" in values:
        values["dry_sequence_breakers"] = json.dumps(values["dry_sequence_breakers"])
        values["dry_penalty_last_n"] = values["repetition_penalty_range"]  # what other back ends read
    _front(out, values)
    out.values = {}
    out.take_extras({"max_tokens": "genamt", "seed": "seed", "grammar": "grammar_string"})
    values |= out.values
    grammar = values.pop("grammar_string", None)
    if (text := out.grammar_text(grammar)) is not None:
        values["grammar_string"] = text
    elif (
        isinstance(grammar, dict) and set(grammar) == {"json_schema"} and isinstance(grammar["json_schema"], dict)
    ):
        values["json_schema"] = grammar["json_schema"]
    elif grammar is not None:
        out.report("grammar", "SillyTavern takes a grammar as text, or a JSON Schema")
    spelled = {SPELLINGS.get(key, (key,))[0]: value for key, value in values.items()}
    spelled["ignore_eos_token"] = spelled.get("ban_eos_token", False)
    orders = {
        key: list(dict.fromkeys([*(names[slot] for slot in out.order if slot in names), *default]))
        for key, (names, default) in _OTHER_ORDERS.items()
    }
    everything = {**_OFF, **orders, **spelled}
    return out.exported(json.dumps(everything, indent=4, ensure_ascii=False) + "\n")


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
