"""The commands and their flags, read from the options classes; only the commands of a group are built."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from typer.main import get_command

from ..command_line import GenCommand
from ..group import COMMANDS
from ..options.flag import HELP, DeclaredFlag
from ..options.signature import declared_flags
from ..startup import import_command

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


def subcommands(group: str) -> dict[str, GenCommand]:
    """The commands of a group such as ``presets``, by name."""
    built: Any = get_command(import_command(group).app)
    return dict(built.commands)


def flags_of(command: str) -> list[DeclaredFlag]:
    """The flags and arguments of a command that is no group, in the order of its help."""
    module = import_module(f"..options.{command.replace('-', '_')}", __package__)
    return [*declared_flags(getattr(module, SINGLE_COMMANDS[command])), HELP]


def command_names() -> list[tuple[str, str]]:
    """Each command of `gen`, with what it does."""
    return [(name, summary) for name, (_, summary) in COMMANDS.items()]
