"""Locally typical sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import Floats, highest_rows, llama_cpp_entropy, logarithms
from ..stages import mass_at, short_number

if TYPE_CHECKING:
    from ..stages import StageCandidates

# Number of rows to sort at the first try. Most distributions reach p within them (measured).
_FIRST_SORTED_ROWS = 256
_SORTED_ROWS_GROWTH = 16  # factor by which the number of sorted rows grows if they do not reach p


class Typical(Sampler):
    """Keep the tokens whose surprise is nearest to the entropy, until their total probability exceeds p.

    Formula: H = -sum p_i ln p_i, in nats; sort by |-ln p_i - H| from low to high; c_n = p_(1) + … + p_(n),
    float32 (n,). ``include`` keeps the first n rows with the smallest n for which c_n > p (llama.cpp, KoboldAI,
    transformers); ``exclude`` with the greatest n for which c_n < p, at least 1 (Aphrodite). At least ``min_keep``
    rows stay, sorted by this distance.

    Range: p 0..1, min_keep >= 1; neutral at p = 1. Source: Meister et al. 2022. ``include`` equals llama.cpp's
    ``typical``, except where a probability is 0 in float32, as after llama.cpp's top_n_sigma: 0 ln 0 is 0 here
    and NaN in llama.cpp, which then keeps arbitrary rows.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="typical",
        summary="keep the tokens about as surprising as the distribution expects",
        formula="sort by |-ln p_i - H|; keep the smallest n with mass > p  (boundary include)",
        reference="Meister, Pimentel, Wiher & Cotterell 2022, Locally Typical Sampling",
        llama_cpp="equal with boundary: include; 0 ln 0 is 0, not NaN; at equal distances the more likely first",
        main_parameter="p",
        example=0.9,
        off_values={"p": 1.0},
        aliases=("typical_p", "typ_p", "locally_typical"),
        stage=Stage.TYPICAL,
    )

    p: float = Field(default=1.0, ge=0, le=1, description="probability to keep; 1 = off")
    min_keep: int = Field(default=1, ge=1, description="keep at least this many tokens")
    boundary: Literal["include", "exclude"] = Field(
        default="include", description="whether the token that crosses p is kept"
    )

    def apply(self, candidates: Candidates) -> None:
        if np.float32(self.p) >= 1:
            return
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        logs = logarithms(probs)
        nearness = -np.abs(-logs - llama_cpp_entropy(probs, logs))
        size = len(candidates)
        sorted_count = min(size, _FIRST_SORTED_ROWS)
        while True:
            positions = highest_rows(nearness, sorted_count)
            count = self._kept_count(probs[positions])
            if count < sorted_count or sorted_count == size:
                break
            sorted_count = min(size, _SORTED_ROWS_GROWTH * sorted_count)
        candidates.select_rows(positions[:count])
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return f"{mass_at(before, after)}, nearest to {short_number(before.entropy)} nats"

    def _kept_count(self, probs: Floats) -> int:
        """Return the number of rows to keep, given probabilities of rows sorted by the distance to the entropy."""
        cumulative_probs = np.add.accumulate(probs)
        p = np.float32(self.p)
        if self.boundary == "include":
            count = int(cumulative_probs.searchsorted(p, "right")) + 1
        else:
            count = int(cumulative_probs.searchsorted(p))
        return max(count, self.min_keep)
