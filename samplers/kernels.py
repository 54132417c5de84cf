"""Arithmetic on arrays of logits: sorting, sums in a fixed order, exact weights, softmax sums and entropies.

A sequential sum adds from the first value to the last and equals a loop in C bit for bit. Logarithms and entropies
are in nats.
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

# the lowest and the highest finite float32
MIN_FLOAT32, MAX_FLOAT32 = np.finfo(np.float32).min, np.finfo(np.float32).max


@lru_cache(maxsize=8)
def all_ids(size: int) -> Ids:
    """Return the ids 0..size-1, int32 (size,), read-only. Repeated calls return the same array."""
    ids: Ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


@lru_cache
def as_float32(parameter: float) -> np.float32:
    """Return a parameter as float32."""
    # Each token needs it, and the cache takes a third of the time of a conversion.
    return np.float32(parameter)


def clamp_to_finite(logits: NDArray[np.floating], old_logits: Floats) -> Floats:
    """Return logits as float32; an overflow becomes the nearest finite one, and what was -inf stays -inf."""
    all_true = np.logical_and.reduce
    if logits.dtype == np.float32 and all_true(np.isfinite(logits)) and all_true(np.isfinite(old_logits)):
        return logits  # nearly always
    clamped_logits = np.minimum(np.maximum(logits, MIN_FLOAT32), MAX_FLOAT32).astype(np.float32, copy=False)
    result: Floats = np.where(old_logits == -np.inf, old_logits, clamped_logits)
    return result


def describe(value: object) -> str:
    """Describe a value for a message: dtype and shape of an array, or the name of another type."""
    if isinstance(value, np.ndarray):
        masked = "masked " if isinstance(value, np.ma.MaskedArray) else ""
        return f"{masked}{value.dtype} of shape {value.shape}"
    return type(value).__name__


def describe_nonfinite(highest: np.float32) -> str:
    """Describe the error in a row whose highest logit is not finite."""
    if np.isnan(highest):
        return "there is a NaN in the row"
    return "there is a +inf in the row" if highest > 0 else "every entry of the row is -inf"


_MAX_STABLE_SORT_VALUES = 256  # Up to this many values, a stable sort is faster than a sort of pairs (measured)
_MIN_RADIX_SORT_VALUES = 1 << 12  # From this many values on, a radix sort may be faster than a sort of pairs
_ALL_BUT_SIGN = np.int32(0x7FFFFFFF)
_Keys = NDArray[np.int32]


def descending(values: Floats) -> Positions:
    """Return the positions that sort ``values``, float32 (n,), from high to low; equal values keep their order."""
    if values.size <= _MAX_STABLE_SORT_VALUES:
        return (-values).argsort(kind="stable")
    keys = (values + np.float32(0)).view(np.int32)  # + 0 makes -0 and 0 the same key
    keys ^= (keys >> 31) & _ALL_BUT_SIGN
    np.invert(keys, out=keys)  # a higher value has a lower key
    if values.size >= _MIN_RADIX_SORT_VALUES and _is_radix_sort_faster():
        return _ascending_by_radix(keys)
    return _ascending_by_pairs(keys)


_UPPER_HALF = 1 if sys.byteorder == "little" else 0  # Index of the upper half of a 64-bit integer in memory


def _ascending_by_pairs(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``."""
    # Sorts 64-bit integers: a key in the upper half, its position in the lower.
    pairs = np.empty(keys.size, dtype=np.int64)
    halves = pairs.view(np.int32).reshape(-1, 2)
    halves[:, _UPPER_HALF] = keys
    halves[:, 1 - _UPPER_HALF] = np.arange(keys.size, dtype=np.int32)
    pairs.sort()
    positions: Positions = halves[:, 1 - _UPPER_HALF].astype(np.intp)
    return positions


