"""The sequences of a batch's context, in which requests are computed next to each other.

Prompts are read in chunks at whose ends llama.cpp computes the same as for a `Context`. A slot copies the
chunks at the beginning of a prompt that another slot has read already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter
from typing import NamedTuple

import numpy as np

from ..logprobs.events import EXACT, BatchExactness
from ..models.errors import ModelError
from .context import SEGMENT_TOKENS, check_prompt, small_batch_rows
from .exactness import DecodePlan, DecodeTimes, GroupSizes, RowGroup, divide_rows
from .native.context import Logits, NativeContext, SequenceSpan

_ALIGNED_TOKENS = 16
"""llama.cpp's kernels take rows in groups of at most so many, and compute what is left by others."""


@dataclass(frozen=True)
class PromptChunks:
    """Divides prompts where llama.cpp computes the same as for a `Context`: at its batches, and between them.

    The last chunk of a batch and those before it, as far as they are read together, have `SEGMENT_TOKENS` or more.

    Attributes:
        batch: the most tokens that a `Context` reads at once.
        uses_whole_batches: whether every chunk is a complete batch, so that llama.cpp gets a `Context`'s calls.
        is_divisible: it makes no difference where a batch is divided. So chunks are short, and several are read at
            once; otherwise, each is read by itself.
    """

    batch: int
    uses_whole_batches: bool = False
    is_divisible: bool = False

    def ends(self, length: int) -> list[int]:
        """Where the chunks of a prompt end."""
        ends: list[int] = []
        step = _ALIGNED_TOKENS if self.is_divisible else SEGMENT_TOKENS
        for start in range(0, length, self.batch):
            end = min(start + self.batch, length)
            if not self.uses_whole_batches:
                ends += range(start + step, end - SEGMENT_TOKENS + 1, step)
            ends.append(end)
        return ends

    def read_ends(self, ends: Sequence[int]) -> Sequence[int]:
        """Where the tokens end that are read at once, of chunks with these ``ends``."""
        if not self.is_divisible:
            return ends
        return [end for end in ends if end % self.batch == 0 or end == ends[-1]]


def shared_tokens(
    held: Sequence[int], held_ends: Sequence[int], prompt: Sequence[int], ends: Sequence[int]
) -> int:
    """Return how many tokens at the start of a prompt are held, in chunks that the prompt would be read in.

    Args:
        held: the tokens that are held.
        held_ends: where their chunks end.
        prompt: the tokens of the prompt.
        ends: where its chunks would end.
    """
    shared = 0
    for held_end, end in zip(held_ends, ends, strict=False):
        if held_end != end or end >= len(prompt) or held[shared:end] != prompt[shared:end]:
            break
        shared = end
    return shared


def _held_tokens(slot: SequenceSlot, prompt: list[int], ends: Sequence[int]) -> int:
    """Return how many tokens at the start of a prompt a slot holds as they would be computed again."""
    length = len(prompt)
    if slot.prompt_logits is not None and slot.prompt_length == length and slot.tokens[:length] == prompt:
        return length
    return shared_tokens(slot.tokens, slot.chunk_ends, prompt, ends)


_FILLER = (0,)
"""The token of a slot that only fills a group."""
_LONGEST_DIVIDED_RUN = 8
"""Tokens of one slot that are read one by one beside others, rather than at once. More take less time at once."""


class SequenceSlot:
    """The room for one request: one sequence of tokens.

    Attributes:
        number: the number of the sequence.
        length: how many tokens fit.
        max_rows: how many can be read at once with the logits of each.
        tokens: those in the slot.
        chunk_ends: where the chunks of the prompt end. Another slot may copy the chunks that it would read alike.
        prompt_length: how many of the tokens are the prompt's.
        prompt_logits: a copy of the logits after the prompt, for the same prompt again; None: it is not held.
    """

    def __init__(self, number: int, length: int, max_rows: int) -> None:
        self.number = number
        self.length = length
        self.max_rows = max_rows
        self.tokens: list[int] = []
        self.chunk_ends: list[int] = []
        self.prompt_length = 0
        self.prompt_logits: Logits | None = None

    @property
    def remaining(self) -> int:
        """How many more tokens fit."""
        return self.length - len(self.tokens)


class SlotAppend(NamedTuple):
    """Tokens that are to be appended to a slot."""

    slot: SequenceSlot
    tokens: Sequence[int]


