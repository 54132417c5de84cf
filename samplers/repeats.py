"""Where the end of a history stands in it a second time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]


def common_suffixes(tokens: Sequence[int]) -> Tokens:
    """For each place, how many tokens up to it are the same as the last ones, int64 (n,); the last place has 0.

    The Z-algorithm on the reversed sequence: linear, since each comparison that succeeds moves ``right`` on.
    """
    size = len(tokens)
    backwards = list(reversed(tokens))
    lengths = [0] * size
    left = right = 0
    for place in range(1, size):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while place + length < size and backwards[length] == backwards[place + length]:
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return np.array(lengths[::-1], dtype=np.int64)


class Repeats:
    """A history, and for each of its places how much of the history's end stands there too.

    Attributes: ``extremes``, the lowest and the highest id in it. Parameters: ``tokens``, the history to start
    with. It is searched when first asked; after that, `add` keeps
    the answer up to date by one comparison of the history with the new token.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._size = len(tokens)
        self._tokens: Tokens = np.array(tokens, dtype=np.int64)
        self._places: Tokens | None = None
        self.extremes = (min(tokens, default=0), max(tokens, default=0))
        self._lengths: Tokens = np.zeros(self._size, dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    def tail(self, count: int) -> Tokens:
        """The last ``count`` tokens, the latest last."""
        return self._tokens[self._size - count : self._size]

    def add(self, token: int) -> None:
        """Put one token at the end."""
        if self._size == self._tokens.size:
            room = np.zeros(max(self._size, 256), dtype=np.int64)
            self._tokens = np.concatenate([self._tokens, room])
            self._lengths = np.concatenate([self._lengths, room])
        if self._places is not None:
            self._places = self._extend(self._places, token)
        self.extremes = (min(self.extremes[0], token), max(self.extremes[1], token))
        self._tokens[self._size] = token
        self._size += 1

    def followers(self, window: int, limit: int, least: int) -> tuple[Tokens, Tokens]:
        """The tokens that would carry on a repetition, and how many tokens of it stand there already.

        Looks at the last ``window`` tokens only; repetitions count up to ``limit`` tokens, and are left out below
        ``least``. A token comes once for each place that it follows.
        """
        if self._places is None:
            self._places = self._search()
        first, last = self._size - window, self._size - 1
        known = self._places[self._places.searchsorted(first) :]
        places = known if least > 0 else np.arange(first, last)
        lengths = np.minimum(self._lengths[places], np.minimum(places - first + 1, limit))
        enough = lengths >= least
        return self._tokens[places[enough] + 1], lengths[enough]

    def _search(self) -> Tokens:
        lengths = common_suffixes(self._tokens[: self._size].tolist())
        self._lengths[: self._size] = lengths
        return lengths.nonzero()[0]

    def _extend(self, old: Tokens, token: int) -> Tokens:
        """A place matches further exactly if it holds the new token; it adds to what the place before it had."""
        places = (self._tokens[: self._size] == token).nonzero()[0]
        # Before the first place stands -1, which is not in use at the end of a history of that size.
        lengths = np.where(places > 0, self._lengths[places - 1], 0) + 1
        self._lengths[old] = 0
        self._lengths[places] = lengths
        return places
