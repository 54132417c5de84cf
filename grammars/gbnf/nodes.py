"""The syntax tree of a GBNF grammar, and sets of characters and of small numbers.

A set of characters is a tuple of ranges of code points. A set of small numbers is the bits of an int: number i is
in the set if bit i is 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

# Nodes compare by identity (`eq=False`): two equal nodes at two places of a grammar are two nodes.


@dataclass(frozen=True, slots=True, eq=False)
class TextNode:
    """A literal text of at least one character."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class CharsNode:
    """A character class: one character of these ranges."""

    ranges: CodePointRanges


@dataclass(frozen=True, slots=True, eq=False)
class SeqNode:
    """A sequence: all items in order. Without items it is the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AltNode:
    """Alternatives: one of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RepeatNode:
    """The item, ``min_count`` to ``max_count`` times; ``max_count`` None: any number of times."""

    item: Node
    min_count: int
    max_count: int | None


@dataclass(frozen=True, slots=True, eq=False)
class RefNode:
    """A reference to the rule ``name``. ``position``: its offset in the grammar's text."""

    name: str
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class TokenNode:
    """One token of the vocabulary as a whole, or with ``negated`` any token but this one.

    ``reference``: the token as the grammar writes it, ``<[id]>`` or ``<text>``; ``position``: the offset of the
    node in the grammar's text.
    """

    reference: str
    negated: bool
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class LexemeNode:
    """A regular part of a rule that the lexer of the mask engine reads as one regular expression."""

    node: Node


Node = TextNode | CharsNode | SeqNode | AltNode | RepeatNode | RefNode | TokenNode | LexemeNode
Rules = Mapping[str, Node]
"""The body of each rule, by name."""

EMPTY = SeqNode(())
"""The empty text."""


def children(node: Node) -> tuple[Node, ...]:
    """The direct parts of a node. Rules that it names, and the inside of lexemes, do not count."""
    match node:
        case SeqNode(items):
            return items
        case AltNode(options):
            return options
        case RepeatNode(item):
            return (item,)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all nodes below it; see `children`."""
    pending = [node]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))


def references(node: Node) -> list[RefNode]:
    """The references to rules in a node, in the order of the grammar's text."""
    return sorted((part for part in walk(node) if isinstance(part, RefNode)), key=lambda ref: ref.position)


def make_seq(items: list[Node]) -> Node:
    """A sequence; sequences inside it are flattened, and neighbouring texts are joined."""
    parts = [part for item in items for part in (item.items if isinstance(item, SeqNode) else (item,))]
    flat: list[Node] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, TextNode)):
        nodes = list(group)
        if is_text:
            flat.append(TextNode("".join(node.text for node in nodes if isinstance(node, TextNode))))
        else:
            flat += nodes
    return flat[0] if len(flat) == 1 else SeqNode(tuple(flat))


def make_alt(options: list[Node]) -> Node:
    """Alternatives; alternatives inside them are flattened."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, AltNode) else (option,))
    return flat[0] if len(flat) == 1 else AltNode(tuple(flat))


def make_repeat(item: Node, min_count: int, max_count: int | None) -> Node:
    """A repetition. Of the empty text, or with ``max_count`` 0, it is the empty text."""
    if max_count == 0 or (isinstance(item, SeqNode) and not item.items):
        return EMPTY
    return item if (min_count, max_count) == (1, 1) else RepeatNode(item, min_count, max_count)


CodePointRanges = tuple[tuple[int, int], ...]
"""Code points as sorted (first, last) ranges, both ends included, that neither overlap nor touch."""

SURROGATES = (0xD800, 0xDFFF)
"""The code points that are no characters: UTF-16 uses them in pairs."""

LAST_CODE_POINT = 0x10FFFF


def merge_ranges(ranges: list[tuple[int, int]]) -> CodePointRanges:
    """Sort ranges and join those that overlap or touch. Surrogates, which no text can hold, are removed."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(_without(ranges, *SURROGATES)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _without(ranges: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The ranges without the code points from ``first`` to ``last``."""
    for low, high in ranges:
        if low < first:
            yield low, min(high, first - 1)
        if high > last:
            yield max(low, last + 1), high


def complement(ranges: CodePointRanges) -> CodePointRanges:
    """Return all other characters except NUL. As in llama.cpp, only a class that names NUL can match it."""
    gaps: list[tuple[int, int]] = []
    start = 1
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= LAST_CODE_POINT:
        gaps.append((start, LAST_CODE_POINT))
    return merge_ranges(gaps)


def ranges_overlap(some: CodePointRanges, others: CodePointRanges) -> bool:
    """True if a character is in both sets."""
    index = 0
    for low, high in some:
        while index < len(others) and others[index][1] < low:
            index += 1
        if index < len(others) and others[index][0] <= high:
            return True
    return False


def first_utf8_bytes(ranges: CodePointRanges) -> int:
    """The first UTF-8 bytes of these characters, as a set in the bits 0 to 255 of an int."""
    byte_set = 0
    for low, high in ranges:
        # One range of code points for each length in UTF-8; within it the first byte grows with the code point.
        for start, end in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST_CODE_POINT)):
            if low <= end and start <= high:
                first = chr(max(low, start)).encode("utf-8", "surrogatepass")[0]
                last = chr(min(high, end)).encode("utf-8", "surrogatepass")[0]
                byte_set |= (1 << last + 1) - (1 << first)
    return byte_set


def most_readable_character(ranges: CodePointRanges) -> str:
    """Return a digit or a letter if there is one, else a visible character, else any."""
    for first, last in ((0x30, 0x39), (0x61, 0x7A), (0x41, 0x5A), (0x21, 0x7E), (0xA1, LAST_CODE_POINT)):
        for low, high in ranges:
            if low <= last and first <= high:
                return chr(max(low, first))
    return chr(ranges[0][0])


def ranges_with_prefix(ranges: CodePointRanges, prefix: bytes) -> CodePointRanges:
    """The characters whose UTF-8 begins with ``prefix``: one to three bytes, fewer than the character has."""
    length = 2 if prefix[0] < 0xE0 else 3 if prefix[0] < 0xF0 else 4
    missing = length - len(prefix)
    value = prefix[0] & (0xFF >> length + 1)
    for byte in prefix[1:]:
        value = value << 6 | byte & 0x3F
    first, last = value << 6 * missing, (value + 1 << 6 * missing) - 1
    smallest = {2: 0x80, 3: 0x800, 4: 0x10000}[length]  # UTF-8 has only the shortest form of each character
    first = max(first, smallest)
    return tuple((max(low, first), min(high, last)) for low, high in ranges if low <= last and high >= first)


def bit_indices(bits: int) -> Iterator[int]:
    """The numbers in a set, from low to high."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def union(sets: Iterable[int]) -> int:
    """The numbers that are in any of these sets."""
    bits = 0
    for one in sets:
        bits |= one
    return bits
