"""The common part of both versions of Mirostat: the state, the draw and the correction."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from .array_types import Floats
from .base import BuildContext, Selection, Selector
from .candidates import Candidates
from .mersenne_twister import MersenneTwister
from .note_words import short_number


def surprises(probs: Floats) -> Floats:
    """Return -log2 p in bits, float32 (n,), each correctly rounded; inf for 0."""
    with np.errstate(divide="ignore"):
        return -np.log2(probs, dtype=np.float64).astype(np.float32)


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
        candidates.order()
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
