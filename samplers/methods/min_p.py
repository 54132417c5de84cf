"""Min-p: a lowest probability relative to the highest one."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import short_number, token_count

if TYPE_CHECKING:
    from ..stages import StageCandidates


class MinP(Sampler):
    """Keep the tokens that are at least p times as likely as the most likely one.

    Formula: keep i if logit_i >= max + ln p, float32 (n,), which means p_i >= p * p_max. The order stays, unless
    fewer than ``min_keep`` rows pass: then the ``min_keep`` highest are kept, from high to low.

    Range: p 0..1, min_keep >= 1; neutral at p = 0. Source: Nguyen et al. 2024. Equals llama.cpp's ``min_p``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="min_p",
        summary="keep tokens at least p times as likely as the best one",
        formula="keep i if p_i >= p * p_max",
        reference="Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling",
        llama_cpp="equal",
        main_parameter="p",
        off_values={"p": 0.0},
        stage=Stage.MIN_P,
        keeps_top_token=True,
    )

    p: float = Field(default=0.05, ge=0, le=1, description="fraction of the highest probability; 0 = off")
    min_keep: int = Field(default=1, ge=1, description="keep at least this many tokens")

    def apply(self, candidates: Candidates) -> None:
        log_p = _logarithm(self.p)
        if log_p is None:
            return
        logits, threshold = candidates.logits, candidates.max + log_p
        if candidates.is_ordered:
            passing_count = logits.size - int(logits[::-1].searchsorted(threshold))
            candidates.truncate(max(passing_count, self.min_keep))
            return
        is_likely = logits >= threshold
        if int(np.count_nonzero(is_likely)) < self.min_keep:
            candidates.keep_top_rows(self.min_keep)
        else:
            candidates.filter_rows(is_likely)
            candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        max_prob = before.highest_probability
        needed_text = f"p >= {short_number(self.p * max_prob)} = {short_number(self.p)} x {short_number(max_prob)}"
        is_short = len(after) == self.min_keep > np.count_nonzero(after.logits >= self._min_logit(before))
        return f"{needed_text}, and at least {token_count(self.min_keep)}" if is_short else needed_text

    def _min_logit(self, before: StageCandidates) -> float:
        return float(before.candidates.max) + math.log(self.p)


@lru_cache
def _logarithm(p: float) -> np.float32 | None:
    """Return ln p, computed from p as float32 and rounded to float32; None if p is 0 in float32."""
    rounded_p = np.float32(p)
    return np.float32(math.log(rounded_p)) if rounded_p > 0 else None
