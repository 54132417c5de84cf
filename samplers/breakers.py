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

    Attributes: ``single``, the tokens that are a breaker by themselves; ``longest``, how many tokens may follow
    the first of one; ``size``, the vocabulary's.
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
        self.single = frozenset(head for head, known in self._tails.items() if () in known)
        self.longest = max((len(known[0]) for known in self._tails.values()), default=0)

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

    def last(self, tokens: NDArray[np.int64]) -> tuple[int, int] | None:
        """Where the last breaker among these tokens begins, and where what follows it does; None without one."""
        end = tokens.size if self._tails else 0
        block = _BLOCK
        while end > 0:
            start = max(end - block, 0)
            for head in (self._is_head[tokens[start:end]].nonzero()[0][::-1] + start).tolist():
                after = tokens[head + 1 : head + 1 + self.longest].tolist()
                for tail in self._tails[int(tokens[head])]:  # the longest first
                    if after[: len(tail)] == list(tail):
                        return head, head + 1 + len(tail)
            end, block = start, 8 * block
        return None


class LastBreaker:
    """Where the last breaker of a history stands; a token more costs the same at any length.

    Parameters: ``breakers``; ``tokens``, the history, which may grow: what is new is looked at when asked.
    """

    def __init__(self, breakers: Breakers, tokens: Sequence[int]) -> None:
        self._breakers = breakers
        self._tokens = tokens
        self._seen = 0
        self._head, self._end = -1, 0

    def distance(self, window: int) -> int:
        """How many of the last ``window`` tokens stand after the last breaker in them; all where there is none."""
        size = len(self._tokens)
        # One that ends among the new tokens may begin before them.
        start = max(self._seen - self._breakers.longest, 0)
        if self._seen < size:
            found = self._breakers.last(np.array(self._tokens[start:], dtype=np.int64))
            if found is not None:
                self._head, self._end = start + found[0], start + found[1]
            self._seen = size
        return size - self._end if self._head >= size - window else window


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
