"""A context: what the model has read so far, and the logits of what comes next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import ModelError
from .native_context import NativeContext

Progress = Callable[[int, int], None]
"""Called with the prompt's tokens done and their total, after each batch."""


_PIECE = 63
_LOGITS_AT_ONCE = 32_000_000


class Context:
    """One sequence of tokens in llama.cpp's memory.

    A new prompt that begins like what is there keeps the common part (its keys and values are not computed
    again). Attributes: ``length``, tokens that fit; ``tokens``, those that are in; ``piece``, how many can be read
    at once with the logits of each, so few that llama.cpp computes the same however they are cut.
    """

    def __init__(self, native: NativeContext, batch: int) -> None:
        self._native = native
        self._batch = batch
        self.piece = min(batch, _PIECE, max(1, _LOGITS_AT_ONCE // (4 * native.width)))
        self.length = native.length
        self.tokens: list[int] = []

    def read(
        self,
        prompt: Sequence[int],
        progress: Progress | None = None,
        interrupted: Callable[[], bool] | None = None,
        small: bool = False,
    ) -> int:
        """Make ``prompt`` the whole sequence; returns how many of its tokens were there already.

        ``small``: in pieces of ``piece`` tokens, and none alone, as in `push_each`.

        ``interrupted`` is asked all along; once it returns True, reading ends, ``tokens`` holds what was read,
        and a later call goes on from there. Raises ``ModelError`` when the prompt is empty or longer than the
        context.
        """
        self.check(prompt)
        kept = self._keep(prompt)
        with self._native.break_off_when(interrupted):
            step = self.piece if small else self._batch
            for start in range(kept, len(prompt), step):
                part = prompt[start : start + step]
                if small and len(part) == 1:
                    self._push_lone(part[0])
                elif self._native.decode(part, start):
                    self.tokens.extend(part)
                else:
                    break
                if progress is not None:
                    progress(len(self.tokens), len(prompt))
        return kept

    def read_each(self, prompt: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Make ``prompt`` the whole sequence; gives the logits after each token, which hold as `logits` do.

        All of it is read anew, in pieces whose logits take at most 32 MB. Raises ``ModelError`` as `read` does.
        """
        self.check(prompt)
        self._native.forget(0)
        self.tokens.clear()
        yield from self.push_each(prompt)

    def push_each(self, tokens: Sequence[int]) -> Iterator[NDArray[np.float32]]:
        """Append tokens in such pieces; gives the logits after each. Raises ``ModelError`` as `push_all` does."""
        for start in range(0, len(tokens), self.piece):
            part = tokens[start : start + self.piece]
            yield from self._push_lone(part[0]) if len(part) == 1 else self.push_all(part)

    def _push_lone(self, token: int) -> list[NDArray[np.float32]]:
        """Append one token, reading the one before it again: llama.cpp may compute a lone one in another way."""
        before = self.tokens[-1:]
        if not before or self.full or not self._native.forget(len(self.tokens) - 1):
            return self.push_all([token])
        self._native.decode([*before, token], len(self.tokens) - 1, every=True)
        self.tokens.append(token)
        return [self._native.logits_at(1)]

    def back_to(self, length: int) -> None:
        """Forget all but the first ``length`` tokens, of which there are at least so many."""
        if length == len(self.tokens):
            return
        kept = self.tokens[:length]
        if self._native.forget(length):
            self.tokens = kept
        else:  # a recurrent model cannot go back part of the way
            self.tokens.clear()
            self.read(kept, small=True)

    def push(self, token: int) -> None:
        """Append one token. Raises ``ModelError`` when the context is full."""
        if self.full:
            raise ModelError(f"the context is full: it holds {self.length:,} tokens")
        self._native.decode((token,), len(self.tokens))
        self.tokens.append(token)

    def push_all(self, tokens: Sequence[int]) -> list[NDArray[np.float32]]:
        """Append some tokens at once; returns the logits after each of them, which hold as `logits` does.

        Raises ``ModelError`` when they do not fit.
        """
        if len(tokens) == 1:  # the usual case, and the fastest way
            self.push(tokens[0])
            return [self._native.logits()]
        if len(self.tokens) + len(tokens) > self.length:
            raise ModelError(f"the context is full: it holds {self.length:,} tokens")
        self._native.decode(tokens, len(self.tokens), every=True)
        self.tokens.extend(tokens)
        return [self._native.logits_at(index) for index in range(len(tokens))]

    @property
    def room(self) -> int:
        """How many further tokens fit."""
        return self.length - len(self.tokens)

    @property
    def batch(self) -> int:
        """How many tokens of a prompt are read at once."""
        return self._batch

    @property
    def full(self) -> bool:
        """True when no further token fits."""
        return len(self.tokens) >= self.length

    def logits(self) -> NDArray[np.float32]:
        """The logits after the last token, float32 (V,), in llama.cpp's memory.

        They hold until the next token is read: copy what is to be kept, and write nothing into them.
        """
        return self._native.logits()

    def close(self) -> None:
        """Free the memory."""
        self._native.close()

    def check(self, prompt: Sequence[int]) -> None:
        """Raise ``ModelError`` for a prompt that is empty, or does not fit."""
        if not prompt:
            raise ModelError("the prompt is empty")
        if len(prompt) > self.length:
            raise ModelError(
                f"the prompt has {len(prompt):,} tokens and the context holds {self.length:,}; "
                f"shorten it, or give a larger -c"
            )

    def _keep(self, prompt: Sequence[int]) -> int:
        """Cut the sequence back to what it shares with the prompt; the prompt's last token is always read."""
        common = 0
        for ours, theirs in zip(self.tokens, prompt[:-1], strict=False):
            if ours != theirs:
                break
            common += 1
        # Also where nothing of ours is to be dropped: a call that was broken off may have left something.
        if not self._native.forget(common):
            # A recurrent model cannot go back part of the way.
            self._native.forget(0)
            common = 0
        del self.tokens[common:]
        return common
