"""Import and export of presets of KoboldAI and KoboldCpp.

These are KoboldAI's ``*.presets`` and ``*.settings`` files, SillyTavern's presets for KoboldAI, and the JSON
objects of KoboldCpp and KoboldAI Lite. Both tools give the order of the samplers as a list of the numbers 0 to 6,
in any order, each of them once. In KoboldCpp some numbers stand for several steps in a fixed order. An absent key
has a default with which its step is on, in KoboldAI (koboldai_settings.py, ``default_settings``) and in KoboldCpp
(koboldcpp.py, ``generate``). So an export writes every key, even of steps that are off.

**KoboldAI**: the chain follows the PyTorch code. Top-p keeps the token that crosses the limit, tfs pads, and the
repetition penalty may rise along a curve over its range. SillyTavern adds min_p, mirostat and a grammar to these
presets, but sends them to KoboldCpp only. Their steps are placed where KoboldCpp applies them.

**KoboldCpp**: the presets are JSON objects with the keys ``preset``, ``temp``, ``sampler_order`` and so on. The
order follows gpttype_adapter.cpp. Biases and DRY come first, then the steps of sampler_order, where 2 is top-p and
then min-p, and 5 is the temperature, the smoothing and top-n-sigma. XTC and adaptive-p come last. A fixed top-k of
3000, which only saves time, is left out.

KoboldCpp's rep_pen_slope is not KoboldAI's curve. The older half of rep_pen_range gets the penalty
1 + (rep_pen - 1) * slope. The penalty is flat if the slope is above 1 or not above 0, or if rep_pen is at most 1.
A rep_pen_range below 1 is read as 1, the last token.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from ...samplers.base import Sampler
from ..errors import PresetError
from ..overrides import MIROSTAT_VERSIONS
from ..parameter_names import spellings
from ..preset import make_step
from . import lists
from .conversion import Imported, ImportedChainBuilder, read_guidance
from .exporter import PresetExporter, entries_in_order, has_halves_slope, is_sloped
from .other_keys import other_keys
from .preset_file import LABEL_KEYS, PresetFile, known_share
from .registry import Format
from .sampler_keys import SamplerKeys, keys_by_sampler, off_values, sampler_keys
from .table import ForeignTable

KOBOLDAI = "KoboldAI"
KOBOLDCPP = "KoboldCpp"
# for each number of ``sampler_order``: the slots of its steps
_KOBOLDAI_SLOTS: Mapping[int, Sequence[str]] = {
    0: ("top_k",),
    1: ("top_a",),
    2: ("top_p", "min_p"),
    3: ("tfs",),
    4: ("typical",),
    5: ("temperature",),
    6: ("repetition_penalty",),
}
_keys = partial(sampler_keys, "koboldai")
_MIROSTAT_KEYS = (
    _keys("mirostat", switch_key="mirostat"),
    _keys("mirostat_v2", slot="mirostat", switch_key="mirostat"),
)
_KOBOLDAI_SAMPLER_KEYS = keys_by_sampler(
    *map(_keys, ("temperature", "top_k", "top_a", "top_p")),
    _keys("tfs", fixed_parameters={"pad": True}),
    _keys("typical"),
    _keys("repetition_penalty", {"range": {"minimum": 0}}),
    _keys("min_p", is_active_at=lambda p: p > 0, comment="as KoboldCpp applies it"),
    *_MIROSTAT_KEYS,
)
_KOBOLDAI_DEFAULTS: Mapping[str, float] = {
    "temp": 0.5,
    "top_p": 0.9,
    "rep_pen": 1.1,
    "rep_pen_range": 2048,
    "rep_pen_slope": 1.0,
}
_SILLYTAVERN_DEFAULTS: Mapping[str, float] = {"top_a": 1.0, "rep_pen_range": 0, "rep_pen_slope": 0.9}
_KOBOLDAI_ORDER = [6, 0, 1, 2, 3, 4, 5]
_SILLYTAVERN_ORDER = [0, 1, 2, 3, 4, 5, 6]
_KOBOLDAI_SLOTS_BEFORE_MIROSTAT = ("repetition_penalty", "temperature")

# Keys of KoboldAI's settings file that do not affect sampling. If one is present, KoboldAI's defaults are used.
SETTINGS_FILE_KEYS = other_keys("koboldai-settings")

KOBOLDAI_KEYS = (*off_values(_KOBOLDAI_SAMPLER_KEYS), "sampler_order", "genamt", "grammar")
_KOBOLDAI_SETTING_KEYS = {"max_tokens": "genamt", "grammar": "grammar"}
_ALL_KOBOLDAI_KEYS = frozenset((*KOBOLDAI_KEYS, *LABEL_KEYS, *SETTINGS_FILE_KEYS, *other_keys("koboldai")))


def read_koboldai(file: PresetFile) -> Imported:
    """Read a settings file, or one preset of a list."""
    return _read_chosen(file, lambda values, is_list: convert_koboldai(values, file.origin, is_list))


def read_koboldcpp(file: PresetFile) -> Imported:
    """Read the body of a request, or one preset of a list."""
    return _read_chosen(file, lambda values, _is_list: convert_koboldcpp(values, file.origin))


def _recognize(known_keys: frozenset[str], file: PresetFile) -> float:
    keys = {key for preset in file.json_objects for key in preset}
    return known_share(keys, known_keys)


def _read_chosen(file: PresetFile, convert: Callable[[Mapping[Any, Any], bool], ImportedChainBuilder]) -> Imported:
    value = file.json()
    is_list = isinstance(value, list)
    values = value if is_list else [value]
    entries = [file.table(entry) for entry in values]
    if not entries:
        raise PresetError(f"{file.origin}: the list holds no preset")
    labels = _unique_names(entries)
    if labels[0] == "" and not is_list:
        file.reject_section()
    chosen = entries[_choose_entry(file, entries, labels)]
    builder = convert(chosen, is_list)
    description = chosen.get("description")
    if isinstance(description, str) and description.strip():
        builder.description = description.strip()
    has_sections = is_list and len(labels) > 1
    return builder.imported(labels if has_sections else [])


def _choose_entry(file: PresetFile, entries: list[Mapping[Any, Any]], labels: list[str]) -> int:
    """Return the index of the preset that the section names."""
    section = file.section
    if section is None or section in labels:
        return file.choose(labels)
    indices = [index for index, entry in enumerate(entries) if _preset_title(entry) == section]
    if len(indices) <= 1:
        return file.choose(labels)
    # Several presets have this name. If their settings are the same, any of them will do.
    first_settings = _settings_of(entries[indices[0]])
    if all(_settings_of(entries[index]) == first_settings for index in indices):
        return indices[0]
    names = ", ".join(labels[index] for index in indices)
    raise PresetError(f"{file.origin}: {len(indices)} presets have the name {section!r}; choose one of: {names}")


def _settings_of(entry: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a preset without the keys that only identify it."""
    return {key: value for key, value in entry.items() if key not in LABEL_KEYS}


