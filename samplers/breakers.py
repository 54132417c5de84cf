"""Texts over which no repetition reaches, as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .overlap import heads
from .single import utf8
from .vocabulary import Vocabulary

# llama.cpp's limits, which keep the search linear.
_LONGEST_TEXT = 40  # bytes
_LONGEST_TAIL = 20  # tokens
# Tokens to look at first, from the end; most texts have a breaker among them.
_BLOCK = 256


class Breakers:
    """The sequences of tokens that break a repetition.

    Attributes: ``single``, int64 (n,), the tokens that are a breaker by themselves; ``size``, the vocabulary's.
    Parameters: ``tails``, by the first token of a breaker, the tokens that must follow: all the ways; ``size``,
    that of the vocabulary.
    """

    def __init__(self, tails: Mapping[int, Sequence[Sequence[int]]], size: int) -> None:
        self._tails = {
            head: sorted({tuple(ways) for ways in known}, key=len, reverse=True) for head, known in tails.items()
        }
        self.size = size
        self._is_head = np.zeros(size, dtype=np.bool_)
        self._is_head[list(tails)] = True
        self.single = np.array([head for head, known in self._tails.items() if () in known], dtype=np.int64)

    @classmethod
    def overlapping(cls, texts: Sequence[str], vocabulary: Vocabulary) -> Breakers:
        """Breakers as tokens can write them: a token may begin before the text, and end after it.

        The rest of a text that one token does not hold is encoded afresh. As in llama.cpp, a text counts up to 40
        bytes and a rest up to 20 tokens. A rest that begins inside a character is matched byte by byte, where
        llama.cpp encodes it as a replacement character.
        """
        tails: dict[int, list[Sequence[int]]] = {}
        pieces = vocabulary.pieces
        for text in texts:
            for head, rest in heads(utf8(text, "dry.breakers")[:_LONGEST_TEXT], pieces):
                tokens = _tokens_of(rest, vocabulary)
                if tokens is not None:
                    tails.setdefault(head, []).append(tokens[:_LONGEST_TAIL])
        return cls(tails, vocabulary.size)

    @classmethod
    def last_tokens(cls, texts: Sequence[str], vocabulary: Vocabulary) -> Breakers:
        """Breakers of one token each: the last token of "a" and the text."""
        lasts = {vocabulary.tokenize(b"a" + utf8(text, "dry.breakers"))[-1] for text in texts}
        return cls({token: [()] for token in lasts}, vocabulary.size)

    def distance(self, tokens: NDArray[np.int64]) -> int:
        """How many tokens stand after the last breaker; all of them where there is none."""
        if not self._tails:
            return tokens.size
        end = tokens.size
        block = _BLOCK
        while end > 0:
            start = max(end - block, 0)
            for place in self._is_head[tokens[start:end]].nonzero()[0][::-1].tolist():
                after = tokens[start + place + 1 :]
                for tail in self._tails[int(tokens[start + place])]:  # the longest first
                    if len(tail) <= after.size and after[: len(tail)].tolist() == list(tail):
                        return int(after.size) - len(tail)
            end, block = start, 8 * block
        return tokens.size


def _tokens_of(rest: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """The tokens of the rest of a text; None if it cannot be written."""
    if not rest:
        return []
    try:
        rest.decode()
    except UnicodeDecodeError:
        pieces = vocabulary.pieces
        try:
            return [pieces.index(bytes([byte])) for byte in rest]
        except ValueError:
            return None
    return vocabulary.tokenize(rest)
