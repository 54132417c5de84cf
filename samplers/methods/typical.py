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

_FIRST_SORTED_ROWS = 256
"""How many rows are sorted by their distance first; most distributions reach p within them (measured)."""
_GROWTH = 16
"""By what factor that number grows if they do not."""


class Typical(Sampler):
    """Keep the tokens whose surprise is nearest to the entropy, until their mass exceeds p.

    Formula: H = -sum p_i ln p_i, in nats; sort by |-ln p_i - H| from low to high; c_n = p_(1) + … + p_(n),
    float32 (n,). ``include`` keeps the first n rows with the smallest n for which c_n > p (llama.cpp, KoboldAI,
    transformers); ``exclude`` with the largest n for which c_n < p, at least 1 (Aphrodite). At least ``min_keep``
    rows stay, in that order.

    Range: p 0..1, min_keep >= 1; neutral at p = 1. Source: Meister et al. 2022. ``include`` equals llama.cpp's
    ``typical``, except where a probability is 0 in float32, as after llama.cpp's top_n_sigma: 0 ln 0 is 0 here
    and NaN in llama.cpp, which then keeps rows by chance.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="typical",
        summary="keep the tokens about as surprising as the distribution expects",
        formula="sort by |-ln p_i - H|; keep the smallest n with mass > p  (boundary include)",
        reference="Meister, Pimentel, Wiher & Cotterell 2022, Locally Typical Sampling",
        llama_cpp="equal with boundary: include; 0 ln 0 is 0, not NaN; equal scores keep the likelier first",
        main_parameter="p",
        example=0.9,
        off_values={"p": 1.0},
        aliases=("typical_p", "typ_p", "locally_typical"),
        stage=Stage.TYPICAL,
    )

    p: float = Field(default=1.0, ge=0, le=1, description="mass to keep; 1 = off")
    min_keep: int = Field(default=1, ge=1, description="keep at least this many tokens")
    boundary: Literal["include", "exclude"] = Field(
        default="include", description="is the token that crosses p kept?"
    )

    def apply(self, candidates: Candidates) -> None:
        """Keep the rows nearest to the entropy."""
        if np.float32(self.p) >= 1:
            return
        candidates.sort_descending()
        probs = candidates.llama_cpp_probs()
        logs = logarithms(probs)
        nearness = -np.abs(-logs - llama_cpp_entropy(probs, logs))
        size = len(candidates)
        count_sorted = min(size, _FIRST_SORTED_ROWS)
        while True:
            positions = highest_rows(nearness, count_sorted)
            count = self._count(probs[positions])
            if count < count_sorted or count_sorted == size:
                break
            count_sorted = min(size, _GROWTH * count_sorted)
        candidates.select_rows(positions[:count])
        candidates.masked_count = 0

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Say which mass was kept, and to which entropy it is nearest."""
        return f"{mass_at(before, after)}, nearest to {short_number(before.entropy)} nats"

    def _count(self, head: Floats) -> int:
        """Return how many rows to keep, given their probabilities, the nearest to the entropy first."""
        cumulative = np.add.accumulate(head)
        mass = np.float32(self.p)
        include = self.boundary == "include"
        crossing = cumulative.searchsorted(mass, "right") + 1 if include else cumulative.searchsorted(mass)
        return max(int(crossing), self.min_keep)
