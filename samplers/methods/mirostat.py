"""Mirostat: the surprise of the drawn tokens stays near a target.

`MirostatBase` is the base class of both versions, with the state, the draw and the correction of mu.
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
    """Cut the sorted rows, draw one of them, and correct mu by the surprise of the drawn token.

    Formula: mu <- mu - eta (-log2 p_x - tau), in bits, float32; x is the drawn token; mu starts at 2 tau.
    """

    tau: float = Field(default=5.0, ge=0, description="target of the surprise, in bits")
    eta: float = Field(default=0.1, ge=0, description="learning rate of mu")
    surprise: Literal["truncated", "full"] = Field(
        default="truncated",
        description="compute the surprise among the tokens that are left, or among all (the paper)",
    )

    state_slots: ClassVar[tuple[str, ...]] = ("_mu",)
    __slots__ = ("_mu", "_random")

    @property
    def mu(self) -> np.float32:
        """The limit on the surprise of a token in the next cut, in bits."""
        return self._mu

    def bind(self, context: BuildContext) -> None:
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        self._random.restart()
        with np.errstate(over="ignore"):  # an infinite mu cuts nothing
            self._mu = np.float32(2) * np.float32(self.tau)

    def cut(self, candidates: Candidates) -> None:
        raise NotImplementedError

    def select(self, candidates: Candidates) -> int:
        candidates.sort_descending()
        all_probs = candidates.llama_cpp_probs() if self.surprise == "full" else None
        self.cut(candidates)
        position = self._random.discrete(candidates)
        drawn_row = slice(position, position + 1)
        probability = candidates.llama_cpp_probs_at(drawn_row) if all_probs is None else all_probs[drawn_row]
        surprise_error = surprises(probability)[0] - np.float32(self.tau)
        self._mu = self._mu - np.float32(self.eta) * surprise_error
        return int(candidates.ids[position])

    def trace_select(self, candidates: Candidates) -> Selection:
        mu, u = self.mu, self._random.peek()
        token = self.select(candidates)
        is_drawn = candidates.llama_cpp_count > 1
        note = f"mu {short_number(float(mu))} bits"
        return Selection(token, u if is_drawn else None, candidates.llama_cpp_probs(), note)


def surprises(probs: Floats) -> Floats:
    """Return -log2 p in bits, float32 (n,), correctly rounded; inf where p is 0."""
    with np.errstate(divide="ignore"):
        return -np.log2(probs, dtype=np.float64).astype(np.float32)


_INT_END = 2**31  # the least number that overflows an int of 32 bits


class Mirostat(MirostatBase):
    """Keep the surprise of the text near tau bits, by a top-k whose k follows from a Zipf law.

    Formula, rows sorted from high to low, float32 (n,): s = sum t_i b_i / sum t_i^2 over the first m rows, with
    t_i = ln((i + 1) / i), b_i = ln(p_i / p_(i+1)); e = s - 1; k = ((e 2^mu) / (1 - V^-e))^(1/s), at least 1, V the
    size of the vocabulary; draw x from the first k; then mu <- mu - eta (-log2 p_x - tau), from mu = 2 tau. If k
    is NaN, it becomes 1; this happens if rows that `top_n_sigma` dropped are among the first m. If k exceeds the
    number of rows, all rows stay. ``overflow`` decides about a k of 2^31 or more, which occurs in every text that
    cannot reach tau: ``all`` keeps all rows, as in the paper; ``one`` keeps the most likely row, as llama.cpp does
    on x86 when an int overflows. After that, mu never recovers.

    Range: tau >= 0 bits, eta >= 0, m >= 1. It selects, so it has no neutral value. Source: Basu et al. 2021.
    Equals llama.cpp's ``mirostat`` on x86 with surprise: truncated, overflow: one.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="mirostat",
        summary="keep the surprise of the text near tau bits; draws the token",
        formula="k from a Zipf law and mu; draw from the top k;  mu <- mu - eta (surprise - tau)",
        reference="Basu et al. 2021, Mirostat",
        llama_cpp="equal with surprise: truncated and, once k overflows an int, overflow: one (x86)",
        main_parameter="tau",
        is_selector=True,
        family="mirostat",
    )

    m: int = Field(default=100, ge=1, description="number of rows to which the Zipf law is fitted")
    overflow: Literal["all", "one"] = Field(
        default="all", description="a k of 2^31 and more keeps all tokens, or one as in llama.cpp on x86"
    )

    def cut(self, candidates: Candidates) -> None:
        """Keep the k most likely rows."""
        if candidates.masked_count and len(candidates) < self.m:  # a division by a probability of 0 makes k NaN
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
