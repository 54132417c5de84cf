"""Position automata of regular nodes, and what two of them have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from .nodes import AltNode, CharsNode, Node, Ranges, RefNode, RepeatNode, Rules, SeqNode, TextNode

MAX_POSITIONS = 600
"""Larger expressions are not looked at, but taken apart."""

MAX_LEVELS = 150
"""Nor are those that are nested deeper, the rules that they name included."""

MAX_NODES = 20 * MAX_POSITIONS
"""Nor those of more nodes, a rule counted wherever it is named."""


@dataclass(frozen=True)
class PositionAutomaton:
    """Glushkov's automaton: a position for each character of an expression, sets of positions as bits of an int.

    ``chars[i]``: what position i reads; ``heads[i]``: the first bytes of that, as bits 0 … 255; ``first``: where a
    text can begin; ``last``: where it can end; ``follow[i]``: what can come after i; ``empty``: the empty text
    belongs to it.
    """

    chars: tuple[Ranges, ...]
    heads: tuple[int, ...]
    first: int
    last: int
    follow: tuple[int, ...]
    empty: bool

    @cached_property
    def goes_on(self) -> tuple[int, ...]:
        """The first bytes of what can come after each position."""
        return tuple(self.leads_of(follow) for follow in self.follow)

    @property
    def leads(self) -> int:
        """The first bytes of its texts, as bits 0 … 255."""
        return self.leads_of(self.first)

    def leads_of(self, positions: int) -> int:
        """The first bytes of what these positions read."""
        found = 0
        for position in bits(positions):
            found |= self.heads[position]
        return found


@dataclass
class StepBudget:
    """How many steps of comparing are left to spend."""

    left: int

    def spend(self, steps: int) -> None:
        """Take steps away. Raises ``TooLargeError`` when there are none left."""
        self.left -= steps
        if self.left < 0:
            raise TooLargeError


@dataclass(frozen=True)
class Overlap:
    """What two automata have in common.

    ``meet``: some text belongs to both. ``beyond``: after a text of the first one, the bytes with which a text of
    the second could go on.
    """

    meet: bool
    beyond: int


class TooLargeError(Exception):
    """The expression is larger than the ``MAX_`` above, or there is no more work to spend."""


def automaton(node: Node, rules: Rules) -> PositionAutomaton:
    """Build the automaton of a regular node. Raises ``TooLargeError``.

    Counts are taken loosely, ``x{2,9}`` as ``x+``: the automaton may take more texts than the node, never fewer.
    """
    builder = _Builder(rules)
    first, last, empty = builder.add(node)
    return PositionAutomaton(tuple(builder.chars), tuple(builder.heads), first, last, tuple(builder.follow), empty)


class _Builder:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.chars: list[Ranges] = []
        self.heads: list[int] = []
        self.follow: list[int] = []
        self._known: dict[int, int] = {}
        self._level = 0
        self._nodes = 0

    def add(self, node: Node) -> tuple[int, int, bool]:
        """Add a node's positions; return its first ones, its last ones, and whether it can be empty."""
        self._level += 1
        self._nodes += 1
        if self._level > MAX_LEVELS or self._nodes > MAX_NODES:
            raise TooLargeError
        found = self._add(node)
        self._level -= 1
        return found

    def _add(self, node: Node) -> tuple[int, int, bool]:
        match node:
            case TextNode(text):
                return self._sequence(CharsNode(((ord(character),) * 2,)) for character in text)
            case CharsNode(ranges):
                if len(self.chars) >= MAX_POSITIONS:
                    raise TooLargeError
                self.chars.append(ranges)
                # A class that a rule names may stand here many times, and be long.
                if id(ranges) not in self._known:
                    self._known[id(ranges)] = leads(ranges)
                self.heads.append(self._known[id(ranges)])
                self.follow.append(0)
                return 1 << len(self.chars) - 1, 1 << len(self.chars) - 1, False
            case SeqNode(items):
                return self._sequence(items)
            case AltNode(options):
                parts = [self.add(option) for option in options]
                return (
                    _union(part[0] for part in parts),
                    _union(part[1] for part in parts),
                    any(p[2] for p in parts),
                )
            case RepeatNode(item, least, most):
                first, last, empty = self.add(item)
                if most != 1:
                    self._connect(last, first)
                return first, last, empty or least == 0
            case RefNode(name):
                return self.add(self.rules[name])
        raise TypeError(node)

    def _sequence(self, items: Iterable[Node]) -> tuple[int, int, bool]:
        first, last, empty = 0, 0, True
        for item in items:
            begins, ends, skippable = self.add(item)
            self._connect(last, begins)
            first |= begins if empty else 0
            last = ends | (last if skippable else 0)
            empty = empty and skippable
        return first, last, empty

    def _connect(self, sources: int, targets: int) -> None:
        for position in bits(sources):
            self.follow[position] |= targets


def shared(one: PositionAutomaton, other: PositionAutomaton, work: StepBudget) -> Overlap:
    """Compare two automata by following every text that both can read. Raises ``TooLargeError``."""
    meet, beyond = False, 0
    seen = [0] * len(one.chars)
    overlaps: dict[tuple[int, int], bool] = {}
    todo = [(one.first, other.first)]
    followed = set(todo)
    while todo:
        firsts, seconds = todo.pop()
        work.spend(firsts.bit_count())
        for a in bits(firsts):
            new = seconds & ~seen[a]
            seen[a] |= new
            work.spend(new.bit_count())
            for b in bits(new):
                if not _overlap(one.chars[a], other.chars[b], overlaps):
                    continue
                further = (one.follow[a], other.follow[b])
                if all(further) and further not in followed:
                    followed.add(further)
                    todo.append(further)
                if one.last >> a & 1:
                    meet = meet or bool(other.last >> b & 1)
                    beyond |= other.goes_on[b]
    return Overlap(meet, beyond)


def bits(number: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def leads(ranges: Ranges) -> int:
    """The first bytes, in UTF-8, of these characters, as bits 0 … 255."""
    found = 0
    for low, high in ranges:
        for start, end in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, 0x10FFFF)):
            if low <= end and start <= high:
                first = chr(max(low, start)).encode("utf-8", "surrogatepass")[0]
                last = chr(min(high, end)).encode("utf-8", "surrogatepass")[0]
                found |= (1 << last + 1) - (1 << first)
    return found


def _overlap(some: Ranges, others: Ranges, known: dict[tuple[int, int], bool]) -> bool:
    key = (id(some), id(others))
    if key not in known:
        known[key] = some is others or _have_common(some, others)
    return known[key]


def _have_common(some: Ranges, others: Ranges) -> bool:
    at = 0
    for low, high in some:
        while at < len(others) and others[at][1] < low:
            at += 1
        if at < len(others) and others[at][0] <= high:
            return True
    return False


def _union(sets: Iterator[int]) -> int:
    found = 0
    for one in sets:
        found |= one
    return found