def _unique_names(entries: list[Mapping[Any, Any]]) -> list[str]:
    """Return a unique name for each preset: ``Godlike``, ``Godlike (gptj)`` or ``Godlike (gptj) #2``."""
    titles = [_preset_title(entry) for entry in entries]
    names: list[str] = []
    for title, entry in zip(titles, entries, strict=True):
        is_unique = titles.count(title) == 1
        names.append(title if is_unique else f"{title} ({entry.get('Model Type') or entry.get('Model Name')})")
    unique_names: list[str] = []
    for index, name in enumerate(names):
        number = names[: index + 1].count(name)  # 1 for the first preset of this name
        unique_names.append(name if names.count(name) == 1 else f"{name} #{number}")
    return unique_names


def _preset_title(entry: Mapping[Any, Any]) -> str:
    return str(entry.get("preset") or entry.get("name") or "")


def convert_koboldai(values: Mapping[Any, Any], origin: str, is_preset_list: bool = False) -> ImportedChainBuilder:
    # ``is_preset_list``: True if the preset is in a ``*.presets`` file
    table = ForeignTable(values, origin)
    is_koboldai = is_preset_list or any(key in table.values for key in SETTINGS_FILE_KEYS)
    if is_koboldai:
        builder = ImportedChainBuilder(KOBOLDAI, table, _KOBOLDAI_DEFAULTS)
        default_order = _KOBOLDAI_ORDER
    else:
        builder = ImportedChainBuilder("SillyTavern", table, _SILLYTAVERN_DEFAULTS)
        default_order = _SILLYTAVERN_ORDER
    _read_steps(builder)
    order = _read_order(builder, default_order)
    builder.read_settings(_KOBOLDAI_SETTING_KEYS)
    if _read_mirostat(builder, "as KoboldCpp applies it"):
        change = "KoboldAI has no mirostat; the chain is KoboldCpp's: penalty, temperature, mirostat"
        builder.report_changed("mirostat", change)
        builder.set_mirostat_chain(_KOBOLDAI_SLOTS_BEFORE_MIROSTAT)
    else:
        _arrange_by_numbers(builder, order, (), _KOBOLDAI_SLOTS)
    builder.report_unknown(_ALL_KOBOLDAI_KEYS)
    return builder


