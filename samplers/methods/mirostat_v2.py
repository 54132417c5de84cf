"""Mirostat v2: tokens whose surprise exceeds a moving limit are dropped."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..base import SamplerInfo
from ..candidates import Candidates
from .mirostat import MirostatBase, surprises

# Relative distance from the limit within which the rounding of the surprise, a float32, may decide
_ROUNDING_MARGIN = 1e-5
_BELOW_ANY_SURPRISE = -1.0  # a number of bits that is below every surprise, since these are at least 0


class MirostatV2(MirostatBase):
    """Keep the surprise of the text near tau bits, by dropping the tokens whose surprise exceeds mu.

    Formula, rows sorted from high to low, float32 (n,): keep the rows before the first with -log2 p_i > mu, at
    least one; draw x from them; then mu <- mu - eta (-log2 p_x - tau), from mu = 2 tau.

    Range: tau >= 0 bits, eta >= 0. It selects, so it has no neutral value. Source: Basu et al. 2021. Equals
    llama.cpp's ``mirostat_v2`` with surprise: truncated.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="mirostat_v2",
        summary="keep the surprise of the text near tau bits by a simpler rule; draws the token",
        formula="keep i if -log2 p_i <= mu; draw;  mu <- mu - eta (surprise - tau)",
        reference="Basu et al. 2021, Mirostat; llama.cpp `mirostat-v2`",
        llama_cpp="equal with surprise: truncated, the same seed draws the same tokens",
        main_parameter="tau",
        is_selector=True,
        family="mirostat",
        covered_samplers={"mirostat": {}},
    )

    def cut(self, candidates: Candidates) -> None:
        """Keep the rows whose surprise is mu or less."""
        if self.mu == np.inf:  # every row stays, masked ones included
            return
        # The rounded logarithm is needed only near the limit. Elsewhere the probability decides.
        limit_prob = 2.0 ** -max(float(self.mu), _BELOW_ANY_SURPRISE)
        min_prob = limit_prob * (1 - _ROUNDING_MARGIN)
        probs = candidates.llama_cpp_probs_down_to(min_prob)
        certain_count = int(np.count_nonzero(probs > limit_prob * (1 + _ROUNDING_MARGIN)))
        possible_count = int(np.count_nonzero(probs >= min_prob))
        is_beyond = surprises(probs[certain_count:possible_count]) > self.mu
        kept_count = certain_count + int(is_beyond.argmax()) if is_beyond.any() else possible_count
        candidates.truncate(max(kept_count, 1))
