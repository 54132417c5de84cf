"""How a flag is declared: as one field of an options class, which holds everything about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import typer

from .completes import Completes
from .limits import Limit

T = TypeVar("T")
_FLAG = "flag"
REQUIRED: Any = ...
"""The default of a flag that has to be given, as Typer writes it."""


@dataclass(frozen=True)
class Flag:
    """What a field of an options class holds besides its type and its default.

    Attributes:
        name: what messages call it.
        parameter: what Typer needs: the names on the command line, help, panel, metavar.
        sets: the setting that the flag changes, as ``--set`` names it; None: none, or not a single one.
        limit: the numbers that are allowed; None: left to Typer, or to the room that takes the value.
        only_for: what the flag needs beside it, one of these, such as ``an --endpoint``; empty: nothing.
        is_path: a text that is a path: it may have bytes that are not UTF-8.
        has_escapes: escapes such as ``\\n`` in a text are processed, unless ``--no-escape`` is given.
        completes: what stands for the value when a shell completes it; None: what the type says.
        names: on the command line, as ``--mmap/--no-mmap`` for one that can be switched off; none for an argument.
    """

    name: str
    parameter: Any
    sets: str | None = None
    limit: Limit | None = None
    only_for: tuple[str, ...] = ()
    is_path: bool = False
    has_escapes: bool = False
    completes: Completes | None = None
    names: tuple[str, ...] = ()


@dataclass_transform(frozen_default=True, kw_only_default=True)
def options_class(cls: type[T]) -> type[T]:
    """Make a subclass of `Options` a dataclass that takes its fields by name, and cannot be assigned to.

    All of them have the methods of `Options`: those that a dataclass makes are compiled at each start, which would
    take 5 ms of `gen run`. None has ``==`` or ``repr``, since nothing needs them.
    """
    return dataclass(init=False, eq=False, repr=False)(cls)


@options_class
class Options:
    """Options of a command, or a group of them that commands share.

    A field is a flag (`flag`, `argument`), or a further group: its type is a subclass of this class. None stands
    for a flag that is not given and has no default.
    """

    def __init__(self, **values: Any) -> None:
        for declared in fields(self):
            value = values.pop(declared.name, declared.default)
            if value is MISSING:
                raise TypeError(f"{type(self).__name__} needs {declared.name}")
            self.__dict__[declared.name] = value
        if values:
            raise TypeError(f"{type(self).__name__} has no {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}")

    @property
    def needs_stdout(self) -> bool:
        """True if the command prints its result: a closed stdout is then refused before the work begins."""
        return True

    def check(self) -> None:
        """Refuse values that exclude each other. Raises ``typer.BadParameter``."""


def flag(
    *names: str,
    help: str,  # noqa: A002 - named as Typer names it
    panel: str | None = None,
    default: Any = None,
    called: str | None = None,
    sets: str | None = None,
    limit: Limit | None = None,
    only_for: str | tuple[str, ...] = (),
    is_path: bool = False,
    has_escapes: bool = False,
    completes: Completes | None = None,
    **typer_arguments: Any,
) -> Any:
    """Declare a field that is an option of the command line; see `Flag`.

    Args:
        names: on the command line, such as ``-n``, ``--predict``; the first one is used in messages.
        help: one line; a default stands at its end, in brackets.
        panel: the panel of the help; None: ``Options``.
        default: the value of a flag that is not given; `REQUIRED`: it must be given.
        called: the name in messages, if that is not the first one.
        sets: see `Flag`, as the next five.
        limit: as above.
        only_for: as above.
        is_path: as above.
        has_escapes: as above.
        completes: as above.
        typer_arguments: more arguments of ``typer.Option``, such as ``metavar``.
    """
    settings = {"show_default": False, **typer_arguments}
    parameter = typer.Option(*names, help=_escape(help), rich_help_panel=panel, **settings)
    only_for = (only_for,) if isinstance(only_for, str) else only_for
    described = Flag(called or names[0], parameter, sets, limit, only_for, is_path, has_escapes, completes, names)
    return _field(described, default)


def argument(
    metavar: str | None,
    *,
    called: str,
    help: str,  # noqa: A002 - named as Typer names it
    default: Any = None,
    has_escapes: bool = False,
    completes: Completes | None = None,
) -> Any:
    """Declare a field that is an argument of the command line, as `flag` declares an option.

    Args:
        metavar: its name in the help; None: the field's.
        called: its name in messages.
        help: as in `flag`.
        default: as in `flag`.
        has_escapes: as in `flag`.
        completes: as in `flag`.
    """
    parameter = typer.Argument(metavar=metavar, help=_escape(help))
    return _field(Flag(called, parameter, has_escapes=has_escapes, completes=completes), default)


def flag_of(declared: Any) -> Flag | None:
    """The flag that a dataclass field declares; None for a group of options."""
    flag_or_none: Flag | None = declared.metadata.get(_FLAG)
    return flag_or_none


def walk_flags(options: Options) -> Iterator[tuple[Flag, Any]]:
    """Each flag of these options and their groups, with its value, in the order of the help."""
    for declared in fields(options):
        value = getattr(options, declared.name)
        described = flag_of(declared)
        if described is not None:
            yield described, value
        elif isinstance(value, Options):
            yield from walk_flags(value)


def _field(described: Flag, default: Any) -> Any:
    metadata = {_FLAG: described}
    return field(metadata=metadata) if default is REQUIRED else field(default=default, metadata=metadata)


def _escape(text: str) -> str:
    """A default in brackets is text, and no markup of rich."""
    return text.replace("[", r"\[")
