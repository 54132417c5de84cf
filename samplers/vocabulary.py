"""What a sampler may ask of a vocabulary."""

from __future__ import annotations

from typing import Protocol


class Vocabulary(Protocol):
    """The part of a model's vocabulary that samplers need; a test passes a fake of ten lines."""

    @property
    def size(self) -> int:
        """Number of tokens."""

    @property
    def eog(self) -> frozenset[int]:
        """Ids of the tokens that end a generation."""

    @property
    def newline(self) -> int | None:
        """Id of the newline token, or None."""

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Token ids of a text in UTF-8."""
        ...
