"""The completions of the word at the cursor: a command, a flag, the value of a flag, or an argument.

Flags are read from the options classes. Only the commands of a group, such as `presets`, are built with Typer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from typer.main import get_command

from ...common.errors import PluginError
from ...common.plugins import Plugin
from ..command_line import GenCommand
from ..command_options import declared_flags, options_class_of
from ..command_table import COMMANDS, find_plugin, load_command, load_plugin, plugin_commands
from ..flags import HELP, VERSION, DeclaredFlag
from .values import CompletionItem, CompletionResult, complete_value, matching


def complete_words(words: Sequence[str], word: str) -> CompletionResult:
    """Return the completions of the word at the cursor; ``words`` are those between `gen` and it."""
    if not words and not word.startswith("-"):
        own = [CompletionItem(name, command.summary) for name, command in COMMANDS.items()]
        others = [CompletionItem(name, f"plug-in {plugin.place}") for name, plugin in plugin_commands().items()]
        return CompletionResult(matching([*own, *others], word))
    plugin = find_plugin(words[0]) if words else None
    if plugin is not None:
        return _complete_plugin_word(plugin, words[1:], word)
    if not words or words[0] not in COMMANDS:
        return _complete_command_word([*flags_of("run"), *([] if words else [VERSION])], words, word)
    name, *following = words
    if not is_group(name):
        return _complete_command_word(flags_of(name), following, word)
    return _complete_group_word(name, following, word)


def is_group(command: str) -> bool:
    """Return whether a command has commands of its own, such as ``presets``."""
    return isinstance(load_command(command), typer.Typer)


def flags_of(command: str) -> list[DeclaredFlag]:
    """Return the flags of a command, which must not be a group, in the order of its help."""
    cls = options_class_of(load_command(command))
    return [*(() if cls is None else declared_flags(cls)), HELP]


def subcommands(group: str) -> dict[str, GenCommand]:
    """Return the commands of a group such as ``presets``, by name."""
    built: Any = get_command(load_command(group))
    return dict(built.commands)


def _complete_group_word(group: str, following: Sequence[str], word: str) -> CompletionResult:
    commands = subcommands(group)
    if following and following[0] in commands:
        return _complete_command_word(commands[following[0]].flags, following[1:], word)
    if following:
        return CompletionResult([])
    items = [CompletionItem(sub, _summary(command.help or "")) for sub, command in commands.items()]
    if word.startswith("-"):
        items = [CompletionItem(flag, HELP.flag.help) for flag in HELP.names]
    return CompletionResult(matching(items, word))


def _complete_plugin_word(plugin: Plugin, words: Sequence[str], word: str) -> CompletionResult:
    """Return the completions of a word after the command of a plug-in: names of commands and flags, or files."""
    try:
        command = load_plugin(plugin).commands[plugin.name]
    except PluginError:  # the command itself reports it
        return CompletionResult([])
    for typed in words:
        command = getattr(command, "commands", {}).get(typed, command)
    items = [
        CompletionItem(name, _summary(sub.help or "")) for name, sub in getattr(command, "commands", {}).items()
    ]
    if word.startswith("-"):
        items = [
            CompletionItem(name, getattr(parameter, "help", None) or "")
            for parameter in command.params
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        ]
        items += [CompletionItem(flag, HELP.flag.help) for flag in HELP.names]
    return CompletionResult(matching(items, word), file_suffix=None if items else "")


def _summary(text: str) -> str:
    return text.strip().partition("\n")[0]


@dataclass
class _ParsedWords:
    """The words of a command before the word at the cursor."""

    # the flag whose value must be typed next; None if no flag needs a value
    pending_flag: DeclaredFlag | None = None
    typed_flags: list[DeclaredFlag] = field(default_factory=list)
    argument_count: int = 0
    is_after_double_dash: bool = False  # after ``--``, words are never flags


def _complete_command_word(declared: Sequence[DeclaredFlag], words: Sequence[str], word: str) -> CompletionResult:
    """Return the completions of a word of a command; ``words`` are those between its name and the cursor."""
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
