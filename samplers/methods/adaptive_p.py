"""Adaptive-p: a draw that prefers tokens near a target probability."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from ..base import BuildContext, SamplerInfo, Selection, Selector
from ..candidates import Candidates
from ..kernels import Floats
from ..mersenne_twister import MersenneTwister
from ..stages import short_number

# The constants of the transform: DISTRIBUTION_WIDTH, PEAK_LOGIT_VALUE and SHARPNESS in llama.cpp's adaptive_p.
_DISTRIBUTION_WIDTH = np.float32(0.3)
_PEAK_LOGIT = np.float32(5)
_SHARPNESS = np.float32(10)


class AdaptiveP(Selector):
    """Draw tokens whose probability is near a moving target, which keeps the mean probability at ``target``.

    Formula, float32: t = clip(2 target - W / N, 0, 1); d = |p_i - t| / 0.3; logit_i = 5 - 10 d^2 / (1 + d); draw
    from these logits, (n,). When the drawn token is accepted: W <- p + decay W, N <- 1 + decay N, with p its
    probability before the transform. At the start W = target / (1 - decay) and N = 1 / (1 - decay). With target <
    0 it is a plain draw. A preceding min_p removes unlikely tokens.

    Range: target -1..1, decay 0..0.99. It selects, so it has no neutral value. Source: llama.cpp PR 17927, by
    MrJackSpade and ddh0. Equals llama.cpp's ``adaptive_p``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="adaptive_p",
        summary="draw tokens whose probability is near a moving target",
        formula="logit_i = 5 - 10 d^2 / (1 + d),  d = |p_i - t| / 0.3,  t = clip(2 target - mean p, 0, 1)",
        reference="MrJackSpade & ddh0 2025, llama.cpp `adaptive_p`, PR 17927",
        llama_cpp="equal: the same seed draws the same tokens",
        main_parameter="target",
        example=0.3,
        aliases=("adaptive", "power_law"),
        is_selector=True,
    )

    target: float = Field(default=-1.0, ge=-1, le=1, description="probability to aim at; below 0 = a plain draw")
    decay: float = Field(
        default=0.9,
        ge=0,
        le=0.99,
        description="weight of past tokens in the mean; about 1 / (1 - decay) tokens count",
    )

    state_slots: ClassVar[tuple[str, ...]] = (
        "_drawn_prob",
        "_drawn_token",
        "_weight_sum",
        "_weighted_probability_sum",
    )
    __slots__ = ("_drawn_prob", "_drawn_token", "_random", "_weight_sum", "_weighted_probability_sum")

    def bind(self, context: BuildContext) -> None:
        self._random = MersenneTwister(context.seed)

    def reset(self, prompt: object) -> None:
        self._random.restart()
        complement = np.float32(1) - np.float32(self.decay)
        self._weighted_probability_sum = np.float32(self.target) / complement
        self._weight_sum = np.float32(1) / complement
        self._drawn_token: int | None = None
        self._drawn_prob = np.float32(0)

    def select(self, candidates: Candidates) -> int:
        probs = candidates.llama_cpp_probs()
        if self.target >= 0:
            mean = self._weighted_probability_sum / self._weight_sum
            moving_target = np.clip(np.float32(2) * np.float32(self.target) - mean, np.float32(0), np.float32(1))
            candidates.set_logits(_transform_logits(probs - moving_target, candidates.logits))
        position = self._random.discrete(candidates)
        token = int(candidates.ids[position])
        self._drawn_token = token
        self._drawn_prob = probs[position]
        return token

    def trace_select(self, candidates: Candidates) -> Selection:
        note = "no target: a plain draw"
        if self.target >= 0:
            mean = float(self._weighted_probability_sum / self._weight_sum)
            aimed_probability = min(max(2 * self.target - mean, 0.0), 1.0)
            note = f"aims at p {short_number(aimed_probability)}, since the mean is {short_number(mean)}"
        u = self._random.peek()
        token = self.select(candidates)
        is_drawn = candidates.llama_cpp_count > 1
        return Selection(token, u if is_drawn else None, candidates.llama_cpp_probs(), note)

    def accept(self, token: int) -> None:
        """Update the mean, unless the appended token is not the drawn one, but a forced one."""
        if self._drawn_token == token:
            decay = np.float32(self.decay)
            self._weighted_probability_sum = self._drawn_prob + decay * self._weighted_probability_sum
            self._weight_sum = np.float32(1) + decay * self._weight_sum
        self._drawn_token = None


def _transform_logits(offsets: Floats, old_logits: Floats) -> Floats:
    """Return the transformed logits, from distances of probabilities to the target, which are overwritten."""
    offsets *= np.float32(1) / _DISTRIBUTION_WIDTH
    distance = np.abs(offsets, out=offsets)
    logits = _SHARPNESS * distance
    logits *= distance
    distance += np.float32(1)
    logits /= distance
    np.subtract(_PEAK_LOGIT, logits, out=logits)
    if np.minimum.reduce(old_logits) == -np.inf:
        logits[old_logits == -np.inf] = -np.inf
    return logits
