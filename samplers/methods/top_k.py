"""Top-k: a fixed number of the most likely tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import mass_at

if TYPE_CHECKING:
    from ..stages import StageCandidates


class TopK(Sampler):
    """Keep the k most likely tokens, from high to low.

    Formula: keep i if rank(logit_i) <= k, over float32 (n,). Exactly k rows stay, or all if there are fewer. Of
    equal logits the earlier row stays.

    Range: k >= -1 tokens; neutral at 0 and -1. Source: Fan, Lewis & Dauphin 2018. Equals llama.cpp's ``top_k``,
    except that of equal logits at the limit, llama.cpp's partial sort may keep any.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_k",
        summary="keep the k most likely tokens",
        formula="keep i if rank(logit_i) <= k",
        reference="Fan, Lewis & Dauphin 2018, Hierarchical Neural Story Generation",
        llama_cpp="equal; of equal logits the lower id is kept, where llama.cpp's sort is unstable",
        main_parameter="k",
        off_values={"k": 0},
        stage=Stage.TOP_K,
        keeps_top_token=True,
    )

    k: int = Field(default=40, ge=-1, description="number of tokens to keep; 0 or -1 = off")

    @property
    def is_neutral(self) -> bool:
        """True for 0, and for -1, which some programs use to switch top-k off."""
        return self.k <= 0

    def apply(self, candidates: Candidates) -> None:
        if self.k > 0:
            candidates.keep_top_rows(self.k)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return mass_at(before, after)
