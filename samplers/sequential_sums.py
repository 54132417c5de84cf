"""Sums from the first value to the last, bit for bit as in a loop in C, and searches in running sums."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS = 512
"""Rows in a block of the two-level search."""
LONG_ROW = 4 * BLOCK_ROWS
"""A row with more values than this is searched on two levels: first a block, then inside it."""

_FEW_TERMS = 128
"""Up to this many terms, the last of NumPy's running sums is faster than a subtraction in order."""
_FIRST_SQUARES, _MANY_SQUARES = 64, 32
"""The first squares, and how many ties a piece may have; with more, the sum first grows one square at a time."""
_LEAST_NORMAL = 2.0**-126
"""The least normal float32."""

_Float = TypeVar("_Float", np.float32, np.float64)


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


def position_of_share(weights: NDArray[np.float32], share: float) -> int:
    """Return the first position whose running sum, in float64, reaches ``share`` of the total. ``weights``: (n,).

    A long row is summed block by block, so the sums differ from a loop's in the last bits of a float64.
    """
    if weights.size > LONG_ROW:
        return _search_blocks(weights, share).position
    sums = np.add.accumulate(weights, dtype=np.float64)
    return int(sums.searchsorted(sums[-1] * share))


def certain_position_of_share(weights: NDArray[np.float32], share: float, error: float) -> int | None:
    """Return what `position_of_share` returns for the exact weights, or None if ``weights`` cannot tell.

    ``error``: by what fraction a weight differs from the exact one at most. A weight below the least normal
    float32 may differ by more.
    """
    result = _search_blocks(weights, share)
    margin = 2 * error * result.target + weights.size * _LEAST_NORMAL
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
