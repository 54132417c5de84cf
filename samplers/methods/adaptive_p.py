"""Adaptive-p."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from ..array_types import Floats
from ..base import About, BuildContext, Selector
from ..candidates import Candidates
from ..mersenne_twister import MersenneTwister

# The shape of the transform is fixed, as in llama.cpp.
_WIDTH = np.float32(0.3)
_PEAK = np.float32(5)
_SHARPNESS = np.float32(10)


class AdaptiveP(Selector):
    """Draw tokens whose probability lies near a target, which moves so that the mean comes out right.

    Formula, float32: t = clip(2 target - W / N, 0, 1); d = |p_i - t| / 0.3; logit_i = 5 - 10 d^2 / (1 + d); draw
    from that; when the token is accepted, W <- p + decay W, N <- 1 + decay N, p its probability before the
    transform; from W = target / (1 - decay), N = 1 / (1 - decay). target < 0: a plain draw. A min_p before it
    keeps the tail out. Source: llama.cpp PR 17927, by MrJackSpade and ddh0. Equals llama.cpp's ``adaptive_p``.
    """

    about: ClassVar[About] = About(
        name="adaptive_p",
        summary="draw tokens whose probability lies near a moving target",
        formula="logit_i = 5 - 10 d^2 / (1 + d),  d = |p_i - t| / 0.3,  t = clip(2 target - mean p, 0, 1)",
        reference="MrJackSpade & ddh0 2025, llama.cpp `adaptive_p`, PR 17927",
        llama_cpp="equal: the same seed draws the same tokens",
        main="target",
        example=0.3,
        aliases=("adaptive", "power_law"),
        selects=True,
    )

    target: float = Field(default=-1.0, ge=-1, le=1, description="probability to aim at; below 0 = a plain draw")
    decay: float = Field(default=0.9, ge=0, le=0.99, description="how long it remembers: 1 / (1 - decay) tokens")

    __slots__ = ("_pending", "_random", "_total", "_weighted")

    def bind(self, context: BuildContext) -> None:
        """Seed the generator."""
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        """Go back to the first random number, with a mean that is on target."""
        self._random.restart()
        rest = np.float32(1) - np.float32(self.decay)
        self._weighted = np.float32(self.target) / rest
        self._total = np.float32(1) / rest
        self._pending: tuple[int, np.float32] | None = None

    def select(self, candidates: Candidates) -> int:
        """Put the transformed logits in place and draw from them."""
        probs = candidates.llama_cpp_probs()
        if self.target >= 0:
            target = np.float32(self.target)
            adapted = np.clip(np.float32(2) * target - self._weighted / self._total, np.float32(0), np.float32(1))
            candidates.replace(_bent(probs - adapted, candidates.logits))
        position = self._random.discrete(candidates.llama_cpp_probs())
        token = int(candidates.ids[position])
        self._pending = (token, probs[position])
        return token

    def accept(self, token: int) -> None:
        """Take the token's probability into the mean, if it is the one that was drawn."""
        if self._pending is not None and self._pending[0] == token:
            decay = np.float32(self.decay)
            self._weighted = self._pending[1] + decay * self._weighted
            self._total = np.float32(1) + decay * self._total
        self._pending = None


def _bent(offsets: Floats, old: Floats) -> Floats:
    """New logits by how far each probability lies from the target, written over ``offsets``; -inf stays -inf."""
    offsets *= np.float32(1) / _WIDTH
    distance = np.abs(offsets, out=offsets)
    logits = _SHARPNESS * distance
    logits *= distance
    distance += np.float32(1)
    logits /= distance
    np.subtract(_PEAK, logits, out=logits)
    if np.minimum.reduce(old) == -np.inf:
        logits[old == -np.inf] = -np.inf
    return logits
