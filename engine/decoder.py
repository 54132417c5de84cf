"""The decoder: makes one token after the other, drawn by the chain or forced by the constraint.

A decoder is a generator that asks for logits and yields tokens. Whatever provides the logits drives it: one
context, or a batch that many decoders share.
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
    """A decoder's request: remove the last ``drop_count`` tokens, append ``tokens``, send the logits after each.

    Without ``tokens``, the decoder asks for the logits after the last token that was read.
    """

    tokens: Sequence[int]
    drop_count: int = 0


Decoding = Generator[Token | LogitsRequest, Sequence[Logits] | None, str]
"""A running decoder: yields tokens and requests for logits, is sent the logits, and returns the finish reason."""

_Tokens = Generator[Token | LogitsRequest, Sequence[Logits] | None, None]


class SequenceCapacity(Protocol):
    """How much a sequence can take: ``remaining`` tokens, and ``max_rows`` at once with their logits."""

    max_rows: int

    @property
    def remaining(self) -> int:
        """How many more tokens fit."""
        ...


@dataclass
class Decoder:
    """Continues a prompt that has been read. It asks for logits, so that many decoders can share a batch.

    Attributes:
        jump: True if forced tokens are read in one batch.
        lookup: guesses tokens; None: no token is guessed.
        discard_oldest: discards older tokens of a full sequence, after it has removed as many of the last tokens
            as its argument says; returns False if it cannot. None: a full sequence ends the text.
        tracer: samples in place of the chain, and tells how; None: the run is not traced.
        token_count: the tokens made so far.
        forced_count: how many of them were forced.
        chain_seconds: the time spent in the chain.
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
    token_count: int = 0
    forced_count: int = 0
    chain_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._tracker = None if self.constraint is None else _ConstraintTracker(self.constraint, self.vocabulary)
        self._pending: int | None = None
        """The last token, which has been made but not yet read."""
        self._has_ended = False
        self._rejected = 0
        """How many tokens of the last draft were read in vain and are still in the sequence."""

    @property
    def grammar_seconds(self) -> float:
        """Time spent in the constraint."""
        return 0.0 if self._tracker is None else self._tracker.seconds

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence of the constraint; None if the constraint cannot tell."""
        return None if self._tracker is None else self._tracker.is_complete

    def decode(self, limit: int, is_interrupted: Callable[[], bool] | None) -> Decoding:
        """Make at most ``limit`` tokens; returns the finish reason, see `Done`."""
        tracker = self._tracker
        while True:
            if self._has_stopped():
                return "stop"
            if tracker is not None and tracker.is_exhausted():
                return "grammar"
            if self.token_count >= limit:
                return "length"
            if is_interrupted is not None and is_interrupted():
                return "interrupted"
            if self._is_full and not self._has_made_room():
                return "context"
            forced = self._forced(limit - self.token_count)
            if forced:
                yield from self._follow(forced)
            else:
                yield from self._draw(self._draft(limit - self.token_count))

    def complete_sentence(self) -> _Tokens:
        """Make the tokens that complete the constraint's sentence, as many as fit into the context.

        `is_complete` stays False if there is no way to complete it.
        """
        tokens = [] if self._tracker is None else self._tracker.completion()
        while tokens and not self._has_stopped() and not (self._is_full and not self._has_made_room()):
            count = self._max_forced()
            yield from self._follow(tokens[:count])
            tokens = tokens[count:]

    def _has_stopped(self) -> bool:
        return self._has_ended or self.stream.matched_stop is not None

    @property
    def _is_full(self) -> bool:
        return self._pending is not None and self.capacity.remaining + self._rejected <= 0

    def _has_made_room(self) -> bool:
        """True if a full sequence has room again."""
        if self.discard_oldest is None or not self.discard_oldest(self._rejected):
            return False
        self._rejected = 0
        return True

    def _max_forced(self) -> int:
        """How many forced tokens one batch can take; the pending token is in the batch, the last one is not."""
        count = min(self.capacity.remaining + self._rejected, self.capacity.max_rows)
        return count if self._pending is not None else count + 1

    def _forced(self, limit: int) -> list[int]:
        """The forced tokens that come next, at most ``limit`` and what one batch takes."""
        if not self.jump or self._tracker is None:
            return []
        return self._tracker.forced_tokens()[: min(limit, self._max_forced())]

    def _follow(self, tokens: list[int]) -> _Tokens:
        """Make these tokens. All but the last are read in one batch; the last stays pending."""
        batch = tokens[:-1]
        if self._pending is None:
            yield self._make_token((yield from self._read(()))[0], tokens[0])
            tokens = tokens[1:]
        else:
            batch = [self._pending, *batch]
        if not batch or self._has_stopped():
            return
        for logits, token in zip((yield from self._read(batch)), tokens, strict=False):
            yield self._make_token(logits, token)
            if self._has_stopped():
                break

    def _draft(self, limit: int) -> list[int]:
        """Guesses of the next tokens. A token is drawn after the last guess too, so there is one guess fewer."""
        if self.lookup is None or self._pending is None:
            return []
        return self.lookup.draft(min(limit, self._max_forced()) - 1)

    def _draw(self, draft: list[int]) -> _Tokens:
        """Draw one token, and one more for each token of the draft that was drawn as guessed."""
        rows = yield from self._read(draft if self._pending is None else [self._pending, *draft])
        accepted, is_match = 0, False
        for index, logits in enumerate(rows):
            event = self._make_token(logits)
            is_match = index < len(draft) and event.id == draft[index]
            accepted += is_match
            yield event
            if not is_match or self._has_stopped() or self._is_decided():
                break
        if draft and self.lookup is not None:
            # If drawing ends at a guess that matched, this token is pending and is read again with the next one.
            self._rejected = len(draft) - accepted + is_match
            self.lookup.record_acceptance(len(draft), accepted)

    def _is_decided(self) -> bool:
        """True if the constraint ends the text here, or forces the next token."""
        tracker = self._tracker
        return tracker is not None and ((self.jump and bool(tracker.forced_tokens())) or tracker.is_exhausted())

    def _read(self, tokens: Sequence[int]) -> Generator[LogitsRequest, Sequence[Logits] | None, Sequence[Logits]]:
        drop_count, self._rejected = self._rejected, 0
        rows = yield LogitsRequest(tokens, drop_count)
        if rows is None:
            raise RuntimeError("a decoder asked for logits and was sent none")
        return rows

    def _make_token(self, logits: Logits, forced: int | None = None) -> Token:
        """Draw one token, or take the forced one; every part of the state then advances by it."""
        tracker = self._tracker
        mask = None if tracker is None else tracker.mask()
        began = perf_counter()
        tracer = self.tracer
        if tracer is not None:
            token = tracer.sample(logits, mask)
            candidates = tracer.candidates
        else:
            candidates = self.chain.apply(logits, mask)
            token = self.chain.draw(candidates)
        if forced is not None:  # the chain draws all the same: its random numbers stay in step
            token = forced
            self.forced_count += 1
        trace = None if tracer is None else tracer.read(token, forced is not None)
        self.chain.accept(token)
        self.chain_seconds += perf_counter() - began
        if tracker is not None:
            tracker.accept(token)
        data, is_control, self._has_ended = self.vocabulary.token(token)
        distributions = self.reader.read(logits, token, candidates)
        text = "" if is_control else self.stream.push(data)
        event = Token(self.token_count, token, data, text, is_control, distributions, trace=trace)
        self.token_count += 1
        self._pending = token
        if self.lookup is not None:
            self.lookup.add(token)
        return event


class _ConstraintTracker:
    """Asks a constraint at most once per token for its mask, and measures how long the constraint takes.

    ``seconds``: the time spent in the constraint so far. Some constraints only have masks; forced tokens and
    complete sentences are known only by a `ForcingConstraint`.
    """

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        self._constraint = constraint
        self._forcing = as_forcing(constraint)
        self._eog = np.array(sorted(vocabulary.eog) if self._forcing else (), dtype=np.intp)
        self._mask: NDArray[np.bool_] | None = None
        self.seconds = 0.0

    @property
    def is_complete(self) -> bool | None:
        """True if the text is a complete sentence; None if the constraint cannot tell."""
        return None if self._forcing is None else self._forcing.is_complete

    def mask(self) -> NDArray[np.bool_]:
        """The tokens that are allowed next, bool (V,)."""
        if self._mask is None:
            began = perf_counter()
            self._mask = self._constraint.mask()
            self.seconds += perf_counter() - began
        return self._mask

    def accept(self, token: int) -> None:
        """Advance by one token. Raises ``GrammarError`` if the mask does not allow it."""
        began = perf_counter()
        self._constraint.accept(token)
        self._mask = None
        self.seconds += perf_counter() - began

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next, possibly none."""
        if self._forcing is None:
            return []
        began = perf_counter()
        tokens = self._forcing.forced_tokens()
        self.seconds += perf_counter() - began
        return tokens

    def is_exhausted(self) -> bool:
        """True if the text is a complete sentence and no text can follow, only an end-of-generation token."""
        if self._forcing is None or not self._forcing.is_complete:
            return False
        mask = self.mask()
        return bool(mask.sum() == mask[self._eog].sum())

    def completion(self) -> list[int]:
        """The tokens that complete the sentence; none if it is complete or cannot be completed."""
        completable = as_completable(self._constraint)
        if completable is None or completable.is_complete:
            return []
        try:
            return completable.completion_tokens()
        except GrammarError:
            return []


