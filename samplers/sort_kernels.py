"""Fast sorts of a row of logits: all positions, or those of the highest values."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from .array_types import Floats, Positions

_SMALL_ROW = 256
"""Up to this many values a stable sort is faster than a sort of pairs (measured)."""
_RADIX_ROW = 1 << 12
"""From this many values on, a radix sort may be faster than a sort of pairs."""
_SPREADING_FACTOR = np.uint32(2_654_435_761)
"""Multiples of it, modulo 2^32, are in no order (Knuth's multiplicative hashing)."""
_COLUMN_HEIGHT, _LONG_COLUMN_HEIGHT = 16, 32
"""Rows of the table whose column maxima bound the highest values from below, for short and for long rows."""
_LONG_ROW = 1 << 16
"""From this many values on, the higher table is faster (measured)."""
_COLUMNS_PER_NEAR_ONE = 8
"""If at most one of so many columns reaches the bound, these columns are looked at; else the row (measured)."""
_BOUND_WIDTH = 256
"""From twice this many maxima on, maxima of these bound the result, so that fewer values are partitioned. For more
than 64 rows, it takes 8 maxima a row.

On some processors with AVX-512 (AMD Zen 4), NumPy's partition takes 5 ns a value from 512 values on.
"""
_BOUND_VALUES_PER_ROW = 4
"""The bound is found among at least so many values for each row that is wanted: among fewer it is too low."""
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_Keys = NDArray[np.int32]
_UPPER_HALF = 1 if sys.byteorder == "little" else 0
"""Which half of a 64-bit integer in memory is the upper one."""


def descending(values: Floats) -> Positions:
    """Return the positions that sort ``values``, float32 (n,), from high to low; equal values keep their order."""
    if values.size <= _SMALL_ROW:
        return (-values).argsort(kind="stable")
    keys = (values + np.float32(0)).view(np.int32)  # + 0 makes -0 and 0 the same key
    keys ^= (keys >> 31) & _ALL_BUT_SIGN
    np.invert(keys, out=keys)  # a higher value has a lower key
    if values.size >= _RADIX_ROW and _is_radix_sort_faster():
        return _ascending_by_radix(keys)
    return _ascending_by_pairs(keys)


def _ascending_by_pairs(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``: by one sort of integers, a key above its position."""
    pairs = np.empty(keys.size, dtype=np.int64)
    halves = pairs.view(np.int32).reshape(-1, 2)
    halves[:, _UPPER_HALF] = keys
    halves[:, 1 - _UPPER_HALF] = np.arange(keys.size, dtype=np.int32)
    pairs.sort()
    positions: Positions = halves[:, 1 - _UPPER_HALF].astype(np.intp)
    return positions


def _ascending_by_radix(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``: by their lower, then by their upper 16 bits.

    NumPy's stable sort of 16 bits is a radix sort.
    """
    by_lower = keys.astype(np.uint16).argsort(kind="stable")
    upper = (keys >> 16).astype(np.int16).take(by_lower)
    positions: Positions = by_lower.take(upper.argsort(kind="stable"))
    return positions


@cache
def _is_radix_sort_faster() -> bool:
    """Measure it, once, in about half a millisecond. Both sorts give the same positions.

    On AMD Zen 4, NumPy's sort for AVX-512 takes four times as long as its sort for AVX2.
    """
    keys = (np.arange(_RADIX_ROW, dtype=np.uint32) * _SPREADING_FACTOR).view(np.int32)
    seconds = [(_seconds_of(_ascending_by_radix, keys), _seconds_of(_ascending_by_pairs, keys)) for _ in range(3)]
    by_radix, by_pairs = map(min, zip(*seconds, strict=True))
    return by_radix < by_pairs


def _seconds_of(sort: Callable[[_Keys], Positions], keys: _Keys) -> float:
    began = perf_counter()
    sort(keys)
    return perf_counter() - began


def column_maxima(values: Floats) -> Floats:
    """Return the maxima of the columns of a table of ``values``, float32 (n,), n >= 32.

    The table has 16 rows, or 32 if there are many values. The last values, which do not fill a row, are left out.
    """
    height = _column_height(values.size)
    width = values.size // height
    maxima: Floats = np.maximum.reduce(values[: height * width].reshape(height, width))
    return maxima


def highest_of(values: Floats, maxima: Floats) -> np.float32:
    """Return the highest of the ``values``, whose columns have these ``maxima``; NaN if there is one."""
    highest: np.float32 = maxima[maxima.argmax()]
    filled = _column_height(values.size) * maxima.size
    return highest if filled == values.size else np.maximum(highest, np.maximum.reduce(values[filled:]))


def highest_rows(values: Floats, count: int, maxima: Floats | None = None) -> Positions:
    """Return the positions of the ``count`` highest ``values``, float32 (n,), 1 <= count <= n, from high to low.

    Of equal values the earlier come first. ``maxima``: those of the columns, if they are known.
    """
    return highest_with_values(values, count, maxima)[0]


def highest_with_values(values: Floats, count: int, maxima: Floats | None = None) -> tuple[Positions, Floats]:
    """As `highest_rows`; return the values too. Only values that reach a lower bound of the result are sorted."""
    if count == values.size:
        order = descending(values)
        return order, values[order]
    positions, reaching = _reaching_bound(values, count, column_maxima(values) if maxima is None else maxima)
    order = descending(reaching)[:count]
    return positions[order], reaching[order]


def _reaching_bound(values: Floats, count: int, maxima: Floats) -> tuple[Positions, Floats]:
    """Return ascending positions of the ``count`` highest values, 1 <= count < n, and usually few others.

    The values there are returned, too. Column maxima are values of different positions. At least ``count`` of them
    reach the bound, so at least ``count`` values do. Few others do, since high values seldom share a column.
    """
    width = maxima.size
    is_bounded = width >= 2 * count
    bound = _bound_of_maxima(maxima, count) if is_bounded else _partition_for_nth_highest(values.copy(), count)
    columns = (maxima >= bound).nonzero()[0]
    if not is_bounded or _COLUMNS_PER_NEAR_ONE * columns.size > width:
        positions = (values >= bound).nonzero()[0]
        return positions, values[positions]
    height = _column_height(values.size)
    near = (_row_starts(height, width) + columns).ravel()
    end = height * width
    if end < values.size:
        near = np.concatenate((near, np.arange(end, values.size)))
    near_values = values[near]
    reaching = (near_values >= bound).nonzero()[0]
    return near[reaching], near_values[reaching]


def _column_height(size: int) -> int:
    return _COLUMN_HEIGHT if size < _LONG_ROW else _LONG_COLUMN_HEIGHT


@lru_cache(maxsize=8)
def _row_starts(height: int, width: int) -> Positions:
    """The positions at which the rows of a table start, intp (height, 1), read-only. The same array each time."""
    starts = np.arange(0, height * width, width)[:, None]
    starts.flags.writeable = False
    return starts


def _bound_of_maxima(maxima: Floats, count: int) -> np.float32:
    """Return a value that at least ``count`` of the ``maxima`` reach, and few others."""
    height = maxima.size // max(_BOUND_WIDTH, _BOUND_VALUES_PER_ROW * count)
    if height < 2:
        return _partition_for_nth_highest(maxima.copy(), count)
    width = maxima.size // height
    return _partition_for_nth_highest(np.maximum.reduce(maxima[: height * width].reshape(height, width)), count)


def _partition_for_nth_highest(values: Floats, count: int) -> np.float32:
    """Return the ``count``-th highest value. The array is partitioned in place."""
    position = values.size - count
    values.partition(position)
    value: np.float32 = values[position]
    return value
