"""Top-a: a lowest probability relative to the square of the highest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class TopA(Sampler):
    """Keep the tokens whose probability is at least a times the square of the highest one.

    Formula: keep i if p_i >= a * p_max^2, float32 (n,), and always the most likely token. Many tokens are dropped
    if the model is certain, few if it is not. The order stays.

    Range: a >= 0; neutral at 0. Source: BlinkDL's RWKV-LM; KoboldAI, text-generation-webui, KoboldCpp and
    Aphrodite agree on it. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_a",
        summary="keep tokens with p at least a * p_max squared",
        formula="keep i if p_i >= a * p_max^2",
        reference="BlinkDL, RWKV-LM, the top-a sampling method; KoboldAI",
        llama_cpp="not in llama.cpp",
        main_parameter="a",
        example=0.2,
        off_values={"a": 0.0},
        stage=Stage.TOP_K + 1,
        keeps_top_token=True,
    )

    a: float = Field(default=0.0, ge=0, description="factor of the squared highest probability; 0 = off")

    def apply(self, candidates: Candidates) -> None:
        probs = candidates.probs()
        max_prob = np.maximum.reduce(probs)
        threshold = np.float32(self.a) * max_prob * max_prob
        candidates.filter_rows(probs >= min(threshold, max_prob))
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        max_prob = before.highest_probability
        factors = f"{short_number(self.a)} x {short_number(max_prob)}^2"
        needed_text = f"p >= {short_number(self.a * max_prob * max_prob)} = {factors}"
        return f"{needed_text}: none, the most likely stays" if self.a * max_prob > 1 else needed_text
