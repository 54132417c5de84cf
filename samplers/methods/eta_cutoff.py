"""Eta cutoff: a lowest probability that depends on the entropy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..base import SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import entropy_terms
from ..stages import short_number
from .epsilon_cutoff import ProbabilityCutoff

if TYPE_CHECKING:
    from ..stages import StageCandidates


class EtaCutoff(ProbabilityCutoff):
    """Keep the tokens whose probability is at least eta, which is lower if the entropy is higher.

    Formula: keep i if p_i >= min(eta, p_max), float32 (n,), with eta = min(e, sqrt(e) * exp(-H)), e = epsilon *
    unit, H the entropy in nats, float64. The order stays.

    Range: epsilon * unit in [0, 1); neutral at 0. transformers and Aphrodite use epsilon itself.
    text-generation-webui's presets use multiples of 1e-4, which is ``unit: 1e-4``. Source: Hewitt, Manning & Liang
    2022. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="eta_cutoff",
        summary="keep tokens above a probability that falls as the entropy rises",
        formula="keep i if p_i >= min(epsilon, sqrt(epsilon) * exp(-H))",
        reference="Hewitt, Manning & Liang 2022, Truncation Sampling as Language Model Desmoothing",
        llama_cpp="not in llama.cpp",
        main_parameter="epsilon",
        example=6e-4,
        off_values={"epsilon": 0.0},
        aliases=("eta",),
        stage=Stage.MIN_P + 3,
        keeps_top_token=True,
    )

    def floor(self, candidates: Candidates) -> float:
        epsilon = self.epsilon * self.unit
        entropy = float(np.add.reduce(entropy_terms(candidates.probs())))
        return min(epsilon, math.sqrt(epsilon) * math.exp(-entropy))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        epsilon = self.epsilon * self.unit
        by_entropy = math.sqrt(epsilon) * math.exp(-before.entropy)
        parts = f"sqrt({short_number(epsilon)}) x exp(-{short_number(before.entropy)})"
        if by_entropy < epsilon:
            return self._describe(f"{short_number(by_entropy)} = {parts}", by_entropy, before)
        return self._describe(f"{short_number(epsilon)}, below {parts}", epsilon, before)