_MAX_MATCH_TOKENS, _MIN_MATCH_TOKENS = 4, 2
"""Tokens at the end of the text that must occur earlier in it: the most at first and after a wrong draft, the
least after a right one. A longer match is preferred to a shorter one."""
_FIRST_DRAFT_TOKENS = 4
"""The length of a draft at first and after a wrong one. On processors the first rows of a batch cost most."""
_MAX_PAUSE_TOKENS = 32
"""Tokens without a draft after several wrong ones in a row; the pause doubles from one token up to this."""


class PromptLookup:
    """Drafts of up to ``max_tokens`` tokens: those that followed an earlier occurrence of the text's last tokens.

    A wrong draft costs time. So the first draft needs a long match. While all tokens of the drafts are right, the
    length doubles, and a short match is enough. If less than half of a draft was right, it cost more time than it
    saved, and there is no draft for some tokens. All of this depends on the tokens alone, never on measured times,
    so that a repeated run has the same batches.
    Source: prompt lookup decoding (A. Saxena 2023); similar to llama.cpp's examples/lookup.

    Attributes:
        drafted_token_count: tokens that were guessed so far.
        accepted_token_count: guessed tokens that the chain drew, too.
    """

    def __init__(self, max_tokens: int, text: Iterable[int]) -> None:
        self._max_tokens = max_tokens
        self._text: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        """The index in the text at which the continuation of some tokens begins; the latest one counts."""
        self._draft_length, self._min_match = min(_FIRST_DRAFT_TOKENS, max_tokens), _MAX_MATCH_TOKENS
        self._paused_tokens, self._next_pause = 0, 1
        self.drafted_token_count = self.accepted_token_count = 0
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        """Append one token to the text."""
        end = len(self._text)
        for size in range(_MIN_MATCH_TOKENS, min(_MAX_MATCH_TOKENS, end) + 1):
            self._continuations[tuple(self._text[end - size :])] = end
        self._text.append(token)
        self._paused_tokens -= self._paused_tokens > 0

    def draft(self, limit: int) -> list[int]:
        """Return at most ``limit`` guesses of the next tokens, possibly none."""
        if self._paused_tokens:
            return []
        for size in range(min(_MAX_MATCH_TOKENS, len(self._text)), self._min_match - 1, -1):
            start = self._continuations.get(tuple(self._text[-size:]))
            if start is not None:
                period = len(self._text) - start  # a continuation that reaches the end of the text is repeated
                return [self._text[start + step % period] for step in range(min(limit, self._draft_length))]
        return []

    def record_acceptance(self, drafted: int, accepted: int) -> None:
        """Adapt to the last draft, of which ``accepted`` tokens were right."""
        self.drafted_token_count += drafted
        self.accepted_token_count += accepted
        if accepted == drafted:
            self._draft_length, self._min_match = min(self._max_tokens, 2 * self._draft_length), _MIN_MATCH_TOKENS
            self._next_pause = 1
            return
        self._draft_length = min(max(_FIRST_DRAFT_TOKENS, accepted), self._max_tokens)
        if 2 * accepted >= drafted:
            self._next_pause = 1
        else:
            self._min_match = _MAX_MATCH_TOKENS
            self._paused_tokens = self._next_pause
            self._next_pause = min(2 * self._next_pause, _MAX_PAUSE_TOKENS)
