"""JSON texts in one spelling: characters instead of escapes, and numbers without exponents.

A grammar writes each string and each number in few ways. JSON has more. Before a text is matched, it is written in
the way of the grammar, so that ``"Jos\\u00e9"`` is ``"José"``, and ``1.50e1`` is ``15``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from .schema_numbers import plain_text

_PART = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*"?)  # the closing quote may be missing
    | (?P<number>
        (?<![\w.+-])  # not inside of a word
        -?(?:0|[1-9][0-9]*)
        (?:\.[0-9]+)?
        (?:[eE][+-]?[0-9]+)?
        (?![\w.+-])
    )
    | (?P<sign>[ \t\r\n]*[\[\]{},:][ \t\r\n]*)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(
    r"""
    \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}  # a surrogate pair
    | \\u[0-9a-fA-F]{4}
    | \\.
    | \x7f  # DEL, which JSON allows without an escape
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED_CHARACTERS = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_MAX_EXPONENT = 400  # greatest exponent of a number that is written out


@dataclass(frozen=True)
class JsonText:
    """A JSON text in one spelling."""

    text: str
    # offsets in this text at which a part with another spelling begins or ends; the first offset is 0
    starts: tuple[int, ...]
    original_starts: tuple[int, ...]  # the same places as offsets in the original text

    def original_offset(self, offset: int) -> int:
        """Return the offset in the original text of an offset in this text."""
        index = bisect_right(self.starts, offset) - 1
        original_offset = self.original_starts[index] + offset - self.starts[index]
        is_last_section = index + 1 == len(self.starts)
        if is_last_section:
            return original_offset
        return min(original_offset, self.original_starts[index + 1] - 1)


def read_json_text(original: str, *, on_one_line: bool = False) -> JsonText:
    """Return a text in one spelling. What is not JSON stays as it is."""
    # ``on_one_line``: there is one space after each comma and colon, and no other whitespace.
    pieces: list[str] = []
    starts = [0]
    original_starts = [0]
    length = 0  # length of all pieces
    original_end = 0  # end of the part of the original text that the pieces replace
    for replacement in _replacements(original, on_one_line):
        unchanged_text = original[original_end : replacement.start]
        pieces += (unchanged_text, replacement.text)
        # Every place inside of the replacement is a place at the beginning of the replaced part.
        length += len(unchanged_text)
        starts.append(length)
        original_starts.append(replacement.start)
        length += len(replacement.text)
        starts.append(length)
        original_starts.append(replacement.end)
        original_end = replacement.end
    pieces.append(original[original_end:])
    return JsonText("".join(pieces), tuple(starts), tuple(original_starts))


class _Replacement(NamedTuple):
    """A part of the original text that is spelled in another way."""

    start: int
    end: int
    text: str  # the other spelling


def _replacements(original: str, on_one_line: bool) -> Iterator[_Replacement]:
    """Yield the parts of a text that the grammar spells in another way, in order."""
    for match, spelling in _spellings(original, on_one_line):
        if spelling != match[0]:
            yield _Replacement(match.start(), match.end(), spelling)


def _spellings(original: str, on_one_line: bool) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each number, escape and sign, with its spelling in the grammar."""
    for part in _PART.finditer(original):
        if part["number"]:
            yield part, _plain_number(part["number"])
        elif part["sign"]:
            sign = part["sign"].strip()
            if on_one_line:
                yield part, f"{sign} " if sign in ",:" else sign
        else:
            for escape in _ESCAPE.finditer(original, *part.span()):
                yield escape, _spell_escape(escape[0])


def _plain_number(text: str) -> str:
    """Return a number without an exponent; the unchanged number if the exponent is too large."""
    _, _, exponent = text.lower().partition("e")
    max_length = len(f"-{_MAX_EXPONENT}")
    is_too_large = len(exponent) > max_length or abs(int(exponent or 0)) > _MAX_EXPONENT
    return text if is_too_large else plain_text(Decimal(text))


def _spell_escape(escape: str) -> str:
    """Return the way in which a grammar writes an escape; the escape itself if it is not one of JSON."""
    if escape == "\\/":
        return "/"
    if escape == "\x7f":
        return "\\u007f"
    if not escape.startswith("\\u") or escape == "\\u":
        return escape
    code_point = int(escape[2:6], 16)
    is_surrogate_pair = len(escape) > len(r"\u0000")
    if is_surrogate_pair:
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + int(escape[8:12], 16) - 0xDC00
    elif 0xD800 <= code_point < 0xE000:  # half of a surrogate pair
        return escape
    character = chr(code_point)
    if character in _ESCAPED_CHARACTERS:
        return _ESCAPED_CHARACTERS[character]
    is_control_character = code_point < 0x20 or code_point == 0x7F
    return f"\\u{code_point:04x}" if is_control_character else character
