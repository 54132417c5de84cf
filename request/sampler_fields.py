"""The fields with which clients set samplers, under the names of each tool.

A request may use names of several tools, as SillyTavern's requests do. A value that turns a sampler off changes
the chain only if the chain has the sampler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field, ValidationInfo, create_model, field_validator

from ..common.text import short_repr
from ..presets.errors import PresetError
from ..presets.foreign import lists
from ..presets.foreign.exporter import is_sloped
from ..presets.foreign.kobold import SAMPLERS_BY_NUMBER
from ..presets.foreign.sampler_keys import ToolKey
from ..presets.foreign.webui import TEMPERATURE_SLOTS, samplers_of_step, temperature_range
from ..presets.overrides import (
    MIROSTAT_VERSIONS,
    ChainRearrangement,
    Override,
    read_sampler_sequence,
    rearrange_for_mirostat,
)
from ..presets.parameter_names import PARAMETERS, Parameter
from ..presets.preset import make_step
from ..samplers.errors import SamplingError
from ..samplers.registry import find_sampler
from .strict_model import Json, StrictModel

Number = float | int
_Value = TypeVar("_Value")


# The parameter that each field sets: of several with the field's name, the first one in the table.
_PARAMETER_OF_FIELD: dict[str, Parameter] = {}
for _row in PARAMETERS:
    for _name in _row.request_names:
        _PARAMETER_OF_FIELD.setdefault(_name, _row)
# The samplers that a field alone does not set: `ChainChanges` reads the fields of each in a method of its own.
_READ_SEPARATELY = ("repetition_penalty", "mirostat", "adaptive_p", "ban", "logit_bias")
_PARAMETERS = tuple(
    row for row in PARAMETERS if row in _PARAMETER_OF_FIELD.values() and row.sampler not in _READ_SEPARATELY
)

_DRY_WINDOW = _PARAMETER_OF_FIELD["dry_penalty_last_n"]
_SLOPE_FIELDS = _PARAMETER_OF_FIELD["rep_pen_slope"].request_names
_ADAPTIVE_FIELDS = _PARAMETER_OF_FIELD["adaptive_target"].request_names
_DRY_FIELDS = _PARAMETER_OF_FIELD["dry_multiplier"].request_names
_BIAS_FIELDS = _PARAMETER_OF_FIELD["logit_bias"].request_names
# The fields that say the same. Of several in a request the first counts.
MIROSTAT_FIELDS = ("mirostat", "mirostat_mode")
LOW_FIELDS, HIGH_FIELDS = ("dynatemp_low", "dynatemp_min"), ("dynatemp_high", "dynatemp_max")


def _off_values(row: Parameter) -> Mapping[str, Any]:
    """Return the values by parameter that switch the sampler of a parameter off."""
    return find_sampler(row.sampler).about.off_values


# The types of fields by the type of a parameter, besides numbers.
_FIELD_TYPES: Mapping[type, Any] = {
    bool: bool,
    int: int,
    list: list[str] | str,
    dict: Json | list[list[Any]] | list[Json] | str,
}


def _field_type(row: Parameter) -> Any:
    return _FIELD_TYPES.get(type(row.off_value), Number)


if TYPE_CHECKING:
    _ParameterFields = StrictModel
else:
    _ParameterFields = create_model(
        "_ParameterFields",
        __base__=StrictModel,
        **{name: (_field_type(row) | None, None) for name, row in _PARAMETER_OF_FIELD.items()},
    )


# The readers of the lists that clients also write as text.
_READER_OF_LIST: Mapping[str, Callable[[str], list[Any]]] = {
    "dry_sequence_breakers": lists.read_strings,
    **dict.fromkeys(("banned_strings", "banned_regex", "banned_regex_case_insensitive"), lists.read_phrases),
    "custom_token_bans": lists.read_token_ids,
    "allowed_token_ids": lists.read_token_ids,
    "allowed_tokens": lists.read_token_ids,
    "sampler_priority": lists.read_names,
    "samplers_priorities": lists.read_names,
    "sampler_order": lists.read_integers,
}


class _ChainFields(_ParameterFields):
    """The fields of the steps and their order, besides those of `_PARAMETER_OF_FIELD`."""

    dynatemp_low: Number | None = None
    dynatemp_high: Number | None = None
    dynatemp_min: Number | None = None
    dynatemp_max: Number | None = None
    dynamic_temperature: bool | None = None
    min_keep: int | None = None
    mirostat: int | bool | None = None
    mirostat_mode: int | None = None
    do_sample: bool | None = None
    samplers: list[str] | str | None = None
    sampler_order: list[int] | str | None = None
    sampler_priority: list[str] | str | None = None
    samplers_priorities: list[str] | str | None = None
    temperature_last: bool | None = None
    repetition_decay: Number | None = None


# The fields that set the steps of a chain and their order, without biases.
CHAIN_FIELDS = frozenset(
    name
    for name in _ChainFields.model_fields
    if name not in _PARAMETER_OF_FIELD or not find_sampler(_PARAMETER_OF_FIELD[name].sampler).about.is_bias
)


class SamplerFields(_ChainFields):
    """The fields that set samplers and their order, under the names of all tools."""

    ignore_eos: bool | None = None
    ban_eos_token: bool | None = None
    bypass_eos: bool | None = None
    banned_tokens: list[int | str] | str | None = None
    banned_strings: list[str] | str | None = None
    banned_regex: list[str] | str | None = None
    banned_regex_case_insensitive: list[str] | str | None = None
    bad_words: list[str] | None = None
    custom_token_bans: str | list[int] | None = None
    allowed_token_ids: list[int] | str | None = Field(default=None, min_length=1)
    allowed_tokens: str | list[int] | None = None
    api_type: Any = None
    # The tool that has the route; empty: several have it.
    tool_of_route: ClassVar[str] = ""

    @field_validator(*_READER_OF_LIST, mode="before")
    @classmethod
    def _read_list(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the list of a text, so that it is limited like other lists. Errors are found where it is used."""
        if not isinstance(value, str):
            return value
        try:
            return _READER_OF_LIST[str(info.field_name)](value)
        except ValueError:
            return value


