"""The fields with which clients set samplers, under the names of each tool.

A request may use the names of several tools, as SillyTavern's requests do. A value that turns a sampler off
changes the chain only if the chain has the sampler.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pydantic import Field, ValidationInfo, create_model, field_validator

from ..common.strict_model import Json, StrictModel
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

Number = float | int
_Value = TypeVar("_Value")


# The parameter that each field sets. If several rows of the table have the field's name, the first row counts.
_PARAMETER_OF_FIELD: dict[str, Parameter] = {}
for _row in PARAMETERS:
    for _name in _row.request_names:
        _PARAMETER_OF_FIELD.setdefault(_name, _row)
# The samplers that need several fields together: `ChainChanges` has a method for each of them.
_READ_SEPARATELY = ("repetition_penalty", "mirostat", "adaptive_p", "ban", "logit_bias")
_PARAMETERS = tuple(
    row for row in PARAMETERS if row in _PARAMETER_OF_FIELD.values() and row.sampler not in _READ_SEPARATELY
)

_DRY_WINDOW = _PARAMETER_OF_FIELD["dry_penalty_last_n"]
_SLOPE_FIELDS = _PARAMETER_OF_FIELD["rep_pen_slope"].request_names
_ADAPTIVE_FIELDS = _PARAMETER_OF_FIELD["adaptive_target"].request_names
_DRY_FIELDS = _PARAMETER_OF_FIELD["dry_multiplier"].request_names
_BIAS_FIELDS = _PARAMETER_OF_FIELD["logit_bias"].request_names
# Several names for one value. If a request has both, the first one counts.
MIROSTAT_FIELDS = ("mirostat", "mirostat_mode")
LOW_FIELDS = ("dynatemp_low", "dynatemp_min")
HIGH_FIELDS = ("dynatemp_high", "dynatemp_max")
# The fields that set the order of the samplers, each in the notation of another tool.
ORDER_FIELDS = ("samplers", "sampler_order", "sampler_priority", "samplers_priorities")


def _off_values(row: Parameter) -> Mapping[str, Any]:
    """Return the values by parameter that switch the sampler of a parameter off."""
    return find_sampler(row.sampler).about.off_values


# The types that a field may have, by the type of its parameter. Fields of other parameters are numbers.
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
    # The names of later fields with another value are appended to ``unused``.
    given_names = [name for name in names if getattr(fields, name) is not None]
    if not given_names:
        return "", None
    first_name, *other_names = given_names
    first_value = getattr(fields, first_name)
    unused += [name for name in other_names if getattr(fields, name) != first_value]
    return first_name, first_value


def read_chain_changes(fields: SamplerFields, step_names: Sequence[str]) -> ChainChanges:
    """Return the changes of the chain that a request asks for."""
    # ``step_names``: the samplers of the chain before the changes. A wrong value raises ``PresetError``, which
    # begins with the name of the field.
    return ChainChanges(fields, step_names)


def read_bias_changes(fields: SamplerFields) -> ChainChanges:
    """Return the biases, bans and minimum length that a request asks for, without other changes of the chain."""
    return ChainChanges(fields, (), has_only_biases=True)


def field_names(targets: Container[str]) -> list[str]:
    """Return the fields that set one of these parameters, ``sampler.parameter``."""
    return [name for row in PARAMETERS for name in row.request_names if row.target in targets]


def parameter_targets(name: str) -> Sequence[str]:
    """Return the parameter that a field sets, as ``sampler.parameter``; empty for a field of several samplers."""
    row = _PARAMETER_OF_FIELD.get(name)
    return () if row is None else (row.target,)


def _read_value(row: Parameter, name: str, value: Any) -> Any:
    """Return the value that a field has for its parameter, as an import of a file reads it."""
    # An import lowers a value above the maximum. Here no maximum is given, so the sampler reports it as an error.
    if isinstance(row.off_value, list):
        return _read(name, lists.read_strings, value)
    key = ToolKey(name, row.off_value, row.minimum, digits=row.request_digits)
    return _read(name, key.parameter_value, value)


def check_parameters(fields: SamplerFields) -> None:
    """Raise ``PresetError``, which begins with the name of the field, for a value that its sampler rejects."""
    for row in _PARAMETERS:
        for name in row.request_names:
            value = getattr(fields, name)
            if value is not None:
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


def _has_dry_with_window(fields: SamplerFields, window: int) -> bool:
    _, multiplier = first_given(fields, _DRY_FIELDS, [])
    return bool(window and multiplier)


# For fields that do not set one parameter alone: whether a value changes the chain of some tool.
_IS_EFFECTIVE: Mapping[str, Callable[[SamplerFields, Any], bool]] = {
    # only text-generation-webui has one range for all penalties
    **dict.fromkeys(_DRY_WINDOW.request_names, _has_dry_with_window),
    **dict.fromkeys((*LOW_FIELDS, *HIGH_FIELDS), lambda fields, _: fields.dynamic_temperature is True),
    "min_keep": lambda _, count: count > 1,
    **dict.fromkeys(_SLOPE_FIELDS, lambda _, slope: 0 < slope < 1),
    **dict.fromkeys(_ADAPTIVE_FIELDS, lambda _, target: target >= 0),
    "do_sample": lambda _, is_drawn: not is_drawn,
}


def is_effective(fields: SamplerFields, name: str) -> bool:
    """Return whether the value of a field of `CHAIN_FIELDS` changes the chain of some tool."""
    value = getattr(fields, name)
    if name in _IS_EFFECTIVE:
        return _IS_EFFECTIVE[name](fields, value)
    row = _PARAMETER_OF_FIELD.get(name)
    if row is None:
        return bool(value)
    off_values = _off_values(row)
    return row.name in off_values and _read_value(row, name, value) != off_values[row.name]


class ChainChanges:
    """The changes of the chain that the fields of a request make."""

    def __init__(self, fields: SamplerFields, step_names: Sequence[str], *, has_only_biases: bool = False) -> None:
        self._fields = fields
        self._names_before_changes = step_names
        # The samplers of the chain with the changes that have been read so far, in the order in which they came.
        self._names_after_changes = dict.fromkeys(step_names)
        # If several overrides set one parameter, the last one counts.
        self.overrides: list[Override] = []
        # The changes of the order and of the selecting step.
        self.rearrangements: list[ChainRearrangement] = []
        # The fields without effect.
        self.unused_names: list[str] = []
        if has_only_biases:
            bias_rows = [row for row in _PARAMETERS if find_sampler(row.sampler).about.is_bias]
            self._read_parameters(bias_rows)
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
        self.overrides = [replace(override, origin=place + override.origin) for override in self.overrides]
        self.rearrangements = [replace(change, origin=place + change.origin) for change in self.rearrangements]
        self.unused_names = [place + name for name in self.unused_names]

    def _value(self, *names: str) -> tuple[str, Any]:
        """Return the name and the value of the first field that is given; ``("", None)`` if there is none."""
        return first_given(self._fields, names, self.unused_names)

    def _add(self, name: str, target: str, value: Any) -> None:
        """Add an override. ``target``: a parameter such as ``top_p.p``, or a setting."""
        self.overrides.append(Override(name, target, value))
        sampler = target.partition(".")[0]
        self._names_after_changes[sampler] = None

    def _read_parameters(self, rows: Iterable[Parameter]) -> None:
        for row in rows:
            name, value = self._value(*row.request_names)
            if value is None:
                continue
            off_values = _off_values(row)
            is_in_chain = row.sampler in self._names_after_changes
            can_add_sampler = row.name in off_values
            if not is_in_chain and not can_add_sampler:
                continue
            value = _read_value(row, name, value)
            is_on = value != off_values.get(row.name)
            # A temperature of 1 is kept, because another field may put a temperature into the chain.
            if is_on or is_in_chain or row.sampler == "temperature":
                self._add(name, row.target, value)

    def _read_dry_window(self) -> None:
        """Use llama-server's default window of DRY, for a request at its own route that turns DRY on."""
        if self._fields.tool_of_route != "llama.cpp" or "dry" in self._names_before_changes:
            return
        name, multiplier = self._value(*_DRY_FIELDS)
        if not multiplier:
            return
        _, window = self._value(*_DRY_WINDOW.request_names)
        if window is None:
            self._add(name, _DRY_WINDOW.target, _DRY_WINDOW.off_value)

    def _read_temperature_range(self) -> None:
        """Read the range of a dynamic temperature that is given by its lowest and highest temperature."""
        low_name, low = self._value(*LOW_FIELDS)
        high_name, high = self._value(*HIGH_FIELDS)
        if low is None or high is None:
            self.unused_names += [name for name in (low_name, high_name) if name]
            return
        _check_temperatures(self._fields)
        is_on = self._fields.dynamic_temperature
        if is_on is None:
            is_on = low != high
        if not is_on:
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
        has_slope = slope is not None and penalty is not None and is_sloped(penalty, slope)
        if not has_slope:
            return
        range_name, length = self._value(*_PARAMETER_OF_FIELD["rep_pen_range"].request_names)
        self._add(penalty_name, "penalties.repeat", 1)
        self._add(penalty_name, "repetition_penalty.penalty", penalty)
        self._add(name, "repetition_penalty.slope", slope)
        self._add(name, "repetition_penalty.shape", "halves")
        if length is not None:
            self._add(range_name, "repetition_penalty.range", max(length, 1))  # as KoboldCpp reads it

    def _read_min_keep(self) -> None:
        count = self._fields.min_keep
        if count is None or count <= 1:
            return
        for sampler in list(self._names_after_changes):  # a list, because `_add` changes the names
            if "min_keep" in find_sampler(sampler).model_fields:
                self._add("min_keep", f"{sampler}.min_keep", count)

    def _read_biases(self) -> None:
        fields = self._fields
        name, ignores_eos = self._value("ignore_eos", "ban_eos_token")
        if ignores_eos:
            self._add(name, "ignore_eos", True)
        name, value = self._value(*_BIAS_FIELDS)
        biases = _read(name, lists.read_biases, value) if value else {}
        if biases:
            self._add(name, "logit_bias.bias", biases)
        banned_ids = _read_list("custom_token_bans", fields)
        banned_ids += [item for item in _banned_tokens(fields) if isinstance(item, int)]
        if banned_ids:
            name = "custom_token_bans" if fields.custom_token_bans else "banned_tokens"
            self._add(name, "ban.tokens", banned_ids)
        if fields.bad_words:
            self._add("bad_words", "ban.strings", fields.bad_words)
        name, _ = self._value("allowed_token_ids", "allowed_tokens")
        allowed_ids = _read_list(name, fields)
        if allowed_ids:
            self._add(name, "allow.tokens", allowed_ids)

    def _read_selector(self) -> None:
        """Read the fields that choose the selecting step: mirostat, else adaptive-p, else ``do_sample``."""
        takes_top_token = self._fields.do_sample is False
        mirostat_name, version = self._value(*MIROSTAT_FIELDS)
        _check_mirostat(mirostat_name, version)
        if version is not None:  # version 0 replaces mirostat by a plain draw
            self.rearrangements.append(rearrange_for_mirostat(int(version), mirostat_name))
        if version:
            self._read_selecting_step(MIROSTAT_VERSIONS[version])
        target_name, target = self._value(*_ADAPTIVE_FIELDS)
        wants_adaptive = target is not None and target >= 0
        if version and wants_adaptive:
            self.unused_names.append(target_name)
        elif wants_adaptive:
            self.rearrangements.append(ChainRearrangement(target_name, new_selector="adaptive_p"))
            self._read_selecting_step("adaptive_p")
        if takes_top_token and (version or wants_adaptive):
            self.unused_names.append("do_sample")
        elif takes_top_token:
            self._add("do_sample", "temperature.t", 0)

    def _read_selecting_step(self, sampler: str) -> None:
        for row in PARAMETERS:
            if row.sampler != sampler:
                continue
            name, value = self._value(*row.request_names)
            if value is not None:
                self._add(name, row.target, value)

    def _names_in_orders(self) -> list[str]:
        """Return the samplers that an order of clients may contain, under the names that they have there."""
        names = []
        for sampler in self._names_after_changes:
            about = find_sampler(sampler).about
            if about.is_bias or about.is_selector:
                continue
            # A sampler that covers others, such as dynatemp, is listed as the first of these: temperature.
            names.append(next(iter(about.covered_samplers), about.name))
        return _without_duplicates(names)

    def _read_order(self) -> None:
        """Read the order of the samplers, in the notation of one of four tools."""
        name, order = self._value("samplers", "sampler_order", "sampler_priority", "samplers_priorities")
        if not order:
            name = ""
        _, mirostat_version = self._value(*MIROSTAT_FIELDS)
        if mirostat_version:
            # Mirostat keeps only the temperature before it, so no order has an effect.
            if name:
                self.unused_names.append(name)
        elif name == "samplers":
            self.rearrangements.append(_arrange_as_llama_cpp(order, self._names_after_changes))
        elif name or self._fields.temperature_last:
            self._arrange_listed_samplers(name, order)

    def _arrange_listed_samplers(self, name: str, order: Sequence[int]) -> None:
        """Arrange the samplers that a field lists, and put the temperature last if this is asked for.

        Samplers of the chain that are not listed come first; but KoboldCpp runs XTC after its list.
        """
        if name == "sampler_order":
            _check_kobold_order(order)
            numbers = _without_duplicates(order)
            listed = [sampler for number in numbers for sampler in SAMPLERS_BY_NUMBER[number]]
        elif name:
            listed = _samplers_of_steps(name, _read_list(name, self._fields))
        else:
            listed = self._names_in_orders()
        if self._fields.temperature_last:
            temperatures = _samplers_of_steps("temperature_last", TEMPERATURE_SLOTS)
            listed = [sampler for sampler in listed if sampler not in temperatures] + temperatures
        unlisted = [sampler for sampler in self._names_in_orders() if sampler not in listed]
        trailing = ["xtc"] if name == "sampler_order" and "xtc" in unlisted else []
        leading = [sampler for sampler in unlisted if sampler not in trailing]
        self.rearrangements.append(
            ChainRearrangement(
                name or "temperature_last", (*leading, *listed, *trailing), skips_missing_steps=True
            )
        )


