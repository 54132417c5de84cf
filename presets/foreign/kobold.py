"""KoboldAI's ``*.presets`` and ``*.settings``, SillyTavern's presets for it, KoboldCpp and KoboldAI Lite.

Both tools say the order of samplers as a list of the numbers 0 to 6, and both apply them in any order, each of
them once. In KoboldCpp some numbers stand for several steps in a fixed order. Where a key is missing, KoboldAI
takes a default that acts (koboldai_settings.py, ``default_settings``), and so does KoboldCpp (koboldcpp.py,
``generate``). So an export writes every key, also of what is off.

**KoboldAI**: the PyTorch code is followed: top-p keeps the token that crosses the limit, tfs pads, the
repetition penalty may rise along a curve over its range. SillyTavern sends min_p, mirostat and a grammar, which
it adds to the presets, to KoboldCpp alone; their steps are where KoboldCpp applies them.

**KoboldCpp** has objects with ``preset``, ``temp``, ``sampler_order`` and so on. The order follows its
gpttype_adapter.cpp: biases and DRY first, then sampler_order, where 2 is top-p and then min-p, and 5 is the
temperature, the smoothing and top-n-sigma; XTC and adaptive-p come last. A fixed top-k of 3000, which only
makes it faster, is left out.

KoboldCpp's rep_pen_slope is not KoboldAI's curve: the far half of rep_pen_range gets 1 + (rep_pen - 1) * slope.
It is flat for a slope above 1 or up to 0, and for a rep_pen up to 1. A rep_pen_range below 1 is 1: the last
token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...samplers.base import Sampler
from ..preset import make_step
from .draft import Draft, Exported, Outgoing, has_halves
from .rows import StepRow, ToolKey, off_values, rows_by_sampler
from .table import BREAKERS, ForeignTable, read_breakers

KOBOLDAI = "KoboldAI"
KOBOLDCPP = "KoboldCpp"
_KOBOLDAI_SLOTS: Mapping[int, Sequence[str]] = {
    0: ("top_k",),
    1: ("top_a",),
    2: ("top_p", "min_p"),
    3: ("tfs",),
    4: ("typical",),
    5: ("temperature",),
    6: ("repetition_penalty",),
}
"""The slots of each number of ``sampler_order``."""
_MIROSTAT_VERSIONS = {"mirostat": 1, "mirostat_v2": 2}
_MIROSTAT = StepRow(
    "mirostat", {"tau": ToolKey("mirostat_tau", 5.0), "eta": ToolKey("mirostat_eta", 0.1)}, switch="mirostat"
)
_KOBOLDAI_ROWS = rows_by_sampler(
    StepRow("temperature", {"t": ToolKey("temp", 1.0)}),
    StepRow("top_k", {"k": ToolKey("top_k", 0, minimum=0)}),
    StepRow("top_a", {"a": ToolKey("top_a", 0.0)}),
    StepRow("top_p", {"p": ToolKey("top_p", 1.0, maximum=1.0)}),
    StepRow("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}, fixed={"pad": True}),
    StepRow("typical", {"p": ToolKey("typical", 1.0, maximum=1.0)}),
    StepRow(
        "repetition_penalty",
        {
            "penalty": ToolKey("rep_pen", 1.0),
            "range": ToolKey("rep_pen_range", 1024),
            "slope": ToolKey("rep_pen_slope", 0.0),
        },
    ),
    StepRow("min_p", {"p": ToolKey("min_p", 0.0)}, acts=lambda p: p > 0, comment="as KoboldCpp applies it"),
    _MIROSTAT,
    replace(_MIROSTAT, sampler="mirostat_v2"),
)
_PRESET_DEFAULTS: Mapping[str, float] = {
    "temp": 0.5,
    "top_p": 0.9,
    "rep_pen": 1.1,
    "rep_pen_range": 2048,
    "rep_pen_slope": 1.0,
}
_SILLYTAVERN_DEFAULTS: Mapping[str, float] = {"top_a": 1.0, "rep_pen_range": 0, "rep_pen_slope": 0.9}
_PRESET_ORDER = [6, 0, 1, 2, 3, 4, 5]
_SILLYTAVERN_ORDER = [0, 1, 2, 3, 4, 5, 6]
_KOBOLDAI_UNDER_MIROSTAT = ("repetition_penalty", "temperature")

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

_SILENT_KOBOLDAI_KEYS = (
    *LABELS,
    *("max_length", "ikgen", "single_line", "use_stop_sequence"),
    *("streaming_kobold", "use_default_badwordsids", "api_server", "preset_settings", "extensions", "n"),
    *OWN_KEYS,
)
KOBOLDAI_KEYS = (*off_values(_KOBOLDAI_ROWS), "sampler_order", "genamt", "grammar")


def convert_koboldai(values: Mapping[Any, Any], origin: str, is_preset_list: bool = False) -> Draft:
    """Return the draft of one preset; ``is_preset_list``: it stands in a ``*.presets`` file."""
    table = ForeignTable(values, origin)
    draft = Draft(KOBOLDAI, table)
    if is_preset_list or any(key in table.values for key in OWN_KEYS):
        draft.defaults, order, draft.tool = _PRESET_DEFAULTS, _PRESET_ORDER, "KoboldAI"
    else:
        draft.defaults, order, draft.tool = _SILLYTAVERN_DEFAULTS, _SILLYTAVERN_ORDER, "SillyTavern"
    draft.defaults_of = draft.tool
    _put_steps(draft)
    order = _order(draft, order)
    draft.take_max_tokens("genamt")
    draft.take_text("grammar", "grammar")
    if _put_mirostat(draft, "as KoboldCpp applies it"):
        change = "KoboldAI has none; the chain is KoboldCpp's: penalty, temperature, mirostat"
        draft.report_changed("mirostat", change)
        draft.take_mirostat_chain(_KOBOLDAI_UNDER_MIROSTAT)
    else:
        _arrange_by_numbers(draft, order, (), _KOBOLDAI_SLOTS)
    draft.report_unknown({*KOBOLDAI_KEYS, *_SILENT_KOBOLDAI_KEYS})
    return draft


def _put_steps(draft: Draft) -> None:
    temperature, penalty = _KOBOLDAI_ROWS["temperature"], _KOBOLDAI_ROWS["repetition_penalty"]
    draft.put_temperature(temperature, "KoboldAI refuses temperature 0; KoboldCpp takes the best token")
    if draft.read(temperature.keys["t"]) == 0:
        draft.report_changed("temp", "KoboldAI refuses it; as in KoboldCpp, the most likely token is taken")
    draft.put_rows(_KOBOLDAI_ROWS, "top_k", "top_a", "top_p", "tfs", "typical")
    is_unlimited = draft.read(penalty.keys["range"]) == 0
    draft.put_row(penalty, "range 0: all tokens, and no slope" if is_unlimited else "")
    draft.put_rows(_KOBOLDAI_ROWS, "min_p")
    if "min_p" in draft.slots and draft.table.whole_number("mirostat", 0) not in (1, 2):
        draft.report_changed("min_p", "KoboldAI has none; it stands behind top_p, where KoboldCpp applies it")


def _order(draft: Draft, default: list[int]) -> list[int]:
    order = _read_numbers(draft, "sampler_order")
    if order is None:
        draft.notes.append(f"order: {draft.tool}'s default")
        return default
    if 6 not in order:
        draft.notes.append("order: without 6, so the repetition penalty comes first")
        return [6, *order]
    return order


def _put_mirostat(draft: Draft, comment: str = "") -> bool:
    """Put mirostat into its slot; False if it is off."""
    version = draft.table.whole_number("mirostat", 0)
    if version not in (1, 2):
        return False
    draft.put_row(_KOBOLDAI_ROWS["mirostat" if version == 1 else "mirostat_v2"], comment)
    return True


ORDER = [6, 0, 1, 3, 4, 2, 5]
_FRONT = ("ignore_eos", "ban", "logit_bias", "dry")
_PENALTIES = ("repetition_penalty", "presence_penalty")
_SLOTS = {**_KOBOLDAI_SLOTS, 5: ("temperature", "quadratic", "top_n_sigma"), 6: _PENALTIES}
_UNDER_MIROSTAT = (*_FRONT, *_PENALTIES, "temperature", "quadratic")

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
_RANGE = ToolKey("rep_pen_range", 320, minimum=1)
_PRESENCE = ToolKey("presence_penalty", 0.0)
_KOBOLDCPP_ROWS = rows_by_sampler(
    StepRow("temperature", {"t": ToolKey("temp", 1.0, minimum=0.0)}),
    StepRow(
        "dynatemp",
        {
            "temperature": ToolKey("temp", 1.0),
            "range": ToolKey("dynatemp_range", 0.0),
            "exponent": ToolKey("dynatemp_exponent", 1.0, minimum=0.0),
        },
        slot="temperature",
        switch="dynatemp_range",
    ),
    StepRow(
        "quadratic",
        {"factor": ToolKey("smoothing_factor", 0.0), "curve": ToolKey("smoothing_curve", 1.0)},
        acts=lambda factor: factor > 0,
    ),
    StepRow("top_n_sigma", {"n": ToolKey("nsigma", 0.0, minimum=0.0)}),
    StepRow("top_k", {"k": ToolKey("top_k", 0, minimum=0)}),
    StepRow("top_a", {"a": ToolKey("top_a", 0.0, minimum=0.0)}),
    StepRow("top_p", {"p": ToolKey("top_p", 1.0, maximum=1.0)}),
    StepRow("min_p", {"p": ToolKey("min_p", 0.0, minimum=0.0)}),
    StepRow("tfs", {"z": ToolKey("tfs", 1.0, maximum=1.0)}, fixed={"pad": False}),
    StepRow("typical", {"p": ToolKey("typical", 1.0, maximum=1.0)}),
    StepRow(
        "repetition_penalty",
        {"penalty": ToolKey("rep_pen", 1.0), "range": _RANGE, "slope": ToolKey("rep_pen_slope", 1.0)},
        fixed={"shape": "halves"},
    ),
    StepRow(
        "penalties",
        {"repeat": ToolKey("rep_pen", 1.0), "presence": _PRESENCE, "last_n": _RANGE},
        slot="repetition_penalty",
    ),
    StepRow(
        "dry",
        {
            "multiplier": ToolKey("dry_multiplier", 0.0, minimum=0.0),
            "base": ToolKey("dry_base", 1.75),
            "allowed_length": ToolKey("dry_allowed_length", 2),
            "last_n": ToolKey("dry_penalty_last_n", 320, minimum=0),
            "breakers": ToolKey("dry_sequence_breakers", BREAKERS, reader=read_breakers),
        },
    ),
    StepRow(
        "xtc",
        {"probability": ToolKey("xtc_probability", 0.0), "threshold": ToolKey("xtc_threshold", 0.2)},
        acts=lambda probability: probability > 0,
    ),
    _MIROSTAT,
    replace(_MIROSTAT, sampler="mirostat_v2"),
    StepRow(
        "adaptive_p",
        {"target": ToolKey("adaptive_target", -1.0), "decay": ToolKey("adaptive_decay", 0.9)},
        acts=lambda target: target >= 0,
    ),
    StepRow("logit_bias", {"bias": ToolKey("logit_bias", {})}),
    StepRow("ban", {"strings": ToolKey("banned_tokens", [])}),
    StepRow("ignore_eos", {}),
)
_PRESENCE_AFTER_SLOPE = StepRow("penalties", {"presence": _PRESENCE, "last_n": _RANGE}, slot="presence_penalty")
KOBOLDCPP_KEYS = (
    *off_values(_KOBOLDCPP_ROWS),
    *("sampler_order", "genamt", "max_length", "grammar", "banned_strings", "guidance_scale"),
)
_SILENT_KOBOLDCPP_KEYS = (
    *("preset", "name", "description", "max_context_length", "n", "quiet", "prompt", "memory", "genkey"),
    *("trim_stop", "render_special", "use_default_badwordsids", "negative_prompt", "images", "logprobs"),
    *("grammar_retain_state", "auto_ctxlen", "auto_genamt", "replace_instruct_placeholders", "using_openai_tools"),
    *("bypass_eos_token", "adapter", "Model Type", "Model Size", "Model Name", "Preset Category"),
)


def convert_koboldcpp(values: Mapping[Any, Any], origin: str) -> Draft:
    """Return the draft of a preset; raises ``PresetError``."""
    table = ForeignTable(values, origin, SPELLINGS)
    draft = Draft(KOBOLDCPP, table)
    _put_biases_and_dry(draft)
    _put_penalty(draft)
    draft.put_rows(_KOBOLDCPP_ROWS, "top_k", "top_a", "top_p", "min_p", "tfs", "typical")
    _put_temperature(draft)
    draft.put_rows(_KOBOLDCPP_ROWS, "quadratic", "top_n_sigma", "xtc", "adaptive_p")
    is_mirostat_on = _put_mirostat(draft)
    _take_settings(draft)
    order = _read_numbers(draft, "sampler_order")
    if order is None or len(order) != 7:
        reason = "" if order is None else "; sampler_order needs seven entries"
        draft.notes.append(f"order: KoboldCpp's default{reason}")
        order = ORDER
    if is_mirostat_on:
        draft.take_mirostat_chain(_UNDER_MIROSTAT)
    else:
        _arrange_by_numbers(draft, order, _FRONT, _SLOTS)
    draft.report_unknown({*KOBOLDCPP_KEYS, *_SILENT_KOBOLDCPP_KEYS})
    return draft


def _put_biases_and_dry(draft: Draft) -> None:
    table = draft.table
    if table.flag("bypass_eos", False):
        draft.put("ignore_eos", "ignore_eos", {}, ["bypass_eos"])
    strings = [*table.texts("banned_tokens"), *table.texts("banned_strings")]
    draft.put("ban", "ban", {"strings": strings}, ["banned_tokens", "banned_strings"])
    draft.put_logit_bias()
    draft.put_rows(_KOBOLDCPP_ROWS, "dry")


def _put_penalty(draft: Draft) -> None:
    """Put the repetition penalty; a slope that acts needs a step of its own before the presence penalty."""
    table = draft.table
    repeat, slope = table.number("rep_pen", 1.0), table.number("rep_pen_slope", 1.0)
    window = table.whole_number("rep_pen_range", 320)
    comment = f"to KoboldCpp a range of {window} is the last token" if window < 1 else ""
    if repeat > 1 and 0 < slope < 1:
        draft.put_row(_KOBOLDCPP_ROWS["repetition_penalty"], comment)
        draft.put_row(_PRESENCE_AFTER_SLOPE, comment)
    else:
        draft.put_row(_KOBOLDCPP_ROWS["penalties"], comment)


def _put_temperature(draft: Draft) -> None:
    dynatemp = _KOBOLDCPP_ROWS["dynatemp"]
    draft.put_temperature(_KOBOLDCPP_ROWS["temperature"], "a temperature of 0 takes the most likely token")
    temperature, reach = (draft.read(dynatemp.keys[name]) for name in ("temperature", "range"))
    if reach != 0 and draft.table.whole_number("mirostat", 0) not in (1, 2):
        draft.put_row(dynatemp, f"from {max(temperature - reach, 0):g} to {temperature + reach:g}")


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


def _read_numbers(draft: Draft, key: str) -> list[int] | None:
    """The order of an entry: a list of numbers, or one text such as ``5, 0, 2, 3, 1, 4``; None if it is absent.

    Raises ``PresetError`` for anything else, and for a number above 6.
    """
    value = draft.table.raw(key)
    if value is None:
        return None
    parts = re.split(r"[\s,;]+", value.strip().strip("[]")) if isinstance(value, str) else value
    if not isinstance(parts, list):
        raise draft.table.fault(key, "a list of numbers")
    numbers = []
    for part in parts:
        text = str(part).removesuffix(".0")
        if isinstance(part, bool) or text not in tuple("0123456"):
            raise draft.table.fault(key, "a list of the numbers 0 to 6")
        numbers.append(int(text))
    return list(dict.fromkeys(numbers))


def _arrange_by_numbers(
    draft: Draft, order: list[int], front: Sequence[str], slots: Mapping[int, Sequence[str]]
) -> None:
    """End the chain: the slots in front, then those of each number.

    Steps whose number the order lacks are reported; the tool leaves them out.

    Args:
        draft: the draft.
        order: the numbers.
        front: slots that come first.
        slots: the slots of each number.
    """
    names = [slot for number in order for slot in slots[number]]
    missing = [slot for number, unlisted in slots.items() if number not in order for slot in unlisted]
    draft.report_idle(draft.arranged(missing), "sampler_order leaves it out")
    draft.take_chain(draft.arranged([*front, *names, "xtc", "adaptive_p"]))


_SILLYTAVERN_ALONE = "KoboldAI does not read it; it was written for SillyTavern, which sends it to KoboldCpp"
_KOBOLDAI_LABELS = {"Preset Category": "Custom", "Model Type": "", "Model Size": "", "Model Name": ""}
"""KoboldAI compares them with the model (aiserver.py, ``load_model``), and fails where one is missing."""

_KOBOLDCPP_SETTINGS_OFF = {"ban_eos_token": False, "sampler_seed": -1, "stop_sequence": [], "grammar": ""}


def to_presets(out: Outgoing) -> Exported:
    """Return the JSON list with the one preset."""
    out.steps = [kept for step in out.steps if (kept := _as_repetition_penalty(out, step)) is not None]
    if out.selector_name == "greedy":
        out.report("greedy", "KoboldAI refuses temperature 0; top_k 1 was written, which takes the same token")
        out.steps = [step for step in out.steps if step.about.name != "top_k"]
        out.steps.append(make_step("top_k", {"k": 1}, "greedy"))
    elif out.selector_name in _MIROSTAT_VERSIONS:
        _leave_out_under_mirostat(out, _KOBOLDAI_ROWS, _KOBOLDAI_UNDER_MIROSTAT)
    elif out.selector_name != "dist":
        out.report_plain_draw()
    out.say_steps(_KOBOLDAI_ROWS)
    if "min_p" in out.order:
        out.report("min_p", _SILLYTAVERN_ALONE)
    if out.say_selector(_KOBOLDAI_ROWS) is not None:
        out.values["mirostat"] = _MIROSTAT_VERSIONS[out.selector_name]
        out.report(out.selector_name, _SILLYTAVERN_ALONE)
        out.report_order(_KOBOLDAI_UNDER_MIROSTAT)
    values = {**off_values(_KOBOLDAI_ROWS), "grammar": "", **out.values}
    values["sampler_order"] = _order_by_numbers(out, _KOBOLDAI_SLOTS, _PRESET_ORDER)
    out.report_order([slot for number in values["sampler_order"] for slot in _KOBOLDAI_SLOTS[number]])
    settings = out.take_extras({"max_tokens": "genamt", "grammar": "grammar"})
    _write_grammar(out, settings, "SillyTavern")
    if "grammar" in settings:
        out.report("grammar", _SILLYTAVERN_ALONE)
    preset = {"preset": out.name, "description": out.description, **_KOBOLDAI_LABELS, **values, **settings}
    return out.exported(json.dumps([preset], indent=4, ensure_ascii=False) + "\n")


def _as_repetition_penalty(out: Outgoing, step: Sampler) -> Sampler | None:
    """Return the step; for ``penalties`` KoboldAI's penalty without a slope, or None if that would be off."""
    if step.about.name != "penalties":
        return step
    repeat, window = getattr(step, "repeat", 1.0), getattr(step, "last_n", 0)
    for name in ("presence", "frequency"):
        if getattr(step, name) != 0:
            out.report(f"penalties.{name} {getattr(step, name):g}", "KoboldAI has a repetition penalty only")
    if not getattr(step, "penalize_newline", True):
        out.report("penalties.penalize_newline false", "KoboldAI always has true there")
    if repeat == 1:
        return None
    return make_step("repetition_penalty", {"penalty": repeat, "range": max(window, 0)}, "penalties")