def first_given(fields: StrictModel, names: Iterable[str], unused: list[str]) -> tuple[str, Any]:
    """Return the name and the value of the first field that is given; ``("", None)`` if there is none."""
    # The names of the others are appended to ``unused`` if they have another value.
    given = [(name, value) for name in names if (value := getattr(fields, name)) is not None]
    unused += [name for name, value in given[1:] if value != given[0][1]]
    return given[0] if given else ("", None)


def read_chain_changes(fields: SamplerFields, step_names: Sequence[str]) -> ChainChanges:
    """Return the changes of the chain that a request asks for."""
    # ``step_names``: the samplers of the chain before the changes. A value that turns a sampler off is used only
    # if the chain has the sampler. Raises ``PresetError`` that begins with the name of the field, for a wrong
    # value.
    return ChainChanges(fields, step_names)


def read_bias_changes(fields: SamplerFields) -> ChainChanges:
    """Return the biases, bans and minimum length that a request asks for, without other changes of the chain."""
    return ChainChanges(fields, (), has_only_biases=True)


def field_names(targets: Container[str]) -> list[str]:
    """Return the fields that set one of these parameters, ``sampler.parameter``."""
    return [name for row in PARAMETERS for name in row.request_names if row.target in targets]


def _read_value(row: Parameter, name: str, value: Any) -> Any:
    """Return the value that a field has for its parameter, as an import of a file reads it."""
    # A value above the maximum, which an import lowers, is an error that the sampler reports.
    key = ToolKey(name, row.off_value, row.minimum, digits=row.request_digits)
    return _read(name, lists.read_strings if isinstance(row.off_value, list) else key.parameter_value, value)


def check_parameters(fields: SamplerFields) -> None:
    """Raise ``PresetError`` that begins with the name of the field, for a value that its sampler rejects."""
    for row in _PARAMETERS:
        for name in row.request_names:
            if (value := getattr(fields, name)) is not None:
                make_step(row.sampler, {row.name: _read_value(row, name, value)}, name, row.name)
    for name in MIROSTAT_FIELDS:
        _check_mirostat(name, getattr(fields, name))
    _check_temperatures(fields)
    _check_kobold_order(fields.sampler_order or ())


def _check_kobold_order(order: Iterable[object]) -> None:
    for number in order:
        if number not in SAMPLERS_BY_NUMBER:
            raise PresetError(f"{short_repr(number)} is not a number from 0 to 6", origin="sampler_order")


def _check_temperatures(fields: SamplerFields) -> None:
    for name in (*LOW_FIELDS, *HIGH_FIELDS):
        value = getattr(fields, name)
        if value is not None:
            make_step("temperature", {"t": value}, name, "t")


def _check_mirostat(name: str, version: Number | bool | None) -> None:
    if version is not None and version not in (0, 1, 2):
        raise PresetError(f"{version} is not 0, 1 or 2", origin=name)


