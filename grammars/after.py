"""A grammar that begins to hold once the model has written a certain text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .grammar import Grammar, GrammarState


class After:
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
        self._tail = b""
        self._enders = [
            (token, piece) for token, piece in enumerate(grammar.vocabulary.pieces) if self._goes_beyond(piece)
        ]

    def _goes_beyond(self, piece: bytes) -> bool:
        """Can this piece hold the trigger's end and something more?"""
        found = piece.find(self._trigger[-1:])
        while found >= 0:
            head = piece[: found + 1][-len(self._trigger) :]
            if found + 1 < len(piece) and self._trigger.endswith(head):
                return True
            found = piece.find(self._trigger[-1:], found + 1)
        return False

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,): all, until the trigger was written."""
        if self.state is not None:
            return self.state.mask()
        free = np.ones(self._grammar.vocabulary.size, dtype=np.bool_)
        for token, piece in self._enders:
            rest = self._rest(piece)
            if rest and self._begun(rest) is None:
                free[token] = False
        return free

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
            self._tail = (self._tail + piece)[-len(self._trigger) + 1 :] if len(self._trigger) > 1 else b""
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
