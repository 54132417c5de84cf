"""Compares two position automata: common texts, and texts of one that go on in the other."""

from __future__ import annotations

from dataclasses import dataclass

from .bit_sets import bit_indices
from .code_points import CodePointRanges, ranges_overlap
from .position_automaton import PositionAutomaton, TooLargeError


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
        share_a_text: True if a text is in both.
        continuing_bytes: a set of bytes, in the bits 0 to 255. Some text of the second language begins with a text
            of the first; these are the bytes that can follow it.
    """

    share_a_text: bool
    continuing_bytes: int


def compare_automata(first: PositionAutomaton, second: PositionAutomaton, budget: StepBudget) -> Overlap:
    """Follow every text that both automata can read. Raises ``TooLargeError`` once the budget is used up."""
    share_a_text, continuing_bytes = False, 0
    compared = [0] * len(first.chars)  # for each position of the first: the positions of the second
    overlap_cache: dict[tuple[int, int], bool] = {}
    pending = [(first.first, second.first)]
    seen = set(pending)
    while pending:
        first_positions, second_positions = pending.pop()
        budget.spend(first_positions.bit_count())
        for a in bit_indices(first_positions):
            new = second_positions & ~compared[a]
            compared[a] |= new
            budget.spend(new.bit_count())
            for b in bit_indices(new):
                if not _overlap(first.chars[a], second.chars[b], overlap_cache):
                    continue
                following = (first.follow[a], second.follow[b])
                if all(following) and following not in seen:
                    seen.add(following)
                    pending.append(following)
                if first.last >> a & 1:
                    share_a_text = share_a_text or bool(second.last >> b & 1)
                    continuing_bytes |= second.following_bytes[b]
    return Overlap(share_a_text, continuing_bytes)


def _overlap(some: CodePointRanges, others: CodePointRanges, cache: dict[tuple[int, int], bool]) -> bool:
    """`ranges_overlap` with a cache by identity, since a class may be long and stand at many positions."""
    key = (id(some), id(others))
    if key not in cache:
        cache[key] = some is others or ranges_overlap(some, others)
    return cache[key]
