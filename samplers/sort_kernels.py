"""Fast sorts of a row of logits: all positions, or those of the highest values."""

from __future__ import annotations

import sys

import numpy as np

from .array_types import Floats, Positions

_SMALL_ROW = 256
"""Up to this many values a stable sort is faster than a sort of packed keys (measured)."""
_COLUMN_HEIGHT = 32
"""Rows of the table whose column maxima bound the highest values from below."""
_WIDE_ROW = 1 << 16
"""From this many values on, it is faster to look into single columns than through the whole table (measured)."""
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_UPPER_HALF = 1 if sys.byteorder == "little" else 0
"""Which half of a 64-bit integer in memory is the upper one."""


def descending(values: Floats) -> Positions:
    """Return the positions that sort ``values``, float32 (n,), from high to low; equal values keep their order."""
    if values.size <= _SMALL_ROW:
        return (-values).argsort(kind="stable")
    # One sort of integer keys. The upper half is the value, with its bits changed so that a higher value has a
    # lower key; the lower half is the position.
    keys = np.empty(values.size, dtype=np.int64)
    halves = keys.view(np.int32).reshape(-1, 2)
    bits = (values + np.float32(0)).view(np.int32)  # + 0 makes -0 and 0 the same key
    bits ^= (bits >> 31) & _ALL_BUT_SIGN
    np.invert(bits, out=halves[:, _UPPER_HALF])
    halves[:, 1 - _UPPER_HALF] = np.arange(values.size, dtype=np.int32)
    keys.sort()
    positions: Positions = halves[:, 1 - _UPPER_HALF].astype(np.intp)
    return positions


def highest_rows(values: Floats, count: int) -> Positions:
    """Return the positions of the ``count`` highest ``values``, float32 (n,), 1 <= count <= n, from high to low.

    Of equal values the earlier come first. Only values that reach a lower bound of the result are sorted.
    """
    if count == values.size:
        return descending(values)
    positions = _reaching_bound(values, count)
    return positions[descending(values[positions])[:count]]


def _reaching_bound(values: Floats, count: int) -> Positions:
    """Return ascending positions of the ``count`` highest values, 1 <= count < n, and usually few others.

    The values are laid out as a table. Its column maxima are values of different positions, so at least ``count``
    values reach the ``count``-th highest maximum. Few others do, since high values seldom share a column.
    """
    height = min(_COLUMN_HEIGHT, values.size // (4 * count))
    if height < 2:
        return (values >= _nth_highest(values, count)).nonzero()[0]
    width = values.size // height
    table = values[: height * width].reshape(height, width)
    maxima = np.maximum.reduce(table, axis=0)
    bound = _nth_highest(maxima, count)
    if values.size < _WIDE_ROW:
        return (values >= bound).nonzero()[0]
    columns = (maxima >= bound).nonzero()[0]
    rows, places = (table.take(columns, axis=1) >= bound).nonzero()
    after_table = (values[table.size :] >= bound).nonzero()[0] + table.size
    return np.concatenate((rows * width + columns[places], after_table))


def _nth_highest(values: Floats, count: int) -> np.float32:
    """Return the ``count``-th highest value."""
    position = values.size - count
    parted = values.copy()
    parted.partition(position)
    value: np.float32 = parted[position]
    return value