def _is_dry_on(fields: SamplerFields, window: int) -> bool:
    return bool(window and first_given(fields, _DRY_FIELDS, [])[1])


# Whether the value of a field changes the chain of some tool, if the field does not set one parameter alone.
_IS_EFFECTIVE: Mapping[str, Callable[[SamplerFields, Any], bool]] = {
    # only text-generation-webui has one range for all penalties
    **dict.fromkeys(_DRY_WINDOW.request_names, _is_dry_on),
    **dict.fromkeys((*LOW_FIELDS, *HIGH_FIELDS), lambda fields, _: fields.dynamic_temperature is True),
    "min_keep": lambda _, count: count > 1,
    **dict.fromkeys(_SLOPE_FIELDS, lambda _, slope: 0 < slope < 1),
    **dict.fromkeys(_ADAPTIVE_FIELDS, lambda _, target: target >= 0),
    "do_sample": lambda _, is_drawn: not is_drawn,
}


def is_effective(fields: SamplerFields, name: str) -> bool:
    """Return whether the value of a field of `CHAIN_FIELDS` changes the chain of some tool."""
    value, row = getattr(fields, name), _PARAMETER_OF_FIELD.get(name)
    if name in _IS_EFFECTIVE:
        return _IS_EFFECTIVE[name](fields, value)
    if row is None:
        return bool(value)
    off_values = _off_values(row)
    return row.name in off_values and _read_value(row, name, value) != off_values[row.name]


