"""DRY's sequence breakers: texts over which no repetition reaches, as tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .piece_search import tokens_starting
from .single_token import encode_utf8
from .vocabulary import Vocabulary

# MAX_CHAR_LEN and MAX_SEQ_LEN of llama.cpp (llama_sampler_init_dry), which keep the search linear.
_MAX_TEXT_BYTES = 40
_MAX_TAIL_TOKENS = 20

_FIRST_BLOCK_TOKENS = 256
"""How many tokens to look at first, from the end; most texts have a breaker among them."""


class BreakerPosition(NamedTuple):
    """The position of a breaker in a sequence of tokens."""

    first: int
    """Position of its first token."""
    after: int
    """Position of the token behind it."""


class SequenceBreakers:
    """The token sequences that break a repetition.

    Attributes:
        single: the tokens that are a breaker by themselves.
        max_tail: how many tokens may follow the first token of a breaker.
        vocab_size: the size of the vocabulary.
    """

    def __init__(self, tails: Mapping[int, Sequence[Sequence[int]]], vocab_size: int) -> None:
        """Hold breakers of a vocabulary of ``vocab_size`` tokens.

        ``tails``: by the first token of a breaker, all sequences of tokens that complete it.
        """
        self._tails = {
            head: sorted({tuple(tail) for tail in head_tails}, key=len, reverse=True)
            for head, head_tails in tails.items()
        }
        self.vocab_size = vocab_size
        self._is_head = np.zeros(vocab_size, dtype=np.bool_)
        self._is_head[list(tails)] = True
        self.single = frozenset(head for head, head_tails in self._tails.items() if () in head_tails)
        self.max_tail = max((len(head_tails[0]) for head_tails in self._tails.values()), default=0)

    @classmethod
    def all_spellings(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return all token sequences that write a text. The first token may begin before it, the last end after.

        What the first token does not hold of a text is tokenized by itself. As in llama.cpp, a text counts up to
        40 bytes and its rest up to 20 tokens. A rest that begins inside a character is matched byte by byte;
        llama.cpp tokenizes it as a replacement character.
        """
        tails: dict[int, list[Sequence[int]]] = {}
        pieces = vocabulary.pieces
        for text in texts:
            for head, rest_bytes in tokens_starting(encode_utf8(text, "dry.breakers")[:_MAX_TEXT_BYTES], pieces):
                tokens = _tokenize_rest(rest_bytes, vocabulary)
                if tokens is not None:
                    tails.setdefault(head, []).append(tokens[:_MAX_TAIL_TOKENS])
        return cls(tails, vocabulary.size)

    @classmethod
    def single_token_breakers(cls, texts: Sequence[str], vocabulary: Vocabulary) -> SequenceBreakers:
        """Return breakers of one token each: the last token of "a" and the text."""
        tokens = {vocabulary.tokenize(b"a" + encode_utf8(text, "dry.breakers"))[-1] for text in texts}
        return cls({token: [()] for token in tokens}, vocabulary.size)

    def last(self, tokens: NDArray[np.int64]) -> BreakerPosition | None:
        """Return the position of the last breaker among these tokens; None if there is none."""
        end = tokens.size if self._tails else 0
        block = _FIRST_BLOCK_TOKENS
        while end > 0:
            start = max(end - block, 0)
            for head in (self._is_head[tokens[start:end]].nonzero()[0][::-1] + start).tolist():
                following = tokens[head + 1 : head + 1 + self.max_tail].tolist()
                for tail in self._tails[int(tokens[head])]:  # the longest first
                    if following[: len(tail)] == list(tail):
                        return BreakerPosition(head, head + 1 + len(tail))
            end, block = start, 8 * block
        return None


class LastBreakerTracker:
    """Follows where the last breaker of a history stands; a new token costs the same at any length."""

    def __init__(self, breakers: SequenceBreakers, tokens: Sequence[int]) -> None:
        """Follow ``tokens``, a history that may grow; new tokens are read at the next question."""
        self._breakers = breakers
        self._tokens = tokens
        self._read_count = 0
        # Without a breaker the whole history may repeat.
        self._position = BreakerPosition(-1, 0)

    def distance(self, window: int) -> int:
        """Return how many of the last ``window`` tokens are behind the last breaker in it; all if it has none."""
        size = len(self._tokens)
        # A breaker that ends among the new tokens may begin before them.
        start = max(self._read_count - self._breakers.max_tail, 0)
        if self._read_count < size:
            position = self._breakers.last(np.array(self._tokens[start:], dtype=np.int64))
            if position is not None:
                self._position = BreakerPosition(start + position.first, start + position.after)
            self._read_count = size
        return size - self._position.after if self._position.first >= size - window else window


def _tokenize_rest(rest_bytes: bytes, vocabulary: Vocabulary) -> list[int] | None:
    """Return the tokens of the rest of a text; None if the vocabulary has no tokens for it."""
    if not rest_bytes:
        return []
    try:
        rest_bytes.decode()
    except UnicodeDecodeError:
        pieces = vocabulary.pieces
        try:
            return [pieces.index(bytes([byte])) for byte in rest_bytes]
        except ValueError:
            return None
    return vocabulary.tokenize(rest_bytes)
