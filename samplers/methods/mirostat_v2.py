"""Mirostat, the second version."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..base import SamplerInfo
from ..candidates import Candidates
from .mirostat import MirostatBase, surprises

_MARGIN = 1e-5
"""Relative margin of a probability in which the rounding of its surprise, float32 of at most 150 bits, counts."""
_BELOW_ANY_BITS = -1.0
"""Below every surprise, which is 0 bits at least."""


class MirostatV2(MirostatBase):
    """Hold the surprise of the text near tau bits, by dropping the tokens that surprise more than mu.

    Formula, rows sorted from high to low, float32 (n,): keep the rows before the first with -log2 p_i > mu, at
    least one; draw x from them; then mu <- mu - eta (-log2 p_x - tau), from mu = 2 tau.

    Range: tau >= 0 bits, eta >= 0. It selects, so it has no neutral value. Source: Basu et al. 2021. Equals
    llama.cpp's ``mirostat_v2`` with surprise: truncated.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="mirostat_v2",
        summary="hold the surprise of the text near tau bits, the simpler way; draws the token",
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
        if self.mu == np.inf:  # masked rows stay, too
            return
        # Only near the edge does the rounding of the logarithm count; elsewhere the probability decides.
        edge = 2.0 ** -max(float(self.mu), _BELOW_ANY_BITS)
        least = edge * (1 - _MARGIN)
        probs = candidates.llama_cpp_probs_down_to(least)
        within = int(np.count_nonzero(probs > edge * (1 + _MARGIN)))
        near = int(np.count_nonzero(probs >= least))
        beyond = surprises(probs[within:near]) > self.mu
        candidates.truncate(max(within + int(beyond.argmax()) if beyond.any() else near, 1))
