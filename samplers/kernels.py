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

MIN_FLOAT32 = np.finfo(np.float32).min  # the lowest finite float32
MAX_FLOAT32 = np.finfo(np.float32).max  # the highest finite float32


@lru_cache(maxsize=8)
def all_ids(size: int) -> Ids:
    """Return the ids 0..size-1, int32 (size,), read-only. Repeated calls return the same array."""
    ids: Ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


@lru_cache
def as_float32(parameter: float) -> np.float32:
    """Return a parameter as float32."""
    # A sampler needs its parameter at each token. The cache takes a third of the time of a conversion.
    return np.float32(parameter)


def clamp_to_finite(logits: NDArray[np.floating], old_logits: Floats) -> Floats:
    """Return new logits as float32. An overflow becomes the nearest finite number, but an old -inf stays -inf."""
    if logits.dtype == np.float32 and _are_all_finite(logits) and _are_all_finite(old_logits):
        return logits  # nearly always
    clamped_logits = np.minimum(np.maximum(logits, MIN_FLOAT32), MAX_FLOAT32).astype(np.float32, copy=False)
    result: Floats = np.where(old_logits == -np.inf, old_logits, clamped_logits)
    return result


def _are_all_finite(values: NDArray[np.floating]) -> bool:
    return bool(np.logical_and.reduce(np.isfinite(values)))


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
    if highest > 0:
        return "there is a +inf in the row"
    return "every entry of the row is -inf"


_MAX_STABLE_SORT_VALUES = 256  # up to this many values, a stable sort is faster than a sort of pairs (measured)
_MIN_RADIX_SORT_VALUES = 1 << 12  # from this many values on, a radix sort may be faster than a sort of pairs
_ALL_BITS_BUT_SIGN = np.int32(0x7FFFFFFF)
_Keys = NDArray[np.int32]


def descending(values: Floats) -> Positions:
    """Return the positions that sort ``values``, float32 (n,), from high to low; equal values keep their order."""
    if values.size <= _MAX_STABLE_SORT_VALUES:
        return (-values).argsort(kind="stable")
    # The keys are integers that sort as the values do, but a higher value has a lower key. The bits of a float32,
    # read as an integer, sort as the floats do, except that negative floats sort in the reverse order.
    keys = (values + np.float32(0)).view(np.int32)  # + 0 makes -0 and 0 the same key
    is_negative = keys >> 31  # all bits are 1 for a negative float, and 0 for another one
    keys ^= is_negative & _ALL_BITS_BUT_SIGN
    np.invert(keys, out=keys)
    if values.size >= _MIN_RADIX_SORT_VALUES and _is_radix_sort_faster():
        return _ascending_by_radix(keys)
    return _ascending_by_pairs(keys)


# The index of each half of a 64-bit integer in memory
_UPPER_HALF = 1 if sys.byteorder == "little" else 0
_LOWER_HALF = 1 - _UPPER_HALF