def to_request(out: Outgoing) -> Exported:
    """Return the JSON body, without a prompt; a system message is reported, since it is a part of the prompt."""
    out.flatten_repetition_penalty(keeps_halves=True)
    presence = _take_presence(out)
    _end(out)
    out.say_steps(_KOBOLDCPP_ROWS)
    out.values |= {"presence_penalty": presence} if presence else {}
    out.say_selector(_KOBOLDCPP_ROWS)
    if out.selector_name == "greedy":
        out.values["temp"] = 0.0
        out.order.append("temperature")
    out.widen_window("rep_pen_range", "penalties.last_n")
    out.widen_window("dry_penalty_last_n", "dry.last_n")
    values = {**off_values(_KOBOLDCPP_ROWS), **_KOBOLDCPP_SETTINGS_OFF, **out.values}
    values["sampler_order"] = _numbers(out)
    values = {"temperature": values.pop("temp"), **values}
    biases = out.finite_biases(values["logit_bias"])
    values["logit_bias"] = {str(token): number for token, number in biases.items()}
    values["ban_eos_token"] = "ignore_eos" in out.order
    values["mirostat"] = _MIROSTAT_VERSIONS.get(out.selector_name, 0)
    return out.exported(json.dumps({**values, **_settings(out)}, indent=4, ensure_ascii=False) + "\n")


