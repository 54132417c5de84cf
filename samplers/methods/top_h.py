"""Top-h: the most likely tokens up to a part of the entropy."""

from typing import ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import entropy_terms
from ..stages import StageCandidates, short_number


class TopH(Sampler):
    """Keep the most likely tokens while their part of the entropy does not exceed h of the total.

    Formula, over the ``top_n`` most likely tokens (0: all), with probabilities that sum to 1, sorted from high to
    low: keep the largest n with sum_{i<=n} -p_i ln p_i <= h * H, at least 1; float64 (n,), H in nats.
    Afterwards the rows are sorted from high to low.

    Range: h 0..1, top_n >= 0 tokens; neutral at h = 0, which is off. Source: Baghaei Potraghloo et al. 2025,
    Top-H Decoding, as transformers implements it with top_n 100. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_h",
        summary="keep the most likely tokens up to h of the entropy",
        formula="keep the largest n with sum_{i<=n} -p_(i) ln p_(i) <= h * H",
        reference="Baghaei Potraghloo et al. 2025, Top-H Decoding; transformers `TopHLogitsWarper`",
        llama_cpp="not in llama.cpp",
        main_parameter="h",
        example=0.4,
        off_values={"h": 0.0},
        stage=Stage.MIN_P + 1,
        keeps_top_token=True,
    )

    h: float = Field(default=0.0, ge=0, le=1, description="share of the entropy to keep; 0 = off")
    top_n: int = Field(default=100, ge=0, description="number of most likely tokens to consider; 0 = all")

    def apply(self, candidates: Candidates) -> None:
        if not self.h:
            return
        if self.top_n:
            candidates.keep_top_rows(self.top_n)
        else:
            candidates.sort_descending()
        weights = candidates.weights().astype(np.float64)
        terms_of_entropy = entropy_terms(weights / weights.sum())
        cumulative_entropy = np.add.accumulate(terms_of_entropy)
        max_entropy = self.h * cumulative_entropy[-1]
        kept_count = int(cumulative_entropy.searchsorted(max_entropy, "right"))
        candidates.truncate(max(kept_count, 1))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        considered = before.top(self.top_n) if self.top_n else before
        kept_probs = considered.probs_of(after.logits)
        kept_entropy = float(np.add.reduce(entropy_terms(kept_probs)))
        max_entropy = self.h * considered.entropy
        is_within = kept_entropy <= max_entropy or len(after) > 1  # rounding may exceed the limit
        parts = f"{short_number(max_entropy)} = {short_number(self.h)} x {short_number(considered.entropy)}"
        if is_within:
            return f"entropy {short_number(kept_entropy)} <= {parts} nats"
        return f"entropy {short_number(kept_entropy)} > {parts} nats: the most likely stays"
