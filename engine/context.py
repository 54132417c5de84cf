"""A context: the tokens of one sequence that the model has read, and the logits after the last one.

A prompt is divided only where that does not change the logits. When a context is full, generation can continue
without the oldest tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from ..common.errors import Word
from ..common.text import count_noun
from ..models.errors import AbortedError, ModelError, PromptTooLongError
from .native.context import Logits, NativeContext

# The minimum number of tokens for llama.cpp's tiled flash attention kernel. With this kernel, the logits do not
# depend on where a prompt is divided into batches.
SEGMENT_TOKENS = 64

# Maximum number of tokens in a small batch. For more, flash attention uses a kernel whose logits differ.
_MAX_ROWS = SEGMENT_TOKENS - 1

# Memory for the logits of a small batch: 63 rows of 127,000 tokens. Larger vocabularies get fewer rows.
_MAX_LOGITS_BYTES = 32_000_000


def small_batch_rows(batch: int, vocab_size: int) -> int:
    """Return the maximum number of tokens in a small batch."""
    return min(batch, _MAX_ROWS, max(1, _MAX_LOGITS_BYTES // (4 * vocab_size)))


# Function that is called after each batch of a prompt, with the number of tokens read and the total number
Progress = Callable[[int, int], None]


class Context:
    """One sequence of tokens in llama.cpp's memory."""

    # A new prompt reuses the tokens at its beginning that the context already has: their keys and values are not
    # computed again. In small batches, llama.cpp computes the same logits however a text is split into batches.
    # The logits of every token of a small batch are available, not only those of the last one.

    def __init__(self, native: NativeContext, batch_size: int, segment_size: int | None = None) -> None:
        self._native = native
        self._batch_tokens = batch_size
        self._segments = PromptSegments(batch_size, min(batch_size, segment_size or batch_size))
        # maximum number of tokens in a batch that computes the logits of each of its tokens
        self.max_rows = small_batch_rows(batch_size, native.vocab_size)
        self.length = native.length  # maximum number of tokens
        self.tokens: list[int] = []  # the tokens in the context, whose keys and values llama.cpp has computed
        # True if `discard` was called: the keys and values differ from those of a new reading
        self._is_shifted = False
        # Number of tokens at the beginning whose keys and values are those that an empty context computes
        self._exact_token_count = 0
        # A copy of the logits after the exact tokens, if these are a complete prompt; otherwise None
        self._prompt_logits: Logits | None = None
        # The logits after the last token, if they are this copy; None if llama.cpp has them
        self._logits: Logits | None = None

    def read(
        self,
        prompt: Sequence[int],
        progress: Progress | None = None,
        is_interrupted: Callable[[], bool] | None = None,
        small_batches: bool = False,
        exact: bool = False,
    ) -> int:
        """Make ``prompt`` the content of the context; return how many of its tokens were there already.

        With ``small_batches``, at most ``max_rows`` tokens are read per batch, and no token alone. With
        ``exact``, all logits are those of an empty context. Once ``is_interrupted`` returns True, reading ends;
        ``tokens`` then has what was read, and a later call continues. Without it, `Model.abort` raises
        ``AbortedError``. Raises ``ModelError`` when the prompt is empty or longer than the context.
        """
        self.check(prompt)
        if exact and self._reuse_complete_prompt(prompt):
            return len(prompt)
        reusable_count = self._common_token_count(prompt)
        if exact:
            exact_count = min(reusable_count, self._exact_token_count)
            reusable_count = self._segments.reusable_token_count(exact_count, len(prompt))
        reused_count = self._keep_first_tokens(reusable_count)
        is_exact = not small_batches and (exact or reused_count == 0)
        batch_size = self.max_rows if small_batches else self._batch_tokens
        first_batch_end = self._segments.end_of_batch(reused_count) if exact else reused_count + batch_size
        if progress is not None:
            progress(len(self.tokens), len(prompt))
        with self._native.abort_when(is_interrupted):
            for end in range(first_batch_end, len(prompt) + batch_size, batch_size):
                batch = prompt[len(self.tokens) : end]
                try:
                    self._read_batch(batch, small_batches)
                except AbortedError:
                    if is_interrupted is None:
                        raise
                    break
                if is_exact:
                    self._exact_token_count = len(self.tokens)
                if progress is not None:
                    progress(len(self.tokens), len(prompt))
        if exact and len(self.tokens) == len(prompt):
            self._prompt_logits = self._native.logits().copy()
            self._prompt_logits.flags.writeable = False
        return reused_count

    def _read_batch(self, batch: Sequence[int], small_batches: bool) -> None:
        """Append a batch of a prompt; see `read`."""
        if small_batches and len(batch) == 1:
            self._append_single(batch[0])
        else:
            self._native.decode(batch, len(self.tokens))
            self.tokens.extend(batch)

    def read_each(self, prompt: Sequence[int]) -> Iterator[Logits]:
        """Make ``prompt`` the content of the context, and yield the logits after each token."""
        # All tokens are read again, in small batches. The logits are valid for as long as those of `logits`.
        # Raises ``ModelError`` as `read` does.
        self.check(prompt)
        self._keep_first_tokens(0)
        yield from self.append_in_small_batches(prompt)

    def append_in_small_batches(self, tokens: Sequence[int]) -> Iterator[Logits]:
        for start in range(0, len(tokens), self.max_rows):
            batch = tokens[start : start + self.max_rows]
            if len(batch) == 1:
                yield from self._append_single(batch[0])
            else:
                yield from self.append_batch(batch)

    def _append_single(self, token: int) -> list[Logits]:
        """Append one token. The previous token is read again next to it."""
        # llama.cpp has another kernel for a single token, whose logits differ.
        previous_tokens = self.tokens[-1:]
        if not previous_tokens or self.is_full or not self._native.truncate_sequence(len(self.tokens) - 1):
            return self.append_batch([token])
        self._record_exact_tokens_up_to(len(self.tokens) - 1)
        self._native.decode([*previous_tokens, token], len(self.tokens) - 1, all_logits=True)
        self.tokens.append(token)
        return [self._native.logits_at(1)]

    def truncate(self, length: int) -> None:
        """Keep only the first ``length`` tokens, which the context must have."""
        if length == len(self.tokens):
            return
        kept_tokens = self.tokens[:length]
        self._record_exact_tokens_up_to(length)
        if self._native.truncate_sequence(length):
            self.tokens = kept_tokens
        else:  # the state of a recurrent model cannot be truncated
            self.tokens.clear()
            self.read(kept_tokens, small_batches=True)

    @property
    def shift_unsupported_reason(self) -> str | None:
        """The reason why `discard` is not supported, such as ``it is recurrent``; None if it is supported."""
        return self._native.shift_unsupported_reason

    def discard(self, start: int, count: int) -> None:
        """Remove ``count`` tokens from position ``start`` on; later tokens move up."""
        # The keys and values of later tokens are not computed again. llama.cpp rotates the keys of all tokens,
        # which changes even those of tokens that do not move (greatly with gpt-oss). So no later prompt reuses any
        # of the tokens.
        self._native.remove_span(start, start + count, len(self.tokens))
        del self.tokens[start : start + count]
        self._is_shifted = True
        self._record_exact_tokens_up_to(0)

    def append(self, token: int) -> None:
        if self.is_full:
            raise ModelError(f"the context is full: it holds {count_noun(self.length, 'token')}")
        self._native.decode((token,), len(self.tokens))
        self._logits = None
        self.tokens.append(token)

    def append_batch(self, tokens: Sequence[int]) -> list[Logits]:
        """Append tokens in one batch; return the logits after each, valid as long as those of `logits`."""
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
        return self.length - len(self.tokens)

    @property
    def is_full(self) -> bool:
        return len(self.tokens) >= self.length

    def logits(self) -> Logits:
        """Return the logits after the last token, float32 (V,), in llama.cpp's memory."""
        # They are valid until the next token is read. The array is read-only; copy it to keep it longer.
        return self._native.logits() if self._logits is None else self._logits

    def exact_state(self) -> tuple[list[int], memoryview]:
        """Return the tokens that an exact reading can reuse, and llama.cpp's state of them; drop the others."""
        # Both are empty for a recurrent model, which can reuse no tokens.
        exact_count = self._exact_token_count if self._native.can_truncate else 0
        kept_count = self._keep_first_tokens(exact_count)
        state = self._native.state() if kept_count else memoryview(b"")
        return self.tokens[:], state

    def restore_exact_state(self, tokens: Sequence[int], state: bytes) -> bool:
        """Replace the content by a result of `exact_state`; return False if llama.cpp rejects it."""
        # After a rejection the context is empty.
        self._keep_first_tokens(0)
        if len(tokens) > self.length or not self._native.set_state(state):
            return False
        self.tokens[:] = tokens
        self._exact_token_count = len(tokens)
        return True

    def close(self) -> None:
        self._native.close()

    def check(self, prompt: Sequence[int]) -> None:
        """Raise ``ModelError`` if a prompt is empty or does not fit."""
        check_prompt(prompt, self.length)

    def _reuse_complete_prompt(self, prompt: Sequence[int]) -> bool:
        """Drop the tokens after a prompt that was read exactly; return False if that is not possible."""
        length = len(prompt)
        if (
            self._prompt_logits is None
            or self._exact_token_count != length
            or self.tokens[:length] != list(prompt)
        ):
            return False
        # Needed even without later tokens, because an aborted batch may have left some in llama.cpp's memory.
        if not self._native.truncate_sequence(length):
            return False
        del self.tokens[length:]
        self._logits = self._prompt_logits
        return True

    def _common_token_count(self, prompt: Sequence[int]) -> int:
        """Return the length of the beginning of a prompt that the context has; the last token never counts."""
        if self._is_shifted:
            return 0
        return min(common_token_count(self.tokens, list(prompt)), len(prompt) - 1)

    def _record_exact_tokens_up_to(self, count: int) -> None:
        """Record that the tokens after the first ``count`` are not computed as an empty context computes them."""
        if count < self._exact_token_count:
            self._exact_token_count = count
            self._prompt_logits = None
        self._logits = None

    def _keep_first_tokens(self, count: int) -> int:
        """Drop all but the first ``count`` tokens before a prompt is read; return the number that remain."""
        self._is_shifted = False
        # Needed even if all tokens are kept, because an aborted batch may have left some in llama.cpp's memory.
        if not self._native.truncate_sequence(count):
            # The state of a recurrent model cannot be truncated.
            self._native.truncate_sequence(0)
            count = 0
        del self.tokens[count:]
        self._exact_token_count = min(self._exact_token_count, count)
        self._prompt_logits = None
        self._logits = None
        return count


