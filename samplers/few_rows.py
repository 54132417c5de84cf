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
_ERROR = 2.0**-15
"""By what part of the total a running sum may differ from that of exact float32 weights, in any order of rounding.

Each of n weights, their float32 total, its quotients and their running sum are off by 2^-24 of the total at most,
so that the error is below (4 n + 2) 2^-24, which is 2^-16 for 64 rows.
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
    margin = total * _ERROR
    if sums[position] - target > margin and (position == 0 or target - sums[position - 1] > margin):
        return position
    return None