def _ascending_by_radix(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``, by the lower, then the upper 16 bits."""
    # NumPy's stable sort of 16 bits is a radix sort.
    by_lower = keys.astype(np.uint16).argsort(kind="stable")
    upper = (keys >> 16).astype(np.int16).take(by_lower)
    positions: Positions = by_lower.take(upper.argsort(kind="stable"))
    return positions


# a factor whose multiples modulo 2^32 look random (Knuth's multiplicative hashing)
_SPREADING_FACTOR = np.uint32(2_654_435_761)


@cache
def _is_radix_sort_faster() -> bool:
    """Measure once whether the radix sort is faster, in about 0.5 ms. Both sorts return the same positions."""
    # On AMD Zen 4, NumPy's sort for AVX-512 takes four times as long as its sort for AVX2.
    keys = (np.arange(_MIN_RADIX_SORT_VALUES, dtype=np.uint32) * _SPREADING_FACTOR).view(np.int32)
    seconds = [
        (_measure_seconds(_ascending_by_radix, keys), _measure_seconds(_ascending_by_pairs, keys))
        for _ in range(3)
    ]
    by_radix, by_pairs = map(min, zip(*seconds, strict=True))
    return by_radix < by_pairs


def _measure_seconds(sort: Callable[[_Keys], Positions], keys: _Keys) -> float:
    start_seconds = perf_counter()
    sort(keys)
    return perf_counter() - start_seconds


def column_maxima(values: Floats) -> Floats:
    """Return the maxima of the columns of a table of ``values``, float32 (n,), n >= 32."""
    # The table has 16 rows, or 32 for many values. The last values, which do not fill a row of it, are left out.
    height = _column_height(values.size)
    width = values.size // height
    maxima: Floats = np.maximum.reduce(values[: height * width].reshape(height, width))
    return maxima


def highest_of(values: Floats, maxima: Floats) -> np.float32:
    """Return the highest of the ``values``, whose column maxima are ``maxima``. Returns NaN if a value is NaN."""
    highest: np.float32 = maxima[maxima.argmax()]
    table_size = _column_height(values.size) * maxima.size
    return highest if table_size == values.size else np.maximum(highest, np.maximum.reduce(values[table_size:]))


def highest_rows(values: Floats, count: int, maxima: Floats | None = None) -> Positions:
    """Return the positions of the ``count`` highest ``values``, float32 (n,), from high to low."""
    # Of equal values the earlier one comes first.
    return highest_with_values(values, count, maxima)[0]


def highest_with_values(values: Floats, count: int, maxima: Floats | None = None) -> tuple[Positions, Floats]:
    """Return the positions that `highest_rows` returns, and the values there."""
    # Only values that reach a lower bound of the ``count``-th highest value are sorted.
    if count == values.size:
        order = descending(values)
        return order, values[order]
    positions, reaching_values = _reaching_bound(
        values, count, column_maxima(values) if maxima is None else maxima
    )
    order = descending(reaching_values)[:count]
    return positions[order], reaching_values[order]


# The reaching columns are searched if at most one in this many columns reaches the bound. If more columns do,
# searching the entire row is faster (measured).
_MIN_COLUMNS_PER_REACHING_COLUMN = 8


def _reaching_bound(values: Floats, count: int, maxima: Floats) -> tuple[Positions, Floats]:
    """Return ascending positions of the ``count`` highest values and of a few others, and all these values."""
    # The bound is chosen so that at least ``count`` column maxima reach it. These are values at different
    # positions, so at least ``count`` values reach the bound. Few other values do, since high values seldom share
    # a column.
    width = maxima.size
    is_bounded = width >= 2 * count
    bound = _bound_of_maxima(maxima, count) if is_bounded else _partition_for_nth_highest(values.copy(), count)
    columns = (maxima >= bound).nonzero()[0]
    if not is_bounded or _MIN_COLUMNS_PER_REACHING_COLUMN * columns.size > width:
        positions = (values >= bound).nonzero()[0]
        return positions, values[positions]
    height = _column_height(values.size)
    near_positions = (_positions_of_row_starts(height, width) + columns).ravel()
    end = height * width
    if end < values.size:
        near_positions = np.concatenate((near_positions, np.arange(end, values.size)))
    near_values = values[near_positions]
    reaching_positions = (near_values >= bound).nonzero()[0]
    return near_positions[reaching_positions], near_values[reaching_positions]


# number of rows in the table of columns, for short and for long arrays of values
_COLUMN_HEIGHT, _LONG_COLUMN_HEIGHT = 16, 32
_MIN_LONG_COLUMN_VALUES = 1 << 16  # From this many values on, the table with more rows is faster (measured)


def _column_height(size: int) -> int:
    return _COLUMN_HEIGHT if size < _MIN_LONG_COLUMN_VALUES else _LONG_COLUMN_HEIGHT


@lru_cache(maxsize=8)
def _positions_of_row_starts(height: int, width: int) -> Positions:
    """Return the positions at which the rows of a table start, intp (height, 1), read-only and cached."""
    starts = np.arange(0, height * width, width)[:, None]
    starts.flags.writeable = False
    return starts


# Number of maxima that remain after column maxima are grouped and reduced to the maximum of each group. Grouping
# starts at twice this number, so that fewer values are partitioned. On some processors with AVX-512 (AMD Zen 4),
# NumPy's partition takes 5 ns per value from 512 values on.
_GROUPED_MAXIMA = 256
# At least this many maxima remain for each value to find. With fewer maxima the bound would be too low.
_GROUPED_MAXIMA_PER_VALUE = 4


def _bound_of_maxima(maxima: Floats, count: int) -> np.float32:
    """Return a bound that at least ``count`` of the ``maxima`` reach, and few more than ``count``."""
    height = maxima.size // max(_GROUPED_MAXIMA, _GROUPED_MAXIMA_PER_VALUE * count)
    if height < 2:
        return _partition_for_nth_highest(maxima.copy(), count)
    width = maxima.size // height
    return _partition_for_nth_highest(np.maximum.reduce(maxima[: height * width].reshape(height, width)), count)


def _partition_for_nth_highest(values: Floats, count: int) -> np.float32:
    """Return the ``count``-th highest value. Partitions the array in place."""
    position = values.size - count
    values.partition(position)
    value: np.float32 = values[position]
    return value


_Float = TypeVar("_Float", np.float32, np.float64)

# Up to this many terms, the last of NumPy's running sums is faster than a sequential subtraction
_MAX_TERMS_OF_RUNNING_SUM = 128


def sequential_sum(values: NDArray[_Float], start: _Float | None = None) -> _Float:
    """Return the sum of the values, added from the first to the last in the precision of the values."""
    # Equals a loop in C bit for bit. NumPy adds pairwise, but subtracts one value after the other. Subtracting is
    # five times as fast as taking the last of NumPy's running sums.
    zero = values.dtype.type(0)
    if start is None and 0 < values.size <= _MAX_TERMS_OF_RUNNING_SUM:
        last: _Float = zero + np.add.accumulate(values)[-1]
        return last
    total: _Float = zero - np.subtract.reduce(values, initial=zero if start is None else -start)
    return total


# Number of squares that are first added one by one, and greatest number of ties in a block of squares. If a block
# has more ties, the sum is still small. It then grows by more squares that are added one by one.
_SQUARES_ADDED_ALONE, _MAX_TIES = 64, 32


def sequential_sum_of_squares(values: NDArray[np.float32]) -> np.float32:
    """Return the float32 sum of the squares of ``values``, float32 (n,), as C's ``float += double`` has it."""
    # C adds each square in float64 and rounds the sum to float32. Rounding the square itself to float32 before the
    # addition usually gives the same sum, and lets NumPy add many squares in one call. It makes a difference only
    # if the rounded square may be a tie: a multiple of half the distance between the floats next to the sum. Ties
    # are rare if the sum is far above the squares. Ties are added one by one in float64, the squares between them
    # in float32.
    total = _add_one_by_one(np.float32(0), values[:_SQUARES_ADDED_ALONE])
    start, length = _SQUARES_ADDED_ALONE, 2 * _SQUARES_ADDED_ALONE
    while start < values.size and isfinite(total):
        block = values[start : start + length]
        squares = block * block
        tie_positions, exact_squares = _find_ties(block, squares, total)
        if tie_positions.size > _MAX_TIES:  # the sum is still small, and must grow before a block has few ties
            total = _add_one_by_one(total, block[:_SQUARES_ADDED_ALONE])
            start, length = start + _SQUARES_ADDED_ALONE, 2 * _SQUARES_ADDED_ALONE
            continue
        added_count = 0
        for position, square in zip(tie_positions.tolist(), exact_squares.tolist(), strict=True):
            total = np.float32(float(sequential_sum(squares[added_count:position], total)) + square)
            added_count = position + 1
        total = sequential_sum(squares[added_count:], total)
        start, length = start + length, 3 * length
    return total


def _add_one_by_one(total: np.float32, values: NDArray[np.float32]) -> np.float32:
    for value in values.tolist():
        total = np.float32(float(total) + value * value)
    return total


def _find_ties(
    values: NDArray[np.float32], squares: NDArray[np.float32], total: np.float32
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the positions of rounded squares that may be ties when added to ``total``, and the exact squares."""
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.float32(2) / np.spacing(total)
    positions = np.arange(values.size)
    if isfinite(scale):  # otherwise every square may be a tie, since floats are as close together as possible
        with np.errstate(over="ignore"):
            half_steps = squares * scale
        positions = (half_steps == np.rint(half_steps)).nonzero()[0]
    exact_squares = values[positions].astype(np.float64) ** 2
    is_rounded = squares[positions] != exact_squares
    return positions[is_rounded], exact_squares[is_rounded]


BLOCK_ROWS = 512  # number of rows in a block of the two-level search
# With more values than this, a search first finds the block, and then the position in the block
LONG_ROW = 4 * BLOCK_ROWS


def position_of_share(weights: NDArray[np.float32], share: float) -> int:
    """Return the first position at which the running sum of ``weights``, (n,), reaches ``share`` of the total."""
    # The sums are float64. A long row is summed block by block, so that the last bits may differ from those of a
    # loop.
    if weights.size > LONG_ROW:
        return _search_blocks(weights, share).position
    sums = np.add.accumulate(weights, dtype=np.float64)
    return int(sums.searchsorted(sums[-1] * share))


_MIN_NORMAL = 2.0**-126  # the smallest positive normal float32


def certain_position_of_share(weights: NDArray[np.float32], share: float, error: float) -> int | None:
    """Return the position that `position_of_share` finds with exact weights; None if it is uncertain."""
    # ``error``: greatest relative error of a weight. Weights below the smallest normal float32 may have a greater
    # one.
    result = _search_blocks(weights, share)
    margin = 2 * error * result.target + weights.size * _MIN_NORMAL
    is_certain = (result.missing > margin or result.position == 0) and result.beyond > margin
    return result.position if is_certain else None


class _SharePosition(NamedTuple):
    """The position at which a running sum reaches a target, and the distance of the target from both sums."""

    position: int  # the first position whose running sum reaches the target
    missing: float  # the target minus the running sum before the position
    beyond: float  # the running sum up to and including the position, minus the target
    target: float  # the share times the total


def _search_blocks(weights: NDArray[np.float32], share: float) -> _SharePosition:
    """Find the block that reaches the share, then the position in it."""
    # No running sum over the vocabulary is needed.
    block_sums = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK_ROWS), dtype=np.float64)
    block_ends = np.add.accumulate(block_sums)
    target = block_ends[-1] * share
    block = int(block_ends.searchsorted(target))
    start = block * BLOCK_ROWS
    sums = np.add.accumulate(weights[start : start + BLOCK_ROWS], dtype=np.float64)
    # The sums of blocks and of rows round differently. If the target exceeds the block's sum, the last row counts.
    target_in_block = min(target - (block_ends[block - 1] if block else 0.0), sums[-1])
    position = int(sums.searchsorted(target_in_block))
    missing = target_in_block - sums[position - 1] if position else target_in_block
    return _SharePosition(start + position, missing, sums[position] - target_in_block, target)


def exact_weights(offsets: Floats) -> Floats:
    """Return exp(offset), float32, correctly rounded; C's expf gives another result for 1 of 2,000 values."""
    return np.exp(offsets, dtype=np.float64).astype(np.float32)


# An offset whose weight is below 2^-24. Adding such a weight to a float32 sum of 1 or more changes nothing.
_NEGLIGIBLE_OFFSET = np.float32(-16.7)
# Rows that change the sum are selected if at most one in this many rows does. Otherwise, summing all rows is
# faster.
_MIN_ROWS_PER_SUMMED_ROW = 2


def offsets_affecting_sum(logits: Floats, highest: np.float32, *, is_ordered: bool) -> Floats | None:
    """Return the differences from the highest logit, for the rows that affect the float32 sum of all weights."""
    # The sum is added from the first row to the last. Every row up to the highest one affects it. From there on
    # the sum is at least 1, so that very small weights are rounded away. Returns None if most rows affect the sum.
    # ``is_ordered``: the logits are sorted from high to low.
    offsets: Floats = logits - highest
    if is_ordered:
        return offsets[: offsets.size - int(offsets[::-1].searchsorted(_NEGLIGIBLE_OFFSET))]
    highest_position = int(offsets.argmax())
    if _MIN_ROWS_PER_SUMMED_ROW * highest_position > offsets.size:
        return None
    affects_sum = offsets > _NEGLIGIBLE_OFFSET
    if _MIN_ROWS_PER_SUMMED_ROW * int(np.count_nonzero(affects_sum)) > offsets.size:
        return None
    affects_sum[:highest_position] = True
    return offsets[affects_sum.nonzero()[0]]


class SoftmaxSums(NamedTuple):
    """The sums of a row of logits from which probabilities and entropy follow, in nats."""

    highest: float  # the highest logit
    log_weight_sum: float  # ln of the sum of exp(logit - highest)
    entropy: float  # -sum p ln p

    @property
    def log_total(self) -> float:
        """ln of the sum of exp(logit). A logit minus this value is the token's logprob."""
        return self.highest + self.log_weight_sum


# Minimum difference of a logit from the highest one. A lower difference is replaced by this one. A logit so far
# below the highest one has less than 1e-34 of its weight. Even a whole vocabulary of such logits does not change a
# sum in float64. Without the replacement, exponentials below the smallest normal float32 would take ten times as
# long.
_MIN_DIFFERENCE_NATS = -80.0


class SoftmaxWorkspace:
    """A computation of `SoftmaxSums` that reuses two work arrays."""

    # Allocating them would take longer than the sums.

    def __init__(self) -> None:
        self._differences = self._weights = np.empty(0, dtype=np.float32)

    def sums(self, logits: Floats, highest: np.float32) -> SoftmaxSums:
        """Return the sums of a row, float32 (n,). Exponentials are computed in float32, sums in float64."""
        if self._differences.size < logits.size:
            self._differences, self._weights = (np.empty(logits.size, dtype=np.float32) for _ in range(2))
        differences, weights = self._differences[: logits.size], self._weights[: logits.size]
        if float(np.minimum.reduce(logits)) - float(highest) >= _MIN_DIFFERENCE_NATS:
            np.subtract(logits, highest, out=differences)
        else:  # rare, so that the check is faster than always taking the maximum
            with np.errstate(over="ignore"):  # the difference of two finite logits may exceed float32
                np.subtract(logits, highest, out=differences)
            np.maximum(differences, _MIN_DIFFERENCE_NATS, out=differences)
        np.exp(differences, out=weights)
        total = float(np.add.reduce(weights, dtype=np.float64))
        moment = float(differences.dot(weights))
        return SoftmaxSums(float(highest), log(total), log(total) - moment / total)


@np.errstate(divide="ignore")
def logarithms(probs: Floats) -> Floats:
    """Return ln p, float32 (n,), correctly rounded; -inf where p is 0."""
    return np.log(probs, dtype=np.float64).astype(np.float32)


def llama_cpp_entropy(probs: Floats, logs: Floats) -> np.float32:
    """Return -sum p ln p in nats, summed in float32 from the first row to the last, as in llama.cpp."""
    return sequential_sum(probs * np.minimum(-logs, MAX_FLOAT32))  # 0 times a finite number, not 0 times inf


def entropy_terms(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return -p ln p, float64 (n,); 0 for 0."""
    wide = probs.astype(np.float64)
    return -wide * np.log(wide, out=np.zeros_like(wide), where=wide > 0)
