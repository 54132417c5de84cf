"""Top-m: a minimum probability relative to the mean probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates


class TopM(Sampler):
    """Keep the candidates whose probability is at least m times the mean.

    Formula: keep i if p_i >= m / n, n candidates. Neutral at m = 0. Source: … Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_m",
        summary="keep tokens at least m times as likely as the average",
        formula="keep i if p_i >= m / n",
        reference="…",
        llama_cpp="not in llama.cpp",
        main_parameter="m",
        off_values={"m": 0.0},
        stage=Stage.MIN_P + 4,
        keeps_top_token=True,
    )

    m: float = Field(default=0.0, ge=0, description="multiple of the mean probability; 0 = off")

    def apply(self, candidates: Candidates) -> None:
        is_likely = candidates.probs() * len(candidates) >= self.m
        if is_likely.any():
            candidates.filter_rows(is_likely)
            candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        min_prob = self.m / len(before)
        return f"p >= {short_number(min_prob)} = {short_number(self.m)} / {len(before):,}"
