"""A grammar that applies once the model has written a certain text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .errors import GrammarError
from .grammar import Grammar, GrammarState


class TriggeredConstraint:
    """Leaves the model free until it has written ``trigger``, then applies the grammar. A `Constraint`.

    A token that ends the trigger and goes on is allowed if the grammar can begin with its remainder. Control
    tokens count as the vocabulary writes them.

    Attributes:
        state: the grammar's state, None until the trigger was written.
    """

    def __init__(self, grammar: Grammar, trigger: str) -> None:
        if not trigger:
            raise GrammarError("the text after which the grammar begins is empty")
        self.state: GrammarState | None = None
        self._grammar = grammar
        self._trigger = trigger.encode()
        self._trigger_prefix = b""  # the longest beginning of the trigger with which the text ends
        self._masks: dict[bytes, NDArray[np.bool_]] = {}  # before the trigger, by `_trigger_prefix`

    def mask(self) -> NDArray[np.bool_]:
        """The tokens allowed next, bool (V,). Before the trigger: nearly all."""
        if self.state is not None:
            return self.state.mask()
        if self._trigger_prefix not in self._masks:
            self._masks[self._trigger_prefix] = self._mask_before_trigger()
        return self._masks[self._trigger_prefix].copy()

    def _mask_before_trigger(self) -> NDArray[np.bool_]:
        """All tokens but those that end the trigger and go on with what the grammar cannot begin with."""
        mask = np.ones(self._grammar.vocabulary.size, dtype=np.bool_)
        tokens_by_remainder: dict[bytes, list[int]] = {}
        last = self._trigger[-1:]
        for token, piece in enumerate(self._grammar.vocabulary.pieces):
            if last in piece[:-1]:
                remainder = self._after_trigger(piece)
                if remainder:
                    tokens_by_remainder.setdefault(remainder, []).append(token)
        refused = None
        for remainder in sorted(tokens_by_remainder):
            # In this order, remainders with the same refused prefix are neighbours.
            if refused is None or not remainder.startswith(refused):
                refused = self._refused_prefix(remainder)
            if refused is not None:
                mask[tokens_by_remainder[remainder]] = False
        return mask

    def _refused_prefix(self, text: bytes) -> bytes | None:
        """The beginning of the text with which the grammar cannot begin; None if it can begin with the text."""
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        count = self._grammar.start().follow(tokens)
        if count == len(tokens):
            return None
        pieces = self._grammar.vocabulary.pieces
        return b"".join(pieces[token] for token in tokens[: count + 1])

    def forced(self) -> list[int]:
        """Tokens that must come next, possibly none."""
        return [] if self.state is None else self.state.forced()

    def accept(self, token: int) -> None:
        """Append one token. Raises ``GrammarError`` if the mask would have refused it."""
        if self.state is not None:
            self.state.accept(token)
            return
        if token in self._grammar.vocabulary.eog:
            return
        piece = self._grammar.vocabulary.pieces[token]
        remainder = self._after_trigger(piece)
        if remainder is None:
            self._trigger_prefix = self._longest_trigger_prefix(self._trigger_prefix + piece)
            return
        self.state = self._state_after(remainder)
        if self.state is None:
            raise GrammarError(f"the grammar cannot begin with {remainder!r}")

    @property
    def is_complete(self) -> bool:
        """True if the trigger was written, and a whole sentence after it."""
        return self.state is not None and self.state.is_complete

    def closing(self) -> list[int]:
        """The tokens that make the text after the trigger a whole sentence. Raises ``GrammarError``."""
        if self.state is None:
            raise GrammarError(f"{self._trigger.decode()!r} was not written, so there is no sentence to close")
        return self.state.closing()

    @property
    def description(self) -> dict[str, str]:
        """What the grammar and its trigger are, for a record of the run."""
        return {**self._grammar.start().description, "after": self._trigger.decode()}

    def _longest_trigger_prefix(self, text: bytes) -> bytes:
        """The longest end of a text that is a beginning of the trigger."""
        ends = (text[-length:] for length in range(min(len(text), len(self._trigger) - 1), 0, -1))
        return next((end for end in ends if self._trigger.startswith(end)), b"")

    def _after_trigger(self, piece: bytes) -> bytes | None:
        """What follows the trigger once this piece is written; None if the trigger is not whole yet."""
        text = self._trigger_prefix + piece
        start = text.find(self._trigger)
        return None if start < 0 else text[start + len(self._trigger) :]

    def _state_after(self, text: bytes) -> GrammarState | None:
        """The grammar's state after a text; None if the grammar cannot begin with it."""
        state = self._grammar.start()
        tokens = self._grammar.tokenizer.tokenize_bytes(text)
        return state if state.follow(tokens) == len(tokens) else None
