"""The decoder: makes one token after the other, drawn by the chain or forced by the constraint.

A decoder is a generator that requests logits and yields tokens. Its driver provides the logits, from one context
or from a batch that many decoders share.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..grammars.constraint import Constraint, as_completable, as_forcing
from ..grammars.errors import GrammarError
from ..logprobs.events import Token
from ..samplers.chain import Chain
from .native.context import Logits
from .token_records import LogprobReader, TraceReader
from .vocabulary import TextStream, Vocabulary


class LogitsRequest(NamedTuple):
    """A request of a decoder: remove tokens, append tokens, and send the logits after each appended one.

    Attributes:
        tokens: the tokens to append. If empty, the decoder needs the logits after the last token that was read.
        drop_count: number of tokens to remove from the end of the sequence first.
    """

    tokens: Sequence[int]
    drop_count: int = 0


Decoding = Generator[Token | LogitsRequest, Sequence[Logits] | None, str]
"""A running decoder: yields tokens and `LogitsRequest`, receives the logits, and returns the finish reason."""

_Tokens = Generator[Token | LogitsRequest, Sequence[Logits] | None, None]


class SequenceCapacity(Protocol):
    """The free space of a sequence.

    Attributes:
        max_rows: maximum number of tokens that one call can read with the logits of each token.
    """

    max_rows: int

    @property
    def remaining(self) -> int:
        """The number of tokens that still fit."""
        ...


@dataclass
class Decoder:
    """The generation of tokens after a prompt that has been read.

    A decoder requests logits, so that many decoders can share a batch.

    Attributes:
        vocabulary: the tokens of the model.
        capacity: the free space of the sequence.
        chain: draws the tokens.
        constraint: masks tokens before the chain; None: every token is allowed.
        reader: reads the logprobs of each token.
        stream: decodes the text, and finds stop strings.
        jump: whether forced tokens are read in one batch.
        lookup: drafts tokens; None: no token is drafted.
        discard_oldest: frees space in a full sequence, and first removes as many of the last tokens as its
            argument says; returns False if it cannot. None: a full sequence ends the text.
        tracer: samples instead of the chain, and records each step; None: the run is not traced.
        stop_token_ids: tokens that end the text, in addition to the model's end-of-generation tokens.
        ends_at_eog: whether end-of-generation tokens end the text; under a constraint they always do.
        token_count: number of tokens made so far.
        forced_count: number of these tokens that were forced.
        chain_seconds: time spent in the chain.
    """

    vocabulary: Vocabulary
    capacity: SequenceCapacity
    chain: Chain
    constraint: Constraint | None
    reader: LogprobReader
    stream: TextStream
    jump: bool
    lookup: PromptLookup | None = None
    discard_oldest: Callable[[int], bool] | None = None
    tracer: TraceReader | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ends_at_eog: bool = True
    token_count: int = 0
    forced_count: int = 0
    chain_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._tracker = None if self.constraint is None else _ConstraintTracker(self.constraint, self.vocabulary)
        self._pending_token: int | None = None
        """The last token, which has been made but not yet read."""
        self._has_ended = False
        self._rejected_count = 0
        """Number of wrong tokens of the last draft that are still in the sequence."""

    @property
    def grammar_seconds(self) -> float:
        """Time spent in the constraint."""
        return 0.0 if self._tracker is None else self._tracker.seconds

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence of the constraint; None if the constraint does not know."""
        return None if self._tracker is None else self._tracker.is_complete

    def decode(self, max_tokens: int, is_interrupted: Callable[[], bool] | None) -> Decoding:
        """Make up to ``max_tokens`` tokens; return the finish reason, see `Done`."""
        tracker = self._tracker
        while True:
            if self._has_stopped():
                return "stop"
            if tracker is not None and tracker.is_exhausted():
                return "grammar"
            if self.token_count >= max_tokens:
                return "length"
            if is_interrupted is not None and is_interrupted():
                return "interrupted"
            if self._is_full and not self._discard_old_tokens():
                return "context"
            remaining = max_tokens - self.token_count
            forced_tokens = self._forced_tokens(remaining)
            if forced_tokens:
                yield from self._make_forced_tokens(forced_tokens)
            else:
                yield from self._draw_tokens(self._draft_tokens(remaining))

    def complete_sentence(self) -> _Tokens:
        """Make the tokens that complete the constraint's sentence, as far as they fit into the context.

        `is_complete` stays False if the sentence cannot be completed.
        """
        tokens = [] if self._tracker is None else self._tracker.completion_tokens()
        while tokens and not self._has_stopped() and not (self._is_full and not self._discard_old_tokens()):
            batch_length = self._max_forced_count()
            yield from self._make_forced_tokens(tokens[:batch_length])
            tokens = tokens[batch_length:]

    def _has_stopped(self) -> bool:
        return self._has_ended or self.stream.matched_stop is not None

    @property
    def _is_full(self) -> bool:
        return self._pending_token is not None and self.capacity.remaining + self._rejected_count <= 0

    def _discard_old_tokens(self) -> bool:
        """Free space in a full sequence; return False if that is not possible."""
        if self.discard_oldest is None or not self.discard_oldest(self._rejected_count):
            return False
        self._rejected_count = 0
        return True

    def _max_forced_count(self) -> int:
        """Return the maximum number of forced tokens in one batch.

        The batch includes the pending token, but not the last forced one.
        """
        free_token_count = min(self.capacity.remaining + self._rejected_count, self.capacity.max_rows)
        return free_token_count if self._pending_token is not None else free_token_count + 1

    def _forced_tokens(self, max_count: int) -> list[int]:
        """Return the next forced tokens: at most ``max_count``, and no more than fit into one batch."""
        if not self.jump or self._tracker is None:
            return []
        return self._tracker.forced_tokens()[: min(max_count, self._max_forced_count())]

    def _make_forced_tokens(self, tokens: list[int]) -> _Tokens:
        """Make these forced tokens. All but the last are read in one batch; the last one stays pending."""
        batch = tokens[:-1]
        if self._pending_token is None:
            yield self._make_token((yield from self._read(()))[0], tokens[0])
            tokens = tokens[1:]
        else:
            batch = [self._pending_token, *batch]
        if not batch or self._has_stopped():
            return
        for logits, token in zip((yield from self._read(batch)), tokens, strict=False):
            yield self._make_token(logits, token)
            if self._has_stopped():
                break

    def _draft_tokens(self, max_count: int) -> list[int]:
        """Return the draft tokens, fewer than ``max_count``: the chain draws one more token after the draft."""
        if self.lookup is None or self._pending_token is None:
            return []
        return self.lookup.draft(min(max_count, self._max_forced_count()) - 1)

    def _draw_tokens(self, draft: list[int]) -> _Tokens:
        """Draw one token, and another one after each token of the draft that the chain drew, too."""
        rows = yield from self._read(draft if self._pending_token is None else [self._pending_token, *draft])
        accepted_count, is_match = 0, False
        for index, logits in enumerate(rows):
            event = self._make_token(logits)
            is_match = index < len(draft) and event.id == draft[index]
            accepted_count += is_match
            yield event
            if not is_match or self._has_stopped() or self._does_constraint_decide_next():
                break
        if draft and self.lookup is not None:
            # If the loop ended at a match, the matching token is pending, and is read again with the next token.
            self._rejected_count = len(draft) - accepted_count + is_match
            self.lookup.record_acceptance(len(draft), accepted_count)

    def _does_constraint_decide_next(self) -> bool:
        """Return whether the constraint ends the text here, or forces the next token."""
        tracker = self._tracker
        return tracker is not None and ((self.jump and bool(tracker.forced_tokens())) or tracker.is_exhausted())

    def _read(self, tokens: Sequence[int]) -> Generator[LogitsRequest, Sequence[Logits] | None, Sequence[Logits]]:
        drop_count, self._rejected_count = self._rejected_count, 0
        rows = yield LogitsRequest(tokens, drop_count)
        if rows is None:
            raise RuntimeError("a decoder requested logits and received None")
        return rows

    def _make_token(self, logits: Logits, forced: int | None = None) -> Token:
        """Draw one token, or take the forced one, and advance the chain, the constraint and the text by it."""
        tracker = self._tracker
        mask = None if tracker is None else tracker.mask()
        start_seconds = perf_counter()
        tracer = self.tracer
        if tracer is not None:
            token = tracer.sample(logits, mask)
            candidates = tracer.candidates
        else:
            candidates = self.chain.apply(logits, mask)
            token = self.chain.draw(candidates)
        if forced is not None:  # the chain has drawn anyway, so that its random numbers do not depend on the jump
            token = forced
            self.forced_count += 1
        trace = None if tracer is None else tracer.read(token, forced is not None)
        self.chain.accept(token)
        self.chain_seconds += perf_counter() - start_seconds
        if tracker is not None:
            tracker.accept(token)
        data, is_control, is_eog = self.vocabulary.token(token)
        is_end = is_eog and (self.ends_at_eog or tracker is not None)
        self._has_ended = is_end or token in self.stop_token_ids
        distributions = self.reader.read(logits, token, candidates)
        text = "" if is_control else self.stream.push(data)
        event = Token(self.token_count, token, data, text, is_control, distributions, trace=trace)
        self.token_count += 1
        self._pending_token = token
        if self.lookup is not None:
            self.lookup.add(token)
        return event


