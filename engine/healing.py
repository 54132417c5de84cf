"""Token healing: the last tokens of a prompt are removed, and the first tokens of the answer spell them again.

A prompt that ends inside a word, or before the space of the next word, ends with tokens that the model has rarely
seen there. Without these tokens, the model can choose the longer token that it knows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .phase_tracker import spelling_mask
from .vocabulary import Vocabulary


def removable_token_count(vocabulary: Vocabulary, prompt_ids: Sequence[int]) -> int:
    """Return how many tokens to remove from the end of a prompt, because a longer token begins with their text."""
    # The first token and control tokens are never removed. Longer tokens that the model suppresses do not count.
    pieces = _text_pieces(vocabulary)
    max_bytes = max(map(len, pieces), default=0)
    sorted_pieces = sorted(piece for piece in pieces if piece)
    removable_count = 0
    ending = b""
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


def heal_prompt(vocabulary: Vocabulary, prompt_ids: list[int]) -> PromptHealer | None:
    """Remove tokens from the end of a prompt, and return what makes the first tokens spell them again."""
    # Returns None if no token is removed.
    removed_count = removable_token_count(vocabulary, prompt_ids)
    if not removed_count:
        return None
    removed_ids = prompt_ids[-removed_count:]
    del prompt_ids[-removed_count:]
    return PromptHealer(vocabulary, b"".join(map(vocabulary.piece, removed_ids)), removed_ids)


def _text_pieces(vocabulary: Vocabulary) -> list[bytes]:
    """Return the bytes of every token; empty for a token that is never drawn, or is not text."""
    pieces = list(vocabulary.pieces)
    for token in (*vocabulary.control, *vocabulary.suppressed):
        pieces[token] = b""
    return pieces


def _has_longer_piece(sorted_pieces: Sequence[bytes], beginning: bytes) -> bool:
    place = bisect_right(sorted_pieces, beginning)
    return place < len(sorted_pieces) and sorted_pieces[place].startswith(beginning)


class PromptHealer:
    """The mask that makes the first tokens spell the end of the prompt."""

    def __init__(self, vocabulary: Vocabulary, ending: bytes, removed_ids: Sequence[int] = ()) -> None:
        self._vocabulary = vocabulary
        self.remaining = ending  # the bytes that the next tokens must spell
        self.removed_ids = removed_ids  # the tokens that were removed from the prompt

    def mask(self) -> NDArray[np.bool_]:
        """Return the tokens that continue the spelling, bool (V,)."""
        mask = spelling_mask(self._vocabulary, [self.remaining])
        mask[[*self._vocabulary.control, *self._vocabulary.suppressed]] = False
        return mask

    def without_removed(self, ids: Sequence[int]) -> list[int]:
        """Return the tokens of another prompt, without those that were removed if it ends with the same ones."""
        count = len(self.removed_ids)
        has_same_end = count < len(ids) and list(ids[len(ids) - count :]) == list(self.removed_ids)
        return list(ids[: len(ids) - count]) if has_same_end else list(ids)

    def accept(self, data: bytes) -> int:
        """Add a token; return the number of its bytes that belong to the end of the prompt."""
        spelled_count = min(len(data), len(self.remaining))
        self.remaining = self.remaining[spelled_count:]
        return spelled_count
