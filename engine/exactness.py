"""The numbers of rows for which a decode gives bit-identical logits, measured on the model and its device.

A batch decodes one token of each of several sequences in one call of llama.cpp. The logits of one such token are a
row. llama.cpp changes kernels with the number of rows, and another kernel rounds differently. So a batch uses only
numbers of rows that give bit-identical logits, if there are any. The slots that get a token are divided into
groups of these sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple, Protocol

import numpy as np

from ..logprobs.events import BatchExactness, ExactnessLevel
from ..models.errors import AbortedError, ModelError
from .context import small_batch_rows
from .native.context import Logits, NativeContext, SequenceSpan
from .native.model import NativeModel
from .native.options import ContextSize


class RowGroup(NamedTuple):
    """Adjacent slots that one call decodes."""

    first_slot: int
    row_count: int


class GroupSizes(NamedTuple):
    """The sizes of groups that are allowed."""

    # the numbers of rows, one for each decoded token, that one call of llama.cpp may have, ascending
    allowed_row_counts: tuple[int, ...]
    slot_count: int
    can_fill_gaps: bool  # whether a slot without a token may get a filler token, whose row is discarded

    def smallest_group(self, first_slot: int, last_slot: int, token_count: int) -> RowGroup | None:
        """Return the smallest allowed group from one slot to another; None if there is none."""
        # ``token_count`` of these slots have a token to decode.
        span = last_slot - first_slot + 1
        for row_count in self.allowed_row_counts:
            if span <= row_count <= self.slot_count and (self.can_fill_gaps or span == row_count == token_count):
                return RowGroup(min(first_slot, self.slot_count - row_count), row_count)
        return None


# A decode is recorded if it took less than this share of the shortest time so far. Smaller gains are ignored,
# because each change of the table makes `divide_rows` compute its divisions again.
_MAX_SHARE_OF_SHORTEST_TIME = 0.9


class DecodeTimes:
    """The shortest time that a decode of each number of rows took."""

    def __init__(self, *, is_ignored: bool = False) -> None:
        self._is_ignored = is_ignored
        self._seconds: dict[int, float] = {}
        # pairs of a number of rows and seconds, for the numbers that were decoded. The table stays empty if
        # ``is_ignored`` was set, so that no division depends on the clock.
        self.table: tuple[tuple[int, float], ...] = ()

    def record(self, row_count: int, seconds: float) -> None:
        """Record how long a decode took."""
        if self._is_ignored:
            return
        shortest = self._seconds.get(row_count)
        if shortest is None or seconds < _MAX_SHARE_OF_SHORTEST_TIME * shortest:
            self._seconds[row_count] = seconds
            self.table = tuple(sorted(self._seconds.items()))


@lru_cache(maxsize=1024)
def divide_rows(
    slot_numbers: tuple[int, ...],
    single_row_copies: tuple[int, ...],
    sizes: GroupSizes,
    times: tuple[tuple[int, float], ...],
) -> tuple[RowGroup, ...]:
    """Return the groups that together take the least time."""
    best_by_slot_count: list[tuple[float, tuple[RowGroup, ...]]] = [(0.0, ())]  # at index n: the first n slots
    for end, (last_slot, copies) in enumerate(zip(slot_numbers, single_row_copies, strict=True), 1):
        seconds, groups = best_by_slot_count[-1]
        best = (seconds + _estimate_seconds(copies, times), (*groups, RowGroup(last_slot, 1)))
        for start in range(end - 2, -1, -1):
            group = sizes.smallest_group(slot_numbers[start], last_slot, end - start)
            if group is not None:
                seconds, groups = best_by_slot_count[start]
                best = min(best, (seconds + _estimate_seconds(group.row_count, times), (*groups, group)))
            elif last_slot - slot_numbers[start] >= sizes.allowed_row_counts[-1]:
                break
        best_by_slot_count.append(best)
    _, fastest_groups = best_by_slot_count[-1]
    return fastest_groups


def _estimate_seconds(row_count: int, times: Sequence[tuple[int, float]]) -> float:
    """Estimate the time of a decode from the nearest number of rows that was measured."""
    # The fixed cost of a decode is assumed to equal the cost of one row.
    if not times:
        return row_count + 1.0
    measured_row_count, seconds = min(times, key=lambda entry: abs(entry[0] - row_count))
    return seconds * (row_count + 1) / (measured_row_count + 1)


_KERNEL_COUNTS = (2, 4, 8)  # Numbers of rows at which llama.cpp changes kernels on some processors
# Numbers of rows that are compared in turn if two rows differ from one row alone. They must not depend on the
# number of slots, because answers would then depend on it.
_FALLBACK_ROW_COUNTS = (2, 3, 4, 8)
_MAX_ROWS = 32  # more rows take hardly less time per row


@dataclass
class DecodePlan:
    """The way in which a batch decodes the single tokens of several sequences."""

    exactness: BatchExactness
    allowed_row_counts: tuple[int, ...]  # the numbers of rows that one decode may have, ascending
    # number of copies of a token that is decoded without other sequences. Several copies are needed if one row
    # alone is not computed like ``allowed_row_counts`` rows. All copies but the first are discarded.
    single_row_copies: int
    # by number of tokens: whether so many tokens of one sequence get the same logits in one call as one by one;
    # numbers that were not compared yet are absent
    is_one_call_exact_by_count: dict[int, bool] = field(default_factory=dict)
    times: DecodeTimes = field(default_factory=DecodeTimes)

    def copies_of_single_token(self, sequence_length: int) -> int:
        """Return how many copies of a token to decode alone after ``sequence_length`` tokens."""
        exactness = self.exactness
        exact_length = exactness.max_exact_tokens or sequence_length + 1
        if exactness.level is not ExactnessLevel.EXACT or sequence_length >= exact_length:
            return self.single_row_copies
        return 1


class ProbeRow(NamedTuple):
    """The result of the model for one token: its logits, and its last hidden state."""

    # The state shows differences that the logits lose: before the last product it is rounded to 8 bits.

    logits: Logits
    state: Logits

    def equals(self, other: ProbeRow) -> bool:
        return np.array_equal(self.logits, other.logits) and np.array_equal(self.state, other.state)


class ProbeRows(Protocol):
    """Sequences of some tokens, with one more token each to decode."""

    # number of different sequences. Sequence n has the same tokens as sequence n + ``distinct_sequence_count``.
    distinct_sequence_count: int

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        """Decode the next token of sequences in one call, and restore them; return the rows of first copies."""
        ...


def _max_probe_rows(slot_count: int) -> int:
    """Return the largest number of rows that one decode has, in a batch with these slots or in its probe."""
    return max(_FALLBACK_ROW_COUNTS[-1], min(slot_count, _MAX_ROWS))


def choose_decode_plan(probe_rows: ProbeRows, slot_count: int, tests_every_count: bool = False) -> DecodePlan:
    """Measure which numbers of rows give bit-identical logits, and choose the numbers that a batch uses."""
    # Two numbers of rows agree if both give the same logits. Numbers that agree with one row alone are preferred,
    # because `generate` decodes one row. If there are none, the plan uses numbers that agree with two rows, or
    # else with three, and so on. So the number of slots decides how many rows a decode has, but not which logits
    # are computed.
    probe = _Probe(probe_rows)
    max_rows = min(slot_count, _MAX_ROWS)
    tested_counts = range(2, max_rows + 1) if tests_every_count else (*_KERNEL_COUNTS, 16, 32)
    row_counts = sorted({count for count in tested_counts if count <= max_rows} | {2, max_rows})
    counts_like_one_row = probe.agreeing_row_counts(1, row_counts)
    if len(counts_like_one_row) > 1 and probe.are_repeated_rows_equal(2):
        return DecodePlan(BatchExactness(ExactnessLevel.EXACT), counts_like_one_row[1:], 2)
    difference = probe.max_logit_difference
    for reference_row_count in _FALLBACK_ROW_COUNTS:
        agreeing_row_counts = probe.agreeing_row_counts(reference_row_count, row_counts)
        if agreeing_row_counts and probe.are_repeated_rows_equal(reference_row_count):
            exactness = BatchExactness(ExactnessLevel.AMONG_THEMSELVES, difference)
            return DecodePlan(exactness, agreeing_row_counts, reference_row_count)
    return _inexact_plan(slot_count, probe.max_logit_difference)


def _inexact_plan(slot_count: int, max_logit_difference: float, single_row_copies: int = 2) -> DecodePlan:
    """Return the plan for logits that depend on the number of rows: each decode has all rows that are due."""
    exactness = BatchExactness(ExactnessLevel.ROUNDING, max_logit_difference)
    row_counts = tuple(range(2, slot_count + 1))
    return DecodePlan(exactness, row_counts, single_row_copies, times=DecodeTimes(is_ignored=True))


def common_plan(first_plan: DecodePlan, second_plan: DecodePlan, slot_count: int) -> DecodePlan:
    """Return a plan whose promise is kept by both plans."""
    # Only two plans of the level `ExactnessLevel.EXACT` have such numbers of rows; others give a rounding plan.
    row_counts = tuple(count for count in first_plan.allowed_row_counts if count in second_plan.allowed_row_counts)
    levels = {first_plan.exactness.level, second_plan.exactness.level}
    if levels == {ExactnessLevel.EXACT}:
        return DecodePlan(first_plan.exactness, row_counts, first_plan.single_row_copies)
    difference = max(first_plan.exactness.max_logit_difference, second_plan.exactness.max_logit_difference)
    return _inexact_plan(slot_count, difference)


class _Probe:
    """A comparison of rows that were decoded in batches of different sizes and at different places in a batch."""

    def __init__(self, rows: ProbeRows) -> None:
        self._rows = rows
        # The row that all later rows of a sequence must equal, by sequence modulo ``distinct_sequence_count``
        self._references: dict[int, ProbeRow] = {}
        self.max_logit_difference = 0.0

    def agreeing_row_counts(self, reference_row_count: int, row_counts: Iterable[int]) -> tuple[int, ...]:
        """Return ``reference_row_count`` and larger counts that agree with it, up to the first that differs."""
        # The result is empty if the rows depend on their place in the batch.
        self._references = {}
        if not self._agrees_everywhere(reference_row_count):
            return ()
        has_several_places = reference_row_count > 1
        if has_several_places and not self._agrees(1, reference_row_count):
            return ()
        agreeing_so_far = [reference_row_count]
        for count in row_counts:
            if count <= reference_row_count:
                continue
            if self._agrees_everywhere(count):
                agreeing_so_far.append(count)
                continue
            if agreeing_so_far[-1] == 2 and count == 4 and self._agrees_everywhere(3):
                agreeing_so_far.append(3)  # groups of three are faster than pairs
            break
        return tuple(agreeing_so_far)

    def are_repeated_rows_equal(self, copies: int) -> bool:
        """Return whether the first of several copies of a token gets the reference row."""
        return self._agrees(0, 1, copies)

    def _agrees_everywhere(self, row_count: int) -> bool:
        """Return whether decodes of ``row_count`` rows agree with the references, for all distinct sequences."""
        last_start = max(0, self._rows.distinct_sequence_count - row_count)
        return all(self._agrees(start, row_count) for start in [*range(0, last_start, row_count), last_start])

    def _agrees(self, first: int, count: int, copies: int = 1) -> bool:
        """Decode rows, and return whether each equals its reference; a row without a reference becomes one."""
        is_equal = True
        for sequence, row in enumerate(self._rows.decode(first, count, copies), first):
            reference = self._references.setdefault(sequence % self._rows.distinct_sequence_count, row)
            if not row.equals(reference):
                difference = float(np.abs(reference.logits - row.logits).max())
                self.max_logit_difference = max(self.max_logit_difference, difference)
                is_equal = False
        return is_equal


# The length of the shortest sequence of llama.cpp. For longer ones, flash attention has another kernel.
_CONTEXT_TOKENS = 256
# llama.cpp rounds activations to 8 bits before each product. In a model with fewer layers than these, the rounding
# hides the difference between two kernels in some sequences. So more sequences are compared.
_MIN_LAYERS_OF_DEEP_MODEL = 8
_DISTINCT_SEQUENCES = 2
_DISTINCT_SEQUENCES_OF_SHALLOW_MODEL = 8


def _distinct_sequence_count(model: NativeModel) -> int:
    """Return the number of different sequences that are compared, each of which takes time."""
    is_shallow = model.layer_count < _MIN_LAYERS_OF_DEEP_MODEL
    return _DISTINCT_SEQUENCES_OF_SHALLOW_MODEL if is_shallow else _DISTINCT_SEQUENCES


# Limit of the rows of one decode in a mixture of experts, because testing takes time for every number up to it
_MAX_MIXTURE_ROWS = 8


class _ContextRows:
    """`ProbeRows` in a separate context. Distinct sequences differ in tokens and length."""

    def __init__(self, native: NativeContext, sequence_count: int, distinct_sequence_count: int) -> None:
        self._native = native
        self.distinct_sequence_count = distinct_sequence_count
        originals = range(distinct_sequence_count)
        copies = range(distinct_sequence_count, sequence_count)
        # Each sequence has one or two tokens.
        self._lengths = [1 + sequence % distinct_sequence_count % 2 for sequence in range(sequence_count)]
        native.decode_spans([self._first_tokens(sequence) for sequence in originals], all_logits=False)
        for sequence in copies:
            native.copy_sequence(sequence % distinct_sequence_count, sequence)

    def decode(self, first: int, count: int, copies: int = 1) -> list[ProbeRow]:
        native = self._native
        sequences = range(first, first + count)
        native.decode_spans([self._next_token(number, copies) for number in sequences])
        indices = range(0, count * copies, copies)
        rows = [ProbeRow(native.logits_at(index).copy(), native.state_at(index).copy()) for index in indices]
        for number in sequences:
            native.truncate_sequence(self._lengths[number], number)
        return rows

    def _first_tokens(self, sequence: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, step) for step in range(self._lengths[sequence])], 0, sequence)

    def _next_token(self, sequence: int, copies: int) -> SequenceSpan:
        return SequenceSpan([self._token(sequence, -1)] * copies, self._lengths[sequence], sequence)

    def _token(self, sequence: int, step: int) -> int:
        return _probe_token(self._native, sequence % self.distinct_sequence_count, step)


def _probe_token(native: NativeContext, sequence: int, step: int) -> int:
    """Return a token id from anywhere in the vocabulary."""
    return (7919 * (sequence + 1) + 104_729 * (step + 2)) % native.vocab_size


def probe_decode_plan(model: NativeModel, context_length: int, slot_count: int) -> DecodePlan:
    """Measure on this model and its device how a batch of slots should decode rows."""
    # The probe takes about as long as 15 tokens, in a separate context that is freed before this returns.
    if model.uses_gpu or not model.can_truncate:
        # A GPU divides the attention by the longest request. A recurrent or hybrid model computes the sequences of
        # a batch together. It cannot discard a second copy of a token, so no token can be one of two equal rows.
        return _inexact_plan(slot_count, 0.0, single_row_copies=2 if model.can_truncate and slot_count > 1 else 1)
    try:
        plan = _choose_plan_by_probe(model, slot_count, _distinct_sequence_count(model))
        if model.is_mixture:
            # An expert may get any number of the rows. Rows of one sequence are equal, so each expert gets all of
            # them or none. So a probe with one sequence shows how experts compute each number of rows.
            fewer_slots = min(slot_count, _MAX_MIXTURE_ROWS)
            expert_plan = _choose_plan_by_probe(model, fewer_slots, 1, tests_every_count=True)
            plan = common_plan(plan, expert_plan, slot_count)
    except AbortedError:
        raise
    except ModelError:  # the probe's context does not fit into memory; the batch's context may need less
        return _inexact_plan(slot_count, 0.0)
    if plan.exactness.level is ExactnessLevel.EXACT and context_length > _CONTEXT_TOKENS:
        # In longer texts `generate`, which decodes each token alone, uses another kernel of flash attention.
        plan.exactness = replace(plan.exactness, max_exact_tokens=_CONTEXT_TOKENS)
    return plan


# The numbers of rows of one sequence that are compared with rows one by one, in addition to the largest number.
# Only as many rows as the last of these are compared, because computing rows one by one takes long.
_PROBED_DRAFT_ROWS = (2, 3, 4, 5, 6, 7, 8, 16)


class DraftExactness:
    """The promises about runs with drafts, compared with runs without. They are measured when they are needed."""

    # A run with drafts is exact if the tokens of one sequence get the same logits in one call as one by one. The
    # probe takes about as long as 20 tokens for a draft of 3, in a separate context that is freed afterwards.

    def __init__(self, model: NativeModel, context: ContextSize) -> None:
        self._model = model
        self._context = context
        # For each number of rows that was measured, the largest difference of logits; None if there is none
        self._differences: dict[int, float | None] = {}

    def promise(self, draft_tokens: int) -> BatchExactness:
        """Return the promise about drafts of up to ``draft_tokens`` tokens."""
        # A promise for fewer tokens than an earlier one needs no other probe: the next larger measured number
        # counts.
        # One call reads the last token and the draft, and never more than a small batch.
        small_batch = small_batch_rows(self._context.batch_tokens, self._model.vocabulary.size)
        max_rows = max(2, min(draft_tokens + 1, small_batch))
        if self._model.uses_gpu or self._model.is_mixture:  # an expert may get any number of the rows
            return BatchExactness(ExactnessLevel.ROUNDING)
        if max(self._differences, default=0) < max_rows:
            try:
                self._differences = self._measure(max_rows)
            except AbortedError:
                raise
            except ModelError:  # the context does not fit into memory
                return BatchExactness(ExactnessLevel.ROUNDING)
        limit = min(count for count in self._differences if count >= max_rows)
        differences = [
            difference
            for count, difference in self._differences.items()
            if count <= limit and difference is not None
        ]
        if differences:
            return BatchExactness(ExactnessLevel.ROUNDING, max(differences))
        # In longer texts, a single token has another kernel of flash attention than several.
        max_tokens = _CONTEXT_TOKENS if self._context.length > _CONTEXT_TOKENS else None
        return BatchExactness(ExactnessLevel.EXACT, max_exact_tokens=max_tokens)

    def _measure(self, max_rows: int) -> dict[int, float | None]:
        """Return the largest differences of several distinct sequences, in calls of 2 to ``max_rows`` tokens."""
        native = NativeContext(self._model, ContextSize(_CONTEXT_TOKENS, max_rows, keeps_states=True))
        largest: dict[int, float | None] = {}
        try:
            for sequence in range(_distinct_sequence_count(self._model)):
                for row_count, difference in _draft_differences(native, sequence, max_rows):
                    previous = largest.setdefault(row_count, None)
                    if difference is not None:
                        largest[row_count] = max(difference, previous or 0.0)
        finally:
            native.close()
        return largest


def _draft_differences(native: NativeContext, sequence: int, max_rows: int) -> Iterator[tuple[int, float | None]]:
    """Yield each number of tokens in a call, with the largest difference of logits; None if all rows are equal."""
    start = 1 + sequence % 2
    tokens = [_probe_token(native, sequence, step) for step in range(start + max_rows)]
    native.truncate_sequence(0)
    native.decode(tokens[:start], 0)
    references = []
    for place in range(start, start + min(max_rows, _PROBED_DRAFT_ROWS[-1])):
        native.decode(tokens[place : place + 1], place)
        references.append(ProbeRow(native.logits().copy(), native.state_at(0).copy()))
    probed_counts = [count for count in _PROBED_DRAFT_ROWS if count < max_rows]
    for row_count in [*probed_counts, max_rows]:
        native.truncate_sequence(start)
        native.decode(tokens[start : start + row_count], start, all_logits=True)
        largest_difference = None
        for index, reference in enumerate(references[:row_count]):
            row = ProbeRow(native.logits_at(index), native.state_at(index))
            if not row.equals(reference):
                difference = float(np.abs(reference.logits - row.logits).max())
                largest_difference = max(largest_difference or 0.0, difference)
        yield row_count, largest_difference


def _choose_plan_by_probe(
    model: NativeModel, slot_count: int, distinct_sequence_count: int, tests_every_count: bool = False
) -> DecodePlan:
    sequence_count = max(_max_probe_rows(slot_count), distinct_sequence_count) + 1
    size = ContextSize(_CONTEXT_TOKENS, 2 * sequence_count, sequence_count, keeps_states=True)
    with closing(NativeContext(model, size)) as native:
        rows = _ContextRows(native, sequence_count, distinct_sequence_count)
        return choose_decode_plan(rows, slot_count, tests_every_count)


# Length of the text with which a GPU is checked. The whole of a default context takes minutes on a slow GPU.
_MAX_CHECKED_TOKENS = 512
_CHECKED_PLACES = (2, 32, 256)


def are_slots_like_single_runs(model: NativeModel, context: ContextSize) -> bool:
    """Return whether a token that is decoded alone gets the same logits in a context of several sequences."""
    # A GPU divides the attention by the length of the text, so that tokens at several places are compared.
    single, slot = (_rows_along_text(model, replace(context, sequence_count=count)) for count in (1, 2))
    return all(map(np.array_equal, single, slot))


def _rows_along_text(model: NativeModel, context: ContextSize) -> list[Logits]:
    """Return the logits of single tokens of a text in the last sequence."""
    # Hidden states are not compared: where they are kept, llama.cpp computes the logits of all tokens.
    length = min(context.length, _MAX_CHECKED_TOKENS)
    sequence = context.sequence_count - 1
    rows = []
    with closing(NativeContext(model, replace(context, length=length))) as native:
        tokens = [_probe_token(native, 0, step) for step in range(length)]
        begin = 0
        for end in [*takewhile(lambda place: place < length - 1, _CHECKED_PLACES), length - 1]:
            for start in range(begin, end, context.batch_tokens):
                span = tokens[start : min(start + context.batch_tokens, end)]
                native.decode_spans([SequenceSpan(span, start, sequence)], all_logits=False)
            native.decode_spans([SequenceSpan([tokens[end]], end, sequence)])
            rows.append(native.logits_at(0).copy())
            begin = end + 1
    return rows
