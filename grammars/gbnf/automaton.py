"""Position automata of regular nodes (Glushkov's construction), and the comparison of two automata.

A comparison finds whether a text matches both nodes, and the bytes with which the second node can continue a text
of the first node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .nodes import (
    AltNode,
    CharsNode,
    CodePointRanges,
    Node,
    RefNode,
    RepeatNode,
    Rules,
    SeqNode,
    TextNode,
    bit_indices,
    first_utf8_bytes,
    ranges_overlap,
    union,
)

# Maximum number of positions of an automaton. A comparison may take a step for each pair of positions.
MAX_POSITIONS = 600

# Maximum nesting depth of a node, rules that it refers to included. The construction is recursive.
MAX_LEVELS = 150

# Maximum number of nodes of an expression. The nodes of a rule count once for each reference.
MAX_NODES = 20 * MAX_POSITIONS


class TooLargeError(Exception):
    """An expression exceeds a ``MAX_`` limit of this module, or a comparison takes too many steps."""


@dataclass(frozen=True)
class PositionAutomaton:
    """An automaton with a position for each character of an expression."""

    # A set of positions or of bytes is an int: bit i is 1 if number i is in the set.

    characters: tuple[CodePointRanges, ...]  # for each position, the characters that the position matches
    first_bytes: tuple[int, ...]  # for each position, the set of first UTF-8 bytes of these characters
    first_positions: int  # the set of positions with which a text can begin
    last_positions: int  # the set of positions with which a text can end
    following_positions: tuple[int, ...]  # for each position, the set of positions that can be next
    is_nullable: bool  # True if the empty text matches

    @cached_property
    def following_bytes(self) -> tuple[int, ...]:
        return tuple(self._first_bytes_of(positions) for positions in self.following_positions)

    @property
    def leading_bytes(self) -> int:
        """The set of bytes with which a text can begin."""
        return self._first_bytes_of(self.first_positions)

    def _first_bytes_of(self, positions: int) -> int:
        return union(self.first_bytes[position] for position in bit_indices(positions))


def build_automaton(node: Node, rules: Rules) -> PositionAutomaton:
    """Build the automaton of a regular node. Raises ``TooLargeError``."""
    # The automaton ignores counts, so that ``x{2,9}`` becomes ``x+``. It may match more texts than the node, but
    # never fewer.
    builder = _AutomatonBuilder(rules)
    node_ends = builder.add(node)
    return PositionAutomaton(
        characters=tuple(builder.characters),
        first_bytes=tuple(builder.first_bytes),
        first_positions=node_ends.first_positions,
        last_positions=node_ends.last_positions,
        following_positions=tuple(builder.following_positions),
        is_nullable=node_ends.is_nullable,
    )


class _NodeEnds(NamedTuple):
    """The ends of a node's texts."""

    first_positions: int  # the set of positions with which a text of the node can begin
    last_positions: int  # the set of positions with which a text of the node can end
    is_nullable: bool  # True if the empty text matches the node