class PromptSegments(NamedTuple):
    """The division of a prompt by an empty context: into batches, and of a batch into segments."""

    batch_tokens: int
    # number of tokens. A batch can be divided at its multiples without changing the logits. Equal to
    # ``batch_tokens`` if a batch cannot be divided.
    segment_tokens: int

    def reusable_token_count(self, common_count: int, prompt_length: int) -> int:
        """Return how many of the first ``common_count`` tokens a prompt of ``prompt_length`` tokens can reuse."""
        # Reused tokens end where a batch ends. They may also end between two segments of a batch, if the prompt
        # has at least one more segment in this batch.
        batch_start = common_count - common_count % self.batch_tokens
        last_batch_tokens = min(prompt_length - batch_start, self.batch_tokens)
        common_segments = (common_count - batch_start) // self.segment_tokens
        max_segments = (last_batch_tokens - self.segment_tokens) // self.segment_tokens
        reusable_segments = max(0, min(common_segments, max_segments))
        return batch_start + reusable_segments * self.segment_tokens

    def end_of_batch(self, position: int) -> int:
        """Return the end of the batch that a position is in."""
        return position - position % self.batch_tokens + self.batch_tokens


# Number of tokens in one comparison. Python compares lists faster than their items one by one.
_COMPARED_TOKENS = 256