def _read_steps(builder: ImportedChainBuilder) -> None:
    temperature = _KOBOLDAI_SAMPLER_KEYS["temperature"]
    penalty = _KOBOLDAI_SAMPLER_KEYS["repetition_penalty"]
    builder.read_temperature(temperature, "KoboldAI rejects temperature 0; KoboldCpp takes the most likely token")
    if builder.read_value(temperature.key_by_parameter["t"]) == 0:
        builder.report_changed("temp", "KoboldAI rejects 0; as in KoboldCpp, the most likely token is taken")
    builder.read_steps(_KOBOLDAI_SAMPLER_KEYS, "top_k", "top_a", "top_p", "tfs", "typical")
    is_unlimited = builder.read_value(penalty.key_by_parameter["range"]) == 0
    builder.read_step(penalty, "range 0: all tokens, and no slope" if is_unlimited else "")
    builder.read_steps(_KOBOLDAI_SAMPLER_KEYS, "min_p")
    if "min_p" in builder.step_by_slot and builder.table.integer("mirostat", 0) not in (1, 2):
        builder.report_changed("min_p", "KoboldAI has no min-p; it comes after top_p, where KoboldCpp applies it")


def _read_order(builder: ImportedChainBuilder, default_order: list[int]) -> list[int]:
    order = _read_sampler_numbers(builder, "sampler_order")
    if order is None:
        builder.notes.append(f"order: {builder.tool}'s default")
        return default_order
    if 6 not in order:
        builder.notes.append("order: without 6, so the repetition penalty comes first")
        return [6, *order]
    return order


def _read_mirostat(builder: ImportedChainBuilder, comment: str = "") -> bool:
    """Read mirostat into its slot. Return False if it is off."""
    version = builder.table.integer("mirostat", 0)
    if version not in MIROSTAT_VERSIONS:
        if version != 0:
            builder.report_unsupported("mirostat", "KoboldCpp knows the versions 1 and 2; it is off")
        return False
    builder.read_step(_KOBOLDAI_SAMPLER_KEYS[MIROSTAT_VERSIONS[version]], comment)
    return True


KOBOLDCPP_ORDER = [6, 0, 1, 3, 4, 2, 5]
_LEADING_SLOTS = ("ignore_eos", "ban", "logit_bias", "dry")
_PENALTY_SLOTS = ("repetition_penalty", "presence_penalty")
KOBOLDCPP_SLOTS = {**_KOBOLDAI_SLOTS, 5: ("temperature", "quadratic", "top_n_sigma"), 6: _PENALTY_SLOTS}
# for each number of ``sampler_order``: the samplers of its steps
SAMPLERS_BY_NUMBER: Mapping[int, Sequence[str]] = {**KOBOLDCPP_SLOTS, 6: ("repetition_penalty", "penalties")}
_KOBOLDCPP_SLOTS_BEFORE_MIROSTAT = (*_LEADING_SLOTS, *_PENALTY_SLOTS, "temperature", "quadratic")

