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
_MIN_REMAINDER = 1e-300
"""Keeps a division by 1 - P finite where P rounds to 1."""


class MeanLogprob(NamedTuple):
    """A mean logprob and its error, nats."""

    logprob: float
    error: float


def mean_logprob(values: Sequence[float], error: float, noise_nats: float) -> MeanLogprob:
    """Return the mean of several values of one logprob.

    Its error joins ``error``, that of each value, with the error of the mean: the larger of the values' standard
    deviation and ``noise_nats``, over the root of their number.
    """
    count = len(values)
    deviation = float(np.std(values, ddof=1)) if count > 1 else 0.0
    return MeanLogprob(float(np.mean(values)), hypot(error, max(deviation, noise_nats) / count**0.5))


def log1mexp(x: float) -> float:
    """Return log(1 - e^x) for x <= 0, exact on both sides of e^x = 1/2 (Mächler 2012); -inf at 0."""
    if x >= 0:
        return float("-inf")
    return float(np.log(-np.expm1(x)) if x > -_LOG_2 else np.log1p(-np.exp(x)))


def log_odds(logprob: float) -> float:
    """Return log(p / (1 - p))."""
    return logprob - log1mexp(logprob)


def logprob_from_single_bias(biased_logprob: float, bias: float) -> float:
    """Return a token's true logprob from its logprob ``biased_logprob`` only it was biased by ``bias``.

    log p = log p' - log(e^b - e^(b + log p') + p'), here as
    log p' - logaddexp(b + log(1 - p'), log p'), which neither overflows nor subtracts.
    """
    return biased_logprob - float(np.logaddexp(bias + log1mexp(biased_logprob), biased_logprob))


def single_bias_error(biased_logprob: float, true_logprob: float, relative_error: float) -> float:
    """Return the error of `logprob_from_single_bias`: the log odds move by d(log p') / (1 - p'), log p by 1 -
    p times that.
    """
    return relative_error * float(np.exp(log1mexp(true_logprob) - log1mexp(biased_logprob)))


def logprob_from_anchor(
    biased_logprob: float, bias: float, anchor_biased_logprob: float, anchor_logprob: float
) -> float:
    """Return a token's true logprob beside an anchor, a token of known logprob, in the same window.

    Biases change the sum by which all are divided, and that is the same for both: p'_i / p'_a = p_i e^b / p_a, so
    log p_i = log p'_i - log p'_a + log p_a - b.
    Nothing cancels, so k tokens of any probability can share a call. If all have the same bias, its size does not
    matter, even if the endpoint cuts it. The anchor takes one entry of the window.

    A formula without an anchor exists: p'_i / ((1 - S) e^b + S), S the sum of the biased p'. It loses digits when
    one token is much likelier than expected.

    Args:
        biased_logprob: the token's logprob after the biases.
        bias: the token's bias minus the anchor's.
        anchor_biased_logprob: the anchor's logprob after the biases.
        anchor_logprob: the anchor's true logprob.
    """
    return biased_logprob - anchor_biased_logprob + anchor_logprob - bias


def logprob_from_penalty(biased_logprob: float, penalized_logprobs: Float64s, bias: float) -> float:
    """Return a token's true logprob after all ``penalized_logprobs`` ones (their true logprobs) were biased by
    ``-bias``.

    p = p' (1 + (e^-b - 1) P) with P the sum of the penalised p: log p = log p' + log1p(expm1(-b) P).
    """
    return biased_logprob + float(np.log1p(np.expm1(-bias) * np.exp(penalized_logprobs).sum()))


def penalty_error(penalized_logprobs: Float64s, relative_error: float) -> float:
    """Return the error of `logprob_from_penalty`: 1 - P has the absolute error of P."""
    penalized_probability = float(np.exp(penalized_logprobs).sum())
    return relative_error * (1 + penalized_probability / max(1 - penalized_probability, _MIN_REMAINDER))


def logsumexp(values: Float64s) -> float:
    """Return log of the sum of e^values."""
    highest = float(values.max())
    return highest + float(np.log(np.exp(values - highest).sum()))
