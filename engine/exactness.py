"""The numbers of rows that a decode computes alike, measured on the model and this processor.

A batch decodes one token of each of several sequences at once. llama.cpp changes kernels with the number of
rows, and another kernel rounds differently. So a batch uses only numbers of rows that give bit-identical
logits, if there are any, and divides the slots that get a token into groups of these sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from ..logprobs.events import BatchExactness, ExactnessLevel
from ..models.errors import AbortedError, ModelError
from .native.context import Logits, NativeContext, SequenceSpan
from .native.model import NativeModel
from .native.options import ContextOptions


class RowGroup(NamedTuple):
    """Adjacent slots, from ``first`` on, that are decoded at once; a ``size`` of 1: a token without neighbours."""

    first: int
    size: int


class GroupSizes(NamedTuple):
    """Which groups there may be.

    Attributes:
        allowed_row_counts: the numbers of rows that may be decoded at once, ascending.
        slots: how many slots there are.
        can_fill: slots between those that get a token may be filled with a row that is thrown away.
    """

    allowed_row_counts: tuple[int, ...]
    slots: int
    can_fill: bool

    def around(self, first: int, last: int, rows: int) -> RowGroup | None:
        """The smallest group of the slots ``first`` to ``last``; ``rows``: how many of them get a token."""
        span = last - first + 1
        for count in self.allowed_row_counts:
            if span <= count <= self.slots and (self.can_fill or span == count == rows):
                return RowGroup(min(first, self.slots - count), count)
        return None


_NOTABLY_FASTER = 0.9
"""A decode must take less than this share of the shortest time so far to be noted: a new table costs divisions."""


class DecodeTimes:
    """The shortest time that a decode of each number of rows took, in seconds.

    Attributes: ``table``, number of rows and seconds, for those that were decoded. It stays empty if the times are
    ignored, so that nothing depends on the clock.
    """

    def __init__(self, *, is_ignored: bool = False) -> None:
        self._is_ignored = is_ignored
        self._seconds: dict[int, float] = {}
        self.table: tuple[tuple[int, float], ...] = ()

    def note(self, rows: int, seconds: float) -> None:
        """Note how long a decode took."""
        if self._is_ignored:
            return
        shortest = self._seconds.get(rows)
        if shortest is None or seconds < _NOTABLY_FASTER * shortest:
            self._seconds[rows] = seconds
            self.table = tuple(sorted(self._seconds.items()))


@lru_cache(maxsize=1024)
def divide_rows(
    numbers: tuple[int, ...],
    single_row_copies: tuple[int, ...],
    sizes: GroupSizes,
    times: tuple[tuple[int, float], ...],
) -> tuple[RowGroup, ...]:
    """Return the groups that take the least time.

    Args:
        numbers: the slots that get a token, ascending.
        single_row_copies: of each, how many rows it takes without neighbours.
        sizes: which groups there may be.
        times: the table of `DecodeTimes`.
    """
    best: list[tuple[float, tuple[RowGroup, ...]]] = [(0.0, ())]
    for end, (last, rows) in enumerate(zip(numbers, single_row_copies, strict=True), 1):
        seconds, groups = best[-1]
        shortest = (seconds + _seconds(rows, times), (*groups, RowGroup(last, 1)))
        for start in range(end - 2, -1, -1):
            group = sizes.around(numbers[start], last, end - start)
            if group is not None:
                seconds, groups = best[start]
                shortest = min(shortest, (seconds + _seconds(group.size, times), (*groups, group)))
            elif last - numbers[start] >= sizes.allowed_row_counts[-1]:
                break
        best.append(shortest)
    return best[-1][1]


def _seconds(rows: int, times: Sequence[tuple[int, float]]) -> float:
    """The time of a decode, from that of the nearest number of rows: each takes time, and so does the decode."""
    if not times:
        return rows + 1.0
    known, seconds = min(times, key=lambda entry: abs(entry[0] - rows))
    return seconds * (rows + 1) / (known + 1)


_KERNEL_COUNTS = (2, 4, 8)
"""Numbers of rows at which llama.cpp changes kernels on some processors."""
_FALLBACK_ROW_COUNTS = (2, 3, 4, 8)
"""If two rows differ from a row alone, these are tried in turn. They must not depend on the number of slots."""
_MAX_ROWS = 32
"""The most rows that are decoded at once. More take hardly less time per row."""


@dataclass
class DecodePlan:
    """The way in which the single tokens of several sequences are decoded.

    Attributes:
        exactness: what can be promised about the answers of the batch.
        allowed_row_counts: the numbers of rows that one decode may have, ascending.
        single_row_copies: number of copies of a token that is decoded without other sequences, where one row alone
            is not computed like ``allowed_row_counts`` rows. All copies but the first are discarded.
        is_run_exact_by_length: whether N tokens of one sequence, decoded in one batch, get the logits that they
            get one by one. N is the key; numbers of tokens that were not compared are absent.
        times: the durations of decodes.
    """

    exactness: BatchExactness
    allowed_row_counts: tuple[int, ...]
    single_row_copies: int
    is_run_exact_by_length: dict[int, bool] = field(default_factory=dict)
    times: DecodeTimes = field(default_factory=DecodeTimes)

    def copies_of_single_token(self, sequence_length: int) -> int:
        """How often a token without neighbours is read that follows ``length`` others."""
        exactness = self.exactness
        exact_length = exactness.max_exact_tokens or sequence_length + 1
        if exactness.level is not ExactnessLevel.EXACT or sequence_length >= exact_length:
            return self.single_row_copies
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

    distinct_sequence_count: int

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        """Decode the next token of ``count`` sequences from ``first`` on at once, each ``copies`` times.

        Returns the row of each sequence's first copy. The sequences are then as before.
        """
        ...


def _largest_count(slots: int) -> int:
    """The most rows that are decoded at once, in a batch with this many slots or in its probe."""
    return max(_FALLBACK_ROW_COUNTS[-1], min(slots, _MAX_ROWS))


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
    for base in _FALLBACK_ROW_COUNTS:
        counts = probe.agreeing_counts(base, useful)
        if counts and probe.are_copies_equal(base):
            return DecodePlan(BatchExactness(ExactnessLevel.AMONG_THEMSELVES, difference), counts, base)
    return _rounding_plan(slots, probe.largest_difference)


def _rounding_plan(slots: int, largest_difference: float, can_truncate: bool = True) -> DecodePlan:
    """The plan for a batch whose rows depend on their number: as many rows at once as there are."""
    exactness = BatchExactness(ExactnessLevel.ROUNDING, largest_difference)
    counts, single_row_copies = tuple(range(2, slots + 1)), 2 if can_truncate else 1
    return DecodePlan(exactness, counts, single_row_copies, times=DecodeTimes(is_ignored=True))


def common_plan(first: DecodePlan, second: DecodePlan, slots: int) -> DecodePlan:
    """The plan that holds where both hold. Only `ExactnessLevel.EXACT` plans have something in common."""
    counts = tuple(count for count in first.allowed_row_counts if count in second.allowed_row_counts)
    levels = {first.exactness.level, second.exactness.level}
    if levels == {ExactnessLevel.EXACT}:
        return DecodePlan(first.exactness, counts, first.single_row_copies)
    difference = max(first.exactness.max_logit_difference, second.exactness.max_logit_difference)
    return _rounding_plan(slots, difference)


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
        last = max(0, self._rows.distinct_sequence_count - count)
        return all(self._agrees(first, count) for first in [*range(0, last, count), last])

    def _agrees(self, first: int, count: int, copies: int = 1) -> bool:
        """Decode a batch. True if no row differs from its reference; a row without one becomes the reference."""
        is_equal = True
        for sequence, row in enumerate(self._rows.decode(first, count, copies), first):
            reference = self._references.setdefault(sequence % self._rows.distinct_sequence_count, row)
            if not row.equals(reference):
                difference = float(np.abs(reference.logits - row.logits).max())
                self.largest_difference = max(self.largest_difference, difference)
                is_equal = False
        return is_equal


_CONTEXT_TOKENS = 256
"""The shortest sequence that llama.cpp makes. Beyond, flash attention has a kernel for a token alone."""
_FEW_LAYERS = 8
"""Below, a difference gets lost in some rows: llama.cpp rounds activations to 8 bits before each product."""
_CONTENTS, _CONTENTS_OF_FEW_LAYERS = 2, 8
"""How many different sequences are compared. Each takes time; several are needed where differences get lost."""
_MIXTURE_ROWS = 8
"""The most rows that are decoded at once in a mixture of experts: every number up to it takes time to test."""


class _ContextRows:
    """`ProbeRows` in a context of their own. Different sequences have other tokens and another length."""

    def __init__(self, native: NativeContext, sequences: int, contents: int) -> None:
        self._native = native
        self.distinct_sequence_count = contents
        self._lengths = [1 + sequence % contents % 2 for sequence in range(sequences)]
        native.decode_spans([self._history(sequence) for sequence in range(contents)], all_logits=False)
        for sequence in range(contents, sequences):
            native.copy(sequence % contents, sequence)

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        """Decode rows, see `ProbeRows`."""
        native, sequences = self._native, range(first, first + count)
        native.decode_spans([self._next_token(number, copies) for number in sequences])
        indices = range(0, count * copies, copies)
        rows = [ProbeRow(native.logits_at(index).copy(), native.state_at(index).copy()) for index in indices]
        for number in sequences:
            native.truncate_sequence(self._lengths[number], number)
        return rows

    def _history(self, sequence: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, step) for step in range(self._lengths[sequence])], 0, sequence)

    def _next_token(self, sequence: int, copies: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, -1)] * copies, self._lengths[sequence], sequence)

    def _token(self, sequence: int, step: int) -> int:
        """A token from anywhere in the vocabulary."""
        return (
            7919 * (sequence % self.distinct_sequence_count + 1) + 104_729 * (step + 2)
        ) % self._native.vocab_size


def probe_decode_plan(
    model: NativeModel, context: ContextOptions, adapters: Sequence[tuple[object, float]] = ()
) -> DecodePlan:
    """Choose how the batch that ``context`` is for decodes rows, by measuring it on this model and processor.

    It takes about as long as 15 tokens, in a context of its own, which is freed before this returns.
    """
    slots = context.sequences
    if model.uses_gpu or not model.can_truncate:
        # A GPU divides the attention by the longest request. A recurrent or hybrid model computes the sequences of
        # a batch together, and cannot read a single token twice to compute it as one of two rows.
        return _rounding_plan(slots, 0.0, model.can_truncate)
    contents = _CONTENTS_OF_FEW_LAYERS if model.layers < _FEW_LAYERS else _CONTENTS
    try:
        plan = _probe(model, context, adapters, contents)
        if model.is_mixture:  # equal rows all go to the same experts, which may get any of these numbers of rows
            few = replace(context, sequences=min(slots, _MIXTURE_ROWS))
            plan = common_plan(plan, _probe(model, few, adapters, 1, is_every_count=True), slots)
    except AbortedError:
        raise
    except ModelError:  # no memory for it; the batch may need less
        return _rounding_plan(slots, 0.0)
    if plan.exactness.level is ExactnessLevel.EXACT and context.length > _CONTEXT_TOKENS:
        # Then `generate`, which reads a token alone, gets another kernel of flash attention.
        plan.exactness = replace(plan.exactness, max_exact_tokens=_CONTEXT_TOKENS)
    return plan


def _probe(
    model: NativeModel,
    context: ContextOptions,
    adapters: Sequence[tuple[object, float]],
    contents: int,
    is_every_count: bool = False,
) -> DecodePlan:
    largest = _largest_count(context.sequences)
    sequences = max(largest, contents) + 1
    options = ContextOptions(_CONTEXT_TOKENS, context.threads, 2 * sequences, sequences, True, context.compute)
    native = NativeContext(model, options, adapters)
    try:
        rows = _ContextRows(native, sequences, contents)
        return choose_decode_plan(rows, context.sequences, is_every_count)
    finally:
        native.close()
