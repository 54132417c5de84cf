"""Token healing: the last tokens of a prompt are removed, and the first tokens of the answer spell them again.

A prompt that ends inside a word, or before the space of the next word, ends with tokens that the model has rarely
seen there. Without these tokens, the model can choose the longer token that it knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .vocabulary import Vocabulary


def removable_token_count(vocabulary: Vocabulary, prompt_ids: Sequence[int]) -> int:
    """Return the greatest number of tokens at the end of a prompt that one longer token can begin with.

    The first token of the prompt and control tokens stay. Returns 0 if no longer token begins with the last token.
    """
    pieces = _text_pieces(vocabulary)
    max_bytes = max(map(len, pieces), default=0)
    sorted_pieces = sorted(piece for piece in pieces if piece)
    removable_count, ending = 0, b""
    for count in range(1, len(prompt_ids)):
        token = prompt_ids[-count]
        if vocabulary.is_control(token):
            break
        ending = vocabulary.piece(token) + ending
        if len(ending) >= max_bytes:
            break
        if ending and _has_longer_piece(sorted_pieces, ending):
            removable_count = count
    return removable_count


def _text_pieces(vocabulary: Vocabulary) -> list[bytes]:
    """Return the bytes of every token; empty for a control token."""
    control = vocabulary.control
    return [b"" if token in control else piece for token, piece in enumerate(vocabulary.pieces)]


def _has_longer_piece(sorted_pieces: Sequence[bytes], beginning: bytes) -> bool:
    place = bisect_right(sorted_pieces, beginning)
    return place < len(sorted_pieces) and sorted_pieces[place].startswith(beginning)


class PromptHealer:
    """The mask that makes the first tokens spell the end of the prompt.

    Attributes:
        remaining: the bytes that the next tokens must spell.
    """

    def __init__(self, vocabulary: Vocabulary, ending: bytes) -> None:
        self._pieces = _text_pieces(vocabulary)
        self.remaining = ending

    def mask(self) -> NDArray[np.bool_]:
        """Return the tokens that continue the spelling, bool (V,)."""
        remaining = self.remaining
        spells = (
            bool(piece) and (piece.startswith(remaining) or remaining.startswith(piece)) for piece in self._pieces
        )
        return np.fromiter(spells, dtype=np.bool_, count=len(self._pieces))

    def accept(self, data: bytes) -> bytes:
        """Add a token; return its bytes after the end of the prompt."""
        spelled_count = min(len(data), len(self.remaining))
        self.remaining = self.remaining[spelled_count:]
        return data[spelled_count:]
