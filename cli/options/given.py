"""The flags that a command line names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from ...common.errors import UsageError
from .flag import Flag, Options, flag_of

_COMMAND_LINE = "logitsmith.command_line"
"""The key of the context's shared table."""


class CommandLine(NamedTuple):
    """The values and the names on a command line.

    Attributes:
        values: the values of the given flags and arguments, by field.
        typed: the given flags as they were typed, by field: ``-r`` or ``--reverse-prompt``, not ``--stop``.
    """

    values: Mapping[str, Any]
    typed: Mapping[str, str]


def keep_command_line(context: Any, line: CommandLine) -> None:
    """Keep the command line in the context of its command."""
    context.meta[_COMMAND_LINE] = line


def command_line_of(context: Any) -> CommandLine:
    """Return the command line of a command."""
    line: CommandLine = context.meta[_COMMAND_LINE]
    return line


@dataclass(frozen=True)
class GivenFlags:
    """The flags on the command line, whatever their values; a default is not given.

    As a field of an options class it is filled without a flag of its own. ``names``: the flags as they were typed,
    by field; ``typed``: the same, by the name that messages would use else.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    typed: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, flag: Flag) -> str:
        """What a message calls a flag: as it was typed."""
        return self.typed.get(flag.name, flag.name)

    def refuse(self, *groups: type[Options], why: str, only_for: Collection[str] | None = None) -> None:
        """Raise ``UsageError`` if a flag of these groups is given.

        Args:
            groups: options classes; their own groups are not looked at.
            why: the message, after the flag.
            only_for: just the flags that are only for one of these, see `Flag`; None: all of them.
        """
        for name, flag in self._flags_of(groups):
            if only_for is None or not set(flag.only_for).isdisjoint(only_for):
                raise UsageError(f"{name} {why}")

    def refuse_unavailable(self, *groups: type[Options], available: Collection[str]) -> None:
        """Raise ``UsageError`` if a flag is given that is only for something else than ``available``."""
        for name, flag in self._flags_of(groups):
            if flag.only_for and set(flag.only_for).isdisjoint(available):
                raise UsageError(f"{name} is for {' or '.join(flag.only_for)}")

    def _flags_of(self, groups: Collection[type[Options]]) -> Iterator[tuple[str, Flag]]:
        """The given flags of these groups, each with the name on the command line."""
        for group in groups:
            for declared in fields(group):
                flag = flag_of(declared)
                if flag is not None and declared.name in self.names:
                    yield self.names[declared.name], flag
