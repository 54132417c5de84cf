"""mirostat: draws so that the surprise of the tokens stays near a target.

`MirostatBase` is the common part of both versions: the state, the draw and the correction.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import BuildContext, SamplerInfo, Selection, Selector
from ..candidates import Candidates
from ..kernels import Floats, sequential_sum
from ..mersenne_twister import MersenneTwister
from ..stages import short_number


class MirostatBase(Selector):
    """Cut the sorted rows, draw one, and correct mu by its surprise.

    Formula: mu <- mu - eta (-log2 p_x - tau), in bits, float32; x is the drawn token; mu begins at 2 tau.
    """

    tau: float = Field(default=5.0, ge=0, description="the surprise to aim at, in bits")
    eta: float = Field(default=0.1, ge=0, description="how fast mu follows")
    surprise: Literal["truncated", "full"] = Field(
        default="truncated", description="measured among the tokens left, or among all that came in (the paper)"
    )

    __slots__ = ("_mu", "_random")

    @property
    def mu(self) -> np.float32:
        """The highest surprise that the next cut lets through, in bits."""
        return self._mu

    def bind(self, context: BuildContext) -> None:
        """Seed the generator."""
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        """Go back to the first random number and to mu = 2 tau."""
        self._random.restart()
        with np.errstate(over="ignore"):  # an infinite mu cuts nothing
            self._mu = np.float32(2) * np.float32(self.tau)

    def cut(self, candidates: Candidates) -> None:
        """Keep the first rows of the sorted candidates, as many as mu allows."""
        raise NotImplementedError

    def select(self, candidates: Candidates) -> int:
        """Cut, draw one of the remaining rows, and correct mu."""
        candidates.sort_descending()
        before = candidates.llama_cpp_probs() if self.surprise == "full" else None
        self.cut(candidates)
        position = self._random.discrete(candidates)
        drawn = slice(position, position + 1)
        probability = candidates.llama_cpp_probs_at(drawn) if before is None else before[drawn]
        error = surprises(probability)[0] - np.float32(self.tau)
        self._mu = self._mu - np.float32(self.eta) * error
        return int(candidates.ids[position])

    def trace_select(self, candidates: Candidates) -> Selection:
        """Draw as `select` does; return the random number and mu before the draw too."""
        mu, u = self.mu, self._random.peek()
        token = self.select(candidates)
        is_drawn = candidates.llama_cpp_count > 1
        note = f"mu {short_number(float(mu))} bits"
        return Selection(token, u if is_drawn else None, candidates.llama_cpp_probs(), note)


def surprises(probs: Floats) -> Floats:
    """Return -log2 p in bits, float32 (n,), each correctly rounded; inf for 0."""
    with np.errstate(divide="ignore"):
        return -np.log2(probs, dtype=np.float64).astype(np.float32)


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

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="mirostat",
        summary="hold the surprise of the text near tau bits; draws the token",
        formula="k from a Zipf law and mu; draw from the top k;  mu <- mu - eta (surprise - tau)",
        reference="Basu et al. 2021, Mirostat",
        llama_cpp="equal with surprise: truncated and, once k overflows an int, overflow: one (x86)",
        main_parameter="tau",
        is_selector=True,
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
            share = np.float32(1) - _power(np.float32(candidates.vocab_size), -epsilon)
            k = _power(spread / share, np.float32(1) / s_hat)
        if math.isnan(k) or (k >= _INT_END and self.overflow == "one"):
            candidates.truncate(1)
        elif k < len(candidates):
            candidates.truncate(max(int(k), 1))


def _power(base: np.float32, exponent: np.float32) -> np.float32:
    return np.float32(np.float64(base) ** np.float64(exponent))
