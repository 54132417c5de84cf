"""Dynamic temperature: a temperature that depends on the entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import MAX_FLOAT32, llama_cpp_entropy, logarithms
from ..stages import short_number
from .temperature import divide, division_note

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Dynatemp(Sampler):
    """Choose the temperature by the entropy: low if the model is certain, high if it is not.

    Formula: logit_i / t, float32 (n,), with t = lo + (hi - lo) * (H / ln n)^exponent, lo = max(0, temperature -
    range), hi = temperature + range, H the entropy in nats, n the number of candidates, including the rows that
    `top_n_sigma` dropped. The rows are sorted from high to low. With range 0 it is `temperature`.

    Range: all parameters >= 0. Neutral at temperature 1, range 0. Source: Kalomaze 2023, llama.cpp PR 4972.
    Equals llama.cpp's ``temp_ext``, except that n does not count tokens that an earlier step banned.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="dynatemp",
        summary="low temperature if the model is certain, high if it is not",
        formula="logit_i / t,  t = lo + (hi - lo) * (H / ln n)^exponent,  lo, hi = temperature -+ range",
        reference="Kalomaze 2023, Dynamic Temperature Sampling; llama.cpp `temp_ext`",
        llama_cpp="equal; n counts the candidates in play, not those that were banned",
        main_parameter="range",
        example=0.5,
        off_values={"temperature": 1.0, "range": 0.0},
        inactive_while_off={"exponent": "range"},
        aliases=("dynamic_temperature", "dynatemp_range", "temp_ext"),
        stage=Stage.TEMPERATURE + 1,
        keeps_top_token=True,
        family="temperature",
        covered_samplers={"temperature": {"t": "temperature"}},
    )

    temperature: float = Field(default=0.8, ge=0, description="the middle of the range")
    range: float = Field(
        default=0.0, ge=0, description="greatest deviation from temperature; 0 = fixed temperature"
    )
    exponent: float = Field(
        default=1.0,
        ge=0,
        description="curve of the temperature over the entropy; above 1 = cooler, below 1 = hotter",
    )

    def apply(self, candidates: Candidates) -> None:
        middle, reach = np.float32(self.temperature), np.float32(self.range)
        if reach <= 0:
            divide(candidates, middle)
            return
        count = candidates.llama_cpp_count
        if count <= 1:
            return
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        max_entropy = np.float32(-math.log(np.float32(1) / np.float32(count)))
        entropy_share = llama_cpp_entropy(probs, logarithms(probs)) / max_entropy
        low, high = max(np.float32(0), middle - reach), min(middle + reach, MAX_FLOAT32)
        # In llama.cpp a float32 power is the rounded float64 power.
        power = np.float64(entropy_share) ** np.float64(np.float32(self.exponent))
        divide(candidates, min(low + (high - low) * np.float32(power), MAX_FLOAT32))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        count = before.candidates.llama_cpp_count
        if self.range == 0:
            return division_note(self.temperature, before, after)
        if count <= 1:
            return "one token: nothing to divide"
        max_entropy = math.log(count)
        low, high = max(0.0, self.temperature - self.range), self.temperature + self.range
        t = low + (high - low) * (before.entropy / max_entropy) ** self.exponent
        entropy = f"entropy {short_number(before.entropy)} of at most {short_number(max_entropy)} nats"
        return f"{division_note(t, before, after)}, {entropy}"
