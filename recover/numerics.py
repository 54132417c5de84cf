"""Logarithms of probabilities, in float64 and without loss of digits, in nats. The formulas of the methods are in
`methods/`."""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
_LOG_2 = 0.6931471805599453  # log 2: the point at which log1mexp changes its formula (Mächler 2012)


def mean_logprob(values: Sequence[float], error: float, noise_nats: float) -> tuple[float, float]:
    """Return the mean of several measurements of one logprob, and its error."""
    # The error combines the error of each value with the error of the mean. The error of the mean is the values'
    # standard deviation, but at least ``noise_nats``, divided by the square root of their number.
    count = len(values)
    deviation = float(np.std(values, ddof=1)) if count > 1 else 0.0
    return float(np.mean(values)), hypot(error, max(deviation, noise_nats) / count**0.5)


def log1mexp(x: float) -> float:
    """Return log(1 - e^x) for x <= 0, accurate for all x (Mächler 2012); -inf for 0."""
    if x >= 0:
        return float("-inf")
    return float(np.log(-np.expm1(x)) if x > -_LOG_2 else np.log1p(-np.exp(x)))


def log_odds(logprob: float) -> float:
    """Return log(p / (1 - p)) of a logprob log p."""
    return logprob - log1mexp(logprob)


def logsumexp(values: Float64s) -> float:
    """Return the logarithm of the sum of e^values."""
    max_value = float(values.max())
    return max_value + float(np.log(np.exp(values - max_value).sum()))