_Tokens = TypeVar("_Tokens", list[int], tuple[int, ...])


def common_token_count(held_tokens: _Tokens, prompt: _Tokens) -> int:
    """Return the length of the common beginning of two lists, or of two tuples, of tokens."""
    length = min(len(held_tokens), len(prompt))
    for start in range(0, length, _COMPARED_TOKENS):
        end = min(start + _COMPARED_TOKENS, length)
        if held_tokens[start:end] != prompt[start:end]:
            return next(index for index in range(start, end) if held_tokens[index] != prompt[index])
    return length


def check_prompt(prompt: Sequence[int], max_tokens: int, prompt_words: str = "the prompt") -> None:
    """Raise ``ModelError`` if a prompt is empty or does not fit into the context."""
    if not prompt:
        raise ModelError(f"{prompt_words} is empty")
    if len(prompt) > max_tokens:
        prompt_length = count_noun(len(prompt), "token")
        raise PromptTooLongError(
            f"{prompt_words} has {prompt_length} and the context holds {max_tokens:,}",
            advice=("shorten it, or give a larger ", Word.N_CTX),
            prompt_tokens=len(prompt),
            context_tokens=max_tokens,
        )


class ContextShift:
    """The capacity of a context that discards old tokens when it is full, like llama.cpp's ``--context-shift``."""

    # The context counts as full when only one more token fits. Then the first tokens stay, half of the later
    # tokens are discarded, and the rest moves up. The keys and values of the rest are not computed again, so they
    # still depend on the discarded tokens.

    def __init__(self, context: Context, kept_prompt_token_count: int) -> None:
        """Check that the context can shift. Raises ``ModelError``."""
        if kept_prompt_token_count < -1:
            raise ModelError(f"{kept_prompt_token_count} is not ≥ -1", origin="keep_on_shift")
        if context.shift_unsupported_reason is not None:
            raise ModelError(
                "context shift: this model cannot discard the oldest tokens of a text: "
                f"{context.shift_unsupported_reason}"
            )
        self._context = context
        # number of tokens at the beginning that are never discarded; -1 stands for the whole prompt until
        # `resolve_kept_prompt_tokens` is called
        self.kept_prompt_token_count = kept_prompt_token_count
        self.shift_count = 0  # number of times that tokens were discarded
        self.max_rows = context.max_rows  # see `Context`

    def resolve_kept_prompt_tokens(self, prompt_tokens: int, adds_bos: bool) -> None:
        """Set the number of kept tokens for a prompt, as llama.cpp does."""
        if self.kept_prompt_token_count < 0 or self.kept_prompt_token_count > prompt_tokens:
            self.kept_prompt_token_count = prompt_tokens
        else:
            self.kept_prompt_token_count += int(adds_bos)

    @property
    def remaining(self) -> int:
        return self._context.remaining - 1  # old tokens are discarded when only one more token fits

    def discard_oldest(self, rejected_token_count: int, needed_token_count: int) -> bool:
        """Remove the last ``rejected_token_count`` tokens; then discard the older half of the rest."""
        # The last ``needed_token_count`` tokens of the rest stay. Returns False if no token may be discarded.
        context = self._context
        context.truncate(len(context.tokens) - rejected_token_count)
        later_token_count = len(context.tokens) - self.kept_prompt_token_count
        discarded_token_count = min(later_token_count // 2, later_token_count - needed_token_count)
        if discarded_token_count < 1:
            return False
        context.discard(self.kept_prompt_token_count, discarded_token_count)
        self.shift_count += 1
        return True
