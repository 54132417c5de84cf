"""The help page of a command as plain text, for terminals of any width.

Typer's own pages import rich, which doubles the time of `gen run --help`, and truncate names at 80 columns.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .flags import DeclaredFlag
from .render.table import Column, Table
from .text import BOLD_UNDERLINED, has_styles, styled, wrap_words

_MAX_WIDTH = 100  # maximum width of a page, because longer lines are hard to read
# Minimum width to show descriptions next to flags. On a narrower terminal they are below the flag.
_MIN_WIDTH_OF_TWO_COLUMNS = 64
_NAME_COLUMNS = 22  # Width of the column of flags. After a longer name, the description begins on the next line.
_COMMAND_INDENT, _COMMAND_CONTINUATION, _CONTINUED = "  ", "      ", " \\"
_QUOTED_WORD = r"""(?:"[^"]*"|'[^']*'|[^\s"'])+"""
_SHELL_WORD = re.compile(_QUOTED_WORD)
# A unit of a command line that is not divided: a word, or a flag or an operator with the word after it.
_COMMAND_WORDS = re.compile(rf"(?:-\S+|[|<>]+)\s+(?![-|<>]){_QUOTED_WORD}|{_QUOTED_WORD}")
# One command of a pipeline, with the pipe symbol before it.
_PIPED_COMMAND = re.compile(r"""\|?(?:"[^"]*"|'[^']*'|[^"'|])+""")
# A quoted value, or a special value with its meaning, such as ``0 = off``. It is not divided between lines.
_VALUE = re.compile(r"(?<![\w\\])'[^']{1,40}'(?!\w)|(?<!\S)-?\d+ = \w+")
_NO_BREAK_SPACE = "\xa0"
_OPTIONS = "Options"


class HelpRow(NamedTuple):
    """A row of a help page: a flag, an argument or a command, and its description."""

    name: str
    meaning: str


def help_page(
    command_path: str, text: str, flags: Sequence[DeclaredFlag], commands: Mapping[str, str] | None = None
) -> str:
    """Return the help page: usage, description, arguments, commands and flags."""
    # ``commands``: the summary of each command of a group, by the command's name; None if it is not a group.
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
    is_styled = has_styles(sys.stdout)
    heading = styled(f"{title}:", BOLD_UNDERLINED) if is_styled else f"{title}:"
    is_narrow = width < _MIN_WIDTH_OF_TWO_COLUMNS
    # On a narrow terminal, the first column has no room, so that each description is below its name.
    columns = [Column(width=0 if is_narrow else _NAME_COLUMNS), Column(is_text=True)]
    cells = [
        (name, _VALUE.sub(lambda value: value.group().replace(" ", _NO_BREAK_SPACE), meaning))
        for name, meaning in rows
    ]
    lines = Table(columns, cells, gap=4 if is_narrow else 2, indent=2).render(width, is_bold=is_styled)
    return "\n".join([heading, *(line.replace(_NO_BREAK_SPACE, " ") for line in lines)])


def usage_line(command_path: str, flags: Iterable[DeclaredFlag], *, has_commands: bool = False) -> str:
    """Return the usage of a command, such as ``gen batch [OPTIONS] REQUESTS``."""
    arguments = [flag for flag in flags if flag.is_argument]
    words = [flag.shown_name if flag.is_required else f"[{flag.shown_name}]" for flag in arguments]
    return " ".join([command_path, "[OPTIONS]", *(["[COMMAND]"] if has_commands else words)])


def wrap_usage(usage: str, width: int) -> str:
    """Return the usage line with its title, wrapped."""
    return "\n".join(wrap_words(f"Usage: {usage}", width, indent=4))


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
        else "\n".join(wrap_words(" ".join(paragraph.split()), width))
        for paragraph in paragraphs
    )


def wrap_command_lines(text: str, width: int) -> str:
    r"""Return command lines, each wrapped with backslashes so that a shell can read the result."""
    # No line ends inside quotes. A flag and its value, or a pipe and its program, stay on one line if they fit.
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
