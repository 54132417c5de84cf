"""Formulas that compute true logprobs from biased ones, in float64 and without loss of digits. All values are in
nats.

A bias b on token i turns its probability p into p', and scales the probabilities of all other tokens by one
factor. Finlayson derives the formulas in "Obtaining logprobs from an LLM API" (openlogprobs). They are rewritten
here where 1 - p' would cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]
_LOG_2 = 0.6931471805599453  # log 2: the point at which log1mexp changes its formula (Mächler 2012)
_MIN_REMAINDER = 1e-300  # Keeps a division by 1 - P finite if P rounds to 1


class MeanLogprob(NamedTuple):
    logprob: float  # the mean, nats
    error: float  # error of the mean, nats


def mean_logprob(values: Sequence[float], error: float, noise_nats: float) -> MeanLogprob:
    """Return the mean of several measurements of one logprob."""
    # The error combines the error of each value with the error of the mean. The error of the mean is the values'
    # standard deviation, but at least ``noise_nats``, divided by the square root of their number.
    count = len(values)
    deviation = float(np.std(values, ddof=1)) if count > 1 else 0.0
    return MeanLogprob(float(np.mean(values)), hypot(error, max(deviation, noise_nats) / count**0.5))


def log1mexp(x: float) -> float:
    """Return log(1 - e^x) for x <= 0, accurate for all x (Mächler 2012); -inf for 0."""
    if x >= 0:
        return float("-inf")
    return float(np.log(-np.expm1(x)) if x > -_LOG_2 else np.log1p(-np.exp(x)))


def log_odds(logprob: float) -> float:
    """Return log(p / (1 - p)) of a logprob log p."""
    return logprob - log1mexp(logprob)


def logprob_from_single_bias(biased_logprob: float, bias: float) -> float:
    """Return a token's true logprob log p from its logprob log p' under a bias b on this token alone."""
    # log p = log p' - log(e^b - e^(b + log p') + p'). It is computed as log p' - logaddexp(b + log(1 - p'), log
    # p'), which neither overflows nor cancels.
    return biased_logprob - float(np.logaddexp(bias + log1mexp(biased_logprob), biased_logprob))


def single_bias_error(biased_logprob: float, true_logprob: float, relative_error: float) -> float:
    """Return the error of `logprob_from_single_bias`, nats."""
    # An error d of log p' changes the log odds by d / (1 - p'), and log p by 1 - p times that.
    return relative_error * float(np.exp(log1mexp(true_logprob) - log1mexp(biased_logprob)))


def logprob_from_anchor(
    biased_logprob: float, bias: float, anchor_biased_logprob: float, anchor_logprob: float
) -> float:
    """Return a token's true logprob from a response that also shows an anchor, a token of known logprob."""
    # Biases change the normalizing sum, which is the same for both tokens: p'_i / p'_a = p_i e^b / p_a. Therefore
    # log p_i = log p'_i - log p'_a + log p_a - b.
    # Nothing cancels, so that tokens of very different probability can share a call. If all tokens of a call have
    # the same bias, its size does not matter, even if the endpoint limits it. The anchor takes one of the shown
    # logprobs.
    # A formula without an anchor exists: p'_i / ((1 - S) e^b + S), where S is the sum of the biased p'. It loses
    # digits if one token is much more likely than expected.
    return biased_logprob - anchor_biased_logprob + anchor_logprob - bias


def logprob_from_suppression(biased_logprob: float, suppressed_token_logprobs: Float64s, bias: float) -> float:
    """Return a token's true logprob from a response in which other tokens had the bias ``-bias``."""
    # p = p' (1 + (e^-b - 1) P), where P is the sum of the suppressed p. Therefore log p = log p' + log1p(expm1(-b)
    # P).
    change = np.expm1(-bias) * np.exp(suppressed_token_logprobs).sum()
    # If P rounds to 1, only e^-b P is left of the sum. Its logarithm is -b.
    return biased_logprob + (float(np.log1p(change)) if change > -1 else -bias)


def suppression_error(suppressed_token_logprobs: Float64s, relative_error: float) -> float:
    """Return the error of `logprob_from_suppression`, nats: 1 - P has the absolute error of P."""
    suppressed_probability = float(np.exp(suppressed_token_logprobs).sum())
    return relative_error * (1 + suppressed_probability / max(1 - suppressed_probability, _MIN_REMAINDER))


def logsumexp(values: Float64s) -> float:
    """Return the logarithm of the sum of e^values."""
    max_value = float(values.max())
    return max_value + float(np.log(np.exp(values - max_value).sum()))
