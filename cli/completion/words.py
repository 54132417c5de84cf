"""The word at the cursor: a command, a flag, a flag's value or an argument.

The flags are read from the options classes. No command is built for it, except those of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from typer.main import get_command

from ..app import COMMANDS
from ..command_line import GenCommand
from ..command_options import declared_flags, options_class_of
from ..flags import HELP, VERSION, DeclaredFlag
from ..startup import import_command
from .values import Candidate, Reply, complete_value, matching


def complete_words(words: Sequence[str], word: str) -> Reply:
    """Return what completes a word of `gen`'s command line; ``words``: those between `gen` and the cursor."""
    if not words and not word.startswith("-"):
        return Reply(matching((Candidate(name, summary) for name, (_, summary) in COMMANDS.items()), word))
    if not words or words[0] not in COMMANDS:
        return _complete([*flags_of("run"), *([] if words else [VERSION])], words, word)
    name, *following = words
    if not is_group(name):
        return _complete(flags_of(name), following, word)
    commands = subcommands(name)
    if following and following[0] in commands:
        return _complete(commands[following[0]].flags, following[1:], word)
    if following:
        return Reply([])
    candidates = [Candidate(sub, _summary(command.help or "")) for sub, command in commands.items()]
    if word.startswith("-"):
        candidates = [Candidate(flag, HELP.flag.help) for flag in HELP.names]
    return Reply(matching(candidates, word))


def is_group(command: str) -> bool:
    """True for a command that has commands of its own, such as ``presets``."""
    return hasattr(import_command(command), "app")


def flags_of(command: str) -> list[DeclaredFlag]:
    """The flags and arguments of a command that is no group, in the order of its help."""
    cls = options_class_of(getattr(import_command(command), command.replace("-", "_")))
    return [*(() if cls is None else declared_flags(cls)), HELP]


def subcommands(group: str) -> dict[str, GenCommand]:
    """The commands of a group such as ``presets``, by name."""
    built: Any = get_command(import_command(group).app)
    return dict(built.commands)


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0]


@dataclass
class _Line:
    """What the words before the cursor say.

    Attributes:
        awaited: the flag whose value comes next; None: no value is due.
        given: the flags that are there.
        argument_count: how many arguments are there.
        has_no_more_flags: True behind ``--``.
    """

    awaited: DeclaredFlag | None = None
    given: list[DeclaredFlag] = field(default_factory=list)
    argument_count: int = 0
    has_no_more_flags: bool = False


def _complete(declared: Sequence[DeclaredFlag], words: Sequence[str], word: str) -> Reply:
    """Complete a word of a command; ``words``: what follows the command's name, up to the cursor.

    ``declared``: the flags and arguments that can stand there.
    """
    by_name = {name: flag for flag in declared for name in flag.names}
    line = _read(words, by_name)
    if line.awaited is not None:
        return complete_value(line.awaited, word)
    if word.startswith("-") and not line.has_no_more_flags:
        name, sign, _ = word.partition("=")
        if sign:
            flag = by_name.get(name)
            if flag is None or not flag.takes_value:
                return Reply([])
            return complete_value(flag, word, len(name) + 1)
        free = (flag for flag in declared if flag.is_list or flag not in line.given)
        return Reply(matching((Candidate(name, flag.flag.help) for flag in free for name in flag.names), word))
    arguments = [flag for flag in declared if flag.is_argument]
    if line.argument_count < len(arguments):
        return complete_value(arguments[line.argument_count], word)
    return Reply([])


def _read(words: Sequence[str], by_name: dict[str, DeclaredFlag]) -> _Line:
    line = _Line()
    for word in words:
        name, sign, _ = word.partition("=")
        flag = None if line.has_no_more_flags else by_name.get(name if word.startswith("--") else word)
        if line.awaited is not None:
            line.awaited = None
        elif word == "--" and not line.has_no_more_flags:
            line.has_no_more_flags = True
        elif flag is not None:
            line.given.append(flag)
            line.awaited = flag if flag.takes_value and not (sign and word.startswith("--")) else None
        elif line.has_no_more_flags or not word.startswith("-") or word == "-":
            line.argument_count += 1
    return line
