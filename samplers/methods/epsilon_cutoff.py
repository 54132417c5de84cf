"""epsilon_cutoff: tokens below a fixed probability are dropped.

`ProbabilityCutoff` is the common part of this sampler and eta_cutoff: the parameters, and the cut.
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
    """Drop the tokens below a probability, which `floor` returns. The likeliest token always stays.

    Formula: keep i if p_i >= min(floor, p_max), float32. The order stays.
    """

    epsilon: float = Field(default=0.0, ge=0, description="the floor, or its upper end, in units; 0 = off")
    unit: float = Field(default=1.0, gt=0, le=1, description="1e-4 for text-generation-webui's numbers")

    @model_validator(mode="after")
    def _check_product(self) -> ProbabilityCutoff:
        if self.epsilon * self.unit >= 1:
            raise ValueError(f"epsilon {self.epsilon:g} times unit {self.unit:g} is not below 1")
        return self

    def floor(self, candidates: Candidates) -> float:
        """Return the probability below which rows are dropped."""
        raise NotImplementedError

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows below the floor."""
        floor = np.float32(self.floor(candidates))
        probs = candidates.probs()
        candidates.filter_rows(probs >= min(floor, np.maximum.reduce(probs)))
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Say which probability was needed."""
        floor = self.epsilon * self.unit
        return self._needed(short_number(floor), floor, before)

    def _needed(self, words: str, floor: float, before: StageCandidates) -> str:
        """The note on a floor; ``words``: how it is written."""
        is_above_all = floor > before.highest_probability
        return f"p >= {words}: none, the likeliest stays" if is_above_all else f"p >= {words}"


class EpsilonCutoff(ProbabilityCutoff):
    """Keep the tokens whose probability is at least epsilon.

    Formula: keep i if p_i >= min(epsilon * unit, p_max), float32 (n,): the likeliest token always stays. The
    order stays.

    Range: epsilon * unit in [0, 1); neutral at 0. transformers and Aphrodite give epsilon itself;
    text-generation-webui's presets count it in 1e-4, which is ``unit: 1e-4``. Source: Hewitt, Manning & Liang
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
        """Return the least probability that stays."""
        return self.epsilon * self.unit
