"""Mirostat, the second version."""

from __future__ import annotations

from typing import ClassVar

from ..base import About
from ..candidates import Candidates
from ..mirostat import MirostatBase, surprises


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
    )

    def cut(self, candidates: Candidates) -> None:
        """Keep the rows that surprise no more than mu."""
        beyond = surprises(candidates.rough_probs()) > self.mu
        if beyond.any():
            candidates.truncate(max(int(beyond.argmax()), 1))
