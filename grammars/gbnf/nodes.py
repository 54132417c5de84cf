"""The syntax tree of a GBNF grammar, sets of characters, and sets of small numbers.

A set of characters is a tuple of ranges of code points. A set of small numbers is an int: bit i is 1 if number i
is in the set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

# Nodes are compared by identity (`eq=False`), because equal nodes at two places of a grammar are two nodes.


@dataclass(frozen=True, slots=True, eq=False)
class TextNode:
    """A literal of at least one character."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class CharsNode:
    ranges: CodePointRanges


@dataclass(frozen=True, slots=True, eq=False)
class SeqNode:
    """A sequence: all items in order. A sequence without items matches the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AltNode:
    """Alternatives: one of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RepeatNode:
    """A repetition of an item."""

    item: Node
    min_count: int
    max_count: int | None  # maximum number of repetitions; None = no limit


@dataclass(frozen=True, slots=True, eq=False)
class RefNode:
    """A reference to a rule."""

    name: str
    position: int  # offset of the reference in the grammar's source, characters


@dataclass(frozen=True, slots=True, eq=False)
class TokenNode:
    """A token reference, which matches one token of the vocabulary regardless of its bytes."""

    reference: str  # the reference as written in the grammar, ``<[id]>`` or ``<text>``
    is_negated: bool  # True if any other token matches
    position: int  # offset of the reference in the grammar's source, characters


@dataclass(frozen=True, slots=True, eq=False)
class LexemeNode:
    """A regular part of a rule, which llguidance's lexer reads as one regular expression."""

    node: Node


Node = TextNode | CharsNode | SeqNode | AltNode | RepeatNode | RefNode | TokenNode | LexemeNode
Rules = Mapping[str, Node]  # the body of each rule, by name

EMPTY = SeqNode(())  # the empty text


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of a node, without bodies of referenced rules and without the node in a lexeme."""
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
    """Yield the node and all nodes below it; see `children`."""
    pending_nodes = [node]
    while pending_nodes:
        node = pending_nodes.pop()
        yield node
        pending_nodes.extend(children(node))


def references(node: Node) -> list[RefNode]:
    return sorted((part for part in walk(node) if isinstance(part, RefNode)), key=lambda ref: ref.position)


def make_seq(items: list[Node]) -> Node:
    """Return a sequence. Sequences inside it are flattened, and adjacent literals are joined."""
    flat_items: list[Node] = []
    for item in items:
        flat_items += item.items if isinstance(item, SeqNode) else (item,)
    joined_items: list[Node] = []
    for is_text, group in groupby(flat_items, lambda item: isinstance(item, TextNode)):
        if is_text:
            joined_items.append(TextNode("".join(node.text for node in group if isinstance(node, TextNode))))
        else:
            joined_items += group
    return joined_items[0] if len(joined_items) == 1 else SeqNode(tuple(joined_items))


def make_alt(options: list[Node]) -> Node:
    """Return alternatives. Alternatives inside them are flattened."""
    flat_options: list[Node] = []
    for option in options:
        flat_options.extend(option.options if isinstance(option, AltNode) else (option,))
    return flat_options[0] if len(flat_options) == 1 else AltNode(tuple(flat_options))


def make_repeat(item: Node, min_count: int, max_count: int | None) -> Node:
    """Return a repetition. If the item is empty or ``max_count`` is 0, return the empty text."""
    if max_count == 0 or (isinstance(item, SeqNode) and not item.items):
        return EMPTY
    return item if (min_count, max_count) == (1, 1) else RepeatNode(item, min_count, max_count)


# a set of characters: sorted (first, last) ranges of code points, both included, that do not overlap or touch
CodePointRanges = tuple[tuple[int, int], ...]

# the first and last code point that is not a character, because UTF-16 uses it as half of a pair
SURROGATES = (0xD800, 0xDFFF)

LAST_CODE_POINT = 0x10FFFF


def merge_ranges(ranges: list[tuple[int, int]]) -> CodePointRanges:
    """Sort ranges, join ranges that overlap or touch, and remove surrogates, which text cannot contain."""
    merged_ranges: list[tuple[int, int]] = []
    for low, high in sorted(_exclude_range(ranges, *SURROGATES)):
        if merged_ranges and low <= merged_ranges[-1][1] + 1:
            last_low, last_high = merged_ranges.pop()
            merged_ranges.append((last_low, max(high, last_high)))
        else:
            merged_ranges.append((low, high))
    return tuple(merged_ranges)


def _exclude_range(ranges: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges without the code points from ``first`` to ``last``."""
    for low, high in ranges:
        if low < first:
            yield low, min(high, first - 1)
        if high > last:
            yield max(low, last + 1), high


