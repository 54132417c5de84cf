r"""Patterns of JSON Schema in the syntax of `regex_syntax`, without ``\p{L}``, ``\u{41}`` and names of groups.

They mean what they mean to Rust's regexes, with which llguidance reads patterns.
"""

from __future__ import annotations

import re
from functools import lru_cache

import regex

from .schema_case import UntranslatableError

# Whitespace as Rust's regexes know it, and all other characters
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NO_SPACE = (
    r"\x00-\x08\x0e-\x1f!-\x84\x86-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e"
    r"\u2060-\u2fff\u3001-\U0010ffff"
)
_PART = re.compile(
    r"""
    # what `regex_syntax` reads otherwise, and the brackets of classes
    \\[xu]\{(?P<code_point>[0-9A-Fa-f]{1,6})\}
    | \\(?P<property>[pP](?:\{[^}]*\}|[A-Za-z]))
    | \\(?P<space>[sS])
    | \\.  # another escape, which stays
    | (?P<named_group>\(\?P?<[A-Za-z_]\w*>)
    | (?P<bracket>[\[\]])
    """,
    re.VERBOSE | re.DOTALL,
)


def plain_pattern(pattern: str) -> str:
    """Return a pattern with the same meaning. Raises ``UntranslatableError`` for an unknown property."""
    is_in_class = False

    def rewritten(part: re.Match[str]) -> str:
        nonlocal is_in_class
        members = None
        match part.lastgroup:
            case "bracket":
                is_in_class = part["bracket"] == "["
            case "code_point":
                return f"\\U{int(part['code_point'], 16):08x}"
            case "named_group" if not is_in_class:
                return "("
            case "property":
                members = _members_of(part["property"])
            case "space":
                members = _SPACE if part["space"] == "s" else _NO_SPACE
        if members is None:
            return part[0]
        return members if is_in_class else f"[{members}]"

    return _PART.sub(rewritten, pattern)


@lru_cache(maxsize=200)
def _members_of(name: str) -> str:
    r"""Return the characters of a Unicode property, such as ``p{L}`` or ``PN``, as they stand in a class."""
    try:
        compiled = regex.compile(f"\\{name}+")
    except regex.error as error:
        raise UntranslatableError(f"\\{name}: {error}", "pattern") from None
    members = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in character_ranges(compiled))
    if not members:
        raise UntranslatableError(f"\\{name} has no characters", "pattern")
    return members


def character_ranges(compiled: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return the first and the last code point of each run of neighbors that a pattern of a run matches."""
    runs = (match.span() for match in compiled.finditer(_all_characters()))
    return [piece for start, end in runs for piece in _code_points(start, end - 1)]


@lru_cache(maxsize=1)
def _all_characters() -> str:
    return "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))


def _code_points(first: int, last: int) -> list[tuple[int, int]]:
    """Return the code points of a run of `_all_characters`, which has no surrogates."""
    gap = 0x800
    if first >= 0xD800:
        return [(first + gap, last + gap)]
    return [(first, last)] if last < 0xD800 else [(first, 0xD7FF), (0xE000, last + gap)]
