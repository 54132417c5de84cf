"""Parses the literals and the character classes of GBNF."""

from __future__ import annotations

import re

from .code_points import LAST_CODE_POINT, SURROGATES, complement, merge_ranges
from .nodes import EMPTY, CharsNode, Node, TextNode
from .scanner import Scanner

MAX_RANGES = 20_000
"""How many separate ranges a class may have. llguidance's work grows with their square."""

_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEXADECIMAL_DIGITS = {"x": 2, "u": 4, "U": 8}


def parse_literal(scanner: Scanner) -> Node:
    """Parse a text in double quotes. Raises ``GrammarError``."""
    start = scanner.position
    scanner.position += 1
    characters: list[str] = []
    while scanner.peek() != '"':
        position = scanner.position
        code = _parse_character(scanner, start, '"')
        if SURROGATES[0] <= code <= SURROGATES[1]:
            scanner.fail("half of a surrogate pair is not a character; write \\U and eight digits", position)
        characters.append(chr(code))
    scanner.position += 1
    return TextNode("".join(characters)) if characters else EMPTY


def parse_class(scanner: Scanner) -> Node:
    """Parse a character class in brackets. Raises ``GrammarError``."""
    start = scanner.position
    scanner.position += 1
    is_negated = scanner.peek() == "^"
    scanner.position += is_negated
    ranges: list[tuple[int, int]] = []
    while scanner.peek() != "]":
        ranges.append(_parse_range(scanner, start))
    scanner.position += 1
    if not ranges:
        scanner.fail("this class is empty; nothing could match it", start)
    merged = merge_ranges(ranges)
    if len(merged) > MAX_RANGES:
        scanner.fail(f"this class has {len(merged):,} separate ranges; at most {MAX_RANGES:,} are taken", start)
    return CharsNode(complement(merged) if is_negated else merged)


def _parse_range(scanner: Scanner, class_start: int) -> tuple[int, int]:
    """Parse one character of a class, or a range of characters."""
    start = scanner.position
    low = high = _parse_character(scanner, class_start, "[")
    # A dash before the closing bracket is a dash.
    if scanner.peek() == "-" and scanner.source[scanner.position + 1 : scanner.position + 2] not in ("]", ""):
        scanner.position += 1
        high = _parse_character(scanner, class_start, "[")
    if high < low:
        text = scanner.source[start : scanner.position]
        if "\n" in text or "\r" in text:  # nobody types a range that ends with a line end
            scanner.fail("this [ is never closed", class_start)
        scanner.fail(f"the range {text} runs backwards", start)
    return low, high


def _parse_character(scanner: Scanner, start: int, opening: str) -> int:
    """Parse one character and return its code point. Its literal or class began with ``opening`` at ``start``."""
    character = scanner.peek()
    if not character:
        scanner.fail(f"this {opening} is never closed", start)
    if character != "\\":
        scanner.position += 1
        return ord(character)
    position, letter = scanner.position, scanner.source[scanner.position + 1 : scanner.position + 2]
    scanner.position += 2
    if letter in _ESCAPES:
        return ord(_ESCAPES[letter])
    if letter not in _HEXADECIMAL_DIGITS:
        scanner.fail(f'\\{letter} is no escape; there are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\x \\u \\U', position)
    count = _HEXADECIMAL_DIGITS[letter]
    digits = scanner.source[scanner.position : scanner.position + count]
    scanner.position += len(digits)
    if not re.fullmatch(rf"[0-9A-Fa-f]{{{count}}}", digits):
        scanner.fail(f"\\{letter} needs {count} hexadecimal digits", position)
    if int(digits, 16) > LAST_CODE_POINT:
        scanner.fail(f"\\{letter}{digits} lies beyond the last character, \\U0010FFFF", position)
    return int(digits, 16)