class _AutomatonBuilder:
    """A visitor of an expression's nodes that collects the positions of the expression."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.characters: list[CodePointRanges] = []
        self.first_bytes: list[int] = []
        self.following_positions: list[int] = []
        self._bytes_of_ranges: dict[int, int] = {}
        self._level = 0
        self._node_count = 0

    def add(self, node: Node) -> _NodeEnds:
        """Add the positions of a node, and return the ends of the node's texts."""
        self._level += 1
        self._node_count += 1
        if self._level > MAX_LEVELS or self._node_count > MAX_NODES:
            raise TooLargeError
        node_ends = self._add_by_type(node)
        self._level -= 1
        return node_ends

    def _add_by_type(self, node: Node) -> _NodeEnds:
        match node:
            case TextNode(text):
                return self._add_sequence(CharsNode(((code, code),)) for code in map(ord, text))
            case CharsNode(ranges):
                return self._add_position(ranges)
            case SeqNode(items):
                return self._add_sequence(items)
            case AltNode(options):
                option_ends = [self.add(option) for option in options]
                return _NodeEnds(
                    union(ends.first_positions for ends in option_ends),
                    union(ends.last_positions for ends in option_ends),
                    any(ends.is_nullable for ends in option_ends),
                )
            case RepeatNode(item, min_count, max_count):
                first_positions, last_positions, is_nullable = self.add(item)
                if max_count != 1:
                    self._let_follow(last_positions, first_positions)
                return _NodeEnds(first_positions, last_positions, is_nullable or min_count == 0)
            case RefNode(name):
                return self.add(self.rules[name])
        raise TypeError(node)

    def _add_position(self, ranges: CodePointRanges) -> _NodeEnds:
        if len(self.characters) >= MAX_POSITIONS:
            raise TooLargeError
        self.characters.append(ranges)
        # Cached, because a class may be long, and is added again at each reference to its rule.
        if id(ranges) not in self._bytes_of_ranges:
            self._bytes_of_ranges[id(ranges)] = first_utf8_bytes(ranges)
        self.first_bytes.append(self._bytes_of_ranges[id(ranges)])
        self.following_positions.append(0)
        position = len(self.characters) - 1
        return _NodeEnds(1 << position, 1 << position, is_nullable=False)

    def _add_sequence(self, items: Iterable[Node]) -> _NodeEnds:
        first_positions = 0
        last_positions = 0
        is_nullable = True
        for item in items:
            item_ends = self.add(item)
            self._let_follow(last_positions, item_ends.first_positions)
            if is_nullable:
                first_positions |= item_ends.first_positions
            if item_ends.is_nullable:
                last_positions |= item_ends.last_positions
            else:
                last_positions = item_ends.last_positions
                is_nullable = False
        return _NodeEnds(first_positions, last_positions, is_nullable)

    def _let_follow(self, sources: int, targets: int) -> None:
        for position in bit_indices(sources):
            self.following_positions[position] |= targets


@dataclass
class StepBudget:
    """A limit of the total work of comparisons."""

    remaining: int  # number of steps that are still allowed

    def spend(self, steps: int) -> None:
        self.remaining -= steps
        if self.remaining < 0:
            raise TooLargeError


@dataclass(frozen=True)
class Overlap:
    """The result of comparing a first and a second automaton."""

    have_common_text: bool  # True if a text matches both automata
    # the set of bytes that can follow a text of the first automaton inside a longer text of the second automaton
    continuing_bytes: int


def compare_automata(first: PositionAutomaton, second: PositionAutomaton, budget: StepBudget) -> Overlap:
    """Compare two automata. Raises ``TooLargeError`` if the budget is exceeded."""
    have_common_text = False
    continuing_bytes = 0
    # For each position of the first automaton, the set of compared positions of the second automaton.
    compared_positions = [0] * len(first.characters)
    overlap_cache: dict[tuple[int, int], bool] = {}
    pending_pairs = [(first.first_positions, second.first_positions)]
    seen_pairs = set(pending_pairs)
    while pending_pairs:
        first_positions, second_positions = pending_pairs.pop()
        budget.spend(first_positions.bit_count())
        for first_position in bit_indices(first_positions):
            new_positions = second_positions & ~compared_positions[first_position]
            compared_positions[first_position] |= new_positions
            budget.spend(new_positions.bit_count())
            for second_position in bit_indices(new_positions):
                if not _have_common_character(
                    first.characters[first_position], second.characters[second_position], overlap_cache
                ):
                    continue
                following_pair = (
                    first.following_positions[first_position],
                    second.following_positions[second_position],
                )
                if all(following_pair) and following_pair not in seen_pairs:
                    seen_pairs.add(following_pair)
                    pending_pairs.append(following_pair)
                if first.last_positions >> first_position & 1:
                    if second.last_positions >> second_position & 1:
                        have_common_text = True
                    continuing_bytes |= second.following_bytes[second_position]
    return Overlap(have_common_text, continuing_bytes)


def _have_common_character(
    first_class: CodePointRanges, second_class: CodePointRanges, cache: dict[tuple[int, int], bool]
) -> bool:
    """Return `ranges_overlap` from a cache by identity, because a class may be long and have many positions."""
    key = (id(first_class), id(second_class))
    if key not in cache:
        cache[key] = first_class is second_class or ranges_overlap(first_class, second_class)
    return cache[key]
