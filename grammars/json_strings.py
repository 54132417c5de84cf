r"""Strings of JSON as regular expressions over their text, with the quotes and the escapes of JSON.

A character has one spelling: itself, or an escape such as ``\n`` or ``\u001f``, as `json_text` writes it. So the
texts that do not match a pattern are exactly the complement of those that do, and a key is excluded by its text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product

from llguidance import LLMatcher

from .errors import GrammarError
from .gbnf.lark import NO_TEXT
from .matcher import new_matcher
from .regex_syntax import parse_regex
from .regex_tree import (
    Alternatives,
    CharacterClass,
    Concatenation,
    Group,
    Node,
    Position,
    compile_class,
)
from .schema_case import UntranslatableError
from .schema_patterns import character_ranges, plain_pattern
from .tokenizer import BYTE_VOCABULARY

_SHORT_ESCAPES = {'"': r"\"", "\\": r"\\", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
_ESCAPED = (*map(chr, range(0x20)), '"', "\\", "\x7f")
_CHARACTER = r'(?:[^"\\\x00-\x1f\x7f]|\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]|7f)))'
ANY_STRING = f'/"{_CHARACTER}*"/'

_MAX_ALTERNATIVES = 200  # of a pattern whose parts have ^ or $


def json_string(text: str) -> str:
    """Return a string as JSON, in the spelling of the grammar."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\u007f")


def terminal_of_text(text: str) -> str:
    """Return a terminal of Lark that matches exactly this text."""
    return json.dumps(text)


def string_terminal(text: str) -> str:
    """Return a terminal of Lark that matches exactly this string of JSON."""
    return terminal_of_text(json_string(text))


def length_terminal(min_length: int, max_length: int | None) -> str:
    """Return a terminal of Lark for the strings of JSON with so many characters."""
    return f'/"{_CHARACTER}{{{min_length},{"" if max_length is None else max_length}}}"/'


@lru_cache(maxsize=1_000)
def pattern_terminal(pattern: str) -> str:
    """Return a terminal of Lark for the strings of JSON in which a regular expression is found."""
    # Raises ``UntranslatableError``.
    try:
        tree = parse_regex(plain_pattern(pattern), re.ASCII)
    except GrammarError as error:
        raise UntranslatableError(str(error), "pattern") from None
    options = []
    for part in _parts(tree, 0):
        before = "" if part.is_at_start else f"{_CHARACTER}*"
        after = "" if part.is_at_end else f"{_CHARACTER}*"
        options.append(before + part.regex + after)
    return f'/"(?:{"|".join(options)})"/' if options else NO_TEXT


@dataclass(frozen=True)
class _Part:
    """A part of a pattern without ``^`` and ``$``, which are told apart."""

    regex: str
    is_empty: bool = False  # True if the regex matches the empty text only
    is_nullable: bool = False  # True if the regex matches the empty text, too
    is_at_start: bool = False
    is_at_end: bool = False


_NOTHING = _Part("", is_empty=True, is_nullable=True)


def _parts(node: Node, flags: int) -> list[_Part]:
    """Return the alternatives of a pattern. A text matches the pattern if it matches one of them."""
    match node:
        case CharacterClass(source):
            return [_Part(_class_regex(source, flags))]
        case Position(sign):
            return [_part_of_position(sign)]
        case Group(inner, added, removed):
            return _parts(inner, (flags | added) & ~removed)
        case Alternatives(nodes):
            return _merge_free(part for inner in nodes for part in _parts(inner, flags))
        case Concatenation(nodes):
            return reduce(_joined_parts, (_parts(inner, flags) for inner in nodes), [_NOTHING])
    return _repeated(_parts(node.node, flags), node.min_count, node.max_count)


def _part_of_position(sign: str) -> _Part:
    if sign not in "^A$Z":
        raise UntranslatableError(f"a pattern has \\{sign}", "pattern")
    return _Part("", True, True, is_at_start=sign in "^A", is_at_end=sign in "$Z")


def _joined_parts(first: list[_Part], second: list[_Part]) -> list[_Part]:
    parts = [part for pair in product(first, second) if (part := _joined(*pair)) is not None]
    if len(parts) > _MAX_ALTERNATIVES:
        raise UntranslatableError("a pattern has too many alternatives with ^ or $", "pattern")
    return parts


