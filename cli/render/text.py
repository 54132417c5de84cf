"""A run as plain text, streamed as it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ...engine import Done, Event

# A terminal would obey these: C0 except tab and newline, DEL, C1, and the marks that reverse text.
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n"}
_ESCAPED = {
    code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}
_VISIBLE = {**_PICTURES, 0x7F: "\u2421", **_ESCAPED}


def visible(text: str) -> str:
    """Return the text with control characters as pictures or escapes, so that a terminal shows them."""
    return text.translate(_VISIBLE)


def terminal_safe(text: str, out: TextIO) -> str:
    """Return the text as ``out`` should get it: `visible` on a terminal, exact elsewhere."""
    return visible(text) if out.isatty() else text


def render(events: Iterable[Event], out: TextIO, prefix: str = "") -> Done:
    """Write the text of a run to ``out``, each piece flushed at once.

    ``prefix`` comes first: the prompt, for `--echo`. On a terminal, control characters are made visible and a
    newline ends the output; elsewhere the text is exact. Returns the last event.
    """
    from ...engine import Done, PromptToken, Token

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
        else:
            write(prefix)
    raise RuntimeError("the run ended without a Done event")
