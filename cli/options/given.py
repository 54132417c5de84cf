"""The flags that a command line names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields

import typer

from .flag import Options, flag_of


@dataclass(frozen=True)
class GivenFlags:
    """The flags on the command line, whatever their values; a default is not given.

    As a field of an options class it is filled without a flag of its own. ``names``: the flags, by field.
    """

    names: Mapping[str, str]

    def refuse(self, *groups: type[Options], why: str, only_for: Collection[str] | None = None) -> None:
        """Raise ``typer.BadParameter`` if a flag of these groups is given.

        Args:
            groups: options classes; their own groups are not looked at.
            why: the message, after the flag.
            only_for: just the flags that are only for one of these, see `Flag`; None: all of them.
        """
        for group in groups:
            for declared in fields(group):
                flag = flag_of(declared)
                is_meant = flag is not None and (only_for is None or flag.only_for in only_for)
                if is_meant and declared.name in self.names:
                    raise typer.BadParameter(f"{self.names[declared.name]} {why}")
