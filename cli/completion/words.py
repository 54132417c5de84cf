"""The completions of the word at the cursor: a command, a flag, the value of a flag, or an argument.

Flags are read from the options classes. Only the commands of a group, such as `presets`, are built with Typer.
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
from .values import CompletionItem, CompletionResult, complete_value, matching


def complete_words(words: Sequence[str], word: str) -> CompletionResult:
    """Return the completions of a word of `gen`'s command line.

    Args:
        words: the words between `gen` and the word at the cursor.
        word: the word at the cursor.
    """
    if not words and not word.startswith("-"):
        return CompletionResult(
            matching((CompletionItem(name, summary) for name, (_, summary) in COMMANDS.items()), word)
        )
    if not words or words[0] not in COMMANDS:
        return _complete_command_word([*flags_of("run"), *([] if words else [VERSION])], words, word)
    name, *following = words
    if not is_group(name):
        return _complete_command_word(flags_of(name), following, word)
    commands = subcommands(name)
    if following and following[0] in commands:
        return _complete_command_word(commands[following[0]].flags, following[1:], word)
    if following:
        return CompletionResult([])
    items = [CompletionItem(sub, _summary(command.help or "")) for sub, command in commands.items()]
    if word.startswith("-"):
        items = [CompletionItem(flag, HELP.flag.help) for flag in HELP.names]
    return CompletionResult(matching(items, word))


def is_group(command: str) -> bool:
    """Return whether a command is a group of commands, such as ``presets``."""
    return hasattr(import_command(command), "app")


def flags_of(command: str) -> list[DeclaredFlag]:
    """Return the flags and arguments of a command, which must not be a group, in the order of its help."""
    cls = options_class_of(getattr(import_command(command), command.replace("-", "_")))
    return [*(() if cls is None else declared_flags(cls)), HELP]


def subcommands(group: str) -> dict[str, GenCommand]:
    """Return the commands of a group such as ``presets``, by name."""
    built: Any = get_command(import_command(group).app)
    return dict(built.commands)


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0]


@dataclass
class _ParsedWords:
    """The words of a command before the word at the cursor.

    Attributes:
        pending_flag: the flag whose value must be typed next; None if no flag needs a value.
        typed_flags: the flags that were typed.
        argument_count: number of arguments that were typed.
        is_after_double_dash: whether ``--`` was typed, after which words are never flags.
    """

    pending_flag: DeclaredFlag | None = None
    typed_flags: list[DeclaredFlag] = field(default_factory=list)
    argument_count: int = 0
    is_after_double_dash: bool = False


def _complete_command_word(declared: Sequence[DeclaredFlag], words: Sequence[str], word: str) -> CompletionResult:
    """Return the completions of a word of a command.

    Args:
        declared: the flags and arguments of the command.
        words: the words between the command's name and the word at the cursor.
        word: the word at the cursor.
    """
    flag_by_name = {name: flag for flag in declared for name in flag.names}
    parsed_words = _parse_words(words, flag_by_name)
    if parsed_words.pending_flag is not None:
        return complete_value(parsed_words.pending_flag, word)
    if word.startswith("-") and not parsed_words.is_after_double_dash:
        name, sign, _ = word.partition("=")
        if sign:
            flag = flag_by_name.get(name)
            if flag is None or not flag.takes_value:
                return CompletionResult([])
            return complete_value(flag, word, len(name) + 1)
        untyped_flags = (flag for flag in declared if flag.is_list or flag not in parsed_words.typed_flags)
        return CompletionResult(
            matching((CompletionItem(name, flag.flag.help) for flag in untyped_flags for name in flag.names), word)
        )
    arguments = [flag for flag in declared if flag.is_argument]
    if parsed_words.argument_count < len(arguments):
        return complete_value(arguments[parsed_words.argument_count], word)
    return CompletionResult([])


def _parse_words(words: Sequence[str], flag_by_name: dict[str, DeclaredFlag]) -> _ParsedWords:
    parsed = _ParsedWords()
    for word in words:
        name, sign, _ = word.partition("=")
        flag = None if parsed.is_after_double_dash else flag_by_name.get(name if word.startswith("--") else word)
        if parsed.pending_flag is not None:
            parsed.pending_flag = None
        elif word == "--" and not parsed.is_after_double_dash:
            parsed.is_after_double_dash = True
        elif flag is not None:
            parsed.typed_flags.append(flag)
            parsed.pending_flag = flag if flag.takes_value and not (sign and word.startswith("--")) else None
        elif parsed.is_after_double_dash or not word.startswith("-") or word == "-":
            parsed.argument_count += 1
    return parsed
