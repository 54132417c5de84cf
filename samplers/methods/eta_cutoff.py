"""Eta cutoff."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from ..base import About, Sampler
from ..candidates import Candidates
from ..entropy import entropy_terms
from .epsilon_cutoff import check_below_one, drop_below


class EtaCutoff(Sampler):
    """Keep the tokens whose probability is at least eta, which is low where the entropy is high.

    Formula: eta = min(e, sqrt(e) * exp(-H)), e = epsilon * unit, H the entropy in nats; keep i if p_i >=
    min(eta, p_max), float32. The order stays. Neutral at 0. Source: Hewitt, Manning & Liang 2022.
    transformers and Aphrodite give epsilon as it is; text-generation-webui's presets count it in 1e-4, which is
    ``unit: 1e-4``. llama.cpp has none.
    """

    about: ClassVar[About] = About(
        name="eta_cutoff",
        summary="keep tokens above a floor that sinks as the entropy rises",
        formula="keep i if p_i >= min(epsilon, sqrt(epsilon) * exp(-H))",
        reference="Hewitt, Manning & Liang 2022, Truncation Sampling as Language Model Desmoothing",
        llama_cpp="not in llama.cpp",
        main="epsilon",
        example=6e-4,
        neutral={"epsilon": 0.0},
        aliases=("eta",),
    )

    epsilon: float = Field(default=0.0, ge=0, description="highest floor, in units; 0 = off")
    unit: float = Field(default=1.0, gt=0, le=1, description="1e-4 for text-generation-webui's numbers")

    @model_validator(mode="after")
    def _check_product(self) -> EtaCutoff:
        check_below_one(self.epsilon, self.unit)
        return self

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows below the threshold."""
        epsilon = self.epsilon * self.unit
        entropy = float(np.add.reduce(entropy_terms(candidates.probs())))
        drop_below(candidates, min(epsilon, math.sqrt(epsilon) * math.exp(-entropy)))