def _ascending_by_pairs(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``."""
    # Sorts 64-bit integers. Each has a key in its upper half, and the position of this key in its lower half.
    pairs = np.empty(keys.size, dtype=np.int64)
    halves = pairs.view(np.int32).reshape(-1, 2)
    halves[:, _UPPER_HALF] = keys
    halves[:, _LOWER_HALF] = np.arange(keys.size, dtype=np.int32)
    pairs.sort()
    positions: Positions = halves[:, _LOWER_HALF].astype(np.intp)
    return positions


def _ascending_by_radix(keys: _Keys) -> Positions:
    """Return the positions that sort ``keys``."""
    # Sorts by the lower 16 bits of the keys, then by the upper 16 bits. NumPy's stable sort of 16 bits is a radix
    # sort.
    positions_by_lower_bits = keys.astype(np.uint16).argsort(kind="stable")
    upper_bits = (keys >> 16).astype(np.int16).take(positions_by_lower_bits)
    positions: Positions = positions_by_lower_bits.take(upper_bits.argsort(kind="stable"))
    return positions


# a factor whose multiples modulo 2^32 look random (Knuth's multiplicative hashing)
_SPREADING_FACTOR = np.uint32(2_654_435_761)


@cache
def _is_radix_sort_faster() -> bool:
    """Measure once whether the radix sort is faster, in about 0.5 ms. Both sorts return the same positions."""
    # On AMD Zen 4, NumPy's sort of pairs takes four times as long with AVX-512 as with AVX2.
    keys = (np.arange(_MIN_RADIX_SORT_VALUES, dtype=np.uint32) * _SPREADING_FACTOR).view(np.int32)
    return _measure_seconds(_ascending_by_radix, keys) < _measure_seconds(_ascending_by_pairs, keys)


def _measure_seconds(sort: Callable[[_Keys], Positions], keys: _Keys) -> float:
    """Return the time of a sort. Of three runs the shortest counts, since other programs may delay a run."""
    durations = []
    for _ in range(3):
        start = perf_counter()
        sort(keys)
        durations.append(perf_counter() - start)
    return min(durations)


def column_maxima(values: Floats) -> Floats:
    """Return the maxima of the columns of a table of ``values``, float32 (n,), n >= 32."""
    # The table has 16 rows, or 32 for many values. The last values, too few for another column, are left out.
    return _table_column_maxima(values, _column_height(values.size))


def _table_column_maxima(values: Floats, height: int) -> Floats:
    """Return the maxima of the columns if the values are arranged as a table with ``height`` rows."""
    width = values.size // height
    maxima: Floats = np.maximum.reduce(values[: height * width].reshape(height, width))
    return maxima


def highest_of(values: Floats, maxima: Floats) -> np.float32:
    """Return the highest of the ``values``, whose column maxima are ``maxima``. Returns NaN if a value is NaN."""
    highest: np.float32 = np.maximum.reduce(maxima)
    table_size = _column_height(values.size) * maxima.size
    if table_size < values.size:
        highest = np.maximum(highest, np.maximum.reduce(values[table_size:]))
    return highest


def highest_rows(values: Floats, count: int, maxima: Floats | None = None) -> Positions:
    """Return the positions of the ``count`` highest ``values``, float32 (n,), from high to low."""
    # Of equal values the earlier one comes first.
    return highest_with_values(values, count, maxima)[0]


def highest_with_values(values: Floats, count: int, maxima: Floats | None = None) -> tuple[Positions, Floats]:
    """Return the positions that `highest_rows` returns, and the values there."""
    if count == values.size:
        order = descending(values)
        return order, values[order]
    if maxima is None:
        maxima = column_maxima(values)
    # Only values that reach a lower bound of the ``count``-th highest value are sorted.
    positions, reaching_values = _reaching_bound(values, count, maxima)
    order = descending(reaching_values)[:count]
    return positions[order], reaching_values[order]


# Only the columns that reach the bound are searched if they are at most one in this many columns. If more columns
# reach the bound, searching the entire row is faster (measured).
_MIN_COLUMNS_PER_REACHING_COLUMN = 8


def _reaching_bound(values: Floats, count: int, maxima: Floats) -> tuple[Positions, Floats]:
    """Return the ``count`` highest values and a few more values, after their positions, which are ascending."""
    width = maxima.size
    if width < 2 * count:
        bound = _partition_for_nth_highest(values.copy(), count)
        return _values_reaching(values, bound)
    # At least ``count`` column maxima reach the bound. They are values at different positions, so at least
    # ``count`` values reach the bound. Few more values reach it, since high values seldom share a column.
    bound = _bound_of_maxima(maxima, count)
    columns = (maxima >= bound).nonzero()[0]
    if _MIN_COLUMNS_PER_REACHING_COLUMN * columns.size > width:
        return _values_reaching(values, bound)
    height = _column_height(values.size)
    searched_positions = (_positions_of_row_starts(height, width) + columns).ravel()
    table_size = height * width
    if table_size < values.size:
        searched_positions = np.concatenate((searched_positions, np.arange(table_size, values.size)))
    indexes, reaching_values = _values_reaching(values[searched_positions], bound)
    return searched_positions[indexes], reaching_values


def _values_reaching(values: Floats, bound: np.float32) -> tuple[Positions, Floats]:
    """Return the positions of the values that reach the bound, and these values."""
    positions = (values >= bound).nonzero()[0]
    return positions, values[positions]


# Number of rows in the table of columns, for short and for long arrays of values
_COLUMN_HEIGHT = 16
_LONG_COLUMN_HEIGHT = 32
_MIN_LONG_COLUMN_VALUES = 1 << 16  # from this many values on, the table with more rows is faster (measured)


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
    group_count = max(_GROUPED_MAXIMA, _GROUPED_MAXIMA_PER_VALUE * count)
    maxima_per_group = maxima.size // group_count
    if maxima_per_group < 2:
        return _partition_for_nth_highest(maxima.copy(), count)
    return _partition_for_nth_highest(_table_column_maxima(maxima, maxima_per_group), count)


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


_SQUARES_ADDED_ALONE = 64  # number of squares that are added one by one, before blocks are added
_MAX_TIES = 32  # greatest number of ties in a block of squares


def sequential_sum_of_squares(values: NDArray[np.float32]) -> np.float32:
    """Return the float32 sum of the squares of ``values``, float32 (n,), as C's ``float += double`` has it."""
    # C adds each square in float64 and rounds the sum to float32. If the square itself is rounded to float32
    # before the addition, the sum is usually the same, and NumPy can add many squares in one call. The sum differs
    # only if the rounded square is a tie: a multiple of half the distance between the floats next to the sum. Ties
    # are rare if the sum is far above the squares.
    total = _add_one_by_one(np.float32(0), values[:_SQUARES_ADDED_ALONE])
    start = _SQUARES_ADDED_ALONE
    block_length = 2 * _SQUARES_ADDED_ALONE
    while start < values.size and isfinite(total):
        block = values[start : start + block_length]
        squares = block * block
        ties = _find_ties(block, squares, total)
        if ties.positions.size > _MAX_TIES:  # the sum is still small, and must grow before a block has few ties
            total = _add_one_by_one(total, block[:_SQUARES_ADDED_ALONE])
            start += _SQUARES_ADDED_ALONE
            block_length = 2 * _SQUARES_ADDED_ALONE
        else:
            total = _add_block(total, squares, ties)
            start += block_length
            block_length *= 3
    return total


def _add_one_by_one(total: np.float32, values: NDArray[np.float32]) -> np.float32:
    for value in values.tolist():
        total = np.float32(float(total) + value * value)
    return total


class _Ties(NamedTuple):
    """The squares of a block whose rounding to float32 may change the sum."""

    positions: NDArray[np.intp]  # the positions in the block, ascending, (m,)
    exact_squares: NDArray[np.float64]  # the squares at these positions, in float64, (m,)


def _add_block(total: np.float32, squares: NDArray[np.float32], ties: _Ties) -> np.float32:
    """Add the rounded squares of a block in float32, but the exact squares at the ties in float64."""
    start = 0
    for position, exact_square in zip(ties.positions.tolist(), ties.exact_squares.tolist(), strict=True):
        total = sequential_sum(squares[start:position], total)
        total = np.float32(float(total) + exact_square)
        start = position + 1
    return sequential_sum(squares[start:], total)


def _find_ties(values: NDArray[np.float32], squares: NDArray[np.float32], total: np.float32) -> _Ties:
    """Return the rounded squares that may be ties when they are added to ``total``."""
    with np.errstate(over="ignore", divide="ignore"):
        half_steps_per_unit = np.float32(2) / np.spacing(total)
    if isfinite(half_steps_per_unit):
        with np.errstate(over="ignore"):
            half_steps = squares * half_steps_per_unit
        positions = (half_steps == np.rint(half_steps)).nonzero()[0]
    else:  # the floats next to the sum are as close together as any, so that every square may be a tie
        positions = np.arange(values.size)
    exact_squares = values[positions].astype(np.float64) ** 2
    is_rounded = squares[positions] != exact_squares
    return _Ties(positions[is_rounded], exact_squares[is_rounded])


# A search in more than `LONG_ROW` values first finds the block of `BLOCK_ROWS` values, and then the position in
# it.
BLOCK_ROWS = 512
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
    # ``error``: greatest relative error of a weight. The error of weights below the smallest normal float32 may be
    # greater.
    result = _search_blocks(weights, share)
    margin = 2 * error * result.target + weights.size * _MIN_NORMAL
    is_below_upper_sum = result.distance_to_upper_sum > margin
    is_above_lower_sum = result.position == 0 or result.distance_to_lower_sum > margin
    return result.position if is_below_upper_sum and is_above_lower_sum else None


class _SharePosition(NamedTuple):
    """The position at which a running sum reaches a target, and the target's distances from two running sums."""

    position: int  # the first position whose running sum reaches the target
    distance_to_lower_sum: float  # the target minus the running sum before the position
    distance_to_upper_sum: float  # the running sum up to and including the position, minus the target
    target: float  # the share times the total


def _search_blocks(weights: NDArray[np.float32], share: float) -> _SharePosition:
    """Find the block that reaches the share, then the position in the block."""
    # So no running sum over the entire vocabulary is needed.
    block_sums = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK_ROWS), dtype=np.float64)
    sums_up_to_blocks = np.add.accumulate(block_sums)
    target = sums_up_to_blocks[-1] * share
    block = int(sums_up_to_blocks.searchsorted(target))
    sum_before_block = sums_up_to_blocks[block - 1] if block else 0.0
    start = block * BLOCK_ROWS
    sums = np.add.accumulate(weights[start : start + BLOCK_ROWS], dtype=np.float64)
    # The sums of blocks and of rows round differently. If the target exceeds the block's sum, the last row counts.
    target_in_block = min(target - sum_before_block, sums[-1])
    position = int(sums.searchsorted(target_in_block))
    lower_sum = sums[position - 1] if position else 0.0
    return _SharePosition(
        position=start + position,
        distance_to_lower_sum=target_in_block - lower_sum,
        distance_to_upper_sum=sums[position] - target_in_block,
        target=target,
    )


