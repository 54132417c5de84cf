"""A run as plain text, streamed as it is made."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...logprobs.events import Done, Event

# A terminal would obey these: C0 except tab and newline, DEL, C1, and the marks that reverse text.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_ESCAPED = {
    code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE = {**_PICTURES, 0x7F: "\u2421", **_ESCAPED}


_YELLOW, _RESET = "\x1b[33m", "\x1b[0m"
"""llama.cpp's colour of prompts."""


def _is_colored(out: TextIO, is_colored: bool | None) -> bool:
    if is_colored is not None:
        return is_colored
    return out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def visible(text: str) -> str:
    """Return the text with control characters as pictures or escapes, so that a terminal shows them."""
    return text.translate(_VISIBLE)


def terminal_safe(text: str, out: TextIO) -> str:
    """Return the text as ``out`` should get it: `visible` on a terminal, exact elsewhere."""
    return visible(text) if out.isatty() else text


def file_size(count: int) -> str:
    """Return a number of bytes in decimal units, such as ``98.4 MB``."""
    size, unit = float(count), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} bytes" if unit == "bytes" else f"{size:.3g} {unit}" if size < 1000 else f"{size:,.0f} {unit}"


def render(events: Iterable[Event], out: TextIO, prefix: str = "", is_colored: bool | None = None) -> Done:
    """Write the text of a run, each piece flushed at once; returns the last event.

    On a terminal, control characters are made visible and a newline ends the output; elsewhere the text is exact.

    Args:
        events: the events of the run.
        out: where to write.
        prefix: comes first: the prompt, for `--echo`.
        is_colored: whether the prefix is yellow; None: on a terminal, unless ``NO_COLOR`` is set.
    """
    from ...logprobs.events import Done, PromptToken, Token

    is_terminal = out.isatty()

    def write(text: str) -> None:
        if text:
            out.write(visible(text) if is_terminal else text)
            out.flush()

    for event in events:
        if isinstance(event, Token):
            write(event.text)
        elif isinstance(event, PromptToken):
            continue
        elif isinstance(event, Done):
            write(event.rest)
            if is_terminal:
                write("\n")
            return event
        elif prefix:
            begin, end = (_YELLOW, _RESET) if _is_colored(out, is_colored) else ("", "")
            out.write(begin)
            write(prefix)
            out.write(end)
    raise RuntimeError("the run ended without a Done event")
