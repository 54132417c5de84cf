"""JSON texts in one spelling: characters instead of escapes, and numbers without exponents.

A grammar writes each string and each number in few ways. JSON has more. Before a text is matched, it is written in
the way of the grammar, so that ``"Jos\\u00e9"`` is ``"José"``, and ``1.50e1`` is ``15``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal

from .schema_numbers import plain_text

_PART = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*"?)
    | (?P<number>(?<![\w.+-])-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-]))
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|\x7f", re.DOTALL
)
_ESCAPED_CHARACTERS = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAX_EXPONENT = 400  # greatest exponent of a number that is written out


@dataclass(frozen=True)
class JsonText:
    """A JSON text in one spelling."""

    text: str
    starts: tuple[int, ...]  # the offset in this text after each part that was spelled in another way
    original_starts: tuple[int, ...]  # the same places as offsets in the original text

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original text of an offset in this text."""
        index = bisect_right(self.starts, offset) - 1
        moved = self.original_starts[index] + offset - self.starts[index]
        return moved if index + 1 == len(self.starts) else min(moved, self.original_starts[index + 1] - 1)


def read_json_text(original: str) -> JsonText:
    """Return a text in one spelling. What is not JSON stays as it is."""
    pieces: list[str] = []
    starts, original_starts = [0], [0]
    length = end = 0

    def replace(start: int, stop: int, written: str) -> None:
        nonlocal length, end
        if original[start:stop] == written:
            return
        pieces.extend((original[end:start], written))
        # A place inside of the part is a place at its beginning.
        length += start - end
        starts.append(length)
        original_starts.append(start)
        length += len(written)
        end = stop
        starts.append(length)
        original_starts.append(end)

    for part in _PART.finditer(original):
        if part["number"]:
            replace(*part.span(), _plain_number(part["number"]))
        else:
            for escape in _ESCAPE.finditer(original, *part.span()):
                replace(*escape.span(), _spell_escape(escape[0]))
    return JsonText("".join([*pieces, original[end:]]), tuple(starts), tuple(original_starts))


def _plain_number(text: str) -> str:
    _, _, exponent = text.lower().partition("e")
    if len(exponent) > len(str(_MAX_EXPONENT)) + 1 or abs(int(exponent or 0)) > _MAX_EXPONENT:
        return text
    return plain_text(Decimal(text))


def _spell_escape(escape: str) -> str:
    """Return the way in which a grammar writes an escape; the escape itself if it is not one of JSON."""
    if escape == "\\/":
        return "/"
    if escape == "\x7f":
        return "\\u007f"
    if not escape.startswith("\\u") or escape == "\\u":
        return escape
    code = int(escape[2:6], 16)
    if len(escape) > 6:
        code = 0x10000 + ((code - 0xD800) << 10) + int(escape[8:12], 16) - 0xDC00
    elif 0xD800 <= code < 0xE000:
        return escape
    character = chr(code)
    if character in _ESCAPED_CHARACTERS:
        return _ESCAPED_CHARACTERS[character]
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character
