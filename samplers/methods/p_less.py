"""p-less: a lowest probability that follows from the whole distribution, without a parameter to tune."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class PLess(Sampler):
    """Keep the tokens that are at least as likely as two independent draws are to be the same token.

    Formula: keep i if p_i >= s with s = sum_j p_j^2, p the softmax of logit / temperature, float64 (n,). With
    ``norm``, s = (V * sum_j p_j^2 - 1) / (V - 1), V the size of the vocabulary: this lower threshold is 0 for an
    even distribution. The logits of the remaining rows, float32 (n,), and their order stay: ``temperature`` only
    changes the threshold. The most likely token always stays, and so do all tokens if all are equally likely.

    Range: temperature > 0; None takes the logits as they are at this place of the chain. No neutral value. Source:
    Tan, Wu & Howard 2025 (arXiv 2509.23234), whose code has both thresholds. Not in llama.cpp; its pull request
    26035 lowers the threshold by 1e-5 against rounding, which is not needed here.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="p_less",
        summary="keep tokens at least as likely as a coincidence of two draws",
        formula="keep i if p_i >= sum_j p_j^2;  norm: p_i >= (V * sum_j p_j^2 - 1) / (V - 1)",
        reference="Tan, Wu & Howard 2025, p-less Sampling",
        llama_cpp="not in llama.cpp",
        aliases=("pless",),
        stage=Stage.MIN_P + 4,
        keeps_top_token=True,
    )

    norm: bool = Field(default=False, description="lower threshold of p-less-norm, which keeps more tokens")
    temperature: float | None = Field(
        default=None, gt=0, description="temperature for the threshold only; null = the logits as they arrive"
    )

    def apply(self, candidates: Candidates) -> None:
        weights = self._weights(candidates)
        threshold = self._threshold(weights, candidates.vocab_size)
        is_kept = weights >= threshold
        if threshold <= 0:  # all tokens of the vocabulary are equally likely, except for rounding
            is_kept &= weights > 0
        candidates.filter_rows(is_kept)
        candidates.masked_count = 0

    def _weights(self, candidates: Candidates) -> NDArray[np.float64]:
        """Return the probabilities divided by the highest one, float64 (n,)."""
        if self.temperature is None:
            return candidates.weights().astype(np.float64)
        gaps = candidates.logits.astype(np.float64) - float(candidates.max)
        return np.exp(gaps / self.temperature)

    def _threshold(self, weights: NDArray[np.float64], vocab_size: int) -> float:
        """Return the lowest weight that stays. It is at most 1, the weight of the most likely token."""
        # Sums of equal weights, and quotients of equal sums, are exact. So no token is lost to rounding if all are
        # equally likely.
        total = float(np.add.reduce(weights))
        sum_of_squares = float(np.add.reduce(weights * weights))
        if self.norm and vocab_size > 1:
            threshold = (vocab_size * sum_of_squares - total * total) / (total * (vocab_size - 1))
        else:
            threshold = sum_of_squares / total
        return min(threshold, 1.0)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        weights = self._weights(before.candidates)
        size = before.candidates.vocab_size
        probability = max(self._threshold(weights, size), 0.0) / float(np.add.reduce(weights))
        formula = f"({size:,} x sum p^2 - 1) / {size - 1:,}" if self.norm else "sum p^2"
        at = "" if self.temperature is None else f" at temperature {short_number(self.temperature)}"
        return f"p >= {short_number(probability)} = {formula}{at}"
