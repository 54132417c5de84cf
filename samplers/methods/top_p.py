"""Top-p, also called nucleus sampling."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import Floats, Positions, as_float32, descending
from ..stages import mass_at

if TYPE_CHECKING:
    from ..stages import StageCandidates

# Numbers of rows to sort at the first and second try. Most distributions reach p within them (measured).
_FIRST_SORTED_ROWS = 64
_SECOND_SORTED_ROWS = 256
# If the highest probability exceeds this, most distributions reach p within the few rows (measured)
_MIN_TOP_PROB_FOR_FEW_ROWS = 0.15
_EVERY_ROW = 2**31  # a count above every number of rows, which keeps all rows: their total does not reach p


class TopP(Sampler):
    """Keep the most likely tokens until their total probability reaches p, from high to low.

    Formula, with probabilities from high to low and c_n = p_1 + … + p_n, float32 (n,): ``include`` keeps the
    first n rows with the smallest n for which c_n >= p (llama.cpp, KoboldCpp, transformers, KoboldAI's PyTorch
    code); ``exclude`` with the greatest n for which c_n <= p, at least 1 (KoboldAI's wiki and its JAX code,
    exllamav3). At least ``min_keep`` rows stay.

    Range: p 0..1, min_keep >= 1; neutral at p = 1. Source: Holtzman et al. 2020. ``include`` equals llama.cpp's
    ``top_p``.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="top_p",
        summary="keep the most likely tokens until their total probability reaches p",
        formula="keep the smallest n with p_(1) + … + p_(n) >= p  (boundary include)",
        reference="Holtzman et al. 2020, The Curious Case of Neural Text Degeneration",
        llama_cpp="equal with boundary: include",
        main_parameter="p",
        off_values={"p": 1.0},
        aliases=("nucleus",),
        stage=Stage.TOP_P,
        keeps_top_token=True,
    )

    p: float = Field(default=0.95, ge=0, le=1, description="probability to keep; 1 = off")
    min_keep: int = Field(default=1, ge=1, description="keep at least this many tokens")
    boundary: Literal["include", "exclude"] = Field(
        default="include", description="whether the token that crosses p is kept"
    )

    def apply(self, candidates: Candidates) -> None:
        p = float(as_float32(self.p))
        if p >= 1:
            return
        if candidates.is_ordered:
            crossing = candidates.certain_position(p)
            if crossing is None:
                candidates.truncate(self._kept_count(candidates.llama_cpp_probs()))
            else:
                candidates.truncate(self._kept_count_at(crossing))
            return
        for positions in self._top_positions(candidates):
            count = self._kept_count(candidates.llama_cpp_probs_at(positions))
            # If all of these rows are kept, their total may be below p, and more rows are needed.
            if count < positions.size:
                break
        candidates.select_rows(positions[:count], is_ordered=True)
        if candidates.masked_count:
            candidates.truncate(count)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return mass_at(before, after)

    def _top_positions(self, candidates: Candidates) -> Iterator[Positions]:
        """Yield the positions of the highest rows, from high to low, more each time, and finally all rows."""
        size = len(candidates)
        highest = candidates.llama_cpp_highest_prob()
        if size > _FIRST_SORTED_ROWS and highest > _MIN_TOP_PROB_FOR_FEW_ROWS:
            yield candidates.top_positions(_FIRST_SORTED_ROWS)
        # This try is skipped if the rows cannot reach p even if all had the highest probability.
        if size > _SECOND_SORTED_ROWS and _SECOND_SORTED_ROWS * highest > self.p:
            yield candidates.top_positions(_SECOND_SORTED_ROWS)
        # Rows whose total is at most half of 1 - p are never needed to reach p.
        min_logit = candidates.max + np.float32(math.log((1 - self.p) / (2 * size) / highest))
        positions_above = (candidates.logits > min_logit).nonzero()[0]
        if positions_above.size < size:
            yield positions_above[descending(candidates.logits[positions_above])]
        yield descending(candidates.logits)

    def _kept_count(self, probs: Floats) -> int:
        """Return the number of rows to keep, given the probabilities of the highest rows from high to low."""
        mass = np.add.accumulate(probs)
        side: Literal["left", "right"] = "left" if self.boundary == "include" else "right"
        crossing = int(mass.searchsorted(as_float32(self.p), side))
        if crossing == mass.size:
            return _EVERY_ROW
        return self._kept_count_at(crossing)

    def _kept_count_at(self, crossing: int) -> int:
        """Return the number of rows to keep if the running sum crosses p at the position ``crossing``."""
        count = crossing + 1 if self.boundary == "include" else crossing
        return max(count, self.min_keep)