class ChainChanges:
    """The changes of the chain that the fields of a request make."""

    def __init__(self, fields: SamplerFields, step_names: Sequence[str], *, has_only_biases: bool = False) -> None:
        self._fields = fields
        self._step_names = step_names
        self._steps = dict.fromkeys(step_names)
        # Later ones of one parameter replace earlier ones.
        self.overrides: list[Override] = []
        # The changes of the order and of the selecting step.
        self.rearrangements: list[ChainRearrangement] = []
        # The fields without effect.
        self.unused_names: list[str] = []
        if has_only_biases:
            self._read_parameters(row for row in _PARAMETERS if find_sampler(row.sampler).about.is_bias)
            self._read_biases()
            return
        self._read_parameters(_PARAMETERS)
        self._read_dry_window()
        self._read_temperature_range()
        self._read_rep_pen_slope()
        self._read_min_keep()
        self._read_biases()
        self._read_selector()
        self._read_order()

    def place_names(self, place: str) -> None:
        """Write a place such as ``body.`` before the names of the fields."""
        self.overrides = [replace(each, origin=place + each.origin) for each in self.overrides]
        self.rearrangements = [replace(each, origin=place + each.origin) for each in self.rearrangements]
        self.unused_names = [place + name for name in self.unused_names]

    def _value(self, *names: str) -> tuple[str, Any]:
        """Return the name and the value of the first field that is given; other values are unused."""
        return first_given(self._fields, names, self.unused_names)

    def _add(self, name: str, target: str, value: Any) -> None:
        self.overrides.append(Override(name, target, value))
        self._steps[target.partition(".")[0]] = None

    def _read_parameters(self, rows: Iterable[Parameter]) -> None:
        for row in rows:
            name, value = self._value(*row.request_names)
            off_values = _off_values(row)
            if value is None or (row.name not in off_values and row.sampler not in self._steps):
                continue
            value = _read_value(row, name, value)
            # A temperature that other fields put into the chain would not be 1.
            if value != off_values.get(row.name) or row.sampler in (*self._steps, "temperature"):
                self._add(name, row.target, value)

    def _read_dry_window(self) -> None:
        """Read llama-server's default window of DRY, for a request at its own route that turns DRY on."""
        name, multiplier = self._value(*_DRY_FIELDS)
        is_new = multiplier and "dry" not in self._step_names
        is_at_llama_server = self._fields.tool_of_route == "llama.cpp"
        if is_new and is_at_llama_server and self._value(*_DRY_WINDOW.request_names)[1] is None:
            self._add(name, _DRY_WINDOW.target, _DRY_WINDOW.off_value)

    def _read_temperature_range(self) -> None:
        """Read the range of a dynamic temperature that is given by both ends."""
        low_name, low = self._value(*LOW_FIELDS)
        high_name, high = self._value(*HIGH_FIELDS)
        if low is None or high is None:
            self.unused_names += [name for name in (low_name, high_name) if name]
            return
        _check_temperatures(self._fields)
        is_on = self._fields.dynamic_temperature
        if is_on is False or (is_on is None and low == high):
            return
        if low > high:
            raise PresetError(f"{low} is above {high_name} {high}", origin=low_name)
        params = temperature_range(low, high)
        self._add(low_name, "temperature.t", params["temperature"])
        self._add(high_name, "dynatemp.range", params["range"])
        name, exponent = self._value(*_PARAMETER_OF_FIELD["dynatemp_exponent"].request_names)
        if exponent is not None:
            self._add(name, "dynatemp.exponent", exponent)

    def _read_rep_pen_slope(self) -> None:
        """Read KoboldCpp's slope: the older half of the range gets a part of the penalty."""
        name, slope = self._value(*_SLOPE_FIELDS)
        penalty_name, penalty = self._value(*_PARAMETER_OF_FIELD["rep_pen"].request_names)
        if slope is None or penalty is None or not is_sloped(penalty, slope):
            return
        range_name, length = self._value(*_PARAMETER_OF_FIELD["rep_pen_range"].request_names)
        self._add(penalty_name, "penalties.repeat", 1)
        self._add(penalty_name, "repetition_penalty.penalty", penalty)
        self._add(name, "repetition_penalty.slope", slope)
        self._add(name, "repetition_penalty.shape", "halves")
        if length is not None:
            self._add(range_name, "repetition_penalty.range", max(length, 1))  # as KoboldCpp reads it

    def _read_min_keep(self) -> None:
        name, value = self._value("min_keep")
        if value is not None and value > 1:
            for sampler in [step for step in self._steps if "min_keep" in find_sampler(step).model_fields]:
                self._add(name, f"{sampler}.min_keep", value)

    def _read_biases(self) -> None:
        fields = self._fields
        name, value = self._value("ignore_eos", "ban_eos_token")
        if value:
            self._add(name, "ignore_eos", True)
        name, value = self._value(*_BIAS_FIELDS)
        if value and (biases := _read(name, lists.read_biases, value)):
            self._add(name, "logit_bias.bias", biases)
        token_ids = _read_list("custom_token_bans", fields)
        token_ids += [item for item in _banned_tokens(fields) if isinstance(item, int)]
        if token_ids:
            name = "custom_token_bans" if fields.custom_token_bans else "banned_tokens"
            self._add(name, "ban.tokens", token_ids)
        if fields.bad_words:
            self._add("bad_words", "ban.strings", fields.bad_words)
        name, _ = self._value("allowed_token_ids", "allowed_tokens")
        if allowed_ids := _read_list(name, fields):
            self._add(name, "allow.tokens", allowed_ids)

    def _read_selector(self) -> None:
        """Read the fields that choose the selecting step."""
        fields = self._fields
        name, version = self._value(*MIROSTAT_FIELDS)
        _check_mirostat(name, version)
        if version:
            self.rearrangements.append(rearrange_for_mirostat(int(version), name))
            self._read_selecting_step(MIROSTAT_VERSIONS[version])
        elif version is not None:
            self.rearrangements.append(rearrange_for_mirostat(0, name))
        target_name, target = self._value(*_ADAPTIVE_FIELDS)
        wants_adaptive = target is not None and target >= 0
        if version:
            self.unused_names += [target_name] if wants_adaptive else []
            self.unused_names += ["do_sample"] if fields.do_sample is False else []
        elif wants_adaptive:
            self.unused_names += ["do_sample"] if fields.do_sample is False else []
            self.rearrangements.append(ChainRearrangement(target_name, new_selector="adaptive_p"))
            self._read_selecting_step("adaptive_p")
        elif fields.do_sample is False:
            self._add("do_sample", "temperature.t", 0)  # the most likely token, as greedy would take

    def _read_selecting_step(self, sampler: str) -> None:
        for row in PARAMETERS:
            name, value = self._value(*row.request_names) if row.sampler == sampler else ("", None)
            if value is not None:
                self._add(name, row.target, value)

    def _steps_in_orders(self) -> list[str]:
        """Return the steps that have a place in an order, by the names that lists have, such as temperature."""
        abouts = [find_sampler(step).about for step in self._steps]
        steps = [about for about in abouts if not (about.is_bias or about.is_selector)]
        return list(dict.fromkeys(next(iter(about.covered_samplers), about.name) for about in steps))

    def _read_order(self) -> None:
        """Read the order of the samplers, in the notation of one of four tools."""
        name, order = self._value("samplers", "sampler_order", "sampler_priority", "samplers_priorities")
        name = name if order else ""
        if self._value(*MIROSTAT_FIELDS)[1]:
            # Mirostat keeps only the temperature before it, in any order.
            self.unused_names += [name] if name else []
            return
        if name == "samplers":
            self.rearrangements.append(_arrange_as_llama_cpp(order, self._steps))
            return
        if name == "sampler_order":
            _check_kobold_order(order)
            names = [step for number in dict.fromkeys(order) for step in SAMPLERS_BY_NUMBER[number]]
        elif name:
            names = _samplers_of_steps(name, _read_list(name, self._fields))
        else:
            names = self._steps_in_orders()
        if self._fields.temperature_last:
            temperatures = _samplers_of_steps("temperature_last", TEMPERATURE_SLOTS)
            names = [*(step for step in names if step not in temperatures), *temperatures]
        elif not name:
            return
        others = [step for step in self._steps_in_orders() if step not in names]
        trailing = [step for step in others if name == "sampler_order" and step == "xtc"]
        ordered = (*(step for step in others if step not in trailing), *names, *trailing)
        self.rearrangements.append(
            ChainRearrangement(name or "temperature_last", ordered, skips_missing_steps=True)
        )