def complement(ranges: CodePointRanges) -> CodePointRanges:
    """Return all other characters except NUL. As in llama.cpp, NUL matches only a class that lists NUL."""
    gaps: list[tuple[int, int]] = []
    gap_start = 1
    for low, high in ranges:
        if low > gap_start:
            gaps.append((gap_start, low - 1))
        gap_start = max(gap_start, high + 1)
    if gap_start <= LAST_CODE_POINT:
        gaps.append((gap_start, LAST_CODE_POINT))
    return merge_ranges(gaps)


def ranges_overlap(first: CodePointRanges, second: CodePointRanges) -> bool:
    """Return True if both sets have a common character."""
    index = 0
    for low, high in first:
        while index < len(second) and second[index][1] < low:
            index += 1
        if index < len(second) and second[index][0] <= high:
            return True
    return False


# the first and the last code point that UTF-8 encodes with this number of bytes
_CODE_POINTS_BY_UTF8_LENGTH = {
    1: (0, 0x7F),
    2: (0x80, 0x7FF),
    3: (0x800, 0xFFFF),
    4: (0x10000, LAST_CODE_POINT),
}


def first_utf8_bytes(ranges: CodePointRanges) -> int:
    """Return the set of first UTF-8 bytes of these characters, as the bits 0 to 255 of an int."""
    byte_set = 0
    for low, high in ranges:
        # Among code points of one length in UTF-8, the first byte increases with the code point.
        for start, end in _CODE_POINTS_BY_UTF8_LENGTH.values():
            if low <= end and start <= high:
                first_byte = chr(max(low, start)).encode("utf-8", "surrogatepass")[0]
                last_byte = chr(min(high, end)).encode("utf-8", "surrogatepass")[0]
                byte_set |= (1 << last_byte + 1) - (1 << first_byte)
    return byte_set


def most_readable_character(ranges: CodePointRanges) -> str:
    """Return a digit or letter of the set if there is one, otherwise a visible character, otherwise any."""
    for first, last in (("0", "9"), ("a", "z"), ("A", "Z"), ("!", "~"), ("\u00a1", chr(LAST_CODE_POINT))):
        for low, high in ranges:
            if low <= ord(last) and ord(first) <= high:
                return chr(max(low, ord(first)))
    return chr(ranges[0][0])


def ranges_with_prefix(ranges: CodePointRanges, prefix: bytes) -> CodePointRanges:
    """Return the characters of the set whose UTF-8 begins with ``prefix``, which is an incomplete character."""
    if prefix[0] < 0xE0:
        utf8_length = 2
    elif prefix[0] < 0xF0:
        utf8_length = 3
    else:
        utf8_length = 4
    prefix_bits = prefix[0] & (0xFF >> utf8_length + 1)
    for byte in prefix[1:]:
        prefix_bits = prefix_bits << 6 | byte & 0x3F
    missing_bits = 6 * (utf8_length - len(prefix))
    last_code_point = (prefix_bits + 1 << missing_bits) - 1
    # UTF-8 allows only the shortest form of each character.
    min_code_point, _ = _CODE_POINTS_BY_UTF8_LENGTH[utf8_length]
    first_code_point = max(prefix_bits << missing_bits, min_code_point)
    return tuple(
        (max(low, first_code_point), min(high, last_code_point))
        for low, high in ranges
        if low <= last_code_point and high >= first_code_point
    )


def bit_indices(bit_set: int) -> Iterator[int]:
    """Yield the numbers of a set in ascending order."""
    while bit_set:
        lowest_bit = bit_set & -bit_set
        yield lowest_bit.bit_length() - 1
        bit_set ^= lowest_bit


def union(sets: Iterable[int]) -> int:
    bit_set = 0
    for number_set in sets:
        bit_set |= number_set
    return bit_set
