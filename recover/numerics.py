"""From biased logprobs to true ones: the formulas, in float64 and in forms that lose no digits. All in nats.

A bias b on token i turns its probability p into p', and the others keep their proportions. The derivations are
those of Finlayson, "Obtaining logprobs from an LLM API" (openlogprobs), rewritten where 1 - p' would cancel.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


def log1mexp(x: float) -> float:
    """log(1 - e^x) for x <= 0, exact on both sides of e^x = 1/2 (Mächler 2012); -inf at 0."""
    if x >= 0:
        return float("-inf")
    return float(np.log(-np.expm1(x)) if x > -0.6931471805599453 else np.log1p(-np.exp(x)))


def log_odds(logprob: float) -> float:
    """log(p / (1 - p))."""
    return logprob - log1mexp(logprob)


def from_single(after: float, bias: float) -> float:
    """A token's true logprob out of its logprob ``after`` only it was biased by ``bias``.

    log p = log p' - log(e^b - e^(b + log p') + p'), here as
    log p' - logaddexp(b + log(1 - p'), log p'), which neither overflows nor subtracts.
    """
    return after - float(np.logaddexp(bias + log1mexp(after), after))


def single_error(after: float, true: float, precision: float) -> float:
    """The error of `from_single`: the log odds move by d(log p') / (1 - p'), log p by 1 - p times that."""
    return precision * float(np.exp(log1mexp(true) - log1mexp(after)))


def from_anchor(after: float, bias: float, anchor_after: float, anchor: float) -> float:
    """A token's true logprob beside an anchor, a token that is known, in the same window.

    ``bias``: by how much more the token was biased than the anchor; ``anchor``: the anchor's true logprob. Biases
    change the sum by which all are divided, and that is the same for both: p'_i / p'_a = p_i e^b / p_a, so
    log p_i = log p'_i - log p'_a + log p_a - b.
    The formula for k tokens without an anchor, p'_i / ((1 - S) e^b + S) with S the sum of the k biased p', has the
    same value, but 1 - S loses its digits as soon as one of the k is much likelier than was guessed. Here nothing
    cancels, k tokens of any sizes can share a call, and where all have the same bias its size does not matter, not
    even if the endpoint cuts it. It costs one place of the window.
    """
    return after - anchor_after + anchor - bias


def from_penalty(after: float, known: Float64s, bias: float) -> float:
    """A token's true logprob where all ``known`` ones (logprobs) were biased by ``-bias`` and it was not.

    p = p' (1 + (e^-b - 1) P) with P the sum of the known p: log p = log p' + log1p(expm1(-b) P).
    """
    return after + float(np.log1p(np.expm1(-bias) * np.exp(known).sum()))


def penalty_error(known: Float64s, precision: float) -> float:
    """The error of `from_penalty`: 1 - P is known no better than P."""
    mass = float(np.exp(known).sum())
    return precision * (1 + mass / max(1 - mass, 1e-300))


def logsumexp(values: Float64s) -> float:
    """log of the sum of e^values."""
    highest = float(values.max())
    return highest + float(np.log(np.exp(values - highest).sum()))
