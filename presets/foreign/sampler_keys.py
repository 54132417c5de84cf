"""Tables of the keys in another tool's file that hold the parameters of a sampler, for imports and exports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...samplers.registry import find_sampler
from ..errors import PresetError
from ..parameter_names import PARAMETERS, find_parameter
from . import lists
from .table import ForeignTable, read_breakers


@dataclass(frozen=True)
class ToolKey:
    """A key of another tool's file that holds a parameter of a sampler."""

    name: str
    # the value with which the step changes nothing; the tool's usual value if the parameter cannot switch the step
    # off. It also is the default, unless `ImportedChainBuilder.defaults` has another one. An integer means that
    # the file must hold an integer, a float that it may hold any number.
    off_value: Any
    minimum: float | None = None  # a lower value is read as this minimum; None if there is no limit
    maximum: float | None = None  # a higher value is read as this maximum; None if there is no limit
    # the function that reads the value, called with the table, the key and the default; None: the one that fits
    # the type of ``off_value``
    reader: Callable[[ForeignTable, str, Any], Any] | None = None
    digits: int = 0  # the N of the tool's units of 1e-N
    # whether a penalty window of -1, all tokens, is written as a large number, since the tool has no other one
    is_limited_window: bool = False

    def read(self, table: ForeignTable, default: Any) -> Any:
        """Return the value of the parameter that a file has, or that the default stands for."""
        value = (self.reader or _READER_OF_TYPE[type(self.off_value)])(table, self.name, default)
        try:
            return self.parameter_value(value)
        except ValueError as error:
            raise PresetError(str(error), origin=table.origin_of(self.name)) from None

    def parameter_value(self, value: Any) -> Any:
        """Return the value of the parameter: without the tool's units, and within the limits."""
        if self.digits:
            if not 0 <= value < 10**self.digits:
                raise ValueError(f"{value:g} is not within 0..{10**self.digits}, in units of 1e-{self.digits}")
            value /= 10**self.digits
        value = value if self.minimum is None else max(value, self.minimum)
        return value if self.maximum is None else min(value, self.maximum)

    def tool_value(self, value: Any) -> Any:
        """Return a value of the parameter in the tool's units."""
        return float(f"{value * 10**self.digits:.12g}") if self.digits else value


_READER_OF_TYPE: Mapping[type, Callable[[ForeignTable, str, Any], Any]] = {
    bool: ForeignTable.boolean,
    int: ForeignTable.integer,
    float: ForeignTable.number,
    list: read_breakers,
    dict: lambda table, key, default: table.read(key, lists.read_biases) if table.is_set(key) else default,
}


@dataclass(frozen=True)
class SamplerKeys:
    """The keys that hold the parameters of one sampler in a tool's file."""

    # `ImportedChainBuilder.read_step` reads a step from these keys; `PresetExporter.write_parameters` writes them.

    sampler: str
    # the key of each parameter. The first one is the main key, which error messages name.
    key_by_parameter: Mapping[str, ToolKey]
    slot: str = ""  # the tool's name for the step, as its lists of steps use it; empty: the name of the sampler
    # values of parameters that the tool has no key for. A parameter that is neither here nor in
    # ``key_by_parameter`` has the sampler's default in that tool.
    fixed_parameters: Mapping[str, Any] = field(default_factory=dict)
    switch_key: str = ""  # the key that turns the step on; empty if the main key does
    # returns True for a value of the main key with which the tool applies the step. None if the tool applies the
    # step for every value.
    is_active_at: Callable[[float], bool] | None = None
    comment: str = ""  # comment for the YAML preset

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", self.slot or self.sampler)

    @property
    def key_names(self) -> list[str]:
        """The names of all keys, ``switch_key`` first."""
        names = dict.fromkeys([self.switch_key, *(key.name for key in self.key_by_parameter.values())])
        return [name for name in names if name]


def tool_key(tool: str, target: str, **changes: Any) -> ToolKey:
    """Return a tool's key of a parameter; ``changes``: fields of the key that differ from those of the table."""
    row = find_parameter(target)
    name = None if row is None else row.name_in(tool)
    if row is None or name is None:
        raise ValueError(f"{tool} has no name for {target}")
    key = ToolKey(name, row.off_value, row.minimum, row.maximum, digits=row.digits.get(tool, 0))
    return replace(key, **changes)


def sampler_keys(tool: str, sampler: str, changes: Mapping[str, Any] | None = None, **fields: Any) -> SamplerKeys:
    """Return the keys of a sampler that a tool has, by the table of names."""
    # ``changes``: for parameters that differ from the table, the fields of the key that differ, or the key itself;
    # ``fields``: those of `SamplerKeys`.
    changed = dict(changes or {})
    keys = {}
    for row in PARAMETERS:
        if row.sampler != sampler:
            continue
        change = changed.pop(row.name, {})
        if isinstance(change, ToolKey):
            keys[row.name] = change
        elif row.name_in(tool) is not None:
            keys[row.name] = tool_key(tool, row.target, **change)
    if changed or (not keys and find_sampler(sampler).model_fields):
        raise ValueError(f"{tool}, {sampler}: no parameter {', '.join(changed) or 'of it'} in the table of names")
    return SamplerKeys(sampler, keys, **fields)


def keys_by_sampler(*entries: SamplerKeys) -> dict[str, SamplerKeys]:
    return {entry.sampler: entry for entry in entries}


def off_values(sampler_keys: Mapping[str, SamplerKeys]) -> dict[str, Any]:
    """Return a value for each key with which no step is active; 0 for each ``switch_key``."""
    values: dict[str, Any] = {}
    for entry in sampler_keys.values():
        values |= {entry.switch_key: 0} if entry.switch_key else {}
        values |= {key.name: key.off_value for key in entry.key_by_parameter.values()}
    return values


def rename_keys(sampler_keys: Mapping[str, SamplerKeys], new_names: Mapping[str, str]) -> dict[str, SamplerKeys]:
    """Return the entries with the key names of another tool."""
    # A sampler is left out if ``new_names`` lacks its ``switch_key`` or, without a ``switch_key``, its main key.
    renamed_entries = {}
    for sampler, entry in sampler_keys.items():
        if entry.key_names and entry.key_names[0] in new_names:
            renamed_entries[sampler] = replace(
                entry,
                key_by_parameter={
                    parameter: replace(key, name=new_names[key.name])
                    for parameter, key in entry.key_by_parameter.items()
                    if key.name in new_names
                },
            )
    return renamed_entries
