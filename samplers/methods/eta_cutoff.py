"""Eta cutoff."""

import math
from typing import ClassVar

import numpy as np

from ..base import About
from ..candidates import Candidates
from ..entropy import entropy_terms
from ..probability_cutoff import ProbabilityCutoff
from ..stage import Stage


class EtaCutoff(ProbabilityCutoff):
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
        stage=Stage.MIN_P + 3,
        keeps_likeliest=True,
    )

    def floor(self, candidates: Candidates) -> float:
        """The least probability that stays."""
        epsilon = self.epsilon * self.unit
        entropy = float(np.add.reduce(entropy_terms(candidates.probs())))
        return min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))
