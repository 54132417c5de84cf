"""The sums behind a softmax: the logarithm of its total, and its entropy."""

from __future__ import annotations

from math import log
from typing import NamedTuple

import numpy as np

from .array_types import Floats

_LEAST_DIFFERENCE = -80.0
"""Lower logits, which weigh less than 1e-34, count as if they were so far below the highest one. A vocabulary of
them adds nothing to sums in float64; exponentials below the normal float32 take ten times as long as others."""


class SoftmaxSums(NamedTuple):
    """The sums of a row of logits, in nats."""

    highest: float
    """The highest logit."""
    log_weights: float
    """ln of the sum of exp(logit - highest)."""
    entropy: float
    """-sum p ln p."""

    @property
    def log_total(self) -> float:
        """ln of the sum of exp(logit): a logit minus this is the token's logprob."""
        return self.highest + self.log_weights


class SoftmaxWorkspace:
    """Computes `SoftmaxSums`, in two work arrays that every row uses again: new ones cost more than the sums."""

    def __init__(self) -> None:
        self._differences = self._weights = np.empty(0, dtype=np.float32)

    def sums(self, logits: Floats, highest: np.float32) -> SoftmaxSums:
        """Return the sums of a row. Exponentials are float32, sums float64.

        ``logits``: float32 (n,), not written to; ``highest``: the highest of them.
        """
        if self._differences.size < logits.size:
            self._differences, self._weights = (np.empty(logits.size, dtype=np.float32) for _ in range(2))
        differences, weights = self._differences[: logits.size], self._weights[: logits.size]
        if float(np.minimum.reduce(logits)) - float(highest) >= _LEAST_DIFFERENCE:
            np.subtract(logits, highest, out=differences)
        else:  # rare: to look costs less than to replace what is not there
            with np.errstate(over="ignore"):  # the difference of two finite logits may exceed float32
                np.subtract(logits, highest, out=differences)
            np.maximum(differences, _LEAST_DIFFERENCE, out=differences)
        np.exp(differences, out=weights)
        total = float(np.add.reduce(weights, dtype=np.float64))
        moment = float(differences.dot(weights))
        return SoftmaxSums(float(highest), log(total), log(total) - moment / total)
