"""Kernels that rank the rows of a logit array, all of them or the highest ones."""

from __future__ import annotations

import sys

import numpy as np

from .arrays import Floats, Positions

# Below this many rows a plain stable sort is faster than sorting packed keys.
_SMALL = 256
# Rows in a column of the table whose highest values tell how high the leading rows begin.
_COLUMN = 32
# From so many rows on, to pick columns out of the table is faster than to look through all of it again.
_WIDE = 1 << 16
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


def highest_rows(values: Floats, count: int) -> Positions:
    """Positions of the ``count`` highest of ``values``, float32 (n,), 1 ≤ count ≤ n, from high to low.

    Of equal values the earlier come first, and are kept. Without a full sort: rows that cannot be among them are
    left out in one pass or two.
    """
    if count == values.size:
        return descending(values)
    positions = _reaching(values, count)
    return positions[descending(values[positions])[:count]]


def _reaching(values: Floats, count: int) -> Positions:
    """Positions, in order, of the ``count`` highest rows, 1 ≤ count < n, and of seldom many more.

    Laid out as a table, the highest values of its columns are rows of their own: count rows reach the count-th of
    these peaks, and hardly any others, as the leading rows seldom stand in one column.
    """
    height = min(_COLUMN, values.size // (4 * count))
    if height < 2:
        return (values >= _highest(values, count)).nonzero()[0]
    width = values.size // height
    table = values[: height * width].reshape(height, width)
    peaks = np.maximum.reduce(table, axis=0)
    floor = _highest(peaks, count)
    if values.size < _WIDE:
        return (values >= floor).nonzero()[0]
    columns = (peaks >= floor).nonzero()[0]
    rows, places = (table.take(columns, axis=1) >= floor).nonzero()
    behind = (values[table.size :] >= floor).nonzero()[0] + table.size
    return np.concatenate((rows * width + columns[places], behind))


def _highest(values: Floats, count: int) -> np.float32:
    """The value that is the ``count``-th highest."""
    place = values.size - count
    parted = values.copy()
    parted.partition(place)
    highest: np.float32 = parted[place]
    return highest
