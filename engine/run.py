"""One run: token after token, each chosen by the chain or forced by the constraint."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..grammars import Constraint, GrammarError, as_closable, as_guide
from ..samplers import Chain
from .distribution import LogprobReader
from .events import Token
from .lookup import Lookup
from .text import TextStream
from .vocabulary import Vocabulary

Logits = NDArray[np.float32]


class Read(NamedTuple):
    """A run asks to append these tokens, and for the logits after each; of none, for the logits as they are.

    Before that, the last ``back`` tokens are to be forgotten.
    """

    tokens: Sequence[int]
    back: int = 0


Moves = Generator[Token | Read, Sequence[Logits] | None, str]
"""What a run does: tells of a token, or asks for logits, which are to be sent; at last, why it ended."""


class Place(Protocol):
    """Where a run's tokens are read: how many more fit, and how many are read at once."""

    piece: int

    @property
    def room(self) -> int:
        """How many further tokens fit."""
        ...


@dataclass
class Run:
    """Writes on from where the prompt ends. What is to be read it asks for, so that many runs can share a batch.

    ``lookup``: what guesses, if anything does. ``count``: tokens made; ``forced``: how many the constraint forced;
    ``chain_seconds`` and ``grammar_seconds``: time spent in the chain and in the constraint.
    """

    vocabulary: Vocabulary
    place: Place
    chain: Chain
    constraint: Constraint | None
    reader: LogprobReader
    stream: TextStream
    jump: bool
    lookup: Lookup | None = None
    count: int = 0
    forced: int = 0
    chain_seconds: float = 0.0
    grammar_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._guide = as_guide(self.constraint)
        self._mask: NDArray[np.bool_] | None = None
        self._ends = np.array(sorted(self.vocabulary.eog) if self._guide else (), dtype=np.intp)
        self._unread: int | None = None
        self._ended = False
        self._wrong = 0
        """How many tokens of a draft were read in vain, and stand behind the text."""

    @property
    def complete(self) -> bool | None:
        """Is the text whole, by a constraint that can say so?"""
        return None if self._guide is None else self._guide.is_complete

    def write(self, limit: int, interrupted: Callable[[], bool] | None) -> Moves:
        """Make tokens until something ends the run; returns what: see `Done`."""
        while True:
            if self._has_stopped():
                return "stop"
            if self._is_over():
                return "grammar"
            if self.count >= limit:
                return "length"
            if interrupted is not None and interrupted():
                return "interrupted"
            if self._full:
                return "context"
            forced = self._forced(limit - self.count)
            if forced:
                yield from self._follow(forced)
            else:
                yield from self._draw(self._draft(limit - self.count))

    def close(self) -> Generator[Token | Read, Sequence[Logits] | None, None]:
        """Write the tokens that bring the constrained text to its end, as far as the context has room.

        Where there is no way to the end, `complete` stays False.
        """
        closable = as_closable(self.constraint)
        if closable is None or closable.is_complete:
            return
        try:
            tokens = closable.closing()
        except GrammarError:
            return
        while tokens and not self._has_stopped() and not self._full:
            part = tokens[: self._at_once()]
            yield from self._follow(part)
            tokens = tokens[len(part) :]

    def _has_stopped(self) -> bool:
        return self._ended or self.stream.stopped is not None

    @property
    def _full(self) -> bool:
        return self._unread is not None and self._room <= 0

    @property
    def _room(self) -> int:
        return self.place.room + self._wrong

    def _at_once(self) -> int:
        """How many forced tokens can be made with one batch, which also takes the token that is unread."""
        room = min(self._room, self.place.piece)
        return room if self._unread is not None else room + 1

    def _forced(self, limit: int) -> list[int]:
        """The tokens that must come, as many as fit."""
        return self._coming()[: min(limit, self._at_once())]

    def _coming(self) -> list[int]:
        """The tokens that the grammar says must come next, if they are to be taken at once."""
        if not self.jump or self._guide is None:
            return []
        began = perf_counter()
        tokens = self._guide.forced()
        self.grammar_seconds += perf_counter() - began
        return tokens

    def _follow(self, tokens: list[int]) -> Generator[Token | Read, Sequence[Logits] | None, None]:
        """Make these tokens, all read in one batch but for the last, which stays unread."""
        batch = tokens[:-1]
        if self._unread is None:
            yield self._next((yield from self._read(()))[0], tokens[0])
            tokens = tokens[1:]
        else:
            batch = [self._unread, *batch]
        if not batch or self._has_stopped():
            return
        for logits, token in zip((yield from self._read(batch)), tokens, strict=False):
            yield self._next(logits, token)
            if self._has_stopped():
                break

    def _draft(self, limit: int) -> list[int]:
        """Tokens that may come next; the last one of a batch is drawn without having been guessed."""
        if self.lookup is None or self._unread is None:
            return []
        return self.lookup.draft(min(limit, self._at_once()) - 1)

    def _draw(self, draft: list[int]) -> Generator[Token | Read, Sequence[Logits] | None, None]:
        """Draw one token, and as many more as the draft was right about."""
        rows = yield from self._read(draft if self._unread is None else [self._unread, *draft])
        right, hit = 0, False
        for place, logits in enumerate(rows):
            event = self._next(logits)
            hit = place < len(draft) and event.id == draft[place]
            right += hit
            yield event
            if not hit or self._has_stopped() or self._led():
                break
        if draft and self.lookup is not None:
            # A token that was guessed, and behind which nothing is drawn, is read again with what follows it.
            self._wrong = len(draft) - right + hit
            self.lookup.learn(len(draft), right)

    def _led(self) -> bool:
        """Does the grammar end the text here, or say what must follow?"""
        return bool(self._coming()) or self._is_over()

    def _read(self, tokens: Sequence[int]) -> Generator[Read, Sequence[Logits] | None, Sequence[Logits]]:
        back, self._wrong = self._wrong, 0
        rows = yield Read(tokens, back)
        if rows is None:
            raise RuntimeError("a run asked for logits, and was not sent any")
        return rows

    def _is_over(self) -> bool:
        """Is the text whole, with nothing that could follow?"""
        if self._guide is None or not self._guide.is_complete:
            return False
        mask = self._allowed()
        return mask is not None and bool(mask.sum() == mask[self._ends].sum())

    def _allowed(self) -> NDArray[np.bool_] | None:
        if self._mask is None and self.constraint is not None:
            began = perf_counter()
            self._mask = self.constraint.mask()
            self.grammar_seconds += perf_counter() - began
        return self._mask

    def _next(self, logits: Logits, forced: int | None = None) -> Token:
        """Choose one token, or take the forced one, and tell of it."""
        vocabulary = self.vocabulary
        mask = self._allowed()
        began = perf_counter()
        left = None
        if self.reader.reads_chain:
            left = self.chain.apply(logits, mask)
            token = self.chain.draw(left)
        else:
            token = self.chain.sample(logits, mask)
        if forced is not None:
            token = forced
            self.forced += 1
        self.chain.accept(token)
        self.chain_seconds += perf_counter() - began
        if self.constraint is not None:
            began = perf_counter()
            self.constraint.accept(token)
            self._mask = None
            self.grammar_seconds += perf_counter() - began
        data = vocabulary.piece(token)
        said = self.reader.read(logits, token, left)
        special = vocabulary.is_control(token)
        text = "" if special else self.stream.push(data)
        event = Token(self.count, token, data, text, special, said)
        self.count += 1
        self._unread = token
        if self.lookup is not None:
            self.lookup.add(token)
        self._ended = vocabulary.is_eog(token)
        return event
