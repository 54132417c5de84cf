"""What a GBNF grammar is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

Ranges = tuple[tuple[int, int], ...]
"""Code points, as sorted ranges that do not touch, ends included."""

SURROGATES = (0xD800, 0xDFFF)
LAST = 0x10FFFF


@dataclass(frozen=True, slots=True, eq=False)
class TextNode:
    """These characters, one after the other; at least one."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class CharsNode:
    """One character out of these."""

    ranges: Ranges


@dataclass(frozen=True, slots=True, eq=False)
class SeqNode:
    """All of these in order; none of them: the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AltNode:
    """One of these."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RepeatNode:
    """This, from ``least`` to ``most`` times; None: without a limit."""

    item: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True, eq=False)
class RefNode:
    """The rule of this name. ``at`` is where it stands in the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True, eq=False)
class TokenNode:
    """One token of the vocabulary as a whole; ``negated``: any but this one."""

    id: int
    negated: bool


@dataclass(frozen=True, slots=True, eq=False)
class LexemeNode:
    """A regular part of a rule, which is to be read in one go."""

    node: Node


Node = TextNode | CharsNode | SeqNode | AltNode | RepeatNode | RefNode | TokenNode | LexemeNode
Rules = Mapping[str, Node]

EMPTY = SeqNode(())


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that this one is made of."""
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
    """This node and all below it."""
    todo = [node]
    while todo:
        node = todo.pop()
        yield node
        todo.extend(children(node))


def make_seq(items: list[Node]) -> Node:
    """A sequence, with sequences inside it laid open and texts side by side joined."""
    parts = [part for item in items for part in (item.items if isinstance(item, SeqNode) else (item,))]
    flat: list[Node] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, TextNode)):
        nodes = list(group)
        flat += (
            [TextNode("".join(node.text for node in nodes if isinstance(node, TextNode)))] if is_text else nodes
        )
    return flat[0] if len(flat) == 1 else SeqNode(tuple(flat))


def make_alt(options: list[Node]) -> Node:
    """A choice, with choices inside it laid open."""
    flat: list[Node] = []
    for option in options:
        flat.extend(option.options if isinstance(option, AltNode) else (option,))
    return flat[0] if len(flat) == 1 else AltNode(tuple(flat))


def make_repeat(item: Node, least: int, most: int | None) -> Node:
    """A repetition; of nothing, or no times, it is the empty text."""
    if most == 0 or (isinstance(item, SeqNode) and not item.items):
        return EMPTY
    return item if (least, most) == (1, 1) else RepeatNode(item, least, most)


def merge_ranges(ranges: list[tuple[int, int]]) -> Ranges:
    """Sort ranges and join those that touch; surrogates, which no text can hold, go."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(_without(ranges, *SURROGATES)):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _without(ranges: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    for low, high in ranges:
        if low < first:
            yield low, min(high, first - 1)
        if high > last:
            yield max(low, last + 1), high


def complement(ranges: Ranges) -> Ranges:
    """All other characters, save NUL: as in llama.cpp, only a grammar that names it can ask for one."""
    gaps: list[tuple[int, int]] = []
    start = 1
    for low, high in ranges:
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= LAST:
        gaps.append((start, LAST))
    return merge_ranges(gaps)
