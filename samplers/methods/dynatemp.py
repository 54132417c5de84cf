"""Dynamic temperature: a temperature that follows the entropy."""

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
    """Choose the temperature by the entropy: low where the model is certain, high where it is not.

    Formula: logit_i / t, float32 (n,), with t = lo + (hi - lo) * (H / ln n)^exponent, lo = max(0, temperature -
    range), hi = temperature + range, H the entropy in nats, n the number of candidates and of the rows that
    `top_n_sigma` dropped. The rows are sorted from high to low. With range 0 it is `temperature`.

    Range: all parameters >= 0. Neutral at temperature 1, range 0. Source: Kalomaze 2023, llama.cpp PR 4972.
    Equals llama.cpp's ``temp_ext``, except that tokens banned before do not count in n.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="dynatemp",
        summary="cool where the model is sure, hot where it is not",
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
    range: float = Field(default=0.0, ge=0, description="how far it goes to both sides; 0 = fixed")
    exponent: float = Field(default=1.0, ge=0, description="above 1 cooler, below 1 hotter in between")

    def apply(self, candidates: Candidates) -> None:
        """Divide the logits by the temperature of this entropy."""
        middle, reach = np.float32(self.temperature), np.float32(self.range)
        if reach <= 0:
            divide(candidates, middle)
            return
        count = len(candidates) + candidates.masked_count
        if count <= 1:
            return
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        max_entropy = np.float32(-math.log(np.float32(1) / np.float32(count)))
        share = llama_cpp_entropy(probs, logarithms(probs)) / max_entropy
        low, high = max(np.float32(0), middle - reach), min(middle + reach, MAX_FLOAT32)
        # A float32 power is a float64 one, rounded.
        power = np.float64(share) ** np.float64(np.float32(self.exponent))
        divide(candidates, min(low + (high - low) * np.float32(power), MAX_FLOAT32))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Say which temperature follows from which entropy."""
        count = before.candidates.llama_cpp_count
        if self.range == 0:
            return division_note(self.temperature, before, after)
        if count <= 1:
            return "one token: nothing to divide"
        most = math.log(count)
        low, high = max(0.0, self.temperature - self.range), self.temperature + self.range
        t = low + (high - low) * (before.entropy / most) ** self.exponent
        entropy = f"entropy {short_number(before.entropy)} of at most {short_number(most)} nats"
        return f"{division_note(t, before, after)}, {entropy}"
