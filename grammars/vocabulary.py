"""What a grammar needs of a vocabulary, and the vocabulary of single bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class Vocabulary(Protocol):
    """The tokens that masks are made for. ``logitsmith.engine.Vocabulary`` is one.

    ``size``: how many; ``eog``: those that end a text; ``pieces``: the bytes of each. A vocabulary may also have
    ``control``, the ids for which `is_control` is true; without it every id is asked about.
    """

    @property
    def size(self) -> int:
        """The number of tokens."""
        ...

    @property
    def eog(self) -> Collection[int]:
        """Ids of the tokens that end a generation."""
        ...

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of every token, by id."""
        ...

    def is_control(self, token: int) -> bool:
        """Is it a control token, which is not part of the text?"""
        ...

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """Token ids of a text; ``special``: the written forms of control tokens are these tokens."""
        ...


class ByteVocabulary:
    """A vocabulary of the 256 bytes and one end token, with which a grammar reads text without a model."""

    size = 257
    eog = frozenset({256})
    control = eog
    pieces = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def is_control(self, token: int) -> bool:
        """Is it the end token?"""
        return token in self.control

    def tokenize(self, data: bytes, special: bool = False) -> list[int]:
        """The bytes themselves; with ``special``, ``<end>`` is the end token."""
        if not special:
            return list(data)
        parts = [list(part) for part in data.split(b"<end>")]
        return [token for part in parts for token in (256, *part)][1:]


BYTE_VOCABULARY = ByteVocabulary()
