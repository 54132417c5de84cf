"""Quadratic smoothing of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import clamp_to_finite
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Quadratic(Sampler):
    """Bend the logits along a parabola: likely tokens get closer together, unlikely tokens get less likely.

    Formula: max - k * factor * d^2 + s * factor * d^3, with d = logit - max <= 0, k = (3 - curve) / 2, s = (curve
    - 1) / 2; computed in float64, stored as float32 (n,), an overflow clamped. curve 1 gives a plain parabola.
    Above curve 3, tokens near the most likely one may overtake it.

    Range: factor >= 0, curve >= 1; neutral at factor 0. Source: Kalomaze 2024, quadratic sampling;
    text-generation-webui, KoboldCpp and Aphrodite agree on it. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="quadratic",
        summary="bend the logits along a parabola: closer at the top, steeper below",
        formula="max - k f d^2 + s f d^3,  d = logit - max, k = (3 - c) / 2, s = (c - 1) / 2",
        reference="Kalomaze 2024, Quadratic / Smooth Sampling, text-generation-webui PR 5403",
        llama_cpp="not in llama.cpp",
        main_parameter="factor",
        example=0.25,
        off_values={"factor": 0.0},
        aliases=("smoothing", "smoothing_factor", "smooth_sampling"),
        stage=Stage.XTC + 1,
    )

    factor: float = Field(default=0.0, ge=0, description="strength, f in the formula; 0 = off")
    curve: float = Field(
        default=1.0, ge=1, description="c in the formula; 1 = parabola, above 1 = steeper for unlikely tokens"
    )

    def apply(self, candidates: Candidates) -> None:
        if self.factor <= 0:
            return
        old_logits = candidates.logits
        depth = np.where(np.isneginf(old_logits), 0.0, old_logits.astype(np.float64) - float(candidates.max))
        quadratic, cubic = (3 - self.curve) / 2, (self.curve - 1) / 2
        with np.errstate(over="ignore", invalid="ignore"):
            bent_logits = candidates.max + self.factor * depth * depth * (cubic * depth - quadratic)
        candidates.set_logits(clamp_to_finite(bent_logits, old_logits), monotone=self.curve <= 3)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if len(before) == 1:
            return "one token: nothing to bend"
        return f"the second is {short_number(_gap(after))} below the first, it was {short_number(_gap(before))}"


def _gap(stage: StageCandidates) -> float:
    """Return the difference between the two highest logits."""
    first, second = stage.logits[stage.candidates.top_positions(2)].tolist()
    return first - second
