"""What a grammar needs of a vocabulary, and the vocabulary of single bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """The tokens of masks. ``logitsmith.engine.Vocabulary`` is one.

    A vocabulary may also have ``control``, the ids for which `is_control` is true; without it every id is asked
    about.
    """

    @property
    def size(self) -> int:
        """The number of tokens."""
        ...

    @property
    def eog(self) -> Collection[int]:
        """The ids of the end-of-generation tokens."""
        ...

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id."""
        ...

    def is_control(self, token: int) -> bool:
        """True for a control token, which is not part of the text."""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """The token ids of a text; ``special``: control tokens are recognized where their text stands."""
        ...


class ByteVocabulary:
    """The 256 bytes and one end token: with it a grammar matches texts without a model."""

    size = 257
    eog = frozenset({256})
    control = eog
    pieces = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def is_control(self, token: int) -> bool:
        """True for the end token."""
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """The bytes themselves; with ``special``, ``<end>`` is the end token."""
        if not special:
            return list(data)
        parts = [list(part) for part in data.split(b"<end>")]
        return [token for part in parts for token in (256, *part)][1:]


BYTE_VOCABULARY = ByteVocabulary()
