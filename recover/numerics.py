"""From biased logprobs to true ones: the formulas, in float64 and in forms that lose no digits. All in nats.

A bias b on token i turns its probability p into p', and the others keep their proportions. The derivations are
those of Finlayson, "Obtaining logprobs from an LLM API" (openlogprobs), rewritten where 1 - p' would cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
_LOG_2 = 0.6931471805599453
"""log 2: where log1mexp changes its formula (Maechler 2012)."""
_LEAST_REMAINDER = 1e-300
"""Keeps a division by 1 - P finite where P rounds to 1."""


class MeanLogprob(NamedTuple):
    """A mean logprob and its error, nats."""

    logprob: float
    error: float


def mean_logprob(values: Sequence[float], error: float, noise: float) -> MeanLogprob:
    """Return the mean of several values of one logprob.

    Its error joins ``error``, that of each value, with the error of the mean: the larger of the values' standard
    deviation and ``noise``, over the root of their number.
    """
    count = len(values)
    deviation = float(np.std(values, ddof=1)) if count > 1 else 0.0
    return MeanLogprob(float(np.mean(values)), hypot(error, max(deviation, noise) / count**0.5))


def log1mexp(x: float) -> float:
    """Return log(1 - e^x) for x <= 0, exact on both sides of e^x = 1/2 (Mächler 2012); -inf at 0."""
    if x >= 0:
        return float("-inf")
    return float(np.log(-np.expm1(x)) if x > -_LOG_2 else np.log1p(-np.exp(x)))


def log_odds(logprob: float) -> float:
    """Return log(p / (1 - p))."""
    return logprob - log1mexp(logprob)


def from_single(after: float, bias: float) -> float:
    """Return a token's true logprob from its logprob ``after`` only it was biased by ``bias``.

    log p = log p' - log(e^b - e^(b + log p') + p'), here as
    log p' - logaddexp(b + log(1 - p'), log p'), which neither overflows nor subtracts.
    """
    return after - float(np.logaddexp(bias + log1mexp(after), after))


def single_error(after: float, true: float, precision: float) -> float:
    """Return the error of `from_single`: the log odds move by d(log p') / (1 - p'), log p by 1 - p times that."""
    return precision * float(np.exp(log1mexp(true) - log1mexp(after)))


def from_anchor(after: float, bias: float, anchor_after: float, anchor: float) -> float:
    """Return a token's true logprob beside an anchor, a token of known logprob, in the same window.

    Biases change the sum by which all are divided, and that is the same for both: p'_i / p'_a = p_i e^b / p_a, so
    log p_i = log p'_i - log p'_a + log p_a - b.
    Nothing cancels, so k tokens of any probability can share a call. If all have the same bias, its size does not
    matter, even if the endpoint cuts it. The anchor takes one entry of the window.

    A formula without an anchor exists: p'_i / ((1 - S) e^b + S), S the sum of the biased p'. It loses digits when
    one token is much likelier than expected.

    Args:
        after: the token's logprob after the biases.
        bias: the token's bias minus the anchor's.
        anchor_after: the anchor's logprob after the biases.
        anchor: the anchor's true logprob.
    """
    return after - anchor_after + anchor - bias


def from_penalty(after: float, penalised: Float64s, bias: float) -> float:
    """Return a token's true logprob after all ``penalised`` ones (their true logprobs) were biased by ``-bias``.

    p = p' (1 + (e^-b - 1) P) with P the sum of the penalised p: log p = log p' + log1p(expm1(-b) P).
    """
    return after + float(np.log1p(np.expm1(-bias) * np.exp(penalised).sum()))


def penalty_error(penalised: Float64s, precision: float) -> float:
    """Return the error of `from_penalty`: 1 - P has the absolute error of P."""
    mass = float(np.exp(penalised).sum())
    return precision * (1 + mass / max(1 - mass, _LEAST_REMAINDER))


def logsumexp(values: Float64s) -> float:
    """Return log of the sum of e^values."""
    highest = float(values.max())
    return highest + float(np.log(np.exp(values - highest).sum()))
