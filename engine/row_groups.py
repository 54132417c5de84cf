"""Divides the slots that get a token into groups, each of which is decoded at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_NOTABLY_FASTER = 0.9
"""A decode must take less than this share of the shortest time so far to be noted: a new table costs divisions."""


class RowGroup(NamedTuple):
    """Adjacent slots, from ``first`` on, that are decoded at once; a ``size`` of 1: a token without neighbours."""

    first: int
    size: int


class GroupSizes(NamedTuple):
    """Which groups there may be.

    Attributes:
        counts: the numbers of rows that may be decoded at once, ascending.
        slots: how many slots there are.
        can_fill: slots between those that get a token may be filled with a row that is thrown away.
    """

    counts: tuple[int, ...]
    slots: int
    can_fill: bool

    def around(self, first: int, last: int, rows: int) -> RowGroup | None:
        """The smallest group of the slots ``first`` to ``last``; ``rows``: how many of them get a token."""
        span = last - first + 1
        for count in self.counts:
            if span <= count <= self.slots and (self.can_fill or span == count == rows):
                return RowGroup(min(first, self.slots - count), count)
        return None


class DecodeTimes:
    """The shortest time that a decode of each number of rows took, in seconds.

    Attributes: ``table``, number of rows and seconds, for those that were decoded. It stays empty if the times are
    ignored, so that nothing depends on the clock.
    """

    def __init__(self, *, is_ignored: bool = False) -> None:
        self._is_ignored = is_ignored
        self._seconds: dict[int, float] = {}
        self.table: tuple[tuple[int, float], ...] = ()

    def note(self, rows: int, seconds: float) -> None:
        """Note how long a decode took."""
        if self._is_ignored:
            return
        shortest = self._seconds.get(rows)
        if shortest is None or seconds < _NOTABLY_FASTER * shortest:
            self._seconds[rows] = seconds
            self.table = tuple(sorted(self._seconds.items()))


@lru_cache(maxsize=1024)
def divide_rows(
    numbers: tuple[int, ...], lone_rows: tuple[int, ...], sizes: GroupSizes, times: tuple[tuple[int, float], ...]
) -> tuple[RowGroup, ...]:
    """Return the groups that take the least time.

    Args:
        numbers: the slots that get a token, ascending.
        lone_rows: of each, how many rows it takes without neighbours.
        sizes: which groups there may be.
        times: the table of `DecodeTimes`.
    """
    best: list[tuple[float, tuple[RowGroup, ...]]] = [(0.0, ())]
    for end, (last, rows) in enumerate(zip(numbers, lone_rows, strict=True), 1):
        seconds, groups = best[-1]
        shortest = (seconds + _seconds(rows, times), (*groups, RowGroup(last, 1)))
        for start in range(end - 2, -1, -1):
            group = sizes.around(numbers[start], last, end - start)
            if group is not None:
                seconds, groups = best[start]
                shortest = min(shortest, (seconds + _seconds(group.size, times), (*groups, group)))
            elif last - numbers[start] >= sizes.counts[-1]:
                break
        best.append(shortest)
    return best[-1][1]


def _seconds(rows: int, times: Sequence[tuple[int, float]]) -> float:
    """The time of a decode, from that of the nearest number of rows: each takes time, and so does the decode."""
    if not times:
        return rows + 1.0
    known, seconds = min(times, key=lambda entry: abs(entry[0] - rows))
    return seconds * (rows + 1) / (known + 1)
