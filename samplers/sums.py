"""Sums as a loop in C makes them."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

# Rows in a block of the two-level search.
BLOCK = 512
# Rows from which on that search has two levels.
LONG = 4 * BLOCK
# Up to so many terms, running sums are the faster way.
_FEW = 128
# So many squares are added one by one: at first, and where more than the second number of a piece have to be.
_FIRST, _MANY = 64, 32
# The least normal float32.
_TINY = 2.0**-126

_Float = TypeVar("_Float", np.float32, np.float64)


def in_order(values: NDArray[_Float], before: _Float | None = None) -> _Float:
    """The sum in the values' own precision, from ``before`` or 0 and the first to the last. Equal to loops in C.

    NumPy adds in pairs, but what it subtracts it takes away one after the other; that is five times as fast as the
    last of its running sums, and the same to the last bit.
    """
    zero = values.dtype.type(0)
    if before is None and 0 < values.size <= _FEW:
        last: _Float = zero + np.add.accumulate(values)[-1]
        return last
    total: _Float = zero - np.subtract.reduce(values, initial=zero if before is None else -before)
    return total


def sum_of_squares(values: NDArray[np.float32]) -> np.float32:
    """The sum as a float32 that each square, float64 (n,), is added to in float64: C's ``float += double``.

    Floats up to the next power of two are equally far apart, further up twice as far or more. So rounding a square
    to a float first makes a difference only if that puts it midway between two of them: a multiple of half of that
    distance. Such squares, few where the sum is far above them, are added by themselves, and those between them in
    order as floats.
    """
    total = _one_by_one(np.float32(0), values[:_FIRST])
    start, length = _FIRST, 2 * _FIRST
    while start < values.size and isfinite(total):
        piece = values[start : start + length]
        squares = piece * piece
        places, exact = _midway(piece, squares, total)
        if places.size > _MANY:  # beside so small a sum: make it larger, and look again
            total = _one_by_one(total, piece[:_FIRST])
            start, length = start + _FIRST, 2 * _FIRST
            continue
        done = 0
        for place, square in zip(places.tolist(), exact.tolist(), strict=True):
            total = np.float32(float(in_order(squares[done:place], total)) + square)
            done = place + 1
        total = in_order(squares[done:], total)
        start, length = start + length, 3 * length
    return total


def _one_by_one(total: np.float32, values: NDArray[np.float32]) -> np.float32:
    for value in values.tolist():
        total = np.float32(float(total) + value * value)
    return total


def _midway(
    values: NDArray[np.float32], squares: NDArray[np.float32], total: np.float32
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Which of the rounded squares may lie midway between two sums above ``total``; and these squares, exactly."""
    with np.errstate(over="ignore", divide="ignore"):
        scale = np.float32(2) / np.spacing(total)
    places = np.arange(values.size)
    if isfinite(scale):  # else the sums lie as closely as floats do
        with np.errstate(over="ignore"):
            steps = squares * scale
        places = (steps == np.rint(steps)).nonzero()[0]
    exact = values[places].astype(np.float64) ** 2
    rounded = squares[places] != exact
    return places[rounded], exact[rounded]


def first_reaching(weights: NDArray[np.float32], share: float) -> int:
    """The first position whose running sum of weights, (n,), in float64, reaches ``share`` of their total.

    The sums are those of a loop but for the last bits of a float64: a long row is summed block by block.
    """
    if weights.size > LONG:
        return _search(weights, share).position
    sums = np.add.accumulate(weights, dtype=np.float64)
    return int(sums.searchsorted(sums[-1] * share))


def surely_reaching(weights: NDArray[np.float32], share: float, error: float) -> int | None:
    """What `first_reaching` finds for the true weights, of which these differ by a fraction of ``error`` at most.

    None where that leaves several positions open. Weights that are no normal float32 may be off altogether.
    """
    found = _search(weights, share)
    margin = 2 * error * found.target + weights.size * _TINY
    sure = (found.missing > margin or found.position == 0) and found.beyond > margin
    return found.position if sure else None


class _Found(NamedTuple):
    """A position, what those before it lack of the sum that is sought, what it has beyond it, and the sum."""

    position: int
    missing: float
    beyond: float
    target: float


def _search(weights: NDArray[np.float32], share: float) -> _Found:
    # Sum whole blocks first, then look inside one: no running sum over the vocabulary.
    blocks = np.add.reduceat(weights, np.arange(0, weights.size, BLOCK), dtype=np.float64)
    ends = np.add.accumulate(blocks)
    target = ends[-1] * share
    block = int(ends.searchsorted(target))
    start = block * BLOCK
    sums = np.add.accumulate(weights[start : start + BLOCK], dtype=np.float64)
    # The two levels round differently: past the end of a block means its last row with a weight.
    within = min(target - (ends[block - 1] if block else 0.0), sums[-1])
    place = int(sums.searchsorted(within))
    missing = within - sums[place - 1] if place else within
    return _Found(start + place, missing, sums[place] - within, target)
