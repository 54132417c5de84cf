"""Which numbers of rows a batch decodes at once, so that each row is computed in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from ..logprobs.events import BatchExactness, ExactnessLevel
from .native_context import Logits
from .row_groups import DecodeTimes

_KERNEL_COUNTS = (2, 4, 8)
"""Numbers of rows at which llama.cpp changes kernels on some processors."""
_BASES = (2, 3, 4, 8)
"""If two rows differ from a row alone, these are tried in turn. They must not depend on the number of slots."""
_MAX_ROWS = 32
"""The most rows that are decoded at once. More take hardly less time per row."""


@dataclass
class DecodePlan:
    """How the single tokens of several sequences are decoded.

    Attributes: ``exactness``, what follows for the answers; ``counts``, the numbers of rows that may be decoded at
    once, ascending; ``lone_copies``, how often a token without neighbours is read where a row alone does not agree
    with ``counts``. All copies but the first are removed. ``runs``: whether so many tokens of one text, read at
    once, give the logits that they get one by one, as far as it was compared. ``times``: how long decodes took.
    """

    exactness: BatchExactness
    counts: tuple[int, ...]
    lone_copies: int
    runs: dict[int, bool] = field(default_factory=dict)
    times: DecodeTimes = field(default_factory=DecodeTimes)

    def lone_rows(self, length: int) -> int:
        """How often a token without neighbours is read that follows ``length`` others."""
        exactness = self.exactness
        if exactness.level is not ExactnessLevel.EXACT or length >= (exactness.alone_tokens or length + 1):
            return self.lone_copies
        return 1


class ProbeRow(NamedTuple):
    """What the model computes for one token: its logits, and its last hidden state.

    The state shows differences that get lost in the logits, when it is rounded to 8 bits before the last product.
    """

    logits: Logits
    state: Logits

    def equals(self, other: ProbeRow) -> bool:
        """True if both are bit-identical."""
        return np.array_equal(self.logits, other.logits) and np.array_equal(self.state, other.state)


class ProbeRows(Protocol):
    """Sequences, each with some tokens and one more token to decode.

    ``contents``: how many different sequences there are; number n has the same tokens as number n + ``contents``.
    """

    contents: int

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        """Decode the next token of ``count`` sequences from ``first`` on at once, each ``copies`` times.

        Returns the row of each sequence's first copy. The sequences are then as before.
        """
        ...


def largest_count(slots: int) -> int:
    """The most rows that are decoded at once, in a batch with this many slots or in its probe."""
    return max(_BASES[-1], min(slots, _MAX_ROWS))


def choose_decode_plan(rows: ProbeRows, slots: int, is_every_count: bool = False) -> DecodePlan:
    """Measure which numbers of rows give bit-identical logits, and choose those that a batch uses.

    Those that agree with a row alone are preferred. If not even two rows do, those that agree with two rows are
    used, and so on. So the number of slots decides how many rows are decoded at once, but not what is computed.

    Args:
        rows: Computes rows in the model's own graph.
        slots: How many slots the batch has.
        is_every_count: Test every number of rows, not only those at which llama.cpp may change kernels.
    """
    probe = _Probe(rows)
    top = min(slots, _MAX_ROWS)
    kernels = range(2, top + 1) if is_every_count else (*_KERNEL_COUNTS, 16, 32)
    useful = sorted({count for count in kernels if count <= top} | {2, top})
    alone = probe.agreeing_counts(1, useful)
    if len(alone) > 1 and probe.are_copies_equal(2):
        return DecodePlan(BatchExactness(ExactnessLevel.EXACT), alone[1:], 2)
    difference = probe.largest_difference
    for base in _BASES:
        counts = probe.agreeing_counts(base, useful)
        if counts and probe.are_copies_equal(base):
            return DecodePlan(BatchExactness(ExactnessLevel.AMONG_THEMSELVES, difference), counts, base)
    return rounding_plan(slots, probe.largest_difference)


def rounding_plan(slots: int, largest_difference: float, can_truncate: bool = True) -> DecodePlan:
    """The plan for a batch whose rows depend on their number: as many rows at once as there are."""
    exactness = BatchExactness(ExactnessLevel.ROUNDING, largest_difference)
    counts, lone_copies = tuple(range(2, slots + 1)), 2 if can_truncate else 1
    return DecodePlan(exactness, counts, lone_copies, times=DecodeTimes(is_ignored=True))


def common_plan(first: DecodePlan, second: DecodePlan, slots: int) -> DecodePlan:
    """The plan that holds where both hold. Only `ExactnessLevel.EXACT` plans have something in common."""
    counts = tuple(count for count in first.counts if count in second.counts)
    levels = {first.exactness.level, second.exactness.level}
    if levels == {ExactnessLevel.EXACT}:
        return DecodePlan(first.exactness, counts, first.lone_copies)
    difference = max(first.exactness.largest_difference, second.exactness.largest_difference)
    return rounding_plan(slots, difference)


class _Probe:
    """Compares rows that were decoded in batches of different sizes and at different places."""

    def __init__(self, rows: ProbeRows) -> None:
        self._rows = rows
        self._references: dict[int, ProbeRow] = {}
        """The rows with which others are compared, by sequence modulo ``contents``."""
        self.largest_difference = 0.0

    def agreeing_counts(self, base: int, larger: Iterable[int]) -> tuple[int, ...]:
        """``base`` and the ``larger`` numbers of rows that agree with it, up to the first that does not.

        Empty if the rows of ``base`` depend on their place in the batch.
        """
        self._references = {}
        if not self._agrees_everywhere(base) or (base > 1 and not self._agrees(1, base)):
            return ()
        counts = [base]
        for count in larger:
            if count <= base:
                continue
            if self._agrees_everywhere(count):
                counts.append(count)
                continue
            if counts[-1] == 2 and count == 4 and self._agrees_everywhere(3):
                counts.append(3)  # groups of three are faster than pairs
            break
        return tuple(counts)

    def are_copies_equal(self, copies: int) -> bool:
        """True if the first of several copies of a token is computed as the references are."""
        return self._agrees(0, 1, copies)

    def _agrees_everywhere(self, count: int) -> bool:
        """True if batches of ``count`` rows agree with the references on all contents."""
        last = max(0, self._rows.contents - count)
        return all(self._agrees(first, count) for first in [*range(0, last, count), last])

    def _agrees(self, first: int, count: int, copies: int = 1) -> bool:
        """Decode a batch. True if no row differs from its reference; a row without one becomes the reference."""
        is_equal = True
        for sequence, row in enumerate(self._rows.decode(first, count, copies), first):
            reference = self._references.setdefault(sequence % self._rows.contents, row)
            if not row.equals(reference):
                difference = float(np.abs(reference.logits - row.logits).max())
                self.largest_difference = max(self.largest_difference, difference)
                is_equal = False
        return is_equal