def _take_presence(out: Outgoing) -> float:
    """Return the presence penalty right after KoboldCpp's slope, which KoboldCpp applies in the same step."""
    for sloped, step in zip(out.steps, out.steps[1:], strict=False):
        is_same_window = getattr(step, "last_n", 0) == getattr(sloped, "range", -1)
        if has_halves(sloped) and step.about.name == "penalties" and is_same_window:
            presence: float = getattr(step, "presence", 0.0)
            if step == make_step("penalties", {"presence": presence, "last_n": getattr(step, "last_n", 0)}, ""):
                out.steps.remove(step)
                return presence
    return 0.0


def _end(out: Outgoing) -> None:
    """Remove the steps that KoboldCpp does not apply before the one that selects."""
    name = out.selector_name
    if name == "greedy":
        reason = "the most likely token is taken, which is temperature 0 there"
        out.leave_out(("temperature", "dynatemp"), reason)
    elif name in _MIROSTAT_VERSIONS:
        _leave_out_under_mirostat(out, _KOBOLDCPP_ROWS, _UNDER_MIROSTAT)
        out.steps = [_with_fixed_temperature(out, step) for step in out.steps]
    elif name not in ("dist", "adaptive_p"):
        out.report_plain_draw()


def _with_fixed_temperature(out: Outgoing, step: Sampler) -> Sampler:
    """Return the step; for ``dynatemp`` the temperature in its middle, which KoboldCpp applies before mirostat."""
    if step.about.name != "dynatemp":
        return step
    middle = getattr(step, "temperature", 1.0)
    out.report("dynatemp.range", f"KoboldCpp applies one temperature before mirostat; {middle:g} was written")
    return make_step("temperature", {"t": middle}, "dynatemp")


