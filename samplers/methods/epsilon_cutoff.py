"""Epsilon cutoff: tokens below a fixed probability are dropped.

`ProbabilityCutoff` is the base class of this sampler and of eta_cutoff.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field, model_validator

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class ProbabilityCutoff(Sampler):
    """Drop the tokens below the probability that `floor` returns. The most likely token always stays.

    Formula: keep i if p_i >= min(floor, p_max), float32. The order stays.
    """

    epsilon: float = Field(
        default=0.0, ge=0, description="lowest probability, or its upper limit, in multiples of unit; 0 = off"
    )
    unit: float = Field(
        default=1.0, gt=0, le=1, description="unit of epsilon; 1e-4 for text-generation-webui's numbers"
    )

    @model_validator(mode="after")
    def _check_product(self) -> ProbabilityCutoff:
        if self.epsilon * self.unit >= 1:
            raise ValueError(f"epsilon {self.epsilon:g} times unit {self.unit:g} is not below 1")
        return self

    def floor(self, candidates: Candidates) -> float:
        raise NotImplementedError

    def apply(self, candidates: Candidates) -> None:
        floor = np.float32(self.floor(candidates))
        probs = candidates.probs()
        candidates.filter_rows(probs >= min(floor, np.maximum.reduce(probs)))
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        floor = self.epsilon * self.unit
        return self._describe(short_number(floor), floor, before)

    def _describe(self, shown_floor: str, floor: float, before: StageCandidates) -> str:
        """Return the note for a ``floor``, which the note shows as ``shown_floor``."""
        is_above_all = floor > before.highest_probability
        return f"p >= {shown_floor}" + (": none, the most likely stays" if is_above_all else "")


class EpsilonCutoff(ProbabilityCutoff):
    """Keep the tokens whose probability is at least epsilon.

    Formula: keep i if p_i >= min(epsilon * unit, p_max), float32 (n,): the most likely token always stays. The
    order stays.

    Range: epsilon * unit in [0, 1); neutral at 0. transformers and Aphrodite use epsilon itself.
    text-generation-webui's presets use multiples of 1e-4, which is ``unit: 1e-4``. Source: Hewitt, Manning & Liang
    2022. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="epsilon_cutoff",
        summary="keep tokens with a probability of at least epsilon",
        formula="keep i if p_i >= epsilon",
        reference="Hewitt, Manning & Liang 2022, Truncation Sampling as Language Model Desmoothing",
        llama_cpp="not in llama.cpp",
        main_parameter="epsilon",
        example=3e-4,
        off_values={"epsilon": 0.0},
        aliases=("epsilon",),
        stage=Stage.MIN_P + 2,
        keeps_top_token=True,
    )

    def floor(self, candidates: Candidates) -> float:
        return self.epsilon * self.unit
