"""Locally typical sampling."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from ..array_types import Floats
from ..base import About, Sampler
from ..candidates import Candidates
from ..entropy import llama_cpp_entropy, logarithms
from ..sort_kernels import highest_rows
from ..stage import Stage

# How many rows to sort by their distance first; most distributions reach p within them, for the others it grows.
_FIRST_LOOK = 256


class Typical(Sampler):
    """Keep the tokens whose surprise is nearest to the entropy, until their mass exceeds p.

    Formula: H = -sum p_i ln p_i; sort by |-ln p_i - H| from low to high; keep the first n rows with
    c_n = p_(1) + … + p_(n), float32. ``include``: the smallest n with c_n > p (llama.cpp, KoboldAI,
    transformers); ``exclude``: the largest n with c_n < p, at least 1 (Aphrodite). At least ``min_keep`` rows
    stay, in that order. Neutral at p = 1. Source: Meister et al. 2022. ``include`` equals llama.cpp's
    ``typical``, save where a probability is 0 in float32, as after its top_n_sigma: there 0 ln 0 is 0 here, and
    NaN in llama.cpp, which then keeps rows by chance.
    """

    about: ClassVar[About] = About(
        name="typical",
        summary="keep the tokens about as surprising as the distribution expects",
        formula="sort by |-ln p_i - H|; keep the smallest n with mass > p  (boundary include)",
        reference="Meister, Pimentel, Wiher & Cotterell 2022, Locally Typical Sampling",
        llama_cpp="equal with boundary: include; 0 ln 0 is 0, not NaN; equal scores keep the likelier first",
        main="p",
        example=0.9,
        neutral={"p": 1.0},
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
        candidates.order()
        probs = candidates.llama_cpp_probs()
        logs = logarithms(probs)
        nearness = -np.abs(-logs - llama_cpp_entropy(probs, logs))
        size = len(candidates)
        look = min(size, _FIRST_LOOK)
        while True:
            positions = highest_rows(nearness, look)
            count = self._count(probs[positions])
            if count < look or look == size:
                break
            look = min(size, 16 * look)
        candidates.take(positions[:count])

    def _count(self, head: Floats) -> int:
        """How many of the rows to keep, given their probabilities from the nearest to the entropy on."""
        reached = np.add.accumulate(head)
        mass = np.float32(self.p)
        include = self.boundary == "include"
        crossing = reached.searchsorted(mass, "right") + 1 if include else reached.searchsorted(mass)
        return max(int(crossing), self.min_keep)