KEY_SPELLINGS = {
    **spellings("koboldcpp"),
    "mirostat": ("mirostat", "miro_type"),
    "seed": ("sampler_seed", "seed"),
    "stop": ("stop_sequence", "stop"),
    "bypass_eos": ("bypass_eos", "ban_eos_token"),
}
_cpp_keys = partial(sampler_keys, "koboldcpp")
_NOT_NEGATIVE = {"minimum": 0.0}
_PENALTY_RANGE = {"off_value": 320, "minimum": 1, "is_limited_window": True}
KOBOLDCPP_SAMPLER_KEYS = keys_by_sampler(
    _cpp_keys("temperature", {"t": _NOT_NEGATIVE}),
    _cpp_keys("dynatemp", {"exponent": _NOT_NEGATIVE}, slot="temperature", switch_key="dynatemp_range"),
    _cpp_keys("quadratic", is_active_at=lambda factor: factor > 0),
    *map(_cpp_keys, ("top_n_sigma", "top_k")),
    _cpp_keys("top_a", {"a": _NOT_NEGATIVE}),
    _cpp_keys("top_p"),
    _cpp_keys("min_p", {"p": _NOT_NEGATIVE}),
    _cpp_keys("tfs", fixed_parameters={"pad": False}),
    _cpp_keys("typical"),
    _cpp_keys(
        "repetition_penalty",
        {"range": _PENALTY_RANGE, "slope": {"off_value": 1.0}},
        fixed_parameters={"shape": "halves"},
    ),
    _cpp_keys("penalties", {"last_n": _PENALTY_RANGE}, slot="repetition_penalty"),
    _cpp_keys(
        "dry",
        {"multiplier": _NOT_NEGATIVE, "last_n": {**_PENALTY_RANGE, "minimum": 0}},
    ),
    _cpp_keys("xtc", {"threshold": {"off_value": 0.2}}, is_active_at=lambda probability: probability > 0),
    *_MIROSTAT_KEYS,
    _cpp_keys("adaptive_p", is_active_at=lambda target: target >= 0),
    _cpp_keys("logit_bias"),
    sampler_keys("koboldcpp-file", "ban"),
    _cpp_keys("ignore_eos"),
)
_PRESENCE_AFTER_SLOPE_KEYS = SamplerKeys(
    "penalties",
    {name: key for name, key in KOBOLDCPP_SAMPLER_KEYS["penalties"].key_by_parameter.items() if name != "repeat"},
    slot="presence_penalty",
)
_NEGATIVE_PROMPT_PLACE = "KoboldCpp puts the negative prompt before the prompt, logitsmith in its place"
KOBOLDCPP_KEYS = (
    *off_values(KOBOLDCPP_SAMPLER_KEYS),
    *("sampler_order", "genamt", "max_length", "grammar", "banned_strings", "guidance_scale", "negative_prompt"),
)
_ALL_KOBOLDCPP_KEYS = frozenset((*KOBOLDCPP_KEYS, *other_keys("koboldcpp"))).union(*KEY_SPELLINGS.values())


def convert_koboldcpp(values: Mapping[Any, Any], origin: str) -> ImportedChainBuilder:
    table = ForeignTable(values, origin, KEY_SPELLINGS)
    builder = ImportedChainBuilder(KOBOLDCPP, table)
    _read_biases_and_dry(builder)
    _read_penalty(builder)
    builder.read_steps(KOBOLDCPP_SAMPLER_KEYS, "top_k", "top_a", "top_p", "min_p", "tfs", "typical")
    _read_temperature(builder)
    builder.read_steps(KOBOLDCPP_SAMPLER_KEYS, "quadratic", "top_n_sigma", "xtc", "adaptive_p")
    is_mirostat_on = _read_mirostat(builder)
    _read_other_settings(builder)
    order = _read_sampler_numbers(builder, "sampler_order")
    if order is None or len(order) != len(KOBOLDCPP_ORDER):
        reason = "" if order is None else "; sampler_order needs seven entries"
        builder.notes.append(f"order: KoboldCpp's default{reason}")
        order = KOBOLDCPP_ORDER
    if is_mirostat_on:
        builder.set_mirostat_chain(_KOBOLDCPP_SLOTS_BEFORE_MIROSTAT)
    else:
        _arrange_by_numbers(builder, order, _LEADING_SLOTS, KOBOLDCPP_SLOTS)
    builder.report_unknown(_ALL_KOBOLDCPP_KEYS)
    return builder


