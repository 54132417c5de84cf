"""The help page of a command as plain text, for terminals of any width.

Typer's own pages import rich, which doubles the time of `gen run --help`, and truncate names at 80 columns.
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
"""Maximum width of a page, because longer lines are hard to read."""
_MIN_WIDTH_OF_TWO_COLUMNS = 64
"""Minimum width to show descriptions next to flags. On a narrower terminal they are below the flag."""
_NAME_COLUMNS = 24
"""Width of the column of flags. After a longer name, the description begins on the next line."""
_NARROW_INDENT = 6
_COMMAND_INDENT, _COMMAND_CONTINUATION, _CONTINUED = "  ", "      ", " \\"
_QUOTED_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s"'])+"""
_SHELL_WORD = re.compile(_QUOTED_WORD)
_COMMAND_WORDS = re.compile(rf"(?:-\S+|[|<>]+)\s+(?![-|<>]){_QUOTED_WORD}|{_QUOTED_WORD}")
"""A unit of a command line that is not divided: a word, or a flag or an operator with the word after it."""
_PIPED_COMMAND = re.compile(r"""\|?(?:"[^"]*"|'[^']*'|[^"'|])+""")
"""One command of a pipeline, with the pipe symbol before it."""
_VALUE = re.compile(r"(?<![\w\\])'[^']{1,40}'(?!\w)|(?<!\S)-?\d+ = \w+")
"""A quoted value, or a special value with its meaning, such as ``0 = off``. It is not divided between lines."""
_NO_BREAK_SPACE = "\xa0"
_HEADING, _NAME, _END = "\x1b[1;4m", "\x1b[1m", "\x1b[0m"
_OPTIONS = "Options"


class HelpRow(NamedTuple):
    """A row of a help page: a flag, an argument or a command, and its description."""

    name: str
    meaning: str


def help_page(
    command_path: str, text: str, flags: Sequence[DeclaredFlag], commands: Mapping[str, str] | None = None
) -> str:
    """Return the help page: usage, description, arguments, commands and flags.

    Args:
        command_path: the command as it is typed, such as ``gen run``.
        text: the description of the command.
        flags: the flags and arguments.
        commands: the summary of each command of a group, by the command's name; None if it is not a group.
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
    # The panel of --help comes last, because it is the same for every command.
    titles = sorted(panels, key=lambda title: title == _OPTIONS)
    sections += [section(title, panels[title], width) for title in titles]
    return "\n\n".join(text for text in sections if text)


def page_width() -> int:
    """Return the width of a page: the width of the terminal, limited to a readable width."""
    return min(shutil.get_terminal_size().columns, _MAX_WIDTH)


def section(title: str, rows: Iterable[HelpRow], width: int) -> str:
    """Return a section of a help page: a title, and a table of names, never truncated, and descriptions."""
    return "\n".join([_emphasized(f"{title}:", _HEADING), *(_row(row, width) for row in rows)])


def usage_line(command_path: str, flags: Iterable[DeclaredFlag], *, has_commands: bool = False) -> str:
    """Return the usage of a command, such as ``gen batch [OPTIONS] REQUESTS``."""
    arguments = [flag for flag in flags if flag.is_argument]
    words = [flag.shown_name if flag.is_required else f"[{flag.shown_name}]" for flag in arguments]
    return " ".join([command_path, "[OPTIONS]", *(["[COMMAND]"] if has_commands else words)])


def wrap_usage(usage: str, width: int) -> str:
    """Return the usage line with its title, wrapped."""
    return "\n".join(wrap(f"Usage: {usage}", width, subsequent_indent="    ", break_on_hyphens=False))


def summary(text: str) -> str:
    """Return the first paragraph of a command's description as one line."""
    return inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ")


def _meaning(declared: DeclaredFlag) -> str:
    text = declared.flag.help
    return f"{text} [{declared.default}]" if declared.flag.shows_default else text


def _body(text: str, width: int) -> str:
    """Return the description with each paragraph wrapped. An indented paragraph consists of command lines."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        wrap_command_lines(paragraph, width)
        if paragraph.startswith("  ")
        else "\n".join(wrap(" ".join(paragraph.split()), width, break_on_hyphens=False))
        for paragraph in paragraphs
    )


def wrap_command_lines(text: str, width: int) -> str:
    r"""Return command lines, each wrapped with backslashes so that a shell can read the result.

    No line ends inside quotes. A flag and its value, or a pipe and its program, stay on one line if they fit.
    """
    return "\n".join(_wrap_command_line(line.strip(), width) for line in text.splitlines())


def _wrap_command_line(line: str, width: int) -> str:
    max_length, max_group_length = width - len(_CONTINUED), width - len(_CONTINUED) - len(_COMMAND_CONTINUATION)
    lines = [_COMMAND_INDENT]
    for command in _PIPED_COMMAND.findall(line):
        if command.startswith("|") and len(lines[-1]) + 1 + len(command) > max_length:
            lines.append(_COMMAND_CONTINUATION)
        for group in _COMMAND_WORDS.findall(command):
            for word in [group] if len(group) <= max_group_length else _SHELL_WORD.findall(group):
                if not lines[-1].strip():
                    lines[-1] += word
                elif len(lines[-1]) + 1 + len(word) <= max_length:
                    lines[-1] += f" {word}"
                else:
                    lines.append(_COMMAND_CONTINUATION + word)
    return f"{_CONTINUED}\n".join(lines)


def _row(row: HelpRow, width: int) -> str:
    is_narrow = width < _MIN_WIDTH_OF_TWO_COLUMNS
    indent = _NARROW_INDENT if is_narrow else _NAME_COLUMNS + 2
    names = wrap(row.name, width - 2, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    whole_values = _VALUE.sub(lambda value: value.group().replace(" ", _NO_BREAK_SPACE), row.meaning)
    wrapped = wrap(whole_values, width - indent, break_on_hyphens=False)
    meaning = [line.replace(_NO_BREAK_SPACE, " ") for line in wrapped]
    lines = [_emphasized(name, _NAME) for name in names]
    if not is_narrow and meaning and len(names[-1]) <= indent - 2:
        lines[-1] += " " * (indent - len(names[-1])) + meaning.pop(0)
    return "\n".join([*lines, *(" " * indent + line for line in meaning)])


def _emphasized(text: str, style: str) -> str:
    """Return the text with ANSI codes of a style, except its indent; unchanged if stdout is not a terminal."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb":
        return text
    return re.sub(r"\S.*", lambda match: f"{style}{match.group()}{_END}", text, count=1)
