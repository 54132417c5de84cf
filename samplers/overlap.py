"""Which tokens of a vocabulary can write a part of a text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray


class Pieces:
    """The bytes of every token, by id, arranged once so that many texts can be looked up in them.

    Parameters: ``pieces``, the bytes of every token, by id.
    """

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._order = np.array(sorted(range(len(pieces)), key=pieces.__getitem__), dtype=np.intp)
        self._sorted = [pieces[token] for token in self._order.tolist()]
        # All of them one after another, and where each ends.
        self._joined = b"".join(pieces)
        self._ends = list(accumulate(map(len, pieces)))

    def containing(self, text: bytes) -> list[int]:
        """The tokens that hold this text, which is not empty."""
        found = []
        place = self._joined.find(text)
        while place >= 0:
            token = bisect_right(self._ends, place)
            if place + len(text) <= self._ends[token]:
                found.append(token)
                place = self._ends[token] - 1  # on to the next token
            place = self._joined.find(text, place + 1)
        return found

    def beginning_with(self, text: bytes) -> NDArray[np.intp]:
        """The tokens that begin with this text, which is not empty."""
        start = bisect_left(self._sorted, text)
        # The first text that comes after all that begin so: the last byte that can be raised, raised.
        head = text.rstrip(b"\xff")
        after = head[:-1] + bytes([head[-1] + 1]) if head else None
        end = len(self._sorted) if after is None else bisect_left(self._sorted, after, start)
        return np.sort(self._order[start:end])


class Overlaps:
    """A text, and the tokens by which it can come about.

    Attributes: ``text``, its bytes; ``whole``, the tokens that contain all of it.
    """

    def __init__(self, text: bytes, pieces: Pieces) -> None:
        self.text = text
        self.whole = pieces.containing(text)
        # What was written of it, with the tokens that write its rest.
        rests = [(text[:count], pieces.beginning_with(text[count:])) for count in range(1, len(text))]
        self._endings = [(begun, ids) for begun, ids in rests if ids.size]

    def completing(self, tail: bytes) -> Iterator[NDArray[np.intp]]:
        """Ids of the tokens that would complete the text, if ``tail`` is the end of what was written."""
        for begun, ids in self._endings:
            if tail.endswith(begun):
                yield ids


def heads(text: bytes, pieces: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the tokens with which a text can begin, each with the bytes that are then still to come.

    A token that contains the whole text comes once, with none. One whose end is a beginning of the text comes
    once for each such place.
    """
    first = text[:1]
    for token, piece in enumerate(pieces):
        if text in piece:
            yield token, b""
            continue
        place = piece.find(first)
        while place >= 0:
            written = piece[place:]
            if text.startswith(written):
                yield token, text[len(written) :]
            place = piece.find(first, place + 1)
