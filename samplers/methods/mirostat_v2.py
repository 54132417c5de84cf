"""Mirostat, the second version."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..base import About
from ..candidates import Candidates
from ..mirostat_base import MirostatBase, surprises

# A float32 logarithm to base 2, at most 150, is off by less than this fraction of what it is the logarithm of.
_NEAR = 1e-5
# All probabilities surprise more than this, in bits.
_LEAST = -1.0


class MirostatV2(MirostatBase):
    """Hold the surprise of the text near tau bits, by dropping the tokens that surprise more than mu.

    Formula, rows sorted from high to low, float32: keep the rows before the first with -log2 p_i > mu, at least
    one; draw x from them; then mu <- mu - eta (-log2 p_x - tau), from mu = 2 tau. Source: Basu et al. 2021.
    Equals llama.cpp's ``mirostat_v2`` with surprise: truncated.
    """

    about: ClassVar[About] = About(
        name="mirostat_v2",
        summary="hold the surprise of the text near tau bits, the simpler way; draws the token",
        formula="keep i if -log2 p_i <= mu; draw;  mu <- mu - eta (surprise - tau)",
        reference="Basu et al. 2021, Mirostat; llama.cpp `mirostat-v2`",
        llama_cpp="equal with surprise: truncated, the same seed draws the same tokens",
        main="tau",
        selects=True,
        family="mirostat",
    )

    def cut(self, candidates: Candidates) -> None:
        """Keep the rows that surprise no more than mu."""
        probs = candidates.llama_cpp_probs()
        # Away from the edge a probability tells by itself; only near it does the rounding of the logarithm count.
        edge = 2.0 ** -max(float(self.mu), _LEAST)
        within = int(np.count_nonzero(probs > edge * (1 + _NEAR)))
        near = int(np.count_nonzero(probs >= edge * (1 - _NEAR)))
        beyond = surprises(probs[within:near]) > self.mu
        candidates.truncate(max(within + int(beyond.argmax()) if beyond.any() else near, 1))