def exact_weights(offsets: Floats) -> Floats:
    """Return exp(offset), float32, correctly rounded; C's expf gives another result for 1 of 2,000 values."""
    return np.exp(offsets, dtype=np.float64).astype(np.float32)


# The weight of this offset is below 2^-24. Adding such a weight to a float32 sum of 1 or more changes nothing.
_NEGLIGIBLE_OFFSET = np.float32(-16.7)
# If more than one in this many rows affects the sum, summing all rows is faster than selecting rows.
_MIN_ROWS_PER_SUMMED_ROW = 2


def offsets_affecting_sum(logits: Floats, highest: np.float32, *, is_ordered: bool) -> Floats | None:
    """Return the differences from the highest logit, for the rows that affect the float32 sum of all weights."""
    # The sum is added from the first row to the last. Every row up to the highest row affects the sum. After the
    # highest row, the sum is at least 1, so that very small weights are rounded away. Returns None if most rows
    # affect the sum. ``is_ordered``: the logits are sorted from high to low.
    offsets: Floats = logits - highest
    if is_ordered:
        negligible_count = int(offsets[::-1].searchsorted(_NEGLIGIBLE_OFFSET))
        return offsets[: offsets.size - negligible_count]
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


# A logit may be further below the highest logit than this. Then this difference is used in its place. Its weight
# is below 1e-34, so that even a whole vocabulary of such logits does not change a sum in float64. Without this
# limit, exponentials below the smallest normal float32 would take ten times as long.
_MIN_DIFFERENCE_NATS = -80.0


