"""The help of a command as plain text, for any width. Names of flags are never cut.

Typer's own pages import rich, which doubles the time of `gen run --help`, and cut names at 80 columns.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from .flags import DeclaredFlag

_MAX_WIDTH = 100
"""Longer lines are hard to read."""
_MIN_WIDTH_OF_TWO_COLUMNS = 64
"""Below this width a description stands on the lines below its flag."""
_NAME_COLUMNS = 24
"""The columns of the flags; a longer name has a line of its own."""
_NARROW_INDENT = 6
_COMMAND_INDENT, _COMMAND_CONTINUATION, _CONTINUED = "  ", "      ", " \\"
_QUOTED_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s"'])+"""
_SHELL_WORD = re.compile(_QUOTED_WORD)
_COMMAND_WORDS = re.compile(rf"(?:-\S+|[|<>]+)\s+(?![-|<>]){_QUOTED_WORD}|{_QUOTED_WORD}")
"""A word of a command line; a flag or an operator with the word that follows it."""
_PIPED_COMMAND = re.compile(r"""\|?(?:"[^"]*"|'[^']*'|[^"'|])+""")
"""A command of a command line, with the pipe before it."""
_VALUE = re.compile(r"(?<![\w\\])'[^']{1,40}'(?!\w)|(?<!\S)-?\d+ = \w+")
"""A quoted value, or a special value with its meaning, as ``0 = off``: a line must not end inside."""
_UNBROKEN_BLANK = "\xa0"
_HEADING, _NAME, _END = "\x1b[1;4m", "\x1b[1m", "\x1b[0m"
_OPTIONS = "Options"


class HelpRow(NamedTuple):
    """A flag, an argument or a command, and what it does."""

    name: str
    meaning: str


def help_page(
    command_path: str, text: str, flags: Sequence[DeclaredFlag], commands: Mapping[str, str] | None = None
) -> str:
    """Return usage, text, arguments, commands and flags.

    Args:
        command_path: the command as it is typed, such as ``gen run``.
        text: the description of the command.
        flags: the flags and arguments.
        commands: the commands of a group by name, each with its summary; None for a single command.
    """
    width = page_width()
    sections = [
        wrap_usage(usage_line(command_path, flags, has_commands=bool(commands)), width),
        _body(text, width),
    ]
    panels: dict[str, list[HelpRow]] = {}
    for declared in flags:
        title = "Arguments" if declared.is_argument else declared.flag.panel or _OPTIONS
        panels.setdefault(title, []).append(HelpRow(declared.shown_name, _meaning(declared)))
    for name, meaning in (commands or {}).items():
        panels.setdefault("Commands", []).append(HelpRow(name, meaning))
    # What every command has comes last.
    titles = sorted(panels, key=lambda title: title == _OPTIONS)
    sections += [section(title, panels[title], width) for title in titles]
    return "\n\n".join(text for text in sections if text)


def page_width() -> int:
    """The width of a page: the terminal's, up to a width that can be read well."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)


def section(title: str, rows: Iterable[HelpRow], width: int) -> str:
    """A title, and a table of names and meanings below it; names are never cut."""
    return "\n".join([_emphasized(f"{title}:", _HEADING), *(_row(row, width) for row in rows)])


def usage_line(command_path: str, flags: Iterable[DeclaredFlag], *, has_commands: bool = False) -> str:
    """How the command is called, such as ``gen batch [OPTIONS] REQUESTS``."""
    arguments = [flag for flag in flags if flag.is_argument]
    words = [flag.shown_name if flag.is_required else f"[{flag.shown_name}]" for flag in arguments]
    return " ".join([command_path, "[OPTIONS]", *(["[COMMAND]"] if has_commands else words)])


def wrap_usage(usage: str, width: int) -> str:
    """The usage line, with its title."""
    return "\n".join(wrap(f"Usage: {usage}", width, subsequent_indent="    ", break_on_hyphens=False))


def summary(text: str) -> str:
    """The first sentence of a command's help."""
    return inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ")


def _meaning(declared: DeclaredFlag) -> str:
    text = declared.flag.help
    return f"{text} [{declared.default}]" if declared.flag.shows_default else text


def _body(text: str, width: int) -> str:
    """Paragraphs, each wrapped; one that is indented holds command lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        wrap_command_lines(paragraph, width)
        if paragraph.startswith("  ")
        else "\n".join(wrap(" ".join(paragraph.split()), width, break_on_hyphens=False))
        for paragraph in paragraphs
    )


def wrap_command_lines(text: str, width: int) -> str:
    r"""Command lines, each wrapped with a backslash as a shell reads it: never inside quotes.

    A flag stays with its value, and a pipe with its program, where both fit on a line.
    """
    return "\n".join(_wrap_command_line(line.strip(), width) for line in text.splitlines())


def _wrap_command_line(line: str, width: int) -> str:
    end, room = width - len(_CONTINUED), width - len(_CONTINUED) - len(_COMMAND_CONTINUATION)
    lines = [_COMMAND_INDENT]
    for command in _PIPED_COMMAND.findall(line):
        if command.startswith("|") and len(lines[-1]) + 1 + len(command) > end:
            lines.append(_COMMAND_CONTINUATION)
        for group in _COMMAND_WORDS.findall(command):
            for word in [group] if len(group) <= room else _SHELL_WORD.findall(group):
                if not lines[-1].strip():
                    lines[-1] += word
                elif len(lines[-1]) + 1 + len(word) <= end:
                    lines[-1] += f" {word}"
                else:
                    lines.append(_COMMAND_CONTINUATION + word)
    return f"{_CONTINUED}\n".join(lines)


def _row(row: HelpRow, width: int) -> str:
    is_narrow = width < _MIN_WIDTH_OF_TWO_COLUMNS
    indent = _NARROW_INDENT if is_narrow else _NAME_COLUMNS + 2
    names = wrap(row.name, width - 2, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    whole_values = _VALUE.sub(lambda value: value.group().replace(" ", _UNBROKEN_BLANK), row.meaning)
    wrapped = wrap(whole_values, width - indent, break_on_hyphens=False)
    meaning = [line.replace(_UNBROKEN_BLANK, " ") for line in wrapped]
    lines = [_emphasized(name, _NAME) for name in names]
    if not is_narrow and meaning and len(names[-1]) <= indent - 2:
        lines[-1] += " " * (indent - len(names[-1])) + meaning.pop(0)
    return "\n".join([*lines, *(" " * indent + line for line in meaning)])


def _emphasized(text: str, style: str) -> str:
    """The text in this style on a terminal that has styles; its indent is not styled."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return re.sub(r"\S.*", lambda match: f"{style}{match.group()}{_END}", text, count=1)