class SequenceSlots:
    """All sequence slots of one context.

    Each prompt is read separately, in chunks for which llama.cpp computes the same as for a `Context`; prompts
    share chunks that both would read.

    Single tokens of several sequences are read in one batch, as ``plan`` allows it, in those groups that take the
    least time; a slot between them that has no token gets one that is removed again. Where llama.cpp computes a
    token without neighbours by another kernel, such a token is read several times, and all copies but the first
    are removed. So other sequences change nothing, as far as ``exactness`` promises it. Without a plan, every
    sequence is read separately.
    """

    def __init__(
        self, native: NativeContext, count: int, chunks: PromptChunks, plan: DecodePlan | None = None
    ) -> None:
        self._native = native
        self._plan = plan
        self._chunks = chunks
        # Some tokens are kept free for the copies of a token without neighbours.
        self.length = native.length - (plan.single_row_copies - 1 if plan is not None else 0)
        max_rows = small_batch_rows(chunks.batch, native.vocab_size)
        self.slots = [SequenceSlot(number, self.length, max_rows) for number in range(count)]
        self._can_truncate = native.can_truncate
        self._prompt_rows: list[Logits] = []
        self._sizes = GroupSizes(() if plan is None else plan.allowed_row_counts, count, native.can_truncate)

    @property
    def exactness(self) -> BatchExactness:
        """What holds for the answers that are computed in these slots."""
        return EXACT if self._plan is None else self._plan.exactness

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """How many slots are decoded at once, for each decode, while all are in use and empty."""
        numbers = tuple(slot.number for slot in self.slots)
        if self._plan is None:
            return (1,) * len(numbers)
        single_row_copies = (self._plan.copies_of_single_token(0),) * len(numbers)
        return tuple(
            size for _, size in divide_rows(numbers, single_row_copies, self._sizes, self._plan.times.table)
        )

    def read(self, slot: SequenceSlot, prompt: Sequence[int]) -> int:
        """Make ``prompt`` the whole content of a slot; returns how many of its tokens some slot held already.

        Raises ``ModelError`` for a prompt that is empty or does not fit.
        """
        check_prompt(prompt, slot.length, "a request has room for")
        prompt = list(prompt)
        ends = self._chunks.ends(len(prompt))
        kept = self._copy_prefix(slot, prompt, ends) if self._can_truncate else 0
        self._truncate(slot, kept)
        if slot.prompt_logits is not None and kept == len(prompt):
            self._prompt_rows = [slot.prompt_logits]
            return kept
        for start, end in pairwise([kept, *(end for end in self._chunks.read_ends(ends) if end > kept)]):
            tokens = prompt[start:end]
            self._native.decode_spans([SequenceSpan(tokens, start, slot.number)], all_logits=False)
            slot.tokens.extend(tokens)
            slot.chunk_ends += (chunk_end for chunk_end in ends if start < chunk_end <= end)
        logits = self._native.logits().copy()
        logits.flags.writeable = False  # other requests get the same row
        slot.prompt_length, slot.prompt_logits = len(prompt), logits
        self._prompt_rows = [logits]
        return kept

    def best_slot_for(self, slots: Sequence[SequenceSlot], prompt: Sequence[int]) -> SequenceSlot:
        """Return the slot that holds most of the beginning of a prompt; of several, the first."""
        if not self._can_truncate:
            return slots[0]
        prompt = list(prompt)
        ends = self._chunks.ends(len(prompt))
        return max(slots, key=lambda slot: _held_tokens(slot, prompt, ends))

    def read_each(self, slot: SequenceSlot, prompt: Sequence[int]) -> Iterator[Logits]:
        """Make ``prompt`` the whole content of a slot, and yield the logits after each token, valid till the next.

        All tokens are read, in small batches, as `Context.read_each` does. Raises ``ModelError`` as `read` does.
        """
        check_prompt(prompt, slot.length, "a request has room for")
        self._truncate(slot, 0)
        for start in range(0, len(prompt), slot.max_rows):
            tokens = list(prompt[start : start + slot.max_rows])
            # llama.cpp has another kernel for a single token: the one before it is read again.
            again = slot.tokens[-1:] if len(tokens) == 1 and self._can_truncate else []
            self._truncate(slot, len(slot.tokens) - len(again))
            yield from self._decode([SlotAppend(slot, [*again, *tokens])])[len(again) :]
            slot.tokens.extend([*again, *tokens])
        self._prompt_rows = [self._native.logits()]

    def prompt_rows(self) -> list[Logits]:
        """The logits after the prompt that was read last."""
        return self._prompt_rows

    def append(self, appends: Sequence[SlotAppend]) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        """Append tokens to slots; yields each slot with its logits, which are valid until the next slot's."""
        plan = self._plan
        if plan is None:
            for append in appends:
                yield self._append_run(append)
            return
        single: dict[int, SlotAppend] = {}
        for append in appends:
            if len(append.tokens) == 1:
                single[append.slot.number] = append
            else:
                yield self._append_run(append)
        numbers = tuple(sorted(single))
        single_row_copies = tuple(
            plan.copies_of_single_token(len(single[number].slot.tokens)) for number in numbers
        )
        for group in divide_rows(numbers, single_row_copies, self._sizes, plan.times.table):
            if group.size > 1:
                yield from self._append_group(group, single, plan.times)
            elif group.first in single:
                yield self._append_single(single.pop(group.first), plan)

    def is_run_exact(self, count: int) -> bool:
        """True if so many tokens of one slot, pushed one by one, give the logits that they give at once."""
        return self._plan is not None and self._plan.is_run_exact_by_length.get(count, False)

    def _append_run(self, append: SlotAppend) -> tuple[SequenceSlot, list[Logits]]:
        """Append tokens to one slot. Once for each number of them, they are then read again, one by one."""
        slot, tokens = append
        plan, count = self._plan, len(tokens)
        rows = self._decode([append])
        if (
            plan is None
            or count in plan.is_run_exact_by_length
            or count > _LONGEST_DIVIDED_RUN
            or not self._can_truncate
        ):
            slot.tokens.extend(tokens)
            return slot, rows
        at_once = [row.copy() for row in rows]
        self._native.truncate_sequence(len(slot.tokens), slot.number)
        one_by_one = [self._append_single(SlotAppend(slot, (token,)), plan)[1][0].copy() for token in tokens]
        plan.is_run_exact_by_length[count] = all(map(np.array_equal, at_once, one_by_one))
        if not plan.is_run_exact_by_length[count]:
            self._truncate(slot, len(slot.tokens) - count)
            return self._append_run(append)
        return slot, at_once

    def _append_single(self, append: SlotAppend, plan: DecodePlan) -> tuple[SequenceSlot, list[Logits]]:
        """Append one token. It is read as often as the plan wants it; all copies but the first are removed."""
        slot, tokens = append
        copies = plan.copies_of_single_token(len(slot.tokens))
        began = perf_counter()
        rows = self._decode([SlotAppend(slot, [*tokens] * copies)])[:1]
        plan.times.note(copies, perf_counter() - began)
        slot.tokens.extend(tokens)
        if copies > 1:
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        return slot, rows

    def _append_group(
        self, group: RowGroup, single: dict[int, SlotAppend], times: DecodeTimes
    ) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        """Append a token to each of a group's slots that has one, and take it out of ``single``.

        In the other slots, one is removed again.
        """
        slots = self.slots[group.first : group.first + group.size]
        fillers = [slot for slot in slots if slot.number not in single]
        for slot in fillers:  # a prompt that could not be read may have left tokens
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        began = perf_counter()
        rows = self._decode([single.get(slot.number) or SlotAppend(slot, _FILLER) for slot in slots])
        times.note(group.size, perf_counter() - began)
        for slot in fillers:
            self._native.truncate_sequence(len(slot.tokens), slot.number)
        for slot, row in zip(slots, rows, strict=True):
            append = single.pop(slot.number, None)
            if append is not None:
                slot.tokens.extend(append.tokens)
                yield slot, [row]

    def _decode(self, appends: Sequence[SlotAppend]) -> list[Logits]:
        try:
            self._native.decode_spans(
                [SequenceSpan(tokens, len(slot.tokens), slot.number) for slot, tokens in appends]
            )
        except ModelError:  # a decode that was aborted may have left some of its tokens
            for slot, _ in appends:
                self._native.truncate_sequence(len(slot.tokens), slot.number)
            raise
        return [self._native.logits_at(index) for index in range(sum(len(tokens) for _, tokens in appends))]

    def _copy_prefix(self, slot: SequenceSlot, prompt: list[int], ends: Sequence[int]) -> int:
        """Copy the slot that shares most with the prompt, unless it is this one; returns the shared tokens."""
        shared = {other.number: _held_tokens(other, prompt, ends) for other in self.slots}
        best = max(self.slots, key=lambda other: shared[other.number])
        if shared[best.number] > shared[slot.number]:
            self._native.truncate_sequence(0, slot.number)
            self._native.copy(best.number, slot.number)
            slot.tokens, slot.chunk_ends = best.tokens[:], best.chunk_ends[:]
            slot.prompt_length, slot.prompt_logits = best.prompt_length, best.prompt_logits
        return max(shared.values())

    def discard_last(self, slot: SequenceSlot, count: int) -> None:
        """Remove the last ``count`` tokens of a slot."""
        if count:
            self._truncate(slot, len(slot.tokens) - count)

    def _truncate(self, slot: SequenceSlot, length: int) -> None:
        self._native.truncate_sequence(length, slot.number)
        del slot.tokens[length:]
        slot.chunk_ends = [end for end in slot.chunk_ends if end <= length]
        if length < slot.prompt_length:
            slot.prompt_length, slot.prompt_logits = 0, None

    def close(self) -> None:
        """Free the memory."""
        self._native.close()
