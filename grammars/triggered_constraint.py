"""A grammar that begins to hold once the model has written a certain text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .grammar import Grammar, GrammarState


class TriggeredConstraint:
    """Leaves the model free until it has written ``trigger``, then holds it to the grammar. A `Constraint`.

    A token that ends the trigger and goes on beyond it is allowed if the grammar can begin with the rest.
    Control tokens count as they are written in the vocabulary.
    """

    def __init__(self, grammar: Grammar, trigger: str) -> None:
        if not trigger:
            raise GrammarError("the text after which the grammar begins is empty")
        self.state: GrammarState | None = None
        self._grammar = grammar
        self._trigger = trigger.encode()
        self._tail = b""  # the beginning of the trigger that was written last
        self._free: dict[bytes, NDArray[np.bool_]] = {}

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,): all, until the trigger was written."""
        if self.state is not None:
            return self.state.mask()
        if self._tail not in self._free:
            self._free[self._tail] = self._all_but_wrong_beginnings()
        return self._free[self._tail].copy()

    def _all_but_wrong_beginnings(self) -> NDArray[np.bool_]:
        """All tokens but those that go beyond the trigger with what the grammar cannot begin with."""
        free = np.ones(self._grammar.vocabulary.size, dtype=np.bool_)
        beyond: dict[bytes, list[int]] = {}
        last = self._trigger[-1:]
        for token, piece in enumerate(self._grammar.vocabulary.pieces):
            if last in piece[:-1]:
                rest = self._rest(piece)
                if rest:
                    beyond.setdefault(rest, []).append(token)
        wrong = None
        for rest in sorted(beyond):
            if wrong is None or not rest.startswith(wrong):
                wrong = self._wrong_part(rest)
            if wrong is not None:
                free[beyond[rest]] = False
        return free

    def _wrong_part(self, rest: bytes) -> bytes | None:
        """The beginning of this text with which the grammar cannot begin; None if it can begin with all of it."""
        tokens = self._grammar.tokenizer.tokenize_bytes(rest)
        taken = self._grammar.start().follow(tokens)
        if taken == len(tokens):
            return None
        pieces = self._grammar.vocabulary.pieces
        return b"".join(pieces[token] for token in tokens[: taken + 1])

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        return [] if self.state is None else self.state.forced()

    def accept(self, token: int) -> None:
        """Move on by one token. Raises ``GrammarError`` if the mask would have refused it."""
        if self.state is not None:
            self.state.accept(token)
            return
        if token in self._grammar.vocabulary.eog:
            return
        piece = self._grammar.vocabulary.pieces[token]
        rest = self._rest(piece)
        if rest is None:
            self._tail = self._begun_trigger(self._tail + piece)
            return
        self.state = self._begun(rest)
        if self.state is None:
            raise GrammarError(f"the grammar cannot begin with {rest!r}")

    @property
    def is_complete(self) -> bool:
        """The trigger was written, and after it a whole sentence."""
        return self.state is not None and self.state.is_complete

    def closing(self) -> list[int]:
        """The tokens that make the text after the trigger a whole sentence."""
        if self.state is None:
            raise GrammarError(f"{self._trigger.decode()!r} was not written, so there is no sentence to close")
        return self.state.closing()

    @property
    def description(self) -> dict[str, str]:
        """What the grammar is, for a record of the run."""
        return {**self._grammar.start().description, "after": self._trigger.decode()}

    def _begun_trigger(self, text: bytes) -> bytes:
        """The longest end of a text that begins the trigger."""
        ends = (text[-length:] for length in range(min(len(text), len(self._trigger) - 1), 0, -1))
        return next((end for end in ends if self._trigger.startswith(end)), b"")

    def _rest(self, piece: bytes) -> bytes | None:
        """What follows the trigger once this piece is written; None if it is not whole yet."""
        text = self._tail + piece
        start = text.find(self._trigger)
        return None if start < 0 else text[start + len(self._trigger) :]

    def _begun(self, rest: bytes) -> GrammarState | None:
        """The grammar's state after a text that came with the trigger's last token; None if it cannot begin so."""
        state = self._grammar.start()
        tokens = self._grammar.tokenizer.tokenize_bytes(rest)
        return state if state.follow(tokens) == len(tokens) else None
