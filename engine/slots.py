"""Slots: several sequences side by side in one llama.cpp context, whose tokens are read together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .errors import ModelError
from .native_context import NativeContext, Part

Rows = list[NDArray[np.float32]]

PIECE = 64
"""Tokens of a prompt that are read at once: as few as llama.cpp's fast kernel for prompts takes.

What that computes for a token does not depend on where a text is cut, nor does what the others compute.
"""


class Slot:
    """One sequence. ``tokens`` are in it, ``length`` fit, ``piece`` can be read at once behind the prompt.

    ``shared``: the first so many can be shared, since they were read in whole pieces.
    """

    def __init__(self, number: int, length: int, piece: int) -> None:
        self.number = number
        self.length = length
        self.piece = piece
        self.tokens: list[int] = []
        self.shared = 0

    @property
    def room(self) -> int:
        """How many further tokens fit."""
        return self.length - len(self.tokens)


class Slots:
    """The slots of a context.

    What is computed for a sequence does not depend on the others, as far as llama.cpp computes a row alike among
    others. Prompts are read each by itself, in pieces for which llama.cpp computes what it does for `Context`'s;
    whole pieces are shared between prompts. Single tokens of several sequences are read at once; beside one
    whose neighbours have none, a second one is read and forgotten, since llama.cpp computes a lone row otherwise.

    ``apart``: every sequence is read by itself, with the very calls that `Context` makes: as slow as one by one.
    """

    def __init__(self, native: NativeContext, count: int, batch: int, apart: bool) -> None:
        self._native = native
        self._apart = apart or count == 1
        self._batch = batch
        self._cuts = not apart
        self.length = native.length - (not self._apart)  # room for the second token
        at_once = min(PIECE - 1, batch)
        self.all = [Slot(number, self.length, at_once) for number in range(count)]
        # A recurrent model cannot go back part of the way.
        self._goes_back = native.goes_back

    def read(self, slot: Slot, prompt: Sequence[int]) -> int:
        """Make ``prompt`` all that is in the slot; returns how many of its tokens were there, or in another slot.

        Raises ``ModelError`` for a prompt that is empty, or does not fit.
        """
        if not prompt:
            raise ModelError("the prompt is empty")
        if len(prompt) > slot.length:
            raise ModelError(
                f"the prompt has {len(prompt):,} tokens and a request has room for {slot.length:,}; "
                f"shorten it, or give a larger -c"
            )
        ends = self._ends(len(prompt))
        kept = self._share(slot, prompt, ends) if self._goes_back else 0
        self._cut(slot, kept)
        for start, end in pairwise([kept, *(end for end in ends if end > kept)]):
            part = prompt[start:end]
            self._native.decode_parts([Part(part, start, slot.number)], every=False)
            slot.tokens.extend(part)
            if len(part) >= min(PIECE, self._batch):
                slot.shared = end
        return kept

    def _ends(self, length: int) -> list[int]:
        """Where the pieces of a prompt end: as `Context` cuts it, and then as short as its kernel allows."""
        ends: list[int] = []
        for start in range(0, length, self._batch):
            end = min(start + self._batch, length)
            if self._cuts:
                ends += range(start + PIECE, end - PIECE + 1, PIECE)
            ends.append(end)
        return ends

    def rows(self) -> Rows:
        """The logits behind the prompt that was read last."""
        return [self._native.logits()]

    def push(self, wanted: Sequence[tuple[Slot, Sequence[int]]]) -> Iterator[tuple[Slot, Rows]]:
        """Append tokens to slots; gives the logits after each, which hold until the next are asked for."""
        if self._apart:
            for one in wanted:
                yield from self._push([one])
            return
        single = {slot.number: (slot, tokens) for slot, tokens in wanted if len(tokens) == 1}
        # llama.cpp computes together what stands in neighbouring sequences.
        lone = [n for n in single if self._goes_back and n - 1 not in single and n + 1 not in single]
        for slot, tokens in wanted:
            if len(tokens) > 1:
                yield from self._push([(slot, tokens)])
        for number in lone:
            yield self._push_lone(*single.pop(number))
        if single:
            yield from self._push([single[number] for number in sorted(single)])

    def _push_lone(self, slot: Slot, tokens: Sequence[int]) -> tuple[Slot, Rows]:
        """Append one token, beside which a second one is read and forgotten."""
        rows = self._decode([(slot, [*tokens, *tokens])])[:1]
        slot.tokens.extend(tokens)
        self._native.forget(len(slot.tokens), slot.number)
        return slot, rows

    def _push(self, wanted: Sequence[tuple[Slot, Sequence[int]]]) -> Iterator[tuple[Slot, Rows]]:
        rows = iter(self._decode(wanted))
        for slot, tokens in wanted:
            slot.tokens.extend(tokens)
            yield slot, [next(rows) for _ in tokens]

    def _decode(self, wanted: Sequence[tuple[Slot, Sequence[int]]]) -> Rows:
        self._native.decode_parts([Part(tokens, len(slot.tokens), slot.number) for slot, tokens in wanted])
        return [self._native.logits_at(index) for index in range(sum(len(tokens) for _, tokens in wanted))]

    def _share(self, slot: Slot, prompt: Sequence[int], ends: Sequence[int]) -> int:
        """How much of the prompt stands in the slot, after it was copied from the one that has most of it."""
        found = {other.number: _shared(other, prompt, ends) for other in self.all}
        best = max(self.all, key=lambda other: found[other.number])
        if found[best.number] > found[slot.number]:
            self._native.forget(0, slot.number)
            self._native.copy(best.number, slot.number)
            slot.tokens, slot.shared = best.tokens[:], best.shared
        return max(found.values())

    def back(self, slot: Slot, count: int) -> None:
        """Forget the last tokens of a slot."""
        if count:
            self._cut(slot, len(slot.tokens) - count)

    def _cut(self, slot: Slot, length: int) -> None:
        self._native.forget(length, slot.number)
        del slot.tokens[length:]
        slot.shared = min(slot.shared, length)

    def close(self) -> None:
        """Free the memory."""
        self._native.close()


def _shared(slot: Slot, prompt: Sequence[int], ends: Sequence[int]) -> int:
    """How many tokens of a prompt, in whole pieces, stand in a slot."""
    common = 0
    for ours, theirs in zip(slot.tokens[: slot.shared], prompt[:-1], strict=False):
        if ours != theirs:
            break
        common += 1
    return max((end for end in ends if end <= common), default=0)