_T = TypeVar("_T")


def _without_duplicates(values: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(values))


# Names that clients list among llama.cpp's samplers, although llama.cpp does not have them.
_ONLY_LISTED_BY_CLIENTS = {"tfs_z": "tfs", "tfs": "tfs", "typical_p": "typical", "top_a": "top_a"}


def _arrange_as_llama_cpp(order: str | list[str], names_in_chain: Container[str]) -> ChainRearrangement:
    """Return the order of llama-server's field ``samplers``. A sampler that it leaves out is off.

    The field is a list of names, or one text: names with ``;`` between them, or letters (``kfypmxt``).
    """
    if isinstance(order, str) and order.strip().startswith("["):
        order = _read("samplers", lists.read_strings, order)
    sequence = order if isinstance(order, str) else ";".join(order)
    samplers: list[str] = []
    for part in sequence.split(";"):
        name = part.strip()
        other_sampler = _ONLY_LISTED_BY_CLIENTS.get(name.lower())
        if other_sampler is None:
            samplers += read_sampler_sequence(name, "samplers")
        elif other_sampler in names_in_chain:
            samplers.append(other_sampler)
    # Clients list adaptive_p even without a target. So a list does not choose the selecting step.
    steps = [sampler for sampler in samplers if not find_sampler(sampler).about.is_selector]
    return ChainRearrangement("samplers", tuple(_without_duplicates(steps)))


def _samplers_of_steps(field: str, names: Sequence[str]) -> list[str]:
    """Return the samplers that a list of text-generation-webui or Aphrodite names, in its order."""
    try:
        return _without_duplicates(sampler for name in names for sampler in samplers_of_step(name))
    except SamplingError as error:
        raise PresetError(str(error), origin=field) from None


def _banned_tokens(fields: SamplerFields) -> Sequence[int | str]:
    """Return the ids and phrases of ``banned_tokens``, which KoboldCpp's clients also write as text."""
    banned = fields.banned_tokens or []
    if not isinstance(banned, str):
        return banned
    is_list_of_ids = re.fullmatch(r"[\s\d,\[\]]+", banned) is not None  # such as ``[13, 198]`` or ``13,198``
    reader = lists.read_token_ids if is_list_of_ids else lists.read_phrases
    return _read("banned_tokens", reader, banned)


def banned_texts(fields: SamplerFields) -> dict[str, list[Any]]:
    """Return the bans that the fields of other servers ask for, by field, as a preset writes them."""
    # KoboldCpp and SillyTavern send phrases, ik_llama.cpp also regular expressions.
    phrases = [item for item in _banned_tokens(fields) if isinstance(item, str) and item]
    patterns = _read_list("banned_regex", fields)
    patterns_without_case = _read_list("banned_regex_case_insensitive", fields)
    bans = {
        "banned_strings": _read_list("banned_strings", fields),
        "banned_tokens": phrases,
        "banned_regex": [{"regex": pattern} for pattern in patterns],
        "banned_regex_case_insensitive": [{"regex": pattern, "case": False} for pattern in patterns_without_case],
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
