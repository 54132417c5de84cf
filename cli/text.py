"""Text for a terminal: control characters made visible, lines wrapped between words, names in bold."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

# Characters that a terminal would execute, each with a visible text. C0 (except tab and newline) and DEL become
# Unicode's pictures of them. C1 and marks that reverse text become escapes such as ``\u202e``.
_FIRST_PICTURE = 0x2400
_C0 = range(0x20)
_DEL = 0x7F
_C1 = range(0x80, 0xA0)
_DIRECTION_MARKS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE = {
    **{code: chr(_FIRST_PICTURE + code) for code in _C0 if chr(code) not in "\t\n"},
    _DEL: "\u2421",
    **{code: f"\\u{code:04x}" for code in (*_C1, *_DIRECTION_MARKS)},
}


def visible(text: str) -> str:
    """Return the text with control characters replaced by pictures or escapes, which a terminal shows."""
    return text.translate(_VISIBLE)


def terminal_safe(text: str, out: TextIO) -> str:
    """Return the text for a stream: with visible control characters on a terminal, unchanged elsewhere."""
    return visible(text) if out.isatty() else text


def file_size(count: int) -> str:
    """Return a number of bytes in decimal units, such as ``98.4 MB``."""
    size, unit = _scaled(count, ("bytes", "kB", "MB", "GB", "TB"))
    if unit == "bytes":
        return f"{count} bytes"
    return f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"


def parameter_count(count: int) -> str:
    """Return a number of weights in the notation of models' names: ``135M``, ``7.24B``."""
    size, unit = _scaled(count, ("", "k", "M", "B", "T"))
    return f"{size:.3g}{unit}"


def _scaled(count: int, units: Sequence[str]) -> tuple[float, str]:
    """Return a number in the first unit in which it is below 1,000. Each unit is 1,000 times the one before."""
    size = float(count)
    for unit in units[:-1]:
        if size < 1000:
            return size, unit
        size /= 1000
    return size, units[-1]


def text_width(text: str) -> int:
    """Return the number of terminal columns that a line needs."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_words(text: str, width: int, indent: int = 0) -> list[str]:
    """Return the lines of a text, wrapped at spaces; ``indent`` spaces precede lines that continue another."""
    # A word that is wider than a line is not divided, so that a path can be copied from the screen.
    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in re.findall(r"[ \t]*[^ \t]+", paragraph):
            if line.strip() and text_width(line + word) > width:
                lines.append(line)
                line = " " * indent + word.lstrip(" \t")
            else:
                line += word
        lines.append(line)
    return lines


def output_width() -> int | None:
    """Return the width of the terminal on stdout; None if stdout is not a terminal, so that nothing is wrapped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def print_wrapped(line: str, indent: int = 0) -> None:
    """Print a line. On a terminal, it is wrapped, with ``indent`` spaces before each line after the first."""
    width = output_width()
    print(line if width is None else "\n".join(wrap_words(line, width, indent)))


BOLD = "\x1b[1m"
_END = "\x1b[0m"


def has_styles(out: TextIO) -> bool:
    """Return whether colors and bold text are written to a stream: to a terminal, unless NO_COLOR is set."""
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, style: str) -> str:
    """Return the text with a style, except the spaces around it."""
    return re.sub(r"\S(?:.*\S)?", lambda match: f"{style}{match.group()}{_END}", text, count=1)
