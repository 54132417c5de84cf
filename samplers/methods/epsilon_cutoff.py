"""Epsilon cutoff."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from ..base import About, Sampler
from ..candidates import Candidates


class EpsilonCutoff(Sampler):
    """Keep the tokens whose probability is at least epsilon.

    Formula: keep i if p_i >= min(epsilon * unit, p_max), float32: the best always stays. The order stays.
    Neutral at 0. Source: Hewitt, Manning & Liang 2022. transformers and Aphrodite give epsilon as it is;
    text-generation-webui's presets count it in 1e-4, which is ``unit: 1e-4``. llama.cpp has none.
    """

    about: ClassVar[About] = About(
        name="epsilon_cutoff",
        summary="keep tokens with a probability of at least epsilon",
        formula="keep i if p_i >= epsilon",
        reference="Hewitt, Manning & Liang 2022, Truncation Sampling as Language Model Desmoothing",
        llama_cpp="not in llama.cpp",
        main="epsilon",
        example=3e-4,
        neutral={"epsilon": 0.0},
        aliases=("epsilon",),
    )

    epsilon: float = Field(default=0.0, ge=0, description="least probability, in units; 0 = off")
    unit: float = Field(default=1.0, gt=0, le=1, description="1e-4 for text-generation-webui's numbers")

    @model_validator(mode="after")
    def _check_product(self) -> EpsilonCutoff:
        check_below_one(self.epsilon, self.unit)
        return self

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows below the threshold."""
        drop_below(candidates, self.epsilon * self.unit)


def check_below_one(epsilon: float, unit: float) -> None:
    """Raise ``ValueError`` unless epsilon, in its unit, is a probability below 1."""
    if epsilon * unit >= 1:
        raise ValueError(f"epsilon {epsilon:g} times unit {unit:g} is not below 1")


def drop_below(candidates: Candidates, threshold: float) -> None:
    """Drop the rows with a probability below ``threshold``; the best always stays."""
    probs = candidates.probs()
    candidates.keep(probs >= min(np.float32(threshold), np.maximum.reduce(probs)))
