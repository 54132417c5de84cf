"""KoboldCpp and KoboldAI Lite: objects with ``preset``, ``temp``, ``sampler_order`` and so on.

The order follows KoboldCpp's gpttype_adapter.cpp: biases and DRY first, then sampler_order, where 2 is top-p and
then min-p, and 5 is the temperature, the smoothing and top-n-sigma; XTC and adaptive-p come last. A fixed top-k
of 3000, which only makes it faster, is left out.

rep_pen_slope is not KoboldAI's curve: the far half of rep_pen_range gets 1 + (rep_pen - 1) * slope. It is flat for
a slope above 1 or up to 0, and for a rep_pen up to 1. A rep_pen_range below 1 is 1: the last token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import orders
from .breakers import read_breakers
from .draft import Draft
from .table import ForeignTable

TOOL = "KoboldCpp"
ORDER = [6, 0, 1, 3, 4, 2, 5]
_FRONT = ("ignore_eos", "ban", "logit_bias", "dry")
_PENALTIES = ("repetition_penalty", "presence_penalty")
SLOTS = {2: ("top_p", "min_p"), 5: ("temperature", "quadratic", "top_n_sigma"), 6: _PENALTIES}
"""The slots of the numbers that stand for several steps."""

SPELLINGS = {
    "temp": ("temp", "temperature"),
    "typical": ("typical", "typ_s"),
    "tfs": ("tfs", "tfs_s"),
    "mirostat": ("mirostat", "miro_type"),
    "mirostat_tau": ("mirostat_tau", "miro_tau"),
    "mirostat_eta": ("mirostat_eta", "miro_eta"),
    "seed": ("sampler_seed", "seed"),
    "adaptive_target": ("adaptive_target", "adaptivep_target"),
    "adaptive_decay": ("adaptive_decay", "adaptivep_decay"),
    "stop": ("stop_sequence", "stop"),
    "bypass_eos": ("bypass_eos", "ban_eos_token"),
}
KNOWN = (
    *("top_k", "top_a", "top_p", "min_p", "nsigma", "rep_pen", "rep_pen_range", "rep_pen_slope", "grammar"),
    *("presence_penalty", "dynatemp_range", "dynatemp_exponent", "smoothing_factor", "smoothing_curve"),
    *("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"),
    *("xtc_probability", "xtc_threshold", "sampler_order", "genamt", "max_length", "logit_bias"),
    *("banned_tokens", "banned_strings", "guidance_scale"),
)
_SILENT = (
    *("preset", "name", "description", "max_context_length", "n", "quiet", "prompt", "memory", "genkey"),
    *("trim_stop", "render_special", "use_default_badwordsids", "negative_prompt", "images", "logprobs"),
    *("grammar_retain_state", "auto_ctxlen", "auto_genamt", "replace_instruct_placeholders", "using_openai_tools"),
    *("bypass_eos_token", "adapter", "Model Type", "Model Size", "Model Name", "Preset Category"),
)


def convert(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin, SPELLINGS)
    draft = Draft(TOOL, table)
    _put_biases_and_dry(draft)
    _put_penalty(draft)
    _put_truncation(draft)
    _put_temperature(draft)
    _put_end(draft)
    _take_settings(draft)
    order = orders.read_numbers(draft, "sampler_order")
    if order is None or len(order) != 7:
        reason = "" if order is None else "; sampler_order needs seven entries"
        draft.notes.append(f"order: KoboldCpp's default{reason}")
        order = ORDER
    if table.whole_number("mirostat", 0) in (1, 2):
        acting = (*_FRONT, *_PENALTIES, "temperature", "quadratic", "mirostat")
        draft.report_idle([step for slot, step in draft.slots.items() if slot not in acting], "mirostat is on")
        draft.take_chain(draft.arranged(acting))
    else:
        orders.arrange_by_numbers(draft, order, _FRONT, SLOTS)
    draft.report_unknown({*KNOWN, *_SILENT})
    return draft


def _put_biases_and_dry(draft: Draft) -> None:
    table = draft.table
    if table.flag("bypass_eos", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["bypass_eos"])
    strings = [*table.texts("banned_tokens"), *table.texts("banned_strings")]
    draft.put("ban", "ban", {"strings": strings}, ["banned_tokens", "banned_strings"])
    draft.put_logit_bias()
    params: dict[str, Any] = {
        "multiplier": max(table.number("dry_multiplier", 0.0), 0.0),
        "base": table.number("dry_base", 1.75),
        "allowed_length": table.whole_number("dry_allowed_length", 2),
        "last_n": max(table.whole_number("dry_penalty_last_n", 320), 0),
        "breakers": read_breakers(table, "dry_sequence_breakers"),
    }
    keys = ["dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"]
    draft.put("dry", "dry", params, keys)


def _put_penalty(draft: Draft) -> None:
    """Put the repetition penalty; a slope that acts needs a step of its own before the presence penalty."""
    table = draft.table
    repeat, slope = table.number("rep_pen", 1.0), table.number("rep_pen_slope", 1.0)
    presence = table.number("presence_penalty", 0.0)
    window = table.whole_number("rep_pen_range", 320)
    last_n = max(window, 1)
    comment = f"to KoboldCpp a range of {window} is the last token" if window < 1 else ""
    if repeat > 1 and 0 < slope < 1:
        sloped = {"penalty": repeat, "range": last_n, "slope": slope, "shape": "halves"}
        keys = ["rep_pen", "rep_pen_range", "rep_pen_slope"]
        draft.put("repetition_penalty", "repetition_penalty", sloped, keys, comment)
        params = {"presence": presence, "last_n": last_n}
        draft.put("presence_penalty", "penalties", params, ["presence_penalty", "rep_pen_range"], comment)
    else:
        params = {"repeat": repeat, "presence": presence, "last_n": last_n}
        keys = ["rep_pen", "presence_penalty", "rep_pen_range"]
        draft.put("repetition_penalty", "penalties", params, keys, comment)


def _put_truncation(draft: Draft) -> None:
    table = draft.table
    draft.put("top_k", "top_k", {"k": max(table.whole_number("top_k", 0), 0)}, ["top_k"])
    draft.put("top_a", "top_a", {"a": max(table.number("top_a", 0.0), 0.0)}, ["top_a"])
    draft.put("top_p", "top_p", {"p": min(table.number("top_p", 1.0), 1.0)}, ["top_p"])
    draft.put("min_p", "min_p", {"p": max(table.number("min_p", 0.0), 0.0)}, ["min_p"])
    draft.put("tfs", "tfs", {"z": min(table.number("tfs", 1.0), 1.0), "pad": False}, ["tfs"])
    draft.put("typical", "typical", {"p": min(table.number("typical", 1.0), 1.0)}, ["typical"])


def _put_temperature(draft: Draft) -> None:
    table = draft.table
    temperature = table.number("temp", 1.0)
    reach = table.number("dynatemp_range", 0.0)
    if reach != 0 and table.whole_number("mirostat", 0) not in (1, 2):
        params = {
            "temperature": temperature,
            "range": reach,
            "exponent": max(table.number("dynatemp_exponent", 1.0), 0.0),
        }
        comment = f"from {max(temperature - reach, 0):g} to {temperature + reach:g}"
        keys = ["dynatemp_range", "temp", "dynatemp_exponent"]
        draft.put("temperature", "dynatemp", params, keys, comment)
    elif temperature <= 0:
        draft.put_greedy("temperature", "temp", "a temperature of 0 takes the most likely token")
    else:
        draft.put("temperature", "temperature", {"t": temperature}, ["temp"])
    factor = table.number("smoothing_factor", 0.0)
    if factor > 0:
        params = {"factor": factor, "curve": table.number("smoothing_curve", 1.0)}
        draft.put("quadratic", "quadratic", params, ["smoothing_factor", "smoothing_curve"])
    draft.put("top_n_sigma", "top_n_sigma", {"n": max(table.number("nsigma", 0.0), 0.0)}, ["nsigma"])


def _put_end(draft: Draft) -> None:
    table = draft.table
    probability = table.number("xtc_probability", 0.0)
    if probability > 0:
        params = {"probability": probability, "threshold": table.number("xtc_threshold", 0.2)}
        draft.put("xtc", "xtc", params, ["xtc_probability", "xtc_threshold"])
    target = table.number("adaptive_target", -1.0)
    if target >= 0:
        params = {"target": target, "decay": table.number("adaptive_decay", 0.9)}
        draft.put("adaptive_p", "adaptive_p", params, ["adaptive_target", "adaptive_decay"])
    version = table.whole_number("mirostat", 0)
    if version in (1, 2):
        params = {"tau": table.number("mirostat_tau", 5.0), "eta": table.number("mirostat_eta", 0.1)}
        name = "mirostat" if version == 1 else "mirostat_v2"
        draft.put("mirostat", name, params, ["mirostat", "mirostat_tau", "mirostat_eta"])


def _take_settings(draft: Draft) -> None:
    table = draft.table
    draft.take_max_tokens("genamt")
    if table.is_given("max_context_length") or "temperature" in table.values:
        # A request or Lite's settings: max_length is what is generated, and no context as in a preset.
        draft.take_max_tokens("max_length")
    draft.take_seed("seed", least=1)
    draft.take_texts("stop", "stop")
    draft.take_text("grammar", "grammar")
    if table.number("guidance_scale", 1) != 1:
        draft.report("guidance_scale", "guidance would have run the model twice, with a negative prompt")