def _merge_free(parts: Iterable[_Part]) -> list[_Part]:
    """Return the parts; those without ``^`` and ``$`` become one."""
    merged: list[_Part] = []
    free: list[_Part] = []
    for part in parts:
        (merged if part.is_at_start or part.is_at_end else free).append(part)
    if len(free) == 1:
        merged += free
    elif free:
        regex = f"(?:{'|'.join(part.regex for part in free)})"
        is_empty = all(part.is_empty for part in free)
        merged.append(_Part(regex, is_empty, any(part.is_nullable for part in free)))
    return merged


def _joined(first: _Part, second: _Part) -> _Part | None:
    """Return a part after another; None if no text matches them."""
    if second.is_at_start and not first.is_empty:
        if not first.is_nullable:
            return None
        first = _Part("", True, True, first.is_at_start, first.is_at_end)
    if first.is_at_end and not second.is_empty:
        if not second.is_nullable:
            return None
        second = _Part("", True, True, second.is_at_start, second.is_at_end)
    return _Part(
        first.regex + second.regex,
        first.is_empty and second.is_empty,
        first.is_nullable and second.is_nullable,
        first.is_at_start or second.is_at_start,
        first.is_at_end or second.is_at_end,
    )


def _repeated(parts: list[_Part], min_count: int, max_count: int | None) -> list[_Part]:
    if len(parts) == 1 and not (parts[0].is_at_start or parts[0].is_at_end):
        (part,) = parts
        counts = f"{{{min_count},{'' if max_count is None else max_count}}}"
        is_empty = part.is_empty or max_count == 0
        return [_Part(f"(?:{part.regex}){counts}", is_empty, min_count == 0 or part.is_nullable)]
    if (min_count, max_count) == (0, 1):
        return [*parts, _NOTHING]
    if (min_count, max_count) == (1, 1):
        return parts
    raise UntranslatableError("a pattern repeats a part with ^ or $", "pattern")


@lru_cache(maxsize=1_000)
def _class_regex(source: str, flags: int) -> str:
    """Return the regex of the spellings of a class of characters."""
    ranges = _ranges(source, flags)
    options = [
        re.escape(_SHORT_ESCAPES.get(character, f"\\u{ord(character):04x}"))
        for character in _ESCAPED
        if any(first <= ord(character) <= last for first, last in ranges)
    ]
    plain_ranges = "".join(_plain_range(first, last) for first, last in _without_escaped(ranges))
    if plain_ranges:
        options.append(f"[{plain_ranges}]")
    if not options:
        raise UntranslatableError(f"the class {source} of a pattern has no characters", "pattern")
    return f"(?:{'|'.join(options)})" if len(options) > 1 else options[0]


def _plain_range(first: int, last: int) -> str:
    return f"\\x{{{first:x}}}" if first == last else f"\\x{{{first:x}}}-\\x{{{last:x}}}"


def _without_escaped(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges without the characters that JSON escapes."""
    for character in _ESCAPED:
        code = ord(character)
        ranges = (
            [
                piece
                for first, last in ranges
                for piece in ((first, min(last, code - 1)), (max(first, code + 1), last))
                if piece[0] <= piece[1] and not (first == last == code)
            ]
            if any(first <= code <= last for first, last in ranges)
            else ranges
        )
    return sorted(set(ranges))


def _ranges(source: str, flags: int) -> list[tuple[int, int]]:
    """Return the ranges of the code points of a class."""
    return character_ranges(compile_class(f"(?:{source})+", flags))


@lru_cache(maxsize=2_000)
def is_terminal_empty(terminal: str) -> bool:
    """Return True if surely no text matches an expression of terminals."""
    matcher = new_matcher(BYTE_VOCABULARY, f"start: T\nT: {terminal}\n")
    if matcher.is_error():
        return False
    allowed_bytes = matcher.compute_logit_bias()[:256]
    return not any(allowed_bytes) and not matcher.is_accepting()


@lru_cache(maxsize=200)
def _matcher(lark: str) -> LLMatcher:
    return new_matcher(BYTE_VOCABULARY, lark)


def _matches(lark: str, text: str) -> bool:
    matcher = _matcher(lark).deep_copy()
    data = text.encode(errors="surrogatepass")
    return matcher.try_consume_tokens(list(data)) == len(data) and matcher.is_accepting()


def matches_terminal(terminal: str, text: str) -> bool:
    """Return True if an expression of terminals matches a text."""
    return _matches(f"start: T\nT: {terminal}\n", text)


def matches_format(name: str, value: str) -> bool:
    """Return True if a string has a format that llguidance knows."""
    return _matches(f'start: %json {{"type": "string", "format": {json.dumps(name)}}}\n', json_string(value))
