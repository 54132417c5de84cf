"""The parser of command lines, which replaces the parser of Typer's commands and groups.

Typer's parser imports pydantic to convert a value, and supports neither ``-no-cnv`` nor ``--trace`` without a
number.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from .flags import HELP, DeclaredFlag, normalize_flag_name

# A flag of one letter followed directly by a number, such as ``-n5``.
_ATTACHED = re.compile(r"(-[^-])([+-]?\d+(?:\.\d+)?)")


class FlagWithTexts(NamedTuple):
    """A flag or an argument on a command line, with its values as typed."""

    declared: DeclaredFlag
    name: str  # the one that was typed last; for an argument, the name in messages
    texts: list[str]  # the values as typed, in the order of the command line; empty for a switch


class DividedWords(NamedTuple):
    """The words after a command, divided into flags and other words."""

    typed_flags: dict[str, FlagWithTexts]  # by field, in the order in which they were first typed
    other_words: list[str]  # neither a flag nor the value of a flag


def match_words(
    words: Sequence[str], flags: Sequence[DeclaredFlag], command_path: str, *, is_group: bool = False
) -> DividedWords:
    """Return the flags among the words after a command, with their values as typed, and the other words."""
    # ``command_path``: the command as it is typed, such as ``gen run``. In a group, the first word that is not a
    # flag names a command of the group, and the words after it are not searched. Raises ``UsageError`` if a flag
    # is unknown or has no value, or a switch has one.
    by_name = {name: flag for flag in flags for name in flag.names}
    found, remaining_words = DividedWords({}, []), deque(words)
    while remaining_words:
        word = remaining_words.popleft()
        if word == "--":
            break
        if word.startswith("-") and word != "-":
            name, value = _split(word, by_name)
            if name not in by_name:
                _reject_unknown_flag(word, flags, command_path)
            texts = _values_as_typed(by_name[name], name, value, remaining_words)
            earlier = found.typed_flags.get(by_name[name].field)
            if earlier is not None and by_name[name].is_list:
                texts = earlier.texts + texts
            found.typed_flags[by_name[name].field] = FlagWithTexts(by_name[name], name, texts)
        else:
            found.other_words.append(word)
            if is_group:
                break
    found.other_words.extend(remaining_words)
    return found


def _split(word: str, by_name: Mapping[str, DeclaredFlag]) -> tuple[str, str | None]:
    """Return the declared name of a flag, and the value in the same word; None if the word has no value."""
    # Flags of one letter cannot be combined in one word, because ``-st`` is a flag of llama.cpp while ``-s`` and
    # ``-t`` are other flags. Only a number may follow the letter in the same word.
    name, sign, value = word.partition("=")
    is_letter = len(name) == 2
    for spelling in (name, normalize_flag_name(name)):
        if spelling in by_name and not (sign and is_letter):
            return spelling, value if sign else None
    attached = _ATTACHED.fullmatch(word)
    if attached is not None and attached[1] in by_name and by_name[attached[1]].takes_value:
        return attached[1], attached[2]
    return word, None


def _values_as_typed(flag: DeclaredFlag, name: str, value: str | None, remaining_words: deque[str]) -> list[str]:
    """Return the values of a flag: none for a switch, otherwise one."""
    # ``name``: the flag as it was typed. ``value``: the value in the word of the flag; None: the next word is the
    # value, and is removed from ``remaining_words``.
    if not flag.takes_value:
        if value is not None:
            _fail(f"{name} takes no value; use {name} alone")
        return []
    if value is not None:
        return [value]
    optional_value = flag.flag.optional_value
    if optional_value is not None and not (
        remaining_words and optional_value.pattern.fullmatch(remaining_words[0])
    ):
        return [optional_value.default]
    if not remaining_words:
        _fail(f"{name} needs a value after it")
    return [remaining_words.popleft()]


def read_values(words: DividedWords, flags: Sequence[DeclaredFlag], command_path: str) -> dict[str, Any]:
    """Return the values of the flags and arguments that were typed, by field."""
    # ``words``: see `match_words`. Raises ``UsageError`` if a value is wrong, a required flag or argument is
    # missing, or no argument takes a word.
    unused_words = list(words.other_words)
    typed_flags = dict(words.typed_flags)
    for declared in flags:
        if declared.is_argument and unused_words:
            count = len(unused_words) if declared.is_list else 1
            typed_flags[declared.field] = FlagWithTexts(declared, declared.flag.name, unused_words[:count])
            del unused_words[:count]
    values = {field: _parse_value(flag) for field, flag in typed_flags.items()}
    missing = next((flag for flag in flags if flag.is_required and flag.field not in values), None)
    if missing is not None:
        from .usage_hints import missing_sentence

        _fail(missing_sentence(missing, command_path))
    if unused_words:
        from .usage_hints import extra_words_sentence

        _fail(extra_words_sentence(unused_words, flags, command_path))
    return values


def _parse_value(flag: FlagWithTexts) -> Any:
    declared = flag.declared
    if not declared.takes_value:
        return flag.name not in declared.flag.negatives
    try:
        values = [declared.read(text) for text in flag.texts]
    except ValueError as error:
        _fail(f"{flag.name}: {error}")
    return values if declared.is_list else values[0]


def _reject_unknown_flag(word: str, flags: Sequence[DeclaredFlag], command_path: str) -> NoReturn:
    from .usage_hints import unknown_flag_sentence

    _fail(unknown_flag_sentence(word, flags, command_path))


def _fail(sentence: str) -> NoReturn:
    # Imported here because `gen --help`, which must start quickly, does not need common/.
    from ..common.errors import UsageError

    raise UsageError(sentence) from None


def _read_and_store_values(context: Any, words: DividedWords, flags: Sequence[DeclaredFlag]) -> dict[str, Any]:
    """Read the values, and store the values and the typed names in the context of the command."""
    from .command_options import CommandLine, store_command_line

    values = read_values(words, flags, context.command_path)
    store_command_line(
        context, CommandLine(values, {field: flag.name for field, flag in words.typed_flags.items()})
    )
    return values


def _show_help(command: Any, context: Any) -> NoReturn:
    print(command.get_help(context))
    raise typer.Exit


class GenCommand(TyperCommand):
    """A command with the parser of this module and with help in plain text."""

    @property
    def flags(self) -> list[DeclaredFlag]:
        return _flags_of(self.callback)

    def get_help_option(self, ctx: Any) -> None:
        """Return None, because `parse_args` handles ``--help`` and ``-h`` like all other flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # raises ``typer.Exit`` after printing the help
        flags = self.flags
        words = match_words(args, flags, ctx.command_path)
        if HELP.field in words.typed_flags:
            _show_help(self, ctx)
        values = _read_and_store_values(ctx, words, flags)
        # Includes defaults: otherwise a flag that is not given would keep its value from an earlier call.
        ctx.params.update({flag.field: values.get(flag.field, flag.default) for flag in flags if flag != HELP})
        return []

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, arguments and flags."""
        from .help_page import help_page

        formatter.write(help_page(ctx.command_path, self.help or "", self.flags))


class GenGroup(TyperGroup):
    """A group of commands with the parser of this module and with help in plain text."""

    @property
    def flags(self) -> list[DeclaredFlag]:
        return _flags_of(self.callback)

    def get_help_option(self, ctx: Any) -> None:
        """Return None, because `parse_args` handles ``--help`` and ``-h`` like all other flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Convert the flags of the group to values, and leave the other words to the command that they name."""
        flags = self.flags
        words = match_words(args, flags, ctx.command_path, is_group=True)
        if HELP.field in words.typed_flags:
            _show_help(self, ctx)
        _read_and_store_values(ctx, DividedWords(words.typed_flags, []), flags)
        # Typer's method stores the words of the command in private attributes of the context.
        return super().parse_args(ctx, ["--", *words.other_words])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, *words = args
        command = self.get_command(ctx, name)
        if command is None:
            from .usage_hints import unknown_command_sentence

            _fail(unknown_command_sentence(name, self.list_commands(ctx), ctx.command_path))
        return name, command, words

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: usage, description, commands and flags."""
        from .help_page import help_page, summary

        commands = {name: summary(command.help or "") for name, command in self.commands.items()}
        formatter.write(help_page(ctx.command_path, self.help or "", self.flags, commands))


def _flags_of(callback: Any) -> list[DeclaredFlag]:
    """Return the flags of a command's options class, and ``--help``."""
    from .command_options import declared_flags, options_class_of

    cls = options_class_of(callback)
    return [*([] if cls is None else declared_flags(cls)), HELP]
