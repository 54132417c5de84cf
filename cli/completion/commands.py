"""The commands and their flags, read from the options classes: no command is built for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from ..group import COMMANDS
from ..options.completes import Completes
from ..options.flag import Flag, Options, flag_of
from ..options.signature import field_types, options_class_of
from ..startup import import_command


@dataclass(frozen=True)
class Parameter:
    """A flag or an argument of a command.

    Attributes:
        names: on the command line; none for an argument.
        help: a few words.
        takes_value: False for a flag that is on or off.
        is_repeatable: True if it may be given several times.
        choices: the values, if they are a fixed few.
        completes: what else may stand for the value.
    """

    names: tuple[str, ...]
    help: str = ""
    takes_value: bool = False
    is_repeatable: bool = False
    choices: tuple[str, ...] = ()
    completes: Completes | None = None


SINGLE_COMMANDS = {
    "run": "RunOptions",
    "chat": "ConversationOptions",
    "batch": "BatchOptions",
    "next": "NextOptions",
    "score": "ScoreOptions",
    "inspect": "InspectOptions",
    "recover": "RecoverOptions",
    "recover-basis": "BasisOptions",
    "samplers": "SamplersOptions",
    "doctor": "DoctorOptions",
    "completion": "CompletionOptions",
}
"""The commands that are no group, and their options classes, each in options/ in the module of the command's name.

The commands themselves import more than a completion needs, a fifth of its time.
"""
HELP = Parameter(("--help", "-h"), "Show this message and exit.")
VERSION = Parameter(("--version",), "Show the versions.")


def subcommands(group: str) -> dict[str, Callable[..., None]]:
    """The commands of a group such as ``presets``, by name."""
    found: dict[str, Callable[..., None]] = {}
    for command in import_command(group).app.registered_commands:
        if not command.hidden:
            found[command.name or command.callback.__name__] = command.callback
    return found


def parameters_of(command: str) -> list[Parameter]:
    """The flags and arguments of a command that is no group, in the order of its help."""
    module = import_module(f"..options.{command.replace('-', '_')}", __package__)
    return [*_declared(getattr(module, SINGLE_COMMANDS[command])), HELP]


def parameters(function: Callable[..., None]) -> list[Parameter]:
    """The flags and arguments of a group's command, likewise."""
    cls = options_class_of(function)
    return [*([] if cls is None else _declared(cls)), HELP]


def command_names() -> list[tuple[str, str]]:
    """Each command of `gen`, with what it does."""
    return [(name, summary) for name, (_, summary) in COMMANDS.items()]


def _declared(cls: type[Options]) -> Iterator[Parameter]:
    types = field_types(cls)
    for declared in fields(cls):
        flag = flag_of(declared)
        if flag is not None:
            yield from _parameter(flag, types[declared.name])
        elif issubclass(types[declared.name], Options):
            yield from _declared(types[declared.name])


def _parameter(flag: Flag, declared_type: Any) -> Iterator[Parameter]:
    info = flag.parameter
    if info.hidden:
        return
    value_type, is_list = _value_type(declared_type)
    completes = flag.completes
    if completes is None and (value_type is Path or flag.is_path):
        completes = Completes.FILE
    yield Parameter(
        names=tuple(name.strip() for text in flag.names for name in text.split("/")),
        help=(info.help or "").replace(r"\[", "["),
        takes_value=value_type is not bool,
        is_repeatable=is_list,
        choices=tuple(choice.value for choice in value_type) if issubclass(value_type, Enum) else (),
        completes=completes,
    )


def _value_type(declared_type: Any) -> tuple[type, bool]:
    """The type of a value, and whether there may be several: ``list[str] | None`` gives ``str`` and True."""
    if get_origin(declared_type) in (Union, UnionType):
        declared_type = next(part for part in get_args(declared_type) if part is not type(None))
    if get_origin(declared_type) is list:
        return get_args(declared_type)[0], True
    return declared_type, False
