"""One sequence of tokens in a context: the tokens that the model has read, and the logits after them.

A prompt is divided only where that does not change what is computed. When a context is full, a text can
continue without its older tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..common.renamed import supports_old_names
from ..common.text import count_noun
from ..models.errors import AbortedError, ModelError
from .native.context import Logits, NativeContext

SEGMENT_TOKENS = 64
"""The fewest tokens for llama.cpp's tiled flash attention kernel.

What that kernel computes for a token does not depend on where a text is divided.
"""

_MAX_ROWS = SEGMENT_TOKENS - 1
"""Tokens in a small batch. With 64 or more, llama.cpp's flash attention takes a kernel whose logits differ."""

_MAX_LOGITS_BYTES = 32_000_000
"""Memory for the logits of a small batch: 63 rows of 127,000 tokens. Larger vocabularies get fewer rows."""


def small_batch_rows(batch: int, width: int) -> int:
    """Return how many tokens a small batch has. ``batch``: tokens that are read at once; ``width``: of a row."""
    return min(batch, _MAX_ROWS, max(1, _MAX_LOGITS_BYTES // (4 * width)))


Progress = Callable[[int, int], None]
"""Called with how many tokens of a prompt are done, and with their total, after each batch."""


@supports_old_names
class Context:
    """One sequence of tokens in llama.cpp's memory.

    A new prompt keeps the tokens that it has in common with the old one: their keys and values are not computed
    again. Attributes: ``length``, how many tokens fit; ``tokens``, those that have been read; ``max_rows``, how
    many tokens a small batch has. In small batches, whose tokens all get their logits, llama.cpp computes the
    same logits however a text is divided.
    """

    def __init__(self, native: NativeContext, batch: int, piece: int | None = None) -> None:
        """Take over a context of llama.cpp.

        Args:
            native: the context, empty.
            batch: how many tokens of a prompt are read at once.
            piece: a batch that is divided at multiples of so many tokens is computed alike; None: only whole
                batches are.
        """
        self._native = native
        self._batch = batch
        self._segments = PromptSegments(batch, min(batch, piece or batch))
        self.max_rows = small_batch_rows(batch, native.vocab_size)
        self.length = native.length
        self.tokens: list[int] = []
        self._is_shifted = False
        """True after `discard`: what is held is not what reading the same tokens would give."""
        self._exact_tokens = 0
        """How many tokens at the beginning were computed as an empty context computes them in a prompt."""
        self._prompt_logits: Logits | None = None
        """A copy of the logits after the ``_exact_tokens``, if these are a prompt that was read exactly."""
        self._logits: Logits | None = None
        """That copy, while it stands for the logits after the last token."""

    def read(
        self,
        prompt: Sequence[int],
        progress: Progress | None = None,
        is_interrupted: Callable[[], bool] | None = None,
        small_batches: bool = False,
        exact: bool = False,
    ) -> int:
        """Make ``prompt`` the whole sequence; returns how many of its tokens were there already.

        Args:
            prompt: The tokens.
            progress: Called before the first batch, and after each one: a batch may take long.
            is_interrupted: Called at short intervals, also within a batch. Once it returns True, reading ends;
                ``tokens`` then holds what was read, and a later call continues from there. So it does after
                `Model.abort`, which raises ``AbortedError`` without this argument.
            small_batches: Read as `append_in_small_batches` does: at most ``max_rows`` tokens in one batch, and no
                token alone.
            exact: Keep only what an empty context would compute alike, so that all logits are those of an empty
                context. Of a prompt that was read so before, nothing is read again.

        Raises ``ModelError`` when the prompt is empty or longer than the context.
        """
        self.check(prompt)
        if exact and self._keep_whole_prompt(prompt):
            return len(prompt)
        common = self._common_prefix(prompt)
        kept = self._keep(
            self._segments.reusable_token_count(min(common, self._exact_tokens), len(prompt)) if exact else common
        )
        is_exact = not small_batches and (exact or kept == 0)
        size = self.max_rows if small_batches else self._batch
        first_end = self._segments.end_of_batch(kept) if exact else kept + size
        if progress is not None:
            progress(len(self.tokens), len(prompt))
        with self._native.abort_when(is_interrupted):
            for end in range(first_end, len(prompt) + size, size):
                batch = prompt[len(self.tokens) : end]
                try:
                    self._read_batch(batch, small_batches)
                except AbortedError:
                    if is_interrupted is None:
                        raise
                    break
                if is_exact:
                    self._exact_tokens = len(self.tokens)
                if progress is not None:
                    progress(len(self.tokens), len(prompt))
        if exact and len(self.tokens) == len(prompt):
            self._prompt_logits = self._native.logits().copy()
            self._prompt_logits.flags.writeable = False
        return kept

    def _read_batch(self, batch: Sequence[int], small_batches: bool) -> None:
        """Append a batch of a prompt; see `read`."""
        if small_batches and len(batch) == 1:
            self._append_single(batch[0])
        else:
            self._native.decode(batch, len(self.tokens))
            self.tokens.extend(batch)

    def read_each(self, prompt: Sequence[int]) -> Iterator[Logits]:
        """Make ``prompt`` the whole sequence, and yield the logits after each token, valid as those of `logits`.

        All tokens are read again, in small batches. Raises ``ModelError`` as `read` does.
        """
        self.check(prompt)
        self._keep(0)
        yield from self.append_in_small_batches(prompt)

    def append_in_small_batches(self, tokens: Sequence[int]) -> Iterator[Logits]:
        """Append tokens in small batches, and yield the logits after each. Raises as `append_batch` does."""
        for start in range(0, len(tokens), self.max_rows):
            batch = tokens[start : start + self.max_rows]
            yield from self._append_single(batch[0]) if len(batch) == 1 else self.append_batch(batch)

    def _append_single(self, token: int) -> list[Logits]:
        """Append one token. The one before it is read again: llama.cpp has another kernel for a single token."""
        before = self.tokens[-1:]
        if not before or self.is_full or not self._native.truncate_sequence(len(self.tokens) - 1):
            return self.append_batch([token])
        self._limit_exact_tokens(len(self.tokens) - 1)
        self._native.decode([*before, token], len(self.tokens) - 1, all_logits=True)
        self.tokens.append(token)
        return [self._native.logits_at(1)]

    def truncate(self, length: int) -> None:
        """Keep only the first ``length`` tokens; there must be at least as many."""
        if length == len(self.tokens):
            return
        kept = self.tokens[:length]
        self._limit_exact_tokens(length)
        if self._native.truncate_sequence(length):
            self.tokens = kept
        else:  # the state of a recurrent model cannot be truncated
            self.tokens.clear()
            self.read(kept, small_batches=True)

    @property
    def shift_unsupported_reason(self) -> str | None:
        """The reason why `discard` must not be called; None if it may be."""
        return self._native.shift_unsupported_reason

    def discard(self, start: int, count: int) -> None:
        """Remove ``count`` tokens from ``start`` on; those after them move up.

        These are not computed again, and llama.cpp rotates the keys of all tokens, which changes even those that
        stay where they are (greatly with gpt-oss). So no other prompt reuses any of them.
        """
        self._native.remove_span(start, start + count, len(self.tokens))
        del self.tokens[start : start + count]
        self._is_shifted = True
        self._limit_exact_tokens(0)

    def append(self, token: int) -> None:
        """Append one token. Raises ``ModelError`` when the context is full."""
        if self.is_full:
            raise ModelError(f"the context is full: it holds {count_noun(self.length, 'token')}")
        self._native.decode((token,), len(self.tokens))
        self._logits = None
        self.tokens.append(token)

    def append_batch(self, tokens: Sequence[int]) -> list[Logits]:
        """Append tokens in one batch; returns the logits after each, valid as those of `logits`.

        Raises ``ModelError`` when they do not fit.
        """
        if len(tokens) == 1:  # the usual case, and the fastest way
            self.append(tokens[0])
            return [self._native.logits()]
        if len(self.tokens) + len(tokens) > self.length:
            raise ModelError(f"the context is full: it holds {count_noun(self.length, 'token')}")
        self._native.decode(tokens, len(self.tokens), all_logits=True)
        self._logits = None
        self.tokens.extend(tokens)
        return [self._native.logits_at(index) for index in range(len(tokens))]

    @property
    def remaining(self) -> int:
        """How many more tokens fit."""
        return self.length - len(self.tokens)

    @property
    def is_full(self) -> bool:
        """True if no more token fits."""
        return len(self.tokens) >= self.length

    def logits(self) -> Logits:
        """The logits after the last token, float32 (V,), in llama.cpp's memory.

        They are valid until the next token is read. Copy what is to be kept; the array cannot be written to.
        """
        return self._native.logits() if self._logits is None else self._logits

    def exact_state(self) -> tuple[list[int], memoryview]:
        """The tokens that an exact reading can keep, and llama.cpp's state of them; drops all others.

        Without any token the state is empty, as it is for a recurrent model, which can keep none.
        """
        kept = self._keep(self._exact_tokens if self._native.can_truncate else 0)
        return self.tokens[:], self._native.state() if kept else memoryview(b"")

    def restore_exact_state(self, tokens: Sequence[int], state: bytes) -> bool:
        """Take up what `exact_state` gave; False if llama.cpp refuses it, and nothing is held then."""
        self._keep(0)
        if len(tokens) > self.length or not self._native.set_state(state):
            return False
        self.tokens[:], self._exact_tokens = tokens, len(tokens)
        return True

    def close(self) -> None:
        """Free the memory."""
        self._native.close()

    def check(self, prompt: Sequence[int]) -> None:
        """Raise ``ModelError`` for a prompt that is empty or does not fit."""
        check_prompt(prompt, self.length, "the context holds")

    def _keep_whole_prompt(self, prompt: Sequence[int]) -> bool:
        """Drop what follows a prompt that was read exactly before; returns False if it was not, or cannot be."""
        length = len(prompt)
        if self._prompt_logits is None or self._exact_tokens != length or self.tokens[:length] != list(prompt):
            return False
        # Needed even if nothing follows: an aborted batch may have left some of its own.
        if not self._native.truncate_sequence(length):
            return False
        del self.tokens[length:]
        self._logits = self._prompt_logits
        return True

    def _common_prefix(self, prompt: Sequence[int]) -> int:
        """How many tokens at the beginning are held, without the prompt's last one."""
        common = 0
        for held, token in zip(() if self._is_shifted else self.tokens, prompt[:-1], strict=False):
            if held != token:
                break
            common += 1
        return common

    def _limit_exact_tokens(self, count: int) -> None:
        """From ``count`` on, what is held is not as an empty context would compute it."""
        if count < self._exact_tokens:
            self._exact_tokens, self._prompt_logits = count, None
        self._logits = None

    def _keep(self, count: int) -> int:
        """Drop all but the first ``count`` tokens before a prompt is read; returns how many remain."""
        self._is_shifted = False
        # Needed even if all tokens are kept: an aborted batch may have left some of its own.
        if not self._native.truncate_sequence(count):
            # The state of a recurrent model cannot be truncated.
            self._native.truncate_sequence(0)
            count = 0
        del self.tokens[count:]
        self._exact_tokens, self._prompt_logits = min(self._exact_tokens, count), None
        self._logits = None
        return count


class PromptSegments(NamedTuple):
    """How an empty context reads a prompt: in batches, which may be divided into pieces.

    ``batch``: the tokens of a batch; ``piece``: a batch that is divided at a multiple of so many tokens is
    computed alike. It is ``batch`` where only whole batches are.
    """

    batch: int
    piece: int

    def reusable_token_count(self, common: int, length: int) -> int:
        """How many of ``common`` tokens at the beginning can be kept for a prompt of ``length`` tokens.

        They end where a batch ends. Or they end between two pieces, if the prompt's batch goes on for a piece.
        """
        start = common - common % self.batch
        inside = (common - start) // self.piece * self.piece
        before_last = (min(length - start, self.batch) - self.piece) // self.piece * self.piece
        return start + max(0, min(inside, before_last))

    def end_of_batch(self, position: int) -> int:
        """Where the batch ends that a position is in."""
        return position - position % self.batch + self.batch


def check_prompt(prompt: Sequence[int], length: int, holder: str) -> None:
    """Raise ``ModelError`` for a prompt that is empty or has more than ``length`` tokens.

    ``holder``: the words before that number in the message.
    """
    if not prompt:
        raise ModelError("the prompt is empty")
    if len(prompt) > length:
        tokens = count_noun(len(prompt), "token")
        raise ModelError(
            f"the prompt has {tokens} and {holder} {length:,}", advice="shorten it, or give a larger n_ctx"
        )


class ContextShift:
    """The capacity of a context that discards older tokens when it is full.

    As llama.cpp's ``--context-shift``: the context counts as full when one more token fits. Its first ``keep``
    tokens stay, half of those after them are discarded, and the others move up. Their keys and values are not
    computed again, so they still depend on what was discarded. Raises ``ModelError`` if the model cannot shift.

    Attributes: ``keep``; ``count``: how often tokens were discarded; ``max_rows``: see `Context`.
    """

    def __init__(self, context: Context, keep: int) -> None:
        if keep < -1:
            raise ModelError(f"keep_on_shift: {keep} is not ≥ -1")
        if context.shift_unsupported_reason is not None:
            raise ModelError(
                "context shift: this model cannot drop the older tokens of a text: "
                f"{context.shift_unsupported_reason}"
            )
        self._context = context
        self.kept_prompt_tokens = keep
        self.shift_count = 0
        self.max_rows = context.max_rows

    def resolve_kept_prompt_tokens(self, prompt_tokens: int, adds_bos: bool) -> None:
        """Resolve ``keep`` as llama.cpp does: -1, or more than there are, is the whole prompt; BOS stays too."""
        if self.kept_prompt_tokens < 0 or self.kept_prompt_tokens > prompt_tokens:
            self.kept_prompt_tokens = prompt_tokens
        else:
            self.kept_prompt_tokens += adds_bos

    @property
    def remaining(self) -> int:
        """How many more tokens fit before older ones are discarded."""
        return self._context.remaining - 1

    def discard_oldest(self, rejected: int) -> bool:
        """Remove the last ``rejected`` tokens, and discard half of those after ``keep``.

        Returns False if there is nothing to discard.
        """
        context = self._context
        context.truncate(len(context.tokens) - rejected)
        discarded = (len(context.tokens) - self.kept_prompt_tokens) // 2
        if discarded < 1:
            return False
        context.discard(self.kept_prompt_tokens, discarded)
        self.shift_count += 1
        return True
