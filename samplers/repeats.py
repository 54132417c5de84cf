"""Where the end of a window that moves over a history stands in it a second time."""

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
    """The places of a window, and for each how much of the window's end stands there too.

    A token more costs one comparison of the window with it; without a window, `SuffixAutomaton` tells the same
    and costs less. Parameters: ``tokens``, the history, which may grow: what is new is taken in when asked, the
    first time by a search; ``window``, how many of the last tokens are looked at.
    """

    def __init__(self, tokens: Sequence[int], window: int) -> None:
        self._history = tokens
        self._window = window
        self._size = 0
        self._tokens: Tokens = np.zeros(0, dtype=np.int64)
        self._lengths: Tokens = np.zeros(0, dtype=np.int64)
        self._places: Tokens | None = None

    def followers(self, limit: int, least: int) -> dict[int, int]:
        """The tokens that would carry on a repetition, and how many tokens of it stand there already, at most.

        Repetitions count up to ``limit`` tokens, and are left out below ``least``.
        """
        known = self._search() if self._places is None else self._catch_up(self._places)
        self._places = known
        first, last = self._first, self._size - 1
        places = known if least > 0 else np.arange(first, last)
        lengths = np.minimum(self._lengths[places], np.minimum(places - first + 1, limit))
        enough = lengths >= least
        tokens = self._tokens[places[enough] + 1]
        longest = np.zeros(tokens.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, tokens, lengths[enough] + 1)
        found = longest.nonzero()[0]
        return dict(zip(found.tolist(), (longest[found] - 1).tolist(), strict=True))

    @property
    def _first(self) -> int:
        """Where the window begins."""
        return max(self._size - self._window, 0)

    def _search(self) -> Tokens:
        self._size = len(self._history)
        self._tokens = np.array(self._history, dtype=np.int64)
        self._lengths = np.zeros(self._size, dtype=np.int64)
        self._lengths[self._first :] = common_suffixes(self._tokens[self._first :].tolist())
        return self._lengths.nonzero()[0]

    def _catch_up(self, places: Tokens) -> Tokens:
        for place in range(self._size, len(self._history)):
            if place == self._tokens.size:
                room = np.zeros(max(place, 256), dtype=np.int64)
                self._tokens = np.concatenate([self._tokens, room])
                self._lengths = np.concatenate([self._lengths, room])
            places = self._extend(places, self._history[place])
            self._tokens[place] = self._history[place]
            self._size += 1
        return places[places.searchsorted(self._first) :]

    def _extend(self, old: Tokens, token: int) -> Tokens:
        """A place matches further exactly if it holds the new token; it adds to what the place before it had."""
        first = self._first
        places = (self._tokens[first : self._size] == token).nonzero()[0] + first
        # Before the first place stands -1, which is not in use at the end of a history of that size.
        lengths = np.where(places > 0, self._lengths[places - 1], 0) + 1
        self._lengths[old] = 0
        self._lengths[places] = lengths
        return places