def _read_biases_and_dry(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_ignore_eos("bypass_eos")
    strings = [*table.strings("banned_tokens"), *table.strings("banned_strings")]
    if strings:
        builder.other_settings["bans"] = strings
    builder.read_steps(KOBOLDCPP_SAMPLER_KEYS, "logit_bias", "dry")
    if table.number("dry_multiplier", 0) > 0 and table.integer("dry_penalty_last_n", 1) < 0:
        builder.report_unsupported(
            "dry_penalty_last_n", "KoboldCpp reads it as 0, so DRY is off; to llama.cpp it once meant all tokens"
        )


def _read_penalty(builder: ImportedChainBuilder) -> None:
    """Read the penalties. A slope with an effect needs a separate step before the presence penalty."""
    table = builder.table
    repeat = table.number("rep_pen", 1.0)
    slope = table.number("rep_pen_slope", 1.0)
    window = table.integer("rep_pen_range", 320)
    comment = f"to KoboldCpp a range of {window} is the last token" if window < 1 else ""
    if is_sloped(repeat, slope):
        builder.read_step(KOBOLDCPP_SAMPLER_KEYS["repetition_penalty"], comment)
        builder.read_step(_PRESENCE_AFTER_SLOPE_KEYS, comment)
    else:
        builder.read_step(KOBOLDCPP_SAMPLER_KEYS["penalties"], comment)


def _read_temperature(builder: ImportedChainBuilder) -> None:
    builder.read_temperature(
        KOBOLDCPP_SAMPLER_KEYS["temperature"], "a temperature of 0 takes the most likely token"
    )
    keys = KOBOLDCPP_SAMPLER_KEYS["dynatemp"]
    temperature = builder.read_value(keys.key_by_parameter["temperature"])
    half_range = builder.read_value(keys.key_by_parameter["range"])
    is_mirostat_on = builder.table.integer("mirostat", 0) in MIROSTAT_VERSIONS
    if half_range != 0 and not is_mirostat_on:
        lowest = max(temperature - half_range, 0)
        highest = temperature + half_range
        builder.read_step(keys, f"from {lowest:g} to {highest:g}")


def _read_other_settings(builder: ImportedChainBuilder) -> None:
    table = builder.table
    builder.read_max_tokens("genamt")
    if table.is_set("max_context_length") or "temperature" in table.values:
        # In a request, and in Lite's settings, max_length limits the answer. In a preset, it is the context size.
        builder.read_max_tokens("max_length")
    builder.read_seed("seed", min_fixed_seed=1)
    builder.read_settings({"stop": "stop", "grammar": "grammar"})
    read_guidance(builder, "guidance_scale")
    if "negative_prompt" in builder.other_settings.get("guidance", ()):
        builder.report_changed("negative_prompt", _NEGATIVE_PROMPT_PLACE)


def _read_sampler_numbers(builder: ImportedChainBuilder, key: str) -> list[int] | None:
    """Return the numbers of an order; None if the key is absent."""
    if not builder.table.is_set(key):
        return None
    numbers = builder.table.read(key, lists.read_integers)
    if not all(number in SAMPLERS_BY_NUMBER for number in numbers):
        raise builder.table.value_error(key, "a list of the numbers 0 to 6")
    return list(dict.fromkeys(numbers))


def _arrange_by_numbers(
    builder: ImportedChainBuilder,
    order: list[int],
    leading_slots: Sequence[str],
    slots_by_number: Mapping[int, Sequence[str]],
) -> None:
    """Set the chain: the leading slots, then the slots of each number, then XTC and adaptive-p."""
    # Steps whose number is not in the order are left out, as in the tool, and reported.
    listed_slots = [slot for number in order for slot in slots_by_number[number]]
    missing_slots = [slot for number in slots_by_number if number not in order for slot in slots_by_number[number]]
    builder.report_inactive_steps(builder.steps_in_order(missing_slots), "sampler_order leaves it out")
    builder.set_chain(builder.steps_in_order([*leading_slots, *listed_slots, "xtc", "adaptive_p"]))


_ONLY_BEFORE_MIROSTAT = "KoboldCpp applies only penalties, biases and temperature before mirostat"
_ONLY_FOR_SILLYTAVERN = "KoboldAI does not read it; it was written for SillyTavern, which sends it to KoboldCpp"
# Keys that KoboldAI compares with the model (aiserver.py, ``load_model``). It fails if one of them is missing.
_KOBOLDAI_LABELS = {"Preset Category": "Custom", "Model Type": "", "Model Size": "", "Model Name": ""}

_KOBOLDCPP_OFF_SETTINGS = {"ban_eos_token": False, "sampler_seed": -1, "stop_sequence": [], "grammar": ""}


def to_presets(exporter: PresetExporter) -> str:
    """Return KoboldAI's JSON list of presets, which holds this preset only."""
    converted_steps = [_as_repetition_penalty(exporter, step) for step in exporter.steps]
    exporter.steps = [step for step in converted_steps if step is not None]
    if exporter.selector_name == "greedy":
        exporter.report_unsupported(
            "greedy", "KoboldAI rejects temperature 0; top_k 1 was written, which takes the same token"
        )
        exporter.steps = [step for step in exporter.steps if step.about.name != "top_k"]
        exporter.steps.append(make_step("top_k", {"k": 1}, "greedy"))
    elif exporter.mirostat_version:
        exporter.remove_steps_without_slot(
            _KOBOLDAI_SAMPLER_KEYS, _KOBOLDAI_SLOTS_BEFORE_MIROSTAT, _ONLY_BEFORE_MIROSTAT
        )
    elif exporter.selector_name != "dist":
        exporter.report_replaced_selector()
    exporter.write_steps(_KOBOLDAI_SAMPLER_KEYS)
    if "min_p" in exporter.written_slots:
        exporter.report_unsupported("min_p", _ONLY_FOR_SILLYTAVERN)
    if exporter.write_selector(_KOBOLDAI_SAMPLER_KEYS) is not None:
        exporter.values["mirostat"] = exporter.mirostat_version
        exporter.report_unsupported(exporter.selector_name, _ONLY_FOR_SILLYTAVERN)
        exporter.report_order(_KOBOLDAI_SLOTS_BEFORE_MIROSTAT)
    values = {**off_values(_KOBOLDAI_SAMPLER_KEYS), "grammar": "", **exporter.values}
    numbers = entries_in_order(_KOBOLDAI_ORDER, _KOBOLDAI_SLOTS.__getitem__, exporter.written_slots)
    values["sampler_order"] = numbers
    exporter.report_order([slot for number in numbers for slot in _KOBOLDAI_SLOTS[number]])
    grammar = exporter.take_grammar({"gbnf": "grammar"}, "a grammar as text, for SillyTavern")
    if grammar:
        exporter.report_unsupported("grammar", _ONLY_FOR_SILLYTAVERN)
    settings = exporter.convert_other_settings(_KOBOLDAI_SETTING_KEYS) | grammar
    preset = {
        "preset": exporter.name,
        "description": exporter.description,
        **_KOBOLDAI_LABELS,
        **values,
        **settings,
    }
    return json.dumps([preset], indent=4, ensure_ascii=False) + "\n"


def _as_repetition_penalty(exporter: PresetExporter, step: Sampler) -> Sampler | None:
    """Return the step. Convert ``penalties`` to KoboldAI's flat penalty; return None if that would be off."""
    if step.about.name != "penalties":
        return step
    repeat = getattr(step, "repeat", 1.0)
    window = max(getattr(step, "last_n", 0), 0)  # KoboldAI's 0 means all tokens, as -1 does here
    for name in ("presence", "frequency"):
        penalty = getattr(step, name)
        if penalty != 0:
            exporter.report_unsupported(f"penalties.{name} {penalty:g}", "KoboldAI has only a repetition penalty")
    if not getattr(step, "penalize_newline", True):
        exporter.report_unsupported("penalties.penalize_newline false", "KoboldAI always has true there")
    if repeat == 1:
        return None
    return make_step("repetition_penalty", {"penalty": repeat, "range": window}, "penalties")


def to_request(exporter: PresetExporter) -> str:
    """Return the JSON body of a request to KoboldCpp, without a prompt."""
    # A system message would be a part of the prompt, so it is reported.
    values = koboldcpp_values(exporter)
    values = {"temperature": values.pop("temp"), **values}
    biases = exporter.finite_biases(values["logit_bias"])
    values["logit_bias"] = {str(token): number for token, number in biases.items()}
    values["ban_eos_token"] = "ignore_eos" in exporter.written_slots
    values |= _convert_other_settings(exporter)
    return json.dumps(values, indent=4, ensure_ascii=False) + "\n"


def koboldcpp_values(exporter: PresetExporter) -> dict[str, Any]:
    exporter.flatten_repetition_penalty(keeps_halves_slope=True)
    presence = _pop_presence_penalty(exporter)
    _remove_unapplied_steps(exporter)
    exporter.write_steps(KOBOLDCPP_SAMPLER_KEYS)
    if presence:
        exporter.values["presence_penalty"] = presence
    exporter.write_selector(KOBOLDCPP_SAMPLER_KEYS)
    values = {**off_values(KOBOLDCPP_SAMPLER_KEYS), **_KOBOLDCPP_OFF_SETTINGS, **exporter.values}
    values["sampler_order"] = _written_sampler_numbers(exporter)
    values["mirostat"] = exporter.mirostat_version
    return values


def _pop_presence_penalty(exporter: PresetExporter) -> float:
    """Remove the presence penalty that follows a slope, and return it; 0 if there is none."""
    # KoboldCpp applies the presence penalty together with the slope. So a separate step would not be exportable.
    for sloped_step, step in pairwise(exporter.steps):
        window = getattr(step, "last_n", 0)
        is_same_window = window == getattr(sloped_step, "range", -1)
        if has_halves_slope(sloped_step) and step.about.name == "penalties" and is_same_window:
            presence: float = getattr(step, "presence", 0.0)
            has_presence_only = step == make_step("penalties", {"presence": presence, "last_n": window}, "")
            if has_presence_only:
                exporter.steps.remove(step)
                return presence
    return 0.0


def _remove_unapplied_steps(exporter: PresetExporter) -> None:
    """Remove the steps that KoboldCpp does not apply before the step that selects the token."""
    exporter.replace_greedy()
    if exporter.mirostat_version:
        exporter.remove_steps_without_slot(
            KOBOLDCPP_SAMPLER_KEYS, _KOBOLDCPP_SLOTS_BEFORE_MIROSTAT, _ONLY_BEFORE_MIROSTAT
        )
        exporter.steps = [_with_fixed_temperature(exporter, step) for step in exporter.steps]
    elif exporter.selector_name not in ("dist", "adaptive_p"):
        exporter.report_replaced_selector()


def _with_fixed_temperature(exporter: PresetExporter, step: Sampler) -> Sampler:
    """Return the step. Replace ``dynatemp`` by its middle temperature, as KoboldCpp does before mirostat."""
    if step.about.name != "dynatemp":
        return step
    middle = getattr(step, "temperature", 1.0)
    exporter.report_unsupported(
        "dynatemp.range", f"KoboldCpp applies one temperature before mirostat; {middle:g} was written"
    )
    return make_step("temperature", {"t": middle}, "dynatemp")


def _written_sampler_numbers(exporter: PresetExporter) -> list[int]:
    """Return the numbers for ``sampler_order``, and report an order that these numbers cannot express."""
    numbers = entries_in_order(KOBOLDCPP_ORDER, KOBOLDCPP_SLOTS.__getitem__, exporter.written_slots)
    if exporter.mirostat_version:
        exporter.report_order(_KOBOLDCPP_SLOTS_BEFORE_MIROSTAT)
    else:
        numbered_slots = [slot for number in numbers for slot in KOBOLDCPP_SLOTS[number]]
        exporter.report_order([*_LEADING_SLOTS, *numbered_slots, "xtc"])
    return numbers


def _convert_other_settings(exporter: PresetExporter) -> dict[str, Any]:
    keys = {"max_tokens": "max_length", "seed": "sampler_seed", "stop": "stop_sequence"}
    phrases = exporter.take_banned_phrases()
    guidance = exporter.take_guidance("guidance_scale")
    grammar = exporter.take_grammar({"gbnf": "grammar"}, "a grammar as text")
    settings = exporter.convert_other_settings(keys) | guidance | grammar
    if "negative_prompt" in guidance:
        exporter.report_unsupported("guidance.negative_prompt", _NEGATIVE_PROMPT_PLACE)
    if phrases:
        settings["banned_tokens"] = [*exporter.values.get("banned_tokens", []), *phrases]
    if settings.get("sampler_seed", 1) < 1:
        seed = settings.pop("sampler_seed")
        exporter.report_unsupported(f"seed {seed}", "KoboldCpp reads a seed below 1 as a random one")
    return settings


FORMATS = (
    Format(
        name="koboldai",
        tool=KOBOLDAI,
        description="a preset of KoboldAI",
        read=read_koboldai,
        write=to_presets,
        recognize=partial(_recognize, _ALL_KOBOLDAI_KEYS),
        aliases=("kobold",),
        holds_several=True,
        has_penalty_slope=True,
    ),
    Format(
        name="koboldcpp",
        tool=KOBOLDCPP,
        description="a preset of KoboldCpp",
        read=read_koboldcpp,
        write=to_request,
        recognize=partial(_recognize, _ALL_KOBOLDCPP_KEYS),
        aliases=("kobold-lite",),
        extends=("koboldai", "llama.cpp"),
        holds_several=True,
        has_penalty_slope=True,
    ),
)
