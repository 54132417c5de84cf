"""Earlier positions of a window at which its last tokens occur as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int64]

_MIN_GROWTH = 256
"""The arrays grow by at least so many tokens, and otherwise double, so that growth costs a constant per token."""


def suffix_match_lengths(tokens: Sequence[int]) -> Tokens:
    """Return for each position how many tokens up to it equal the last ones: int64 (n,); 0 for the last.

    Source: the Z-algorithm on the reversed sequence. It is linear, since each comparison that succeeds moves
    ``right`` on.
    """
    size = len(tokens)
    backwards = list(reversed(tokens))
    lengths = [0] * size
    left = right = 0
    for at in range(1, size):
        length = min(right - at, lengths[at - left]) if at < right else 0
        while at + length < size and backwards[length] == backwards[at + length]:
            length += 1
        lengths[at] = length
        if at + length > right:
            left, right = at, at + length
    return np.array(lengths[::-1], dtype=np.int64)


class WindowSuffixMatcher:
    """Finds the tokens that would continue a repetition in the last tokens of a history.

    Each position of the window has a match length: how many tokens up to it equal the last tokens of the history.
    A new token costs one comparison with the window. Without a window, `SuffixAutomaton` computes the same for
    less.
    """

    def __init__(self, tokens: Sequence[int], window: int) -> None:
        """Follow a history that may grow; new tokens are read at the next question.

        ``window``: how many of the last tokens are looked at.
        """
        self._history = tokens
        self._window = window
        self._size = 0
        self._tokens: Tokens = np.zeros(0, dtype=np.int64)
        self._lengths: Tokens = np.zeros(0, dtype=np.int64)
        self._matches: Tokens | None = None

    def followers(self, limit: int, least: int) -> dict[int, int]:
        """Return the tokens that would continue a repetition, each with the length of its longest one, in tokens.

        Lengths above ``limit`` count as ``limit``; shorter repetitions than ``least`` are left out.
        """
        matches = self._match_all() if self._matches is None else self._match_new(self._matches)
        self._matches = matches
        first, last = self._first, self._size - 1
        positions = matches if least > 0 else np.arange(first, last)
        lengths = np.minimum(self._lengths[positions], np.minimum(positions - first + 1, limit))
        is_long_enough = lengths >= least
        tokens = self._tokens[positions[is_long_enough] + 1]
        # By token: the longest length, plus 1, so that 0 means "not a follower".
        longest = np.zeros(tokens.max(initial=-1) + 1, dtype=np.int64)
        np.maximum.at(longest, tokens, lengths[is_long_enough] + 1)
        followers = longest.nonzero()[0]
        return dict(zip(followers.tolist(), (longest[followers] - 1).tolist(), strict=True))

    @property
    def _first(self) -> int:
        """The first position of the window."""
        return max(self._size - self._window, 0)

    def _match_all(self) -> Tokens:
        """Compute all match lengths; return the positions that have one."""
        self._size = len(self._history)
        self._tokens = np.array(self._history, dtype=np.int64)
        self._lengths = np.zeros(self._size, dtype=np.int64)
        self._lengths[self._first :] = suffix_match_lengths(self._tokens[self._first :].tolist())
        return self._lengths.nonzero()[0]

    def _match_new(self, matches: Tokens) -> Tokens:
        """Read the new tokens; return the positions of the window that have a match length."""
        for at in range(self._size, len(self._history)):
            if at == self._tokens.size:
                capacity = np.zeros(max(at, _MIN_GROWTH), dtype=np.int64)
                self._tokens = np.concatenate([self._tokens, capacity])
                self._lengths = np.concatenate([self._lengths, capacity])
            matches = self._extend(matches, self._history[at])
            self._tokens[at] = self._history[at]
            self._size += 1
        return matches[matches.searchsorted(self._first) :]

    def _extend(self, matches: Tokens, token: int) -> Tokens:
        """Update the match lengths for one more token: a position that holds it extends the one before."""
        first = self._first
        positions = (self._tokens[first : self._size] == token).nonzero()[0] + first
        # Position 0 has none before it; index -1 there is an unused entry.
        lengths = np.where(positions > 0, self._lengths[positions - 1], 0) + 1
        self._lengths[matches] = 0
        self._lengths[positions] = lengths
        return positions
