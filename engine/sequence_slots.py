"""The sequence slots of a batch's context, in which requests are computed side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .batch_exactness import EXACT, BatchExactness
from .context import check_prompt
from .decode_plan import DecodePlan
from .native_context import Logits, NativeContext, SequenceSpan
from .prompt_pieces import PIECE_TOKENS


class SequenceSlot:
    """The room for one request: one sequence of tokens.

    Attributes:
        number: the number of the sequence.
        length: how many tokens fit.
        max_rows: how many can be read at once with the logits of each.
        tokens: those in the slot.
        chunk_ends: where the chunks of the prompt end. Another slot may copy the chunks that it would read alike.
    """

    def __init__(self, number: int, length: int, max_rows: int) -> None:
        self.number = number
        self.length = length
        self.max_rows = max_rows
        self.tokens: list[int] = []
        self.chunk_ends: list[int] = []

    @property
    def remaining(self) -> int:
        """How many more tokens fit."""
        return self.length - len(self.tokens)


class NewTokens(NamedTuple):
    """Tokens that are to be appended to a slot."""

    slot: SequenceSlot
    tokens: Sequence[int]


class SequenceSlots:
    """All sequence slots of one context.

    Each prompt is read separately, in chunks for which llama.cpp computes the same as for a `Context`; prompts
    share chunks that both would read. Single tokens of several sequences are read in one batch, as ``plan`` allows
    it. llama.cpp computes a token without neighbours by another kernel, so such a token is read several times, and
    all copies but the first are removed. So other sequences change nothing, as far as ``exactness`` promises it.

    Without a plan, every sequence is read separately. ``isolated``: with the same calls as a `Context`.
    """

    def __init__(
        self, native: NativeContext, count: int, batch: int, isolated: bool, plan: DecodePlan | None = None
    ) -> None:
        self._native = native
        self._plan = plan
        self._batch = batch
        self._in_chunks = not isolated
        # Some tokens are kept free for the copies of a token without neighbours.
        self.length = native.length - (plan.lone_copies - 1 if plan is not None else 0)
        max_rows = min(PIECE_TOKENS - 1, batch)
        self.all = [SequenceSlot(number, self.length, max_rows) for number in range(count)]
        self._can_truncate = native.can_truncate

    @property
    def exactness(self) -> BatchExactness:
        """What holds for the answers that are computed in these slots."""
        return EXACT if self._plan is None else self._plan.exactness

    def group_sizes(self, count: int) -> tuple[int, ...]:
        """How many of ``count`` adjacent slots are decoded at once, for each decode."""
        return (1,) * count if self._plan is None else self._plan.group_sizes(count)

    def read(self, slot: SequenceSlot, prompt: Sequence[int]) -> int:
        """Make ``prompt`` the whole content of a slot; returns how many of its tokens some slot held already.

        Raises ``ModelError`` for a prompt that is empty or does not fit.
        """
        check_prompt(prompt, slot.length, "a request has room for")
        ends = self._chunk_ends(len(prompt))
        kept = self._copy_prefix(slot, prompt, ends) if self._can_truncate else 0
        self._truncate(slot, kept)
        for start, end in pairwise([kept, *(end for end in ends if end > kept)]):
            chunk = prompt[start:end]
            self._native.decode_spans([SequenceSpan(chunk, start, slot.number)], all_logits=False)
            slot.tokens.extend(chunk)
            slot.chunk_ends.append(end)
        return kept

    def _chunk_ends(self, length: int) -> list[int]:
        """Where the chunks of a prompt end: at a `Context`'s batches, and between them every 64 tokens."""
        ends: list[int] = []
        for start in range(0, length, self._batch):
            end = min(start + self._batch, length)
            if self._in_chunks:
                ends += range(start + PIECE_TOKENS, end - PIECE_TOKENS + 1, PIECE_TOKENS)
            ends.append(end)
        return ends

    def prompt_rows(self) -> list[Logits]:
        """The logits after the prompt that was read last."""
        return [self._native.logits()]

    def push(self, appends: Sequence[NewTokens]) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        """Append tokens to slots; yields each slot with its logits, which are valid until the next slot's."""
        if self._plan is None:
            for append in appends:
                yield from self._push_batch([append])
            return
        single = {append.slot.number: append for append in appends if len(append.tokens) == 1}
        for append in appends:
            if len(append.tokens) > 1:
                yield from self._push_batch([append])
        for numbers in _adjacent_runs(sorted(single)):
            yield from self._push_adjacent([single[number] for number in numbers], self._plan)

    def _push_adjacent(
        self, appends: Sequence[NewTokens], plan: DecodePlan
    ) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        """Append a token to each of several adjacent slots, in groups that the plan allows.

        A number of slots that the plan does not know yet is decoded at once too, once, and compared.
        """
        count = len(appends)
        trial = self._decode_trial(appends) if self._can_truncate and plan.is_worth_a_trial(count) else []
        is_equal: list[bool] = []
        start = 0
        for size in plan.group_sizes(count):
            group = appends[start : start + size]
            pushed = [self._push_lone(*group[0], plan.lone_copies)] if size == 1 else self._push_batch(group)
            for number, (slot, rows) in enumerate(pushed, start):
                if trial:
                    is_equal.append(np.array_equal(trial[number], rows[0]))
                yield slot, rows
            start += size
        if trial:
            plan.learn(count, all(is_equal))

    def _decode_trial(self, appends: Sequence[NewTokens]) -> list[Logits]:
        """The logits of tokens that are decoded at once, and removed again."""
        rows = [row.copy() for row in self._decode(appends)]
        for slot, _ in appends:
            self._native.forget(len(slot.tokens), slot.number)
        return rows

    def _push_lone(
        self, slot: SequenceSlot, tokens: Sequence[int], copies: int
    ) -> tuple[SequenceSlot, list[Logits]]:
        """Append one token. It is read ``copies`` times; all but the first are removed."""
        rows = self._decode([NewTokens(slot, [*tokens] * copies)])[:1]
        slot.tokens.extend(tokens)
        if copies > 1:
            self._native.forget(len(slot.tokens), slot.number)
        return slot, rows

    def _push_batch(self, appends: Sequence[NewTokens]) -> Iterator[tuple[SequenceSlot, list[Logits]]]:
        rows = iter(self._decode(appends))
        for slot, tokens in appends:
            slot.tokens.extend(tokens)
            yield slot, [next(rows) for _ in tokens]

    def _decode(self, appends: Sequence[NewTokens]) -> list[Logits]:
        self._native.decode_spans(
            [SequenceSpan(tokens, len(slot.tokens), slot.number) for slot, tokens in appends]
        )
        return [self._native.logits_at(index) for index in range(sum(len(tokens) for _, tokens in appends))]

    def _copy_prefix(self, slot: SequenceSlot, prompt: Sequence[int], ends: Sequence[int]) -> int:
        """Copy the slot that shares most with the prompt, unless it is this one; returns the shared tokens."""
        shared = {other.number: _shared_tokens(other, prompt, ends) for other in self.all}
        best = max(self.all, key=lambda other: shared[other.number])
        if shared[best.number] > shared[slot.number]:
            self._native.forget(0, slot.number)
            self._native.copy(best.number, slot.number)
            slot.tokens, slot.chunk_ends = best.tokens[:], best.chunk_ends[:]
        return max(shared.values())

    def drop(self, slot: SequenceSlot, count: int) -> None:
        """Remove the last ``count`` tokens of a slot."""
        if count:
            self._truncate(slot, len(slot.tokens) - count)

    def _truncate(self, slot: SequenceSlot, length: int) -> None:
        self._native.forget(length, slot.number)
        del slot.tokens[length:]
        slot.chunk_ends = [end for end in slot.chunk_ends if end <= length]

    def close(self) -> None:
        """Free the memory."""
        self._native.close()


def _shared_tokens(slot: SequenceSlot, prompt: Sequence[int], ends: Sequence[int]) -> int:
    """How many tokens at the start of a prompt a slot holds, in chunks that the prompt would be read in."""
    shared = 0
    for slot_end, end in zip(slot.chunk_ends, ends, strict=False):
        if slot_end != end or end >= len(prompt) or slot.tokens[shared:end] != list(prompt[shared:end]):
            break
        shared = end
    return shared


def _adjacent_runs(numbers: Iterable[int]) -> list[list[int]]:
    """Divide ascending numbers where one is missing: llama.cpp decodes only adjacent sequences at once."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs
