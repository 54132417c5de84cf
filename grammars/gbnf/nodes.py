"""The syntax tree of a GBNF grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from .code_points import CodePointRanges

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
    """The item, ``least`` to ``most`` times; ``most`` None: any number of times."""

    item: Node
    least: int
    most: int | None


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


def make_repeat(item: Node, least: int, most: int | None) -> Node:
    """A repetition. Of the empty text, or with ``most`` 0, it is the empty text."""
    if most == 0 or (isinstance(item, SeqNode) and not item.items):
        return EMPTY
    return item if (least, most) == (1, 1) else RepeatNode(item, least, most)