def _leave_out_under_mirostat(out: Outgoing, rows: Mapping[str, StepRow], acting: Sequence[str]) -> None:
    """Remove the steps that KoboldCpp does not apply before mirostat; ``acting``: the slots of the others."""
    idle = [row.sampler for row in rows.values() if row.slot not in acting]
    out.leave_out(idle, "KoboldCpp applies only penalties, biases and temperature before mirostat")


def _numbers(out: Outgoing) -> list[int]:
    """Return ``sampler_order``; an order that its numbers cannot say is reported."""
    numbers = _order_by_numbers(out, _SLOTS, ORDER)
    if out.selector_name in _MIROSTAT_VERSIONS:
        out.report_order(_UNDER_MIROSTAT)
    else:
        out.report_order([*_FRONT, *(slot for number in numbers for slot in _SLOTS[number]), "xtc"])
    return numbers


def _order_by_numbers(out: Outgoing, slots: Mapping[int, Sequence[str]], default: Sequence[int]) -> list[int]:
    """Return the numbers in the order of the steps, and after them the others in the default order."""
    number_of = {slot: number for number, names in slots.items() for slot in names}
    return list(dict.fromkeys([*(number_of[slot] for slot in out.order if slot in number_of), *default]))


def _settings(out: Outgoing) -> dict[str, Any]:
    """Return the settings beside the chain by KoboldCpp's keys."""
    keys = {"max_tokens": "max_length", "seed": "sampler_seed", "stop": "stop_sequence", "grammar": "grammar"}
    settings = out.take_extras(keys)
    if settings.get("sampler_seed") == 0:
        del settings["sampler_seed"]
        out.report("seed 0", "KoboldCpp takes it for a random one")
    _write_grammar(out, settings, "KoboldCpp")
    return settings


def _write_grammar(out: Outgoing, settings: dict[str, Any], reader: str) -> None:
    """Write a grammar as text; one that has none is reported, as what ``reader`` does not take."""
    if "grammar" in settings:
        text = out.grammar_text(settings.pop("grammar"))
        if text is None:
            out.report("grammar", f"{reader} takes a grammar as text")
        else:
            settings["grammar"] = text
