"""Kernels over arrays of logits: sorts, sums in a fixed order, exact weights, softmax sums, entropies.

A sort returns all positions, or the positions of the highest values. A sequential sum runs from the first value to
the last, bit for bit as a loop in C. Logarithms and entropies are in nats.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from math import isfinite, log
from time import perf_counter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Positions = NDArray[np.intp]
TopRows = tuple[Positions, Floats]
"""Positions and logits of the highest rows, from high to low."""

MIN_FLOAT32, MAX_FLOAT32 = np.finfo(np.float32).min, np.finfo(np.float32).max
"""The least and the greatest finite float32."""


@lru_cache(maxsize=8)
def all_ids(size: int) -> Ids:
    """The ids 0..size-1, int32 (size,), read-only. The same array each time."""
    ids: Ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


@lru_cache
def as_float32(parameter: float) -> np.float32:
    """A parameter as float32. It is asked for at each token, and a look-up takes a third of a conversion."""
    return np.float32(parameter)


def clamp_to_finite(logits: NDArray[np.floating], old: Floats) -> Floats:
    """New logits as float32: an overflow becomes the nearest finite float32; where ``old`` is -inf, -inf stays."""
    every = np.logical_and.reduce
    if logits.dtype == np.float32 and every(np.isfinite(logits)) and every(np.isfinite(old)):
        return logits  # as nearly always
    finite = np.minimum(np.maximum(logits, MIN_FLOAT32), MAX_FLOAT32).astype(np.float32, copy=False)
    clamped: Floats = np.where(old == -np.inf, old, finite)
    return clamped


def describe(value: object) -> str:
    """A value in words, for a message: dtype and shape of an array, else the name of the type."""
    if isinstance(value, np.ndarray):
        masked = "masked " if isinstance(value, np.ma.MaskedArray) else ""
        return f"{masked}{value.dtype} of shape {value.shape}"
    return type(value).__name__


def describe_not_finite(highest: np.float32) -> str:
    """What is wrong with a row whose highest logit is not finite."""
    if np.isnan(highest):
        return "there is a NaN in the row"
    return "there is a +inf in the row" if highest > 0 else "every entry of the row is -inf"


_SMALL_ROW = 256
"""Up to this many values a stable sort is faster than a sort of pairs (measured)."""
_RADIX_ROW = 1 << 12
"""From this many values on, a radix sort may be faster than a sort of pairs."""
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_Keys = NDArray[np.int32]


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


_UPPER_HALF = 1 if sys.byteorder == "little" else 0
"""Which half of a 64-bit integer in memory is the upper one."""


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


_SPREADING_FACTOR = np.uint32(2_654_435_761)
"""Multiples of it, modulo 2^32, are in no order (Knuth's multiplicative hashing)."""


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


_COLUMNS_PER_NEAR_ONE = 8
"""If at most one of so many columns reaches the bound, these columns are looked at; else the row (measured)."""


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


_COLUMN_HEIGHT, _LONG_COLUMN_HEIGHT = 16, 32
"""Rows of the table whose column maxima bound the highest values from below, for short and for long rows."""
_MANY_VALUES = 1 << 16
"""From this many values on, the higher table is faster (measured)."""


def _column_height(size: int) -> int:
    return _COLUMN_HEIGHT if size < _MANY_VALUES else _LONG_COLUMN_HEIGHT


@lru_cache(maxsize=8)
def _row_starts(height: int, width: int) -> Positions:
    """The positions at which the rows of a table start, intp (height, 1), read-only. The same array each time."""
    starts = np.arange(0, height * width, width)[:, None]
    starts.flags.writeable = False
    return starts


_BOUND_WIDTH = 256
"""From twice this many maxima on, maxima of these bound the result, so that fewer values are partitioned. For more
than 64 rows, it takes 8 maxima a row.

On some processors with AVX-512 (AMD Zen 4), NumPy's partition takes 5 ns a value from 512 values on.
"""
_BOUND_VALUES_PER_ROW = 4
"""The bound is found among at least so many values for each row that is wanted: among fewer it is too low."""


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


_Float = TypeVar("_Float", np.float32, np.float64)

_FEW_TERMS = 128
"""Up to this many terms, the last of NumPy's running sums is faster than a subtraction in order."""


def sequential_sum(values: NDArray[_Float], before: _Float | None = None) -> _Float:
    """Return the sum from first to last value, in their own precision, starting at ``before`` or 0.

    Equals a loop in C bit for bit. NumPy adds pairwise, but subtracts one value after the other. That is five
    times as fast as the last of its running sums.
    """
    zero = values.dtype.type(0)
    if before is None and 0 < values.size <= _FEW_TERMS:
        last: _Float = zero + np.add.accumulate(values)[-1]
        return last
    total: _Float = zero - np.subtract.reduce(values, initial=zero if before is None else -before)
    return total


_FIRST_SQUARES, _MANY_SQUARES = 64, 32
"""The first squares, and how many ties a piece may have; with more, the sum first grows one square at a time."""


def sequential_sum_of_squares(values: NDArray[np.float32]) -> np.float32:
    """Return the float32 sum of squares, each of which is added in float64: C's ``float += double``.

    ``values``: float32 (n,). Up to the next power of two, floats are equally far apart. So it makes a difference
    to round a square to float32 before the addition only where the rounded square is a tie: a multiple of half
    that distance. Ties are few if the sum is far above the squares. They are added one by one, and the squares
    between them in order in float32.
    """
    total = _add_one_by_one(np.float32(0), values[:_FIRST_SQUARES])
    start, length = _FIRST_SQUARES, 2 * _FIRST_SQUARES
    while start < values.size and isfinite(total):
        piece = values[start : start + length]
        squares = piece * piece
        ties, exact = _find_ties(piece, squares, total)
        if ties.size > _MANY_SQUARES:  # the sum is small: let it grow, then look again
            total = _add_one_by_one(total, piece[:_FIRST_SQUARES])
            start, length = start + _FIRST_SQUARES, 2 * _FIRST_SQUARES
            continue
        done = 0
        for position, square in zip(ties.tolist(), exact.tolist(), strict=True):
            total = np.float32(float(sequential_sum(squares[done:position], total)) + square)
            done = position + 1
        total = sequential_sum(squares[done:], total)
        start, length = start + length, 3 * length
    return total


def _add_one_by_one(total: np.float32, values: NDArray[np.float32]) -> np.float32:
    for value in values.tolist():
        total = np.float32(float(total) + value * value)
    return total


def _find_ties(
    values: NDArray[np.float32], squares: NDArray[np.float32], total: np.float32
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the positions of rounded squares that may be ties beside ``total``, and these squares in float64."""
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.float32(2) / np.spacing(total)
    positions = np.arange(values.size)
    if isfinite(scale):  # else the sums are as close together as floats can be, and every square may be a tie
        with np.errstate(over="ignore"):
            steps = squares * scale
        positions = (steps == np.rint(steps)).nonzero()[0]
    exact = values[positions].astype(np.float64) ** 2
    is_rounded = squares[positions] != exact
    return positions[is_rounded], exact[is_rounded]


BLOCK_ROWS = 512
"""Rows in a block of the two-level search."""
LONG_ROW = 4 * BLOCK_ROWS
"""A row with more values than this is searched on two levels: first a block, then inside it."""


def position_of_share(weights: NDArray[np.float32], share: float) -> int:
    """Return the first position whose running sum, in float64, reaches ``share`` of the total. ``weights``: (n,).

    A long row is summed block by block, so the sums differ from a loop's in the last bits of a float64.
    """
    if weights.size > LONG_ROW:
        return _search_blocks(weights, share).position
    sums = np.add.accumulate(weights, dtype=np.float64)
    return int(sums.searchsorted(sums[-1] * share))


_MIN_NORMAL = 2.0**-126
"""The least normal float32."""


def certain_position_of_share(weights: NDArray[np.float32], share: float, error: float) -> int | None:
    """Return what `position_of_share` returns for the exact weights, or None if ``weights`` cannot tell.

    ``error``: by what fraction a weight differs from the exact one at most. A weight below the least normal
    float32 may differ by more.
    """
    result = _search_blocks(weights, share)
    margin = 2 * error * result.target + weights.size * _MIN_NORMAL
    is_certain = (result.missing > margin or result.position == 0) and result.beyond > margin
    return result.position if is_certain else None


class _SharePosition(NamedTuple):
    """Where a running sum reaches a target, and how near the border of that position the target lies."""

    position: int
    missing: float
    """The target minus the sum before the position."""
    beyond: float
    """The sum with the position minus the target."""
    target: float


def _search_blocks(weights: NDArray[np.float32], share: float) -> _SharePosition:
    """Sum whole blocks first, then look inside one. This needs no running sum over the vocabulary."""
    blocks = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK_ROWS), dtype=np.float64)
    ends = np.add.accumulate(blocks)
    target = ends[-1] * share
    block = int(ends.searchsorted(target))
    start = block * BLOCK_ROWS
    sums = np.add.accumulate(weights[start : start + BLOCK_ROWS], dtype=np.float64)
    # The two levels round differently: a target past the end of a block means its last row with a weight.
    within = min(target - (ends[block - 1] if block else 0.0), sums[-1])
    position = int(sums.searchsorted(within))
    missing = within - sums[position - 1] if position else within
    return _SharePosition(start + position, missing, sums[position] - within, target)


def exact_weights(offsets: Floats) -> Floats:
    """Return exp(offset), float32, correctly rounded. C's expf differs in about 1 of 2,000 values.

    ``offsets``: differences from the highest logit, float32 of any shape.
    """
    return np.exp(offsets, dtype=np.float64).astype(np.float32)


_NEGLIGIBLE = np.float32(-16.7)
"""Its weight is less than 2^-24. Added to a float32 sum of 1 or more, such a weight is rounded away."""
_MIN_ROWS_PER_AFFECTING_ROW = 2
"""If more than one of so many rows counts, to find these rows takes longer than to sum all (measured)."""


def offsets_affecting_sum(logits: Floats, highest: np.float32, *, is_ordered: bool) -> Floats | None:
    """Return differences from the highest logit: of those rows that change the float32 sum of all weights.

    The weights are summed from first to last row. Up to the highest row all count; then the sum is at least 1.
    None: most rows count.

    Args:
        logits: float32 (n,).
        highest: the highest of them.
        is_ordered: they go from high to low.
    """
    offsets: Floats = logits - highest
    if is_ordered:
        return offsets[: offsets.size - int(offsets[::-1].searchsorted(_NEGLIGIBLE))]
    first = int(offsets.argmax())
    if _MIN_ROWS_PER_AFFECTING_ROW * first > offsets.size:
        return None
    counts = offsets > _NEGLIGIBLE
    if _MIN_ROWS_PER_AFFECTING_ROW * int(np.count_nonzero(counts)) > offsets.size:
        return None
    counts[:first] = True
    return offsets[counts.nonzero()[0]]


class SoftmaxSums(NamedTuple):
    """The sums of a row of logits, in nats."""

    highest: float
    """The highest logit."""
    log_weights: float
    """ln of the sum of exp(logit - highest)."""
    entropy: float
    """-sum p ln p."""

    @property
    def log_total(self) -> float:
        """ln of the sum of exp(logit): a logit minus this is the token's logprob."""
        return self.highest + self.log_weights


_MIN_DIFFERENCE_NATS = -80.0
"""Lower logits, which weigh less than 1e-34, count as if they were so far below the highest one. A vocabulary of
them adds nothing to sums in float64; exponentials below the normal float32 take ten times as long as others."""


class SoftmaxWorkspace:
    """Computes `SoftmaxSums`, in two work arrays that every row uses again: new ones cost more than the sums."""

    def __init__(self) -> None:
        self._differences = self._weights = np.empty(0, dtype=np.float32)

    def sums(self, logits: Floats, highest: np.float32) -> SoftmaxSums:
        """Return the sums of a row. Exponentials are float32, sums float64.

        ``logits``: float32 (n,), not written to; ``highest``: the highest of them.
        """
        if self._differences.size < logits.size:
            self._differences, self._weights = (np.empty(logits.size, dtype=np.float32) for _ in range(2))
        differences, weights = self._differences[: logits.size], self._weights[: logits.size]
        if float(np.minimum.reduce(logits)) - float(highest) >= _MIN_DIFFERENCE_NATS:
            np.subtract(logits, highest, out=differences)
        else:  # rare: to look costs less than to replace what is not there
            with np.errstate(over="ignore"):  # the difference of two finite logits may exceed float32
                np.subtract(logits, highest, out=differences)
            np.maximum(differences, _MIN_DIFFERENCE_NATS, out=differences)
        np.exp(differences, out=weights)
        total = float(np.add.reduce(weights, dtype=np.float64))
        moment = float(differences.dot(weights))
        return SoftmaxSums(float(highest), log(total), log(total) - moment / total)


@np.errstate(divide="ignore")
def logarithms(probs: Floats) -> Floats:
    """Return ln p, float32 (n,), each correctly rounded; -inf for 0."""
    return np.log(probs, dtype=np.float64).astype(np.float32)


def llama_cpp_entropy(probs: Floats, logs: Floats) -> np.float32:
    """Return -sum p ln p as llama.cpp computes it: in float32, from the first row to the last; 0 ln 0 is 0.

    ``probs`` and ``logs``: float32 (n,), the latter from `logarithms`.
    """
    return sequential_sum(probs * np.minimum(-logs, MAX_FLOAT32))  # 0 times a finite number, not 0 times inf


def entropy_terms(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return -p ln p, float64 (n,); 0 for 0."""
    wide = probs.astype(np.float64)
    return -wide * np.log(wide, out=np.zeros_like(wide), where=wide > 0)
