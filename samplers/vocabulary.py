"""The part of a vocabulary that samplers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """What samplers ask of a model's vocabulary. The engine's has these members; a test may pass a fake."""

    @property
    def size(self) -> int:
        """Number of tokens."""

    @property
    def eog(self) -> frozenset[int]:
        """Ids of the tokens that end a generation."""

    @property
    def end(self) -> int | None:
        """Id of the token that ends a turn, or the text; None where the model names none."""

    @property
    def newline(self) -> int | None:
        """Id of the newline token, or None."""

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id; a control token as it is written in the vocabulary."""

    def is_control(self, token: int) -> bool:
        """True for a control token, which is not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Return the token ids of a text in UTF-8; ``special``: control tokens written in it count as tokens."""
        ...
