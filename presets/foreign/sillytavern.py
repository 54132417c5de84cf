"""SillyTavern's text-completion presets: a JSON object, or an older ``*.settings`` file.

SillyTavern serves several back ends, each with an order of its own. The chain is what text-generation-webui's
transformers loaders make of the preset: they are the ones that do everything that the file can say. Names that
``sampler_priority`` lacks are spliced in at the index that they have in the default order. A key that is absent
keeps what the session had; in a fresh session temperature_last is true, the range 0, and the rest off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...common.text import shorten
from . import hijack
from .draft import Draft
from .searches import SEARCH_KEYS, report_searches
from .table import ForeignTable
from .text import unify_line_ends

TOOL = "SillyTavern"
DEFAULTS = hijack.HijackDefaults(range=0, dynatemp=(0.0, 2.0), least_target=0.0)

ORDER = (
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry",
    "temperature",
    "dynamic_temperature",
    "quadratic_sampling",
    "top_n_sigma",
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
SPELLINGS = {
    "temperature": ("temp",),
    "repetition_penalty": ("rep_pen",),
    "repetition_penalty_range": ("rep_pen_range",),
    "presence_penalty": ("presence_pen",),
    "frequency_penalty": ("freq_pen",),
    "encoder_repetition_penalty": ("encoder_rep_pen",),
    "top_n_sigma": ("nsigma",),
    "dynamic_temperature": ("dynatemp",),
    "dynatemp_low": ("min_temp",),
    "dynatemp_high": ("max_temp",),
    "ban_eos_token": ("ban_eos_token", "ignore_eos_token", "ignore_eos_token_aphrodite"),
}
KNOWN = (
    *("top_k", "top_p", "min_p", "top_a", "tfs", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    *("no_repeat_ngram_size", "smoothing_factor", "smoothing_curve", "dynatemp_exponent", "dry_multiplier"),
    *("dry_base", "dry_allowed_length", "dry_sequence_breakers", "dry_penalty_last_n", "xtc_probability"),
    *("xtc_threshold", "mirostat_mode", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay"),
    *("do_sample", "temperature_last", "sampler_priority", "samplers", "sampler_order", "samplers_priorities"),
    *("genamt", "min_length", "seed", "grammar_string", "json_schema", "logit_bias", "banned_tokens"),
    *("global_banned_tokens", "send_banned_tokens", "skew", "rep_pen_slope", "min_keep", *SEARCH_KEYS),
)
_SILENT = (
    *("max_length", "add_bos_token", "skip_special_tokens", "truncation_length", "streaming", "streaming_url"),
    *("spaces_between_special_tokens", "spaces_between_special_tokens_aphrodite", "speculative_ngram", "n"),
    *("rep_pen_size", "negative_prompt", "json_schema_allow_empty", "include_reasoning", "max_tokens_second"),
    *("extensions", "name", "preset", "type", "server_urls", "custom_model", "bypass_status_check", "derived"),
    *("openrouter_allow_fallbacks", "openrouter_providers", "openrouter_quantizations", "generic_model"),
    *("n_aphrodite", "best_of_aphrodite", "log_probs_aphrodite", "prompt_log_probs_aphrodite", "legacy_api"),
    *("mancer_model", "togetherai_model", "infermaticai_model", "ollama_model", "openrouter_model"),
    *("vllm_model", "aphrodite_model", "dreamgen_model", "tabby_model", "featherless_model", "llamacpp_model"),
    *("stopping_strings", "logits_processors_aphrodite"),
)


def convert(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    if isinstance(values.get("preset"), dict):  # a master export: the preset is a part of it
        values = values["preset"]
    table = ForeignTable(values, origin, SPELLINGS)
    draft = Draft(TOOL, table)
    draft.notes.append("as SillyTavern samples with text-generation-webui's transformers loaders")
    hijack.put_steps(draft, DEFAULTS)
    if table.flag("dynamic_temperature", False):
        _drop_temperature(draft)
    _put_biases(draft)
    _take_settings(draft)
    report_searches(draft)
    _report_others(draft)
    order = spliced(table.raw("sampler_priority"), ORDER)
    if table.is_given("sampler_priority") and not isinstance(table.raw("sampler_priority"), list):
        draft.report_changed("sampler_priority", "it is not a list, so SillyTavern takes its default order")
    if not table.is_given("temperature_last"):
        draft.notes.append("temperature_last: true, as in a fresh session")
    hijack.arrange_chain(draft, order, table.flag("temperature_last", True))
    draft.report_unknown({*KNOWN, *_SILENT})
    return draft


def spliced(order: Any, default: Sequence[str]) -> list[str]:
    """The order with each missing name put in at the index that it has in the default; no list: the default."""
    if not isinstance(order, list):
        return list(default)
    names = [name for name in order if isinstance(name, str)]
    for index, name in enumerate(default):
        if name not in names:
            names.insert(index, name)
    return names


def _drop_temperature(draft: Draft) -> None:
    step = draft.slots.pop("temperature", None)
    if step is not None:
        draft.report(
            "temperature",
            "SillyTavern does not use it while dynatemp is on; text-generation-webui's transformers loaders"
            " would also apply the middle of the range as a temperature",
        )


def _put_biases(draft: Draft) -> None:
    table = draft.table
    if any(str(table.values.get(key)).lower() == "true" for key in SPELLINGS["ban_eos_token"]):
        draft.put("ignore_eos", "ignore_eos", {}, ["ban_eos_token"])
    length = max(table.whole_number("min_length", 0), 0)
    draft.put("min_tokens", "min_tokens", {"n": length}, ["min_length"], "text-generation-webui ignores it")
    if table.flag("send_banned_tokens", True):
        _put_bans(draft)
    biases = table.raw("logit_bias") or []
    if not isinstance(biases, list) or not all(isinstance(entry, dict) for entry in biases):
        raise table.fault("logit_bias", "a list of {text, value}")
    bias: dict[int | str, float] = {}
    for entry in biases:
        inner = ForeignTable(entry, f"{table.origin}: logit_bias")
        if inner.is_given("text") and inner.is_given("value"):
            keys = _biased(draft, str(inner.raw("text")).strip())
            bias |= dict.fromkeys(keys, inner.number("value", 0.0))
    draft.put("logit_bias", "logit_bias", {"bias": bias}, ["logit_bias"])


def _biased(draft: Draft, text: str) -> Sequence[int | str]:
    """What a bias is on: the ids of ``[1, 2]``, the text of ``{text}`` as it stands, else a blank and the text."""
    if text.startswith("{") and text.endswith("}"):
        return [text[1:-1]]
    if not (text.startswith("[") and text.endswith("]")):
        return [f" {text}"] if text else []
    ids = _token_ids(text)
    if ids is None:
        draft.reported.append(f"logit_bias: {shorten(text)} is not a list of token ids; SillyTavern skips it")
    return ids or []


def _put_bans(draft: Draft) -> None:
    """One ban per line: ``[1, 2]`` are token ids, ``"text"`` is a string, anything else a text of one token."""
    tokens: list[int | str] = []
    strings: list[str] = []
    for key in ("banned_tokens", "global_banned_tokens"):
        for line in unify_line_ends(draft.table.text(key) or "").split("\n"):
            if line.startswith("[") and line.endswith("]"):
                ids = _token_ids(line)
                if ids is None:
                    draft.reported.append(
                        f"{key}: {shorten(line)} is not a list of token ids; SillyTavern skips it"
                    )
                tokens += ids or []
            elif len(line) > 1 and line.startswith('"') and line.endswith('"'):
                strings += [line[1:-1]] if line[1:-1] else []
            elif line:
                tokens.append(line)
    params = {
        **({"tokens": list(dict.fromkeys(tokens))} if tokens else {}),
        **({"strings": list(dict.fromkeys(strings))} if strings else {}),
    }
    draft.put("ban", "ban", params, ["banned_tokens", "global_banned_tokens"])


def _token_ids(text: str) -> list[int] | None:
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return ids if all(isinstance(token, int) and not isinstance(token, bool) for token in ids) else None


def _take_settings(draft: Draft) -> None:
    draft.take_max_tokens("genamt")
    draft.take_seed("seed")
    draft.take_text("grammar_string", "grammar")
    schema = draft.table.raw("json_schema")
    if isinstance(schema, dict) and schema and "grammar" not in draft.extras:
        draft.extras["grammar"] = {"json_schema": schema}


def _report_others(draft: Draft) -> None:
    """Report what only other back ends do."""
    table = draft.table
    if table.number("skew", 0) != 0:
        draft.report("skew", "only TabbyAPI's former back end bends the distribution by it")
    if 0 < table.number("rep_pen_slope", 1) < 1 and table.number("repetition_penalty", 1) != 1:
        draft.report("rep_pen_slope", "only KoboldCpp lowers the penalty for the far half of its range")
    if table.whole_number("min_keep", 0) > 1:
        draft.report("min_keep", "only llama.cpp keeps at least so many tokens")
