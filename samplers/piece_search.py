"""Which tokens of a vocabulary can write a part of a text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray


class PieceIndex:
    """The bytes of every token, arranged once so that many texts can be looked up."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Index ``pieces``, the bytes of every token, by id."""
        self._order = np.array(sorted(range(len(pieces)), key=pieces.__getitem__), dtype=np.intp)
        self._sorted = [pieces[token] for token in self._order.tolist()]
        # All pieces in one text, and where each ends.
        self._joined = b"".join(pieces)
        self._ends = list(accumulate(map(len, pieces)))

    def containing(self, text: bytes) -> list[int]:
        """Return the tokens that contain this text, ascending. The text is not empty."""
        tokens = []
        at = self._joined.find(text)
        while at >= 0:
            token = bisect_right(self._ends, at)
            if at + len(text) <= self._ends[token]:
                tokens.append(token)
                at = self._ends[token] - 1  # on to the next token
            at = self._joined.find(text, at + 1)
        return tokens

    def beginning_with(self, text: bytes) -> NDArray[np.intp]:
        """Return the tokens that begin with this text, ascending. The text is not empty."""
        start = bisect_left(self._sorted, text)
        # The least text behind all that begin with `text`: its last byte below 255, plus one.
        head = text.rstrip(b"\xff")
        after = head[:-1] + bytes([head[-1] + 1]) if head else None
        end = len(self._sorted) if after is None else bisect_left(self._sorted, after, start)
        return np.sort(self._order[start:end])


class TextCompletions:
    """A text, and the tokens that would complete it.

    Attributes:
        text: its bytes.
        single_tokens: the tokens that contain all of it, ascending.
    """

    def __init__(self, text: bytes, index: PieceIndex) -> None:
        self.text = text
        self.single_tokens = index.containing(text)
        # A beginning of the text, with the tokens that write the rest.
        endings = [(text[:count], index.beginning_with(text[count:])) for count in range(1, len(text))]
        self._endings = [(beginning, ids) for beginning, ids in endings if ids.size]

    def completing(self, tail: bytes) -> Iterator[NDArray[np.intp]]:
        """Yield ids of the tokens that would complete the text after ``tail``, the end of what was written."""
        for beginning, ids in self._endings:
            if tail.endswith(beginning):
                yield ids


def tokens_starting(text: bytes, pieces: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the tokens with which a text can begin, each with the bytes of the text that are still missing.

    A token may begin before the text. One that contains the whole text is yielded once, with no missing bytes. One
    that ends in several beginnings of the text is yielded once for each.
    """
    first = text[:1]
    for token, piece in enumerate(pieces):
        if text in piece:
            yield token, b""
            continue
        at = piece.find(first)
        while at >= 0:
            written = piece[at:]
            if text.startswith(written):
                yield token, text[len(written) :]
            at = piece.find(first, at + 1)
