"""EDT: a temperature that falls toward 0 as the entropy falls."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number
from .temperature import divide, division_note

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Edt(Sampler):
    """Choose the temperature by the entropy: near 0 if the model is certain, at most ``temperature`` if it is not.

    Formula: logit_i / t, float32 (n,), with t = temperature * base^(theta / H), H the entropy of the candidates in
    nats, float64. If H is 0 and theta is not, t is 0: the most likely token stays, of equal ones the first. With
    theta 0 it is `temperature`. The order stays.

    The paper writes "log" without a base; two public implementations use nats. For an entropy in bits, multiply
    theta by ln 2, since theta / (H / ln 2) = theta * ln 2 / H.

    Range: temperature >= 0, theta >= 0, base in (0, 1]; the paper uses base 0.8. Neutral at temperature 1 and
    theta 0. Source: Zhang, Bao & Huang 2024 (arXiv 2403.14541). Not in llama.cpp, whose ``temp_ext`` is
    `dynatemp`.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="edt",
        summary="temperature that falls toward 0 if the model is certain",
        formula="logit_i / t,  t = temperature * base^(theta / H)",
        reference="Zhang, Bao & Huang 2024, EDT: Entropy-based Dynamic Temperature Sampling",
        llama_cpp="not in llama.cpp; its `temp_ext` is `dynatemp`",
        main_parameter="theta",
        example=0.5,
        off_values={"temperature": 1.0, "theta": 0.0},
        inactive_while_off={"base": "theta"},
        stage=Stage.TEMPERATURE + 2,
        keeps_top_token=True,
        family="temperature",
        covered_samplers={"temperature": {"t": "temperature"}},
    )

    temperature: float = Field(default=0.8, ge=0, description="highest temperature, where the entropy is great")
    theta: float = Field(
        default=0.0, ge=0, description="how fast the temperature falls with the entropy; 0 = fixed temperature"
    )
    base: float = Field(default=0.8, gt=0, le=1, description="base of the power; the paper uses 0.8")

    def apply(self, candidates: Candidates) -> None:
        if not self.theta:
            divide(candidates, np.float32(self.temperature))
            return
        divide(candidates, np.float32(self._temperature_at(_entropy(candidates))))

    def _temperature_at(self, entropy: float) -> float:
        """Return the temperature at an entropy in nats, if theta is not 0."""
        exponent = self.theta / entropy if entropy > 0 else math.inf
        return self.temperature * self.base**exponent

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if not self.theta:
            return division_note(self.temperature, before, after)
        if len(before) == 1:
            return "one token: nothing to divide"
        entropy = _entropy(before.candidates)
        division = division_note(self._temperature_at(entropy), before, after)
        if not entropy:
            return f"{division}, entropy 0 nats"
        exponent = f"({short_number(self.theta)} / {short_number(entropy)})"
        parts = f"{short_number(self.temperature)} x {short_number(self.base)}^{exponent}"
        return f"{division}, t = {parts}, entropy {short_number(entropy)} nats"


def _entropy(candidates: Candidates) -> float:
    """Return the entropy of the candidates in nats. It is 0 if the other tokens' weights are 0 in float32."""
    # With the weights w_i = exp(d_i), d_i <= 0, it is ln(sum w) - sum(w d) / sum w. Neither term is below 0, so
    # that an entropy near 0 is exact.
    weights = candidates.weights().astype(np.float64)
    total = float(np.add.reduce(weights))
    differences = np.maximum(candidates.logits - candidates.max, _MIN_DIFFERENCE)
    return math.log(total) - float(np.add.reduce(weights * differences)) / total


# A weight is 0 in float32 at this difference from the highest logit. At -inf, the product would be NaN.
_MIN_DIFFERENCE = np.float32(-200)
