"""Position automata of regular nodes (Glushkov's construction), and the comparison of two of them.

A comparison finds whether a text is in both languages, and how texts of one language continue in the other.
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

MAX_POSITIONS = 600
"""The most positions of an automaton. Comparing two automata takes steps in proportion to their product."""

MAX_LEVELS = 150
"""How deep a node may be nested, with the rules that it names; the construction is recursive."""

MAX_NODES = 20 * MAX_POSITIONS
"""How many nodes an expression may have; a rule counts at each reference."""


class TooLargeError(Exception):
    """An expression beyond the ``MAX_`` limits above, or a comparison that takes too many steps."""


@dataclass(frozen=True)
class PositionAutomaton:
    """A position for each character of an expression; sets of positions are the bits of an int.

    Attributes:
        characters: the characters that each position reads.
        first_bytes: the first UTF-8 bytes of these characters, as a set in the bits 0 to 255.
        first_positions: the positions with which a text can begin.
        last_positions: the positions with which a text can end.
        following_positions: the positions that can come after each position.
        is_nullable: True if the empty text is in the language.
    """

    characters: tuple[CodePointRanges, ...]
    first_bytes: tuple[int, ...]
    first_positions: int
    last_positions: int
    following_positions: tuple[int, ...]
    is_nullable: bool

    @cached_property
    def following_bytes(self) -> tuple[int, ...]:
        """The bytes that can come after each position, as sets."""
        return tuple(self._first_bytes_of(positions) for positions in self.following_positions)

    @property
    def leading_bytes(self) -> int:
        """The bytes with which a text can begin, as a set."""
        return self._first_bytes_of(self.first_positions)

    def _first_bytes_of(self, positions: int) -> int:
        return union(self.first_bytes[position] for position in bit_indices(positions))


def build_automaton(node: Node, rules: Rules) -> PositionAutomaton:
    """Build the automaton of a regular node. Raises ``TooLargeError``.

    Counts are not exact, ``x{2,9}`` becomes ``x+``: the automaton may match more texts than the node, never fewer.
    """
    builder = _Builder(rules)
    ends = builder.add(node)
    return PositionAutomaton(
        characters=tuple(builder.characters),
        first_bytes=tuple(builder.first_bytes),
        first_positions=ends.first,
        last_positions=ends.last,
        following_positions=tuple(builder.following_positions),
        is_nullable=ends.is_nullable,
    )


class _Ends(NamedTuple):
    """The positions with which the texts of a node can begin and end, and whether it can be empty."""

    first: int
    last: int
    is_nullable: bool


class _Builder:
    """Collects the positions of an expression, node by node."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.characters: list[CodePointRanges] = []
        self.first_bytes: list[int] = []
        self.following_positions: list[int] = []
        self._bytes_of_ranges: dict[int, int] = {}
        self._level = 0
        self._node_count = 0

    def add(self, node: Node) -> _Ends:
        """Add a node's positions."""
        self._level += 1
        self._node_count += 1
        if self._level > MAX_LEVELS or self._node_count > MAX_NODES:
            raise TooLargeError
        ends = self._add(node)
        self._level -= 1
        return ends

    def _add(self, node: Node) -> _Ends:
        match node:
            case TextNode(text):
                return self._add_sequence(CharsNode(((ord(character),) * 2,)) for character in text)
            case CharsNode(ranges):
                return self._add_position(ranges)
            case SeqNode(items):
                return self._add_sequence(items)
            case AltNode(options):
                parts = [self.add(option) for option in options]
                return _Ends(
                    union(part.first for part in parts),
                    union(part.last for part in parts),
                    any(part.is_nullable for part in parts),
                )
            case RepeatNode(item, min_count, max_count):
                first, last, is_nullable = self.add(item)
                if max_count != 1:
                    self._connect(last, first)
                return _Ends(first, last, is_nullable or min_count == 0)
            case RefNode(name):
                return self.add(self.rules[name])
        raise TypeError(node)

    def _add_position(self, ranges: CodePointRanges) -> _Ends:
        if len(self.characters) >= MAX_POSITIONS:
            raise TooLargeError
        self.characters.append(ranges)
        # A class in a rule is added at each reference to the rule, and may be long.
        if id(ranges) not in self._bytes_of_ranges:
            self._bytes_of_ranges[id(ranges)] = first_utf8_bytes(ranges)
        self.first_bytes.append(self._bytes_of_ranges[id(ranges)])
        self.following_positions.append(0)
        position = 1 << len(self.characters) - 1
        return _Ends(position, position, False)

    def _add_sequence(self, items: Iterable[Node]) -> _Ends:
        first, last, is_nullable = 0, 0, True
        for item in items:
            item_ends = self.add(item)
            self._connect(last, item_ends.first)
            first |= item_ends.first if is_nullable else 0
            last = item_ends.last | (last if item_ends.is_nullable else 0)
            is_nullable = is_nullable and item_ends.is_nullable
        return _Ends(first, last, is_nullable)

    def _connect(self, sources: int, targets: int) -> None:
        for position in bit_indices(sources):
            self.following_positions[position] |= targets


@dataclass
class StepBudget:
    """How many steps of comparison may still be taken."""

    remaining: int

    def spend(self, steps: int) -> None:
        """Take steps from the budget. Raises ``TooLargeError`` once it is used up."""
        self.remaining -= steps
        if self.remaining < 0:
            raise TooLargeError


@dataclass(frozen=True)
class Overlap:
    """What two languages have in common.

    Attributes:
        have_common_text: True if a text is in both.
        continuing_bytes: a set of bytes, in the bits 0 to 255. Some text of the second language begins with a text
            of the first; these are the bytes that can follow it.
    """

    have_common_text: bool
    continuing_bytes: int


def compare_automata(first: PositionAutomaton, second: PositionAutomaton, budget: StepBudget) -> Overlap:
    """Follow every text that both automata can read. Raises ``TooLargeError`` once the budget is used up."""
    have_common_text, continuing_bytes = False, 0
    compared = [0] * len(
        first.characters
    )  # for each position of the first automaton: the compared positions of the second
    overlap_cache: dict[tuple[int, int], bool] = {}
    pending = [(first.first_positions, second.first_positions)]
    seen = set(pending)
    while pending:
        first_positions, second_positions = pending.pop()
        budget.spend(first_positions.bit_count())
        for a in bit_indices(first_positions):
            new = second_positions & ~compared[a]
            compared[a] |= new
            budget.spend(new.bit_count())
            for b in bit_indices(new):
                if not _overlap(first.characters[a], second.characters[b], overlap_cache):
                    continue
                following = (first.following_positions[a], second.following_positions[b])
                if all(following) and following not in seen:
                    seen.add(following)
                    pending.append(following)
                if first.last_positions >> a & 1:
                    have_common_text = have_common_text or bool(second.last_positions >> b & 1)
                    continuing_bytes |= second.following_bytes[b]
    return Overlap(have_common_text, continuing_bytes)


def _overlap(
    first_class: CodePointRanges, second_class: CodePointRanges, cache: dict[tuple[int, int], bool]
) -> bool:
    """`ranges_overlap` with a cache by identity, since a class may be long and stand at many positions."""
    key = (id(first_class), id(second_class))
    if key not in cache:
        cache[key] = first_class is second_class or ranges_overlap(first_class, second_class)
    return cache[key]
