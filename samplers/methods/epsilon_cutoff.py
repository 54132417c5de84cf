"""Epsilon cutoff: a least probability."""

from typing import ClassVar

from ..base import About
from ..candidates import Candidates
from ..probability_cutoff import ProbabilityCutoff
from ..stage import Stage


class EpsilonCutoff(ProbabilityCutoff):
    """Keep the tokens whose probability is at least epsilon.

    Formula: keep i if p_i >= min(epsilon * unit, p_max), float32 (n,): the likeliest token always stays. The
    order stays.

    Range: epsilon * unit in [0, 1); neutral at 0. transformers and Aphrodite give epsilon itself;
    text-generation-webui's presets count it in 1e-4, which is ``unit: 1e-4``. Source: Hewitt, Manning & Liang
    2022. Not in llama.cpp.
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
        stage=Stage.MIN_P + 2,
        keeps_likeliest=True,
    )

    def floor(self, candidates: Candidates) -> float:
        """Return the least probability that stays."""
        return self.epsilon * self.unit
