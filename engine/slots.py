"""The sequences of a batch's context: each slot holds the tokens of one request.

A prompt is read in chunks that end where llama.cpp computes the same logits as for a `Context`. A slot can copy
chunks from the beginning of another slot, so that common beginnings of prompts are read only once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..logprobs.events import EXACT, BatchExactness, ExactnessLevel
from ..models.errors import ModelError
from .context import SEGMENT_TOKENS, Progress, check_prompt, common_token_count, small_batch_rows
from .exactness import DecodePlan, DecodeTimes, GroupSizes, RowGroup, divide_rows
from .native.context import Logits, NativeContext, SequenceSpan

# Number of slots that keeps a thread busy, as benchmarks/batch.py measures
_SLOTS_PER_THREAD = 4
_MAX_DEFAULT_SLOTS = 8  # because every slot needs memory


def default_slots(threads: int) -> int:
    """Return the number of requests that keeps the threads busy: four per thread, at most 8."""
    return min(_MAX_DEFAULT_SLOTS, _SLOTS_PER_THREAD * threads)


# llama.cpp's kernels take rows in groups of up to this many, and compute the remaining rows with other kernels
_ALIGNED_TOKENS = 16


@dataclass(frozen=True)
class PromptChunks:
    """A divider of prompts into chunks that llama.cpp computes as it does for a `Context`."""

    # Chunks end at the end of each batch, and within a batch. The last chunk of a batch, together with the chunks
    # that are read in the same call, has `SEGMENT_TOKENS` tokens or more.

    batch: int  # the maximum number of tokens that a `Context` reads in one call
    # whether every chunk is a complete batch, so that llama.cpp gets a `Context`'s calls
    uses_whole_batches: bool = False
    # whether a batch can be divided anywhere without changing the logits. If so, chunks are short, and one call
    # reads several of them. Otherwise each call reads one chunk.
    is_divisible: bool = False

    def ends(self, prompt_length: int) -> list[int]:
        """Return the ends of the chunks of a prompt, as numbers of tokens from its beginning."""
        chunk_ends: list[int] = []
        chunk_tokens = _ALIGNED_TOKENS if self.is_divisible else SEGMENT_TOKENS
        for start in range(0, prompt_length, self.batch):
            end = min(start + self.batch, prompt_length)
            if not self.uses_whole_batches:
                chunk_ends += range(start + chunk_tokens, end - SEGMENT_TOKENS + 1, chunk_tokens)
            chunk_ends.append(end)
        return chunk_ends

    def call_ends(self, ends: Sequence[int]) -> Sequence[int]:
        """Return those ``ends`` of chunks at which a call of llama.cpp ends."""
        if not self.is_divisible:
            return ends
        return [end for end in ends if end % self.batch == 0 or end == ends[-1]]


def shared_token_count(
    held_tokens: Sequence[int], held_ends: Sequence[int], prompt: Sequence[int], ends: Sequence[int]
) -> int:
    """Return the length of the beginning of a prompt that a slot holds in the same chunks."""
    shared_count = 0
    for held_end, end in zip(held_ends, ends, strict=False):
        if held_end != end or end >= len(prompt) or held_tokens[shared_count:end] != prompt[shared_count:end]:
            break
        shared_count = end
    return shared_count


def _reusable_token_count(slot: SequenceSlot, prompt: list[int], ends: Sequence[int]) -> int:
    """Return the length of the beginning of a prompt that a slot holds exactly as it would be computed again."""
    length = len(prompt)
    if slot.prompt_logits is not None and slot.prompt_length == length and slot.tokens[:length] == prompt:
        return length
    return shared_token_count(slot.tokens, slot.chunk_ends, prompt, ends)


def _common_token_count_before_last(slot: SequenceSlot, prompt: list[int]) -> int:
    """Return the common beginning's length without the prompt's last token, which must be read for its logits."""
    return min(common_token_count(slot.tokens, prompt), len(prompt) - 1)


_FILLER_TOKENS = (0,)  # the token that is decoded for a slot without a token of its own, and removed again
# Limit of the tokens of one slot that are decoded one by one, together with tokens of other slots. More tokens
# take less time in one call.
_MAX_DIVIDED_TOKENS = 8


class SequenceSlot:
    """The memory for one request: one sequence of tokens."""

    def __init__(self, number: int, length: int, max_rows: int) -> None:
        self.number = number  # number of the sequence in llama.cpp's context, from 0
        self.length = length
        self.max_rows = max_rows  # maximum number of tokens that one call can read with the logits of each token
        self.tokens: list[int] = []
        # True if llama.cpp's state is not that of the tokens, because a recurrent state cannot be truncated. The
        # next decode reads the tokens again.
        self.is_stale = False
        # the ends of the prompt's chunks, in tokens. Another slot may copy chunks that it would read in the same
        # way.
        self.chunk_ends: list[int] = []
        self.prompt_length = 0
        # a copy of the logits after the prompt, for a request with the same prompt; None if it is not kept
        self.prompt_logits: Logits | None = None

    @property
    def remaining(self) -> int:
        return self.length - len(self.tokens)

    def forget_prompt(self) -> None:
        self.prompt_length = 0
        self.prompt_logits = None


class ReadPrompt(NamedTuple):
    """The outcome of reading a prompt."""

    kept_count: int
    exactness: BatchExactness


class SlotAppend(NamedTuple):
    """Tokens to be appended to a slot."""

    slot: SequenceSlot
    tokens: Sequence[int]
    is_exact: bool = True  # False if the logits may differ by rounding from those that the batch promises


class SequenceSlots:
    """All sequence slots of one context."""

    # Each prompt is read separately, in chunks for which llama.cpp computes the same as for a `Context`. Prompts
    # share the chunks that they have in common.
    #
    # Single tokens of several slots are read in one call, in groups whose sizes ``plan`` allows. Of all divisions
    # into groups, the fastest is taken. If a slot inside a group has no token, it gets a filler token, which is
    # removed again. llama.cpp may have another kernel for a single token. Then several copies of a token without a
    # group are read, and all but the first are removed. So requests do not change each other, as far as
    # ``exactness`` promises it.
    #
    # If no token has to be exact, groups of all sizes are allowed, and no copies are needed. Without a plan, every
    # slot is read in a separate call.

    def __init__(
        self, native: NativeContext, count: int, chunks: PromptChunks, plan: DecodePlan | None = None
    ) -> None:
        self._native = native
        self._plan = plan
        self._chunks = chunks
        # A token that is read without other sequences is read in several copies, which need places in the context.
        extra_copies = 0 if plan is None else plan.single_row_copies - 1
        self.length = native.length - extra_copies  # maximum number of tokens per slot
        max_rows = small_batch_rows(chunks.batch, native.vocab_size)
        self.slots = [SequenceSlot(number, self.length, max_rows) for number in range(count)]
        self._can_truncate = native.can_truncate
        self._prompt_rows: list[Logits] = []
        allowed_row_counts = () if plan is None else plan.allowed_row_counts
        self._group_sizes = GroupSizes(allowed_row_counts, count, can_fill_gaps=native.can_truncate)
        self._inexact_group_sizes = self._group_sizes._replace(allowed_row_counts=tuple(range(2, count + 1)))

    @property
    def exactness(self) -> BatchExactness:
        """The promise about answers that are computed in these slots."""
        return EXACT if self._plan is None else self._plan.exactness

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """The number of slots in each decode of one step, when all slots are in use and empty."""
        slot_numbers = tuple(slot.number for slot in self.slots)
        if self._plan is None:
            return (1,) * len(slot_numbers)
        single_row_copies = (self._plan.copies_of_single_token(0),) * len(slot_numbers)
        return tuple(
            size
            for _, size in divide_rows(slot_numbers, single_row_copies, self._group_sizes, self._plan.times.table)
        )

    def read(
        self,
        slot: SequenceSlot,
        prompt: Sequence[int],
        progress: Progress = lambda read_count, token_count: None,
        *,
        reuses_answers: bool = False,
    ) -> ReadPrompt:
        """Make ``prompt`` the content of a slot. ``progress``: called before each call of llama.cpp."""
        # Raises ``ModelError`` for a prompt that is empty or does not fit. ``reuses_answers``: whether also
        # generated tokens are reused; their keys and values differ by rounding.
        check_prompt(prompt, slot.length)
        prompt = list(prompt)
        chunk_ends = self._chunks.ends(len(prompt))
        kept_count = 0
        if self._can_truncate:
            count_exact = partial(_reusable_token_count, prompt=prompt, ends=chunk_ends)
            count_common = partial(_common_token_count_before_last, prompt=prompt)
            kept_count = max(map(count_exact, self.slots))  # any slot can be copied
            if reuses_answers and self._can_reuse_answers:
                common_count = max(map(count_common, self.slots))
                if common_count > kept_count:
                    self._copy_beginning(slot, count_common)
                    return self._read_after_answer(slot, prompt, common_count, progress)
            self._copy_beginning(slot, count_exact)
        self._truncate_slot(slot, kept_count)
        if slot.prompt_logits is not None and kept_count == len(prompt):
            self._prompt_rows = [slot.prompt_logits]
            return ReadPrompt(kept_count, self.exactness)
        call_ends = [end for end in self._chunks.call_ends(chunk_ends) if end > kept_count]
        for start, end in pairwise([kept_count, *call_ends]):
            tokens = prompt[start:end]
            progress(start, len(prompt))
            self._native.decode_spans([SequenceSpan(tokens, start, slot.number)], all_logits=False)
            slot.tokens.extend(tokens)
            slot.chunk_ends += (chunk_end for chunk_end in chunk_ends if start < chunk_end <= end)
        logits = self._native.logits().copy()
        logits.flags.writeable = False  # other requests get the same row
        slot.prompt_length = len(prompt)
        slot.prompt_logits = logits
        self._prompt_rows = [logits]
        return ReadPrompt(kept_count, self.exactness)

    def _read_after_answer(
        self,
        slot: SequenceSlot,
        prompt: list[int],
        kept_count: int,
        progress: Progress = lambda read_count, token_count: None,
    ) -> ReadPrompt:
        """Read a prompt after the first ``kept_count`` tokens of the slot, which may be generated ones."""
        self._truncate_slot(slot, kept_count)
        slot.forget_prompt()  # these logits are not exact, and no other request may get them
        for start in range(kept_count, len(prompt), self._chunks.batch):
            tokens = prompt[start : start + self._chunks.batch]
            progress(start, len(prompt))
            self._native.decode_spans([SequenceSpan(tokens, start, slot.number)], all_logits=False)
            slot.tokens.extend(tokens)
        self._prompt_rows = [self._native.logits().copy()]
        return ReadPrompt(kept_count, BatchExactness(ExactnessLevel.ROUNDING, self.exactness.max_logit_difference))

    def follow(self, slot: SequenceSlot, tokens: Sequence[int]) -> Logits:
        """Make ``tokens`` the content of a slot; return the logits after the last, valid until the next call."""
        # All tokens that the slot has in common with them are reused, and those of another slot if that saves
        # much. So the logits are exact to rounding only. Raises ``ModelError`` as `read` does.
        check_prompt(tokens, slot.length)
        tokens = list(tokens)
        count_common = partial(_common_token_count_before_last, prompt=tokens)
        if len(tokens) - count_common(slot) > SEGMENT_TOKENS:
            self._copy_beginning(slot, count_common)
        self._read_after_answer(slot, tokens, count_common(slot))
        return self._prompt_rows[0]

    @property
    def _can_reuse_answers(self) -> bool:
        """False if the slots are deterministic, or if single tokens cannot be removed from the model's memory."""
        return self._plan is not None and self._can_truncate

    def best_slot_for(
        self, prompt: Sequence[int], free_slots: Sequence[SequenceSlot], *, reuses_answers: bool = False
    ) -> SequenceSlot:
        """Return the slot that holds the longest beginning of a prompt; of several such slots, the first."""
        if not self._can_truncate:
            return free_slots[0]
        prompt = list(prompt)
        if reuses_answers and self._can_reuse_answers:
            return max(free_slots, key=lambda slot: common_token_count(slot.tokens, prompt))
        ends = self._chunks.ends(len(prompt))
        return max(free_slots, key=lambda slot: _reusable_token_count(slot, prompt, ends))

    def read_each(self, slot: SequenceSlot, prompt: Sequence[int]) -> Iterator[Logits]:
        """Read all tokens of a prompt, as `Context.read_each` does; yield the logits after each token."""
        # They are valid until the next step.
        check_prompt(prompt, slot.length)
        self._truncate_slot(slot, 0)
        for start in range(0, len(prompt), slot.max_rows):
            tokens = list(prompt[start : start + slot.max_rows])
            # llama.cpp has another kernel for a single token. So the previous token is read again, next to it.
            repeated_tokens = slot.tokens[-1:] if len(tokens) == 1 and self._can_truncate else []
            self._truncate_slot(slot, len(slot.tokens) - len(repeated_tokens))
            yield from self._decode([SlotAppend(slot, [*repeated_tokens, *tokens])])[len(repeated_tokens) :]
            slot.tokens.extend([*repeated_tokens, *tokens])
        self._prompt_rows = [self._native.logits()]

    def prompt_rows(self) -> list[Logits]:
        return self._prompt_rows

    def append(self, appends: Sequence[SlotAppend]) -> Generator[tuple[SequenceSlot, list[Logits]]]:
        """Append tokens to slots, and yield each slot with the logits of its tokens."""
        # The logits are valid until the next slot is yielded. If the iterator is closed early, the slots that were
        # not yielded hold what they held before.
        plan = self._plan
        if plan is None:
            for append in appends:
                yield self._append_several(append)
            return
        single_appends: dict[int, SlotAppend] = {}
        for append in appends:
            if len(append.tokens) == 1:
                single_appends[append.slot.number] = append
            else:
                yield self._append_several(append)
        slots = [single_appends[number].slot for number in sorted(single_appends)]
        if any(append.is_exact for append in single_appends.values()):
            sizes = self._group_sizes
            copies = {slot.number: plan.copies_of_single_token(len(slot.tokens)) for slot in slots}
        else:
            sizes = self._inexact_group_sizes
            copies = {slot.number: 1 for slot in slots}
        for group in divide_rows(tuple(copies), tuple(copies.values()), sizes, plan.times.table):
            if group.row_count > 1:
                yield from self._append_group(group, single_appends, plan.times)
            elif group.first_slot in single_appends:
                append = single_appends.pop(group.first_slot)
                yield self._append_single(append, plan.times, copies[group.first_slot])

    def is_one_call_exact(self, token_count: int) -> bool:
        """Return whether this many tokens of one slot get the same logits in one call as one by one."""
        return self._plan is not None and self._plan.is_one_call_exact_by_count.get(token_count) is True

    def _append_several(self, append: SlotAppend) -> tuple[SequenceSlot, list[Logits]]:
        """Append several tokens to one slot in one call; the first time for each count also singly, to compare."""
        slot = append.slot
        tokens = append.tokens
        token_count = len(tokens)
        plan = self._plan
        rows = self._decode([append])
        can_compare = self._can_truncate and token_count <= _MAX_DIVIDED_TOKENS
        if plan is None or not can_compare or token_count in plan.is_one_call_exact_by_count:
            slot.tokens.extend(tokens)
            return slot, rows
        rows_of_one_call = [row.copy() for row in rows]
        held_count = len(slot.tokens)
        self._native.truncate_sequence(held_count, slot.number)
        rows_one_by_one: list[Logits] = []
        try:
            for token in tokens:
                copies = plan.copies_of_single_token(len(slot.tokens))
                _, (row,) = self._append_single(SlotAppend(slot, (token,)), plan.times, copies)
                rows_one_by_one.append(row.copy())
        except BaseException:  # such as AbortedError: the next step appends all tokens again
            self._truncate_slot(slot, held_count)
            raise
        is_equal = all(map(np.array_equal, rows_of_one_call, rows_one_by_one))
        plan.is_one_call_exact_by_count[token_count] = is_equal
        if not is_equal:
            self._truncate_slot(slot, held_count)
            return self._append_several(append)  # in one call again, now without a comparison
        return slot, rows_of_one_call

    def _append_single(
        self, append: SlotAppend, times: DecodeTimes, copy_count: int
    ) -> tuple[SequenceSlot, list[Logits]]:
        """Append one token: decode several copies of it, and discard all copies but the first."""
        slot = append.slot
        tokens = list(append.tokens)
        start_seconds = perf_counter()
        rows = self._decode([SlotAppend(slot, tokens * copy_count)])[:1]
        times.record(copy_count, perf_counter() - start_seconds)
        slot.tokens.extend(tokens)
        if copy_count > 1:
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        return slot, rows

    def _append_group(
        self, group: RowGroup, single_appends: dict[int, SlotAppend], times: DecodeTimes
    ) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        """Append a token from ``single_appends`` to each slot of a group, and remove it there."""
        # Gaps get filler tokens.
        slots = self.slots[group.first_slot : group.first_slot + group.row_count]
        filler_slots = [slot for slot in slots if slot.number not in single_appends]
        for slot in filler_slots:  # a prompt that could not be read may have left tokens
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        start_seconds = perf_counter()
        rows = self._decode(
            [single_appends.get(slot.number) or SlotAppend(slot, _FILLER_TOKENS) for slot in slots]
        )
        times.record(group.row_count, perf_counter() - start_seconds)
        for slot in filler_slots:
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        undelivered = [(slot, row) for slot, row in zip(slots, rows, strict=True) if slot.number in single_appends]
        for slot, _ in undelivered:
            slot.tokens.extend(single_appends.pop(slot.number).tokens)
        try:
            while undelivered:
                slot, row = undelivered.pop(0)
                yield slot, [row]
        finally:  # if the caller stops, the next step appends the tokens of the other slots again
            for slot, _ in undelivered:
                self._truncate_slot(slot, len(slot.tokens) - 1)

    def _decode(self, appends: Sequence[SlotAppend]) -> list[Logits]:
        for slot, _, _ in appends:
            if slot.is_stale:
                self._read_again(slot)
        try:
            self._native.decode_spans(
                [SequenceSpan(tokens, len(slot.tokens), slot.number) for slot, tokens, _ in appends]
            )
        except ModelError:  # an aborted decode may have left some tokens in llama.cpp's memory
            for slot, _, _ in appends:
                self._truncate_sequence(slot, len(slot.tokens))
            raise
        return [self._native.logits_at(index) for index in range(sum(len(append.tokens) for append in appends))]

    def _read_again(self, slot: SequenceSlot) -> None:
        """Read the tokens of a slot again, whose recurrent state is lost."""
        self._native.truncate_sequence(0, slot.number)
        for start in range(0, len(slot.tokens), slot.max_rows):
            tokens = slot.tokens[start : start + slot.max_rows]
            self._native.decode_spans([SequenceSpan(tokens, start, slot.number)])
        slot.is_stale = False

    def _copy_beginning(self, slot: SequenceSlot, count_tokens: Callable[[SequenceSlot], int]) -> None:
        """Copy the slot that shares the longest beginning with a prompt, unless ``slot`` shares as much."""
        source = max(self.slots, key=count_tokens)
        if count_tokens(source) > count_tokens(slot):
            self.copy(source, slot)

    def copy(self, source: SequenceSlot, target: SequenceSlot) -> None:
        """Replace the content of a slot by that of another one."""
        # A recurrent state is copied by the next decode. Until then, both sequences share it.
        self._native.truncate_sequence(0, target.number)
        self._native.copy_sequence(source.number, target.number)
        target.tokens = source.tokens[:]
        target.is_stale = source.is_stale
        target.chunk_ends = source.chunk_ends[:]
        target.prompt_length = source.prompt_length
        target.prompt_logits = source.prompt_logits

    def discard_last(self, slot: SequenceSlot, count: int) -> None:
        """Remove the last ``count`` tokens of a slot."""
        if count:
            self._truncate_slot(slot, len(slot.tokens) - count)

    def _truncate_slot(self, slot: SequenceSlot, length: int) -> None:
        self._truncate_sequence(slot, length)
        del slot.tokens[length:]
        slot.chunk_ends = [end for end in slot.chunk_ends if end <= length]
        if length < slot.prompt_length:
            slot.forget_prompt()

    def _truncate_sequence(self, slot: SequenceSlot, length: int) -> None:
        """Remove what llama.cpp has read of a slot after its first ``length`` tokens."""
        was_truncated = self._native.truncate_sequence(length, slot.number)
        slot.is_stale = length > 0 and (slot.is_stale or not was_truncated)

    def close(self) -> None:
        self._native.close()
