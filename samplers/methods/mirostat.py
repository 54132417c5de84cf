"""Mirostat, the first version."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import About
from ..candidates import Candidates
from ..mirostat_base import MirostatBase
from ..sequential_sums import sequential_sum

_INT_END = 2**31
"""From this number on, an int of 32 bits overflows."""


class Mirostat(MirostatBase):
    """Hold the surprise of the text near tau bits, by a top-k whose k follows a Zipf law.

    Formula, rows sorted from high to low, float32 (n,): s = sum t_i b_i / sum t_i^2 over the first m rows, with
    t_i = ln((i + 1) / i), b_i = ln(p_i / p_(i+1)); e = s - 1; k = ((e 2^mu) / (1 - V^-e))^(1/s), at least 1, V the
    size of the vocabulary; draw x from the first k; then mu <- mu - eta (-log2 p_x - tau), from mu = 2 tau. If k
    is not a number, it is 1, as where rows that `top_n_sigma` dropped are among the first m; if it exceeds the
    row, the whole row stays. ``overflow``: what a k of 2^31 and more does, which every text brings that cannot
    reach tau. ``all`` keeps the row, as the paper means it; ``one`` keeps the likeliest row, as the overflow of an
    int does in llama.cpp on x86, and mu never recovers from that.

    Range: tau >= 0 bits, eta >= 0, m >= 1. It selects, so it has no neutral value. Source: Basu et al. 2021.
    Equals llama.cpp's ``mirostat`` on x86 with surprise: truncated, overflow: one.
    """

    about: ClassVar[About] = About(
        name="mirostat",
        summary="hold the surprise of the text near tau bits; draws the token",
        formula="k from a Zipf law and mu; draw from the top k;  mu <- mu - eta (surprise - tau)",
        reference="Basu et al. 2021, Mirostat",
        llama_cpp="equal with surprise: truncated and, once k overflows an int, overflow: one (x86)",
        main="tau",
        selects=True,
        family="mirostat",
    )

    m: int = Field(default=100, ge=1, description="how many rows the Zipf law is fitted to")
    overflow: Literal["all", "one"] = Field(
        default="all", description="a k of 2^31 and more keeps all tokens, or one as in llama.cpp on x86"
    )

    def cut(self, candidates: Candidates) -> None:
        """Keep the k most likely rows."""
        if candidates.masked_count and len(candidates) < self.m:  # a quotient by a probability of 0 makes k NaN
            candidates.truncate(1)
            return
        probs = candidates.llama_cpp_probs_at(slice(self.m)).astype(np.float64)
        ranks = np.arange(1, probs.size, dtype=np.float32)
        with np.errstate(all="ignore"):
            t = np.log((ranks + np.float32(1)) / ranks, dtype=np.float64).astype(np.float32)
            quotients = (probs[:-1] / probs[1:]).astype(np.float32)
            b = np.log(quotients, dtype=np.float64).astype(np.float32)
            s_hat = sequential_sum(t * b) / sequential_sum(t * t)
            epsilon = s_hat - np.float32(1)
            spread = epsilon * _power(np.float32(2), self.mu)
            share = np.float32(1) - _power(np.float32(candidates.vocabulary), -epsilon)
            k = _power(spread / share, np.float32(1) / s_hat)
        if math.isnan(k) or (k >= _INT_END and self.overflow == "one"):
            candidates.truncate(1)
        elif k < len(candidates):
            candidates.truncate(max(int(k), 1))


def _power(base: np.float32, exponent: np.float32) -> np.float32:
    return np.float32(np.float64(base) ** np.float64(exponent))
