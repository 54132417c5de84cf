"""Kernels that rank the rows of a logit array, all of them or the highest ones."""

from __future__ import annotations

import sys
from functools import lru_cache

import numpy as np

from .arrays import Floats, Positions

# Below this many rows a plain stable sort is faster than sorting packed keys.
_SMALL = 256
# Rows in a column of the table whose highest values tell how high the leading rows begin.
_COLUMN = 32
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
# Which half of a 64-bit integer is the upper one in memory.
_UPPER = 1 if sys.byteorder == "little" else 0


def descending(values: Floats) -> Positions:
    """Positions that sort ``values``, float32 (n,), from high to low; equal values keep their order."""
    if values.size <= _SMALL:
        return (-values).argsort(kind="stable")
    # One sort of integer keys: the value, its bits turned so that high comes first, above the position.
    keys = np.empty(values.size, dtype=np.int64)
    halves = keys.view(np.int32).reshape(-1, 2)
    bits = (values + np.float32(0)).view(np.int32)  # + 0 makes -0 and 0 the same key
    bits ^= (bits >> 31) & _ALL_BUT_SIGN
    np.invert(bits, out=halves[:, _UPPER])
    halves[:, 1 - _UPPER] = np.arange(values.size, dtype=np.int32)
    keys.sort()
    positions: Positions = halves[:, 1 - _UPPER].astype(np.intp)
    return positions


def highest_rows(values: Floats, count: int) -> tuple[Positions, Floats]:
    """The ``count`` highest of ``values``, float32 (n,), n ≥ count, from high to low, and their positions.

    Of equal values the earlier come first, and are kept. Without a full sort: rows that cannot be among them are
    left out in one pass or two.
    """
    if count == values.size:
        positions = descending(values)
        return positions, values[positions]
    height = min(_COLUMN, values.size // (4 * count))
    positions = _above_peaks(values, count, height) if height > 1 else (values >= _nth(values, count)).nonzero()[0]
    found = values[positions]
    order = descending(found)[:count]
    return positions[order], found[order]


def _above_peaks(values: Floats, count: int, height: int) -> Positions:
    """Positions, in order, of all rows from some value up: at least ``count``, and seldom many more.

    Laid out as a table, the highest values of its columns are rows of their own: count rows reach the count-th of
    these peaks, and hardly any others, as the leading rows seldom stand in one column.
    """
    width = values.size // height
    end = height * width
    table = values[:end].reshape(height, width)
    peaks = np.maximum.reduce(table, axis=0)
    floor = _nth(peaks, count)
    columns = (peaks >= floor).nonzero()[0]
    inside = (table.take(columns, axis=1) >= floor).ravel().nonzero()[0]
    positions: Positions = (_starts(height, width) + columns).ravel()[inside]
    if end < values.size:
        beyond = (values[end:] >= floor).nonzero()[0]
        positions = np.concatenate((positions, beyond + end))
    return positions


@lru_cache(maxsize=16)
def _starts(height: int, width: int) -> Positions:
    """The position at which each row of a table begins, (height, 1)."""
    return np.arange(0, height * width, width).reshape(height, 1)


def _nth(values: Floats, count: int) -> np.float32:
    """The count-th highest value."""
    place = values.size - count
    parted = values.copy()
    parted.partition(place)
    value: np.float32 = parted[place]
    return value