class SoftmaxWorkspace:
    """A computation of `SoftmaxSums` with two arrays that are reused, since allocating them would take longer."""

    def __init__(self) -> None:
        self._differences = np.empty(0, dtype=np.float32)
        self._weights = np.empty(0, dtype=np.float32)

    def sums(self, logits: Floats, highest: np.float32) -> SoftmaxSums:
        """Return the sums of a row, float32 (n,). Exponentials are computed in float32, sums in float64."""
        if self._differences.size < logits.size:
            self._differences = np.empty(logits.size, dtype=np.float32)
            self._weights = np.empty(logits.size, dtype=np.float32)
        differences = self._differences[: logits.size]
        weights = self._weights[: logits.size]
        lowest_difference = float(np.minimum.reduce(logits)) - float(highest)
        if lowest_difference >= _MIN_DIFFERENCE_NATS:
            np.subtract(logits, highest, out=differences)
        else:  # rare, so that the check is faster than always taking the maximum
            with np.errstate(over="ignore"):  # the difference of two finite logits may exceed float32
                np.subtract(logits, highest, out=differences)
            np.maximum(differences, _MIN_DIFFERENCE_NATS, out=differences)
        np.exp(differences, out=weights)
        total = float(np.add.reduce(weights, dtype=np.float64))
        mean_difference = float(differences.dot(weights)) / total
        return SoftmaxSums(highest=float(highest), log_weight_sum=log(total), entropy=log(total) - mean_difference)


@np.errstate(divide="ignore")
def logarithms(probs: Floats) -> Floats:
    """Return ln p, float32 (n,), correctly rounded; -inf where p is 0."""
    return np.log(probs, dtype=np.float64).astype(np.float32)


def llama_cpp_entropy(probs: Floats, logs: Floats) -> np.float32:
    """Return -sum p ln p in nats, summed in float32 from the first row to the last, as in llama.cpp."""
    finite_surprises = np.minimum(-logs, MAX_FLOAT32)  # the product of 0 and inf would be NaN
    return sequential_sum(probs * finite_surprises)


def entropy_terms(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return -p ln p, float64 (n,); 0 for 0."""
    wide = probs.astype(np.float64)
    return -wide * np.log(wide, out=np.zeros_like(wide), where=wide > 0)