class _ConstraintTracker:
    """A reader of a constraint's masks, each at most once, that measures how long the constraint takes.

    Only a `ForcingConstraint` has forced tokens and knows whether a sentence is complete; other constraints only
    have masks.

    Attributes:
        seconds: time spent in the constraint so far.
    """

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        self._constraint = constraint
        self._forcing = as_forcing(constraint)
        self._eog_tokens = np.array(sorted(vocabulary.eog) if self._forcing else (), dtype=np.intp)
        self._mask: NDArray[np.bool_] | None = None
        self.seconds = 0.0

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence; None if the constraint does not know."""
        return None if self._forcing is None else self._forcing.is_complete

    def mask(self) -> NDArray[np.bool_]:
        """Return the tokens that are allowed next, bool (V,)."""
        if self._mask is None:
            start_seconds = perf_counter()
            self._mask = self._constraint.mask()
            self.seconds += perf_counter() - start_seconds
        return self._mask

    def accept(self, token: int) -> None:
        """Advance by one token. Raises ``GrammarError`` if the mask does not allow the token."""
        start_seconds = perf_counter()
        self._constraint.accept(token)
        self._mask = None
        self.seconds += perf_counter() - start_seconds

    def forced_tokens(self) -> list[int]:
        """Return the tokens that must come next, possibly none."""
        if self._forcing is None:
            return []
        start_seconds = perf_counter()
        tokens = self._forcing.forced_tokens()
        self.seconds += perf_counter() - start_seconds
        return tokens

    def is_exhausted(self) -> bool:
        """Return whether the text is a complete sentence that only an end-of-generation token may follow."""
        if self._forcing is None or not self._forcing.is_complete:
            return False
        mask = self.mask()
        return bool(mask.sum() == mask[self._eog_tokens].sum())

    def completion_tokens(self) -> list[int]:
        """Return the tokens that complete the sentence; none if it is complete or cannot be completed."""
        completable = as_completable(self._constraint)
        if completable is None or completable.is_complete:
            return []
        try:
            return completable.completion_tokens()
        except GrammarError:
            return []


_MAX_MATCH_TOKENS, _MIN_MATCH_TOKENS = 4, 2
"""Number of tokens at the end of the text that must occur earlier in the text: the maximum for the first draft and
after a wrong draft, the minimum after a right one. A longer match is preferred to a shorter one."""
_FIRST_DRAFT_TOKENS = 4
"""Length of the first draft, and of a draft after a wrong one. On CPUs the first rows of a batch cost most."""
_MAX_PAUSE_TOKENS = 32
"""Limit of the pause after wrong drafts, in tokens. The pause begins with one token, and doubles with each wrong
draft."""


class PromptLookup:
    """Drafts of up to ``max_tokens`` tokens: those that followed an earlier occurrence of the text's last tokens.

    A wrong draft costs time. So the first draft needs a long match. While all tokens of the drafts are right, the
    length doubles, and a short match is enough. If less than half of a draft was right, it cost more time than it
    saved, and there is no draft for some tokens. All of this depends on the tokens alone, never on measured times,
    so that a repeated run has the same batches.
    Source: prompt lookup decoding (A. Saxena 2023); similar to llama.cpp's examples/lookup.

    Attributes:
        drafted_token_count: number of tokens that were drafted so far.
        accepted_token_count: number of drafted tokens that the chain drew, too.
    """

    def __init__(self, max_tokens: int, text: Iterable[int]) -> None:
        self._max_tokens = max_tokens
        self._text_tokens: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        """For each sequence of tokens, the index in the text after its latest occurrence."""
        self._max_draft_tokens, self._min_match_tokens = min(_FIRST_DRAFT_TOKENS, max_tokens), _MAX_MATCH_TOKENS
        self._paused_tokens, self._next_pause_tokens = 0, 1
        self.drafted_token_count = self.accepted_token_count = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        """Append one token to the text."""
        end = len(self._text_tokens)
        for match_length in range(_MIN_MATCH_TOKENS, min(_MAX_MATCH_TOKENS, end) + 1):
            self._continuations[tuple(self._text_tokens[end - match_length :])] = end
        self._text_tokens.append(token)
        self._paused_tokens -= self._paused_tokens > 0

    def draft(self, max_count: int) -> list[int]:
        """Return a guess of the next tokens, at most ``max_count``, possibly none."""
        if self._paused_tokens:
            return []
        for match_length in range(min(_MAX_MATCH_TOKENS, len(self._text_tokens)), self._min_match_tokens - 1, -1):
            continuation_start = self._continuations.get(tuple(self._text_tokens[-match_length:]))
            if continuation_start is not None:
                period = (
                    len(self._text_tokens) - continuation_start
                )  # a continuation that reaches the end of the text is repeated
                return [
                    self._text_tokens[continuation_start + step % period]
                    for step in range(min(max_count, self._max_draft_tokens))
                ]
        return []

    def record_acceptance(self, drafted_count: int, accepted_count: int) -> None:
        """Adapt the length of drafts to the last draft, of which ``accepted_count`` tokens were right."""
        self.drafted_token_count += drafted_count
        self.accepted_token_count += accepted_count
        if accepted_count == drafted_count:
            self._max_draft_tokens, self._min_match_tokens = (
                min(self._max_tokens, 2 * self._max_draft_tokens),
                _MIN_MATCH_TOKENS,
            )
            self._next_pause_tokens = 1
            return
        self._max_draft_tokens = min(max(_FIRST_DRAFT_TOKENS, accepted_count), self._max_tokens)
        if 2 * accepted_count >= drafted_count:
            self._next_pause_tokens = 1
        else:
            self._min_match_tokens = _MAX_MATCH_TOKENS
            self._paused_tokens = self._next_pause_tokens
            self._next_pause_tokens = min(2 * self._next_pause_tokens, _MAX_PAUSE_TOKENS)
