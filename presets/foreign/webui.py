"""text-generation-webui: a flat YAML file with what differs from the defaults.

The chain is that of the transformers loaders. The llama.cpp loader differs:

- A range of 0 switches the penalties off.
- dynatemp replaces the temperature.
- do_sample is not read.
- Mirostat leaves only the temperature before it.
- tfs, top_a, the epsilon and eta cutoffs, smoothing, the encoder penalty and the n-grams are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import hijack
from .draft import Draft
from .searches import SEARCH_KEYS, report_searches
from .table import ForeignTable

TOOL = "text-generation-webui"
DEFAULTS = hijack.HijackDefaults(range=1024, dynatemp=(1.0, 1.0), least_target=None)

# The order that a preset gets when it has none. The code's own fallback differs, but presets do not get it.
ORDER = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry",
    "top_n_sigma",
    "temperature",
    "dynamic_temperature",
    "quadratic_sampling",
    "top_k",
    "top_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "tfs",
    "top_a",
    "min_p",
    "adaptive_p",
    "mirostat",
    "xtc",
    "encoder_repetition_penalty",
    "no_repeat_ngram",
)
KNOWN = (
    *(set(ORDER) - {"quadratic_sampling", "dry", "adaptive_p", "mirostat", "xtc", "no_repeat_ngram"}),
    *("dynatemp_low", "dynatemp_high", "dynatemp_exponent", "smoothing_factor", "smoothing_curve"),
    *("xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("dry_sequence_breakers", "repetition_penalty_range", "no_repeat_ngram_size", "mirostat_mode"),
    *("mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay", "do_sample", "sampler_priority"),
    *("temperature_last", *SEARCH_KEYS),
)
# Parameters of a generation that do not stand in presets, but that a hand may have added.
_SETTINGS = ("seed", "max_new_tokens", "ban_eos_token", "grammar_string", "custom_token_bans")
_SILENT = (
    *("negative_prompt", "add_bos_token", "skip_special_tokens", "truncation_length", "auto_max_new_tokens"),
    *("max_tokens_second", "prompt_lookup_num_tokens", "stream", "static_cache", "enable_thinking"),
    *("reasoning_effort", "name"),
)
FORMER_KEYS = {
    "dynatemp": "known early in 2024 only: a temperature of {temperature:g} plus and minus this",
    "dynamic_temperature_low": "known early in 2024 only: a dynamic temperature from this to {temperature:g}",
    "min_length": "known in 2023: the least number of tokens before the end",
}


def convert(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin)
    draft = Draft(TOOL, table)
    draft.notes.append("as text-generation-webui's transformers loaders sample; its llama.cpp loader differs")
    hijack.put_steps(draft, DEFAULTS)
    _take_settings(draft)
    report_searches(draft)
    order = hijack.read_order(table, "sampler_priority")
    if order is None:
        draft.notes.append("order: text-generation-webui's default")
    hijack.arrange_chain(draft, ORDER if order is None else order, table.flag("temperature_last", False))
    for key, effect in FORMER_KEYS.items():
        if table.is_given(key):
            words = effect.format(temperature=table.number("temperature", 1.0))
            draft.report(key, f"{TOOL} does not know this key today; {words}")
    draft.report_unknown({*KNOWN, *_SETTINGS, *_SILENT, *FORMER_KEYS})
    return draft


def _take_settings(draft: Draft) -> None:
    table = draft.table
    draft.take_max_tokens("max_new_tokens")
    draft.take_seed("seed")
    draft.take_text("grammar_string", "grammar")
    if table.flag("ban_eos_token", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["ban_eos_token"])
    bans = table.text("custom_token_bans")
    if bans is not None:
        ids = [part.strip() for part in bans.split(",")]
        if not all(part.isdecimal() for part in ids):
            raise table.fault("custom_token_bans", "token ids separated by commas")
        draft.put("ban", "ban", {"tokens": [int(part) for part in ids]}, ["custom_token_bans"])
