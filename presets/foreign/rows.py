"""Rows that say which keys of a file hold a sampler's parameters; imports and exports read the same rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .table import ForeignTable


@dataclass(frozen=True)
class ToolKey:
    """A key of another tool's file that holds a parameter of a sampler.

    Attributes:
        name: the key.
        off: the value with which the step changes nothing, or the tool's usual one if the parameter cannot switch
            the step off. It holds where the file is silent, unless `Draft.defaults` has another value. A float
            stands for a number, an integer for a whole number.
        minimum: lower values are read as this one; None if there is no limit.
        maximum: higher values are read as this one; None if there is no limit.
        reader: reads another kind of value from a table, by the key and the default.
    """

    name: str
    off: Any
    minimum: float | None = None
    maximum: float | None = None
    reader: Callable[[ForeignTable, str, Any], Any] | None = None

    def read(self, table: ForeignTable, default: Any) -> Any:
        """Return the value within the limits; raises ``PresetError`` for another kind of value."""
        read = self.reader or (ForeignTable.whole_number if isinstance(self.off, int) else ForeignTable.number)
        value = read(table, self.name, default)
        value = value if self.minimum is None else max(value, self.minimum)
        return value if self.maximum is None else min(value, self.maximum)


@dataclass(frozen=True)
class StepRow:
    """A sampler in a tool's file: `Draft.put_row` makes a step of the keys, `Outgoing.say` writes the keys.

    Attributes:
        sampler: the sampler.
        keys: the key of each parameter, the main one first, which faults name.
        slot: the tool's name for the step in its orders; empty: the name of the sampler.
        fixed: the values of parameters that the tool has no key for. A parameter that is in neither has our
            default in that tool.
        switch: a key that switches the step on; empty: the main key does.
        acts: True for a value of the main key with which the tool applies the step; None: for every value.
        comment: a comment for the YAML preset.
    """

    sampler: str
    keys: Mapping[str, ToolKey]
    slot: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    switch: str = ""
    acts: Callable[[float], bool] | None = None
    comment: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slot", self.slot or self.sampler)

    @property
    def key_names(self) -> list[str]:
        """The names of the keys, the switch first."""
        names = dict.fromkeys([self.switch, *(key.name for key in self.keys.values())])
        return [name for name in names if name]


def rows_by_sampler(*rows: StepRow) -> dict[str, StepRow]:
    """Return the table of a tool's rows."""
    return {row.sampler: row for row in rows}


def off_values(rows: Mapping[str, StepRow]) -> dict[str, Any]:
    """Return the value of each key with which no step acts; 0 for a switch."""
    values: dict[str, Any] = {}
    for row in rows.values():
        values |= {row.switch: 0} if row.switch else {}
        values |= {key.name: key.off for key in row.keys.values()}
    return values


def renamed_rows(rows: Mapping[str, StepRow], names: Mapping[str, str]) -> dict[str, StepRow]:
    """Return the rows of the steps that a tool with other names for the keys can apply.

    Args:
        rows: the rows.
        names: the tool's name of each key that it has. A row without its main key, or its switch, is left out.
    """
    renamed = {}
    for sampler, row in rows.items():
        if row.key_names and row.key_names[0] in names:
            keys = {name: key for name, key in row.keys.items() if key.name in names}
            keys = {name: replace(key, name=names[key.name]) for name, key in keys.items()}
            renamed[sampler] = replace(row, keys=keys)
    return renamed
