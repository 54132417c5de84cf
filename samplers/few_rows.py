"""A share of the mass of a few rows, in Python's own floats: there a NumPy call costs more than its arithmetic."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import exp

import numpy as np

from .array_types import Floats

FEW_ROWS = 64
"""Up to this many rows are counted as few."""
_VERY_FEW = 16
"""Up to this many, Python's exponentials are faster than NumPy's (measured)."""
_ERROR_PER_ROW = 2.0**-21
_SPARE_ROWS = 8
"""A running sum over n rows differs from that of exact float32 weights by less than (n + 8) 2^-21 of the total.

Each of n weights, their float32 total, its quotients and their running sum are off by 2^-24 of the total at most,
so that the error is below (4 n + 2) 2^-24, in any order of rounding. NumPy's exponentials add 16 2^-24 at most.
The differences from the highest logit are rounded, too, which adds less than 4 2^-24. All this together is below
(4 n + 22) 2^-24, less than half of the bound.
"""


def running_sums(logits: Floats, highest: np.float32) -> list[float]:
    """Return the running sums of exp(logit - highest), in float64. ``logits``: float32 (n,), a few."""
    if logits.size > _VERY_FEW:
        return list(accumulate(np.exp(logits - highest).tolist()))
    top = float(highest)
    return list(accumulate([exp(logit - top) for logit in logits.tolist()]))


def certain_position(sums: list[float], share: float) -> int | None:
    """Return the first position whose running sum reaches ``share`` of the last; None if rounding decides."""
    total = sums[-1]
    target = total * share
    position = bisect_left(sums, target)
    margin = total * ((len(sums) + _SPARE_ROWS) * _ERROR_PER_ROW)
    if sums[position] - target > margin and (position == 0 or target - sums[position - 1] > margin):
        return position
    return None
