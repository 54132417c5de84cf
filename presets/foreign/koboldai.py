"""KoboldAI's ``*.presets`` and ``*.settings``, and SillyTavern's presets for it.

KoboldAI's PyTorch code is followed: top-p keeps the token that crosses the limit, tfs pads, the repetition
penalty may rise along a curve over its range. SillyTavern sends min_p, mirostat and a grammar to KoboldCpp
alone; they stand where KoboldCpp applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import orders
from .draft import Draft
from .table import ForeignTable

TOOL = "KoboldAI"

PRESET_DEFAULTS: Mapping[str, float] = {
    "temp": 0.5,
    "top_k": 0,
    "top_a": 0.0,
    "top_p": 0.9,
    "tfs": 1.0,
    "typical": 1.0,
    "rep_pen": 1.1,
    "rep_pen_range": 2048,
    "rep_pen_slope": 1.0,
}
SILLYTAVERN_DEFAULTS: Mapping[str, float] = {
    "temp": 1.0,
    "top_k": 0,
    "top_a": 1.0,
    "top_p": 1.0,
    "tfs": 1.0,
    "typical": 1.0,
    "rep_pen": 1.0,
    "rep_pen_range": 0,
    "rep_pen_slope": 0.9,
}
PRESET_ORDER = [6, 0, 1, 2, 3, 4, 5]
SILLYTAVERN_ORDER = [0, 1, 2, 3, 4, 5, 6]

OWN_KEYS = (
    *("apikey", "andepth", "useprompt", "adventure", "chatmode", "chatname", "dynamicscan", "nopromptgen"),
    *("rngpersist", "nogenmod", "autosave", "welcome", "newlinemode", "output_streaming", "show_probs"),
    *("show_budget", "numseqs", "widepth", "formattriminc", "formatrmblln", "formatrmspch", "formataddsptl"),
    *("formatoptns", "actionmode", "fulldeterminism", "userscripts", "corescript", "softprompt"),
)
"""Keys of KoboldAI's own settings file that do not sample; with one of them, KoboldAI's defaults hold."""

LABELS = (
    *("preset", "name", "description", "Preset Category", "Model Type", "Model Size", "Model Name"),
    *("Model Category", "Author", "uid"),
)
"""Keys that tell presets apart, and set nothing."""

_SILENT = (
    *LABELS,
    *("max_length", "ikgen", "single_line", "use_stop_sequence"),
    *("streaming_kobold", "use_default_badwordsids", "api_server", "preset_settings", "extensions", "n"),
    *OWN_KEYS,
)
KNOWN = (
    *PRESET_DEFAULTS,
    *("sampler_order", "genamt", "min_p", "mirostat", "mirostat_tau", "mirostat_eta", "grammar"),
)


def convert(values: Mapping[Any, Any], origin: str, is_preset_list: bool = False) -> Draft:
    """Return the draft of one preset; ``is_preset_list``: it stands in a ``*.presets`` file."""
    table = ForeignTable(values, origin)
    draft = Draft(TOOL, table)
    if is_preset_list or any(key in table.values for key in OWN_KEYS):
        defaults, order, draft.tool = PRESET_DEFAULTS, PRESET_ORDER, "KoboldAI"
    else:
        defaults, order, draft.tool = SILLYTAVERN_DEFAULTS, SILLYTAVERN_ORDER, "SillyTavern"
    draft.defaults_of = draft.tool
    _put_steps(draft, defaults)
    order = _order(draft, order)
    draft.take_max_tokens("genamt")
    draft.take_text("grammar", "grammar")
    if not _take_mirostat_chain(draft):
        orders.arrange_by_numbers(draft, order, (), {2: ("top_p", "min_p")})
    draft.report_unknown({*KNOWN, *_SILENT})
    return draft


def _put_steps(draft: Draft, defaults: Mapping[str, float]) -> None:
    table = draft.table
    temperature = table.number("temp", defaults["temp"])
    if temperature == 0:
        draft.put_greedy("temperature", "temp", "KoboldAI refuses temperature 0; KoboldCpp takes the best token")
        draft.report_changed("temp", "KoboldAI refuses it; as in KoboldCpp, the most likely token is taken")
    else:
        draft.put("temperature", "temperature", {"t": temperature}, ["temp"])
    draft.put("top_k", "top_k", {"k": max(table.whole_number("top_k", 0), 0)}, ["top_k"])
    draft.put("top_a", "top_a", {"a": table.number("top_a", defaults["top_a"])}, ["top_a"])
    draft.put("top_p", "top_p", {"p": min(table.number("top_p", defaults["top_p"]), 1.0)}, ["top_p"])
    draft.put("tfs", "tfs", {"z": min(table.number("tfs", defaults["tfs"]), 1.0), "pad": True}, ["tfs"])
    draft.put("typical", "typical", {"p": min(table.number("typical", defaults["typical"]), 1.0)}, ["typical"])
    params = {
        "penalty": table.number("rep_pen", defaults["rep_pen"]),
        "range": table.whole_number("rep_pen_range", int(defaults["rep_pen_range"])),
        "slope": table.number("rep_pen_slope", defaults["rep_pen_slope"]),
    }
    keys = ["rep_pen", "rep_pen_range", "rep_pen_slope"]
    comment = "range 0: all tokens, and no slope" if params["range"] == 0 else ""
    draft.put("repetition_penalty", "repetition_penalty", params, keys, comment)
    if table.number("min_p", 0) > 0:
        draft.put("min_p", "min_p", {"p": table.number("min_p", 0.0)}, ["min_p"], "as KoboldCpp applies it")
        if table.whole_number("mirostat", 0) not in (1, 2):
            draft.report_changed("min_p", "KoboldAI has none; it stands behind top_p, where KoboldCpp applies it")


def _order(draft: Draft, default: list[int]) -> list[int]:
    order = orders.read_numbers(draft, "sampler_order")
    if order is None:
        draft.notes.append(f"order: {draft.tool}'s default")
        return default
    if 6 not in order:
        draft.notes.append("order: without 6, so the repetition penalty comes first")
        return [6, *order]
    return order


def _take_mirostat_chain(draft: Draft) -> bool:
    """End the chain as KoboldCpp does with mirostat; False if it is off."""
    table = draft.table
    version = table.whole_number("mirostat", 0)
    if version not in (1, 2):
        return False
    params = {"tau": table.number("mirostat_tau", 5.0), "eta": table.number("mirostat_eta", 0.1)}
    name = "mirostat" if version == 1 else "mirostat_v2"
    draft.put("mirostat", name, params, ["mirostat", "mirostat_tau", "mirostat_eta"], "as KoboldCpp applies it")
    draft.report_changed("mirostat", "KoboldAI has none; the chain is KoboldCpp's: penalty, temperature, mirostat")
    acting = ("repetition_penalty", "temperature", "mirostat")
    draft.report_idle([step for slot, step in draft.slots.items() if slot not in acting], "mirostat is on")
    draft.take_chain(draft.arranged(acting))
    return True
