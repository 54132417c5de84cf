"""Skew: a power of the cumulative distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Skew(Sampler):
    """Shift probability along the tokens by a power of the cumulative distribution.

    Formula: logit_i = ln p_i', p_i' = c_i^k - c_(i-1)^k, c_i = p_1 + … + p_i, k = e^skew; computed in float64,
    stored as float32 (n,), in nats. Above 0 mass moves to later tokens, below 0 to earlier ones. ``order:
    vocabulary`` runs by token id (Aphrodite); ``order: probability`` runs from the most likely token down, so
    skew > 0 favors less likely tokens (exllamav2, which skews the random number instead). A token whose p' is 0 is
    dropped.

    Range: -20..20; neutral at 0. Source: Aphrodite and exllamav2. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="skew",
        summary="shift probability along the tokens by a power of the cumulative sum",
        formula="p_i' = c_i^k - c_(i-1)^k,  k = e^skew, c the running sum of p",
        reference="Aphrodite `skew`; exllamav2 `skew`",
        llama_cpp="not in llama.cpp",
        main_parameter="skew",
        example=0.5,
        off_values={"skew": 0.0},
        stage=Stage.TEMPERATURE + 2,
    )

    skew: float = Field(
        default=0.0,
        ge=-20,
        le=20,
        description="amount; above 0 favors later tokens, below 0 earlier ones; 0 = off",
    )
    order: Literal["vocabulary", "probability"] = Field(
        default="vocabulary", description="order of the tokens: by id, or by falling probability"
    )

    def apply(self, candidates: Candidates) -> None:
        if not self.skew:
            return
        if self.order == "probability":
            candidates.sort_descending()
        elif not candidates.is_full_vocabulary:
            candidates.select_rows(candidates.ids.argsort())
        weights = candidates.weights().astype(np.float64)
        cumulative = np.minimum(np.add.accumulate(weights) / np.add.reduce(weights), 1.0)
        cumulative[-1] = 1.0
        shifted_probs = np.diff(cumulative ** math.exp(self.skew), prepend=0.0)
        with np.errstate(divide="ignore"):
            candidates.set_logits(np.log(shifted_probs).astype(np.float32))
        candidates.filter_rows(shifted_probs > 0)
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if self.order == "vocabulary":
            goal = "higher ids" if self.skew > 0 else "lower ids"
        else:
            goal = "less likely tokens" if self.skew > 0 else "more likely tokens"
        return f"power {short_number(math.exp(self.skew))} = e^{short_number(self.skew)}, toward {goal}"