# Names that clients list among llama.cpp's samplers, although llama.cpp does not have them.
_ONLY_LISTED_BY_CLIENTS = {"tfs_z": "tfs", "tfs": "tfs", "typical_p": "typical", "top_a": "top_a"}


def _arrange_as_llama_cpp(order: str | list[str], present: Mapping[str, None]) -> ChainRearrangement:
    """Return the order of llama-server's ``samplers``: names, or letters. Samplers that it leaves out are off."""
    if isinstance(order, str) and order.strip().startswith("["):
        order = _read("samplers", lists.read_strings, order)
    sequence = order if isinstance(order, str) else ";".join(order)
    names: list[str] = []
    for part in (part.strip() for part in sequence.split(";")):
        known = _ONLY_LISTED_BY_CLIENTS.get(part.lower())
        if known is None:
            names += read_sampler_sequence(part, "samplers")
        elif known in present:
            names.append(known)
    # adaptive_p selects only if its target is given; llama.cpp lists it anyway.
    steps = dict.fromkeys(name for name in names if not find_sampler(name).about.is_selector)
    return ChainRearrangement("samplers", tuple(steps))


def _samplers_of_steps(field: str, names: Sequence[str]) -> list[str]:
    """Return the samplers that a list of text-generation-webui or Aphrodite names, in its order."""
    try:
        return list(dict.fromkeys(sampler for name in names for sampler in samplers_of_step(name)))
    except SamplingError as error:
        raise PresetError(str(error), origin=field) from None


def _banned_tokens(fields: SamplerFields) -> Sequence[int | str]:
    """Return the ids and phrases of ``banned_tokens``, which KoboldCpp's clients also write as text."""
    banned = fields.banned_tokens or []
    if not isinstance(banned, str):
        return banned
    has_ids = re.fullmatch(r"[\s\d,\[\]]+", banned)
    return _read("banned_tokens", lists.read_token_ids if has_ids else lists.read_phrases, banned)


def banned_texts(fields: SamplerFields) -> dict[str, list[Any]]:
    """Return the bans of the fields of other servers by field, as a preset writes them."""
    # KoboldCpp and SillyTavern send phrases, ik_llama.cpp also regular expressions.
    insensitive = _read_list("banned_regex_case_insensitive", fields)
    bans = {
        "banned_strings": _read_list("banned_strings", fields),
        "banned_tokens": [item for item in _banned_tokens(fields) if isinstance(item, str) and item],
        "banned_regex": [{"regex": pattern} for pattern in _read_list("banned_regex", fields)],
        "banned_regex_case_insensitive": [{"regex": pattern, "case": False} for pattern in insensitive],
    }
    return {name: values for name, values in bans.items() if values}


def _read_list(field: str, fields: SamplerFields) -> list[Any]:
    """Return the list of a field, which may be a text; an empty one if the field is absent."""
    value = getattr(fields, field, None)
    return [] if value is None else list(_read(field, _READER_OF_LIST[field], value))


def _read(field: str, reader: Callable[[Any], _Value], value: Any) -> _Value:
    """Return what a reader makes of the value of a field. Raises ``PresetError`` that begins with the field."""
    try:
        return reader(value)
    except ValueError as error:
        raise PresetError(str(error), origin=field) from None
