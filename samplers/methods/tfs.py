"""Tail-free sampling."""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import About, Sampler
from ..candidates import Candidates
from ..stage import Stage

# Below this sum KoboldCpp holds a distribution to be flat, and gives each second difference the same weight.
_FLAT = 1e-6


class Tfs(Sampler):
    """Cut the tail where the sorted probabilities stop bending.

    Formula, with probabilities from high to low: d_i = |p_i - 2 p_(i+1) + p_(i+2)|, divided by their sum, c_i
    their running sum, float64. ``pad: true``: the row 0, c_1, …, c_(n-2), 1 belongs to the tokens, and those
    above z go; the first stays, the last always goes (KoboldAI, text-generation-webui, Aphrodite).
    ``pad: false``: the tokens before the first c_i > z with i > 1 stay, all where there is none, so of at most
    three (KoboldCpp, llama.cpp until 2024). Rows end up from high to low, save one or two that stay as they are.
    Neutral at z = 1. Source: Bricken 2019.
    """

    about: ClassVar[About] = About(
        name="tfs",
        summary="cut the tail where the sorted probabilities stop bending",
        formula="keep i if sum_{j<i} |p''_j| / sum |p''| <= z  (p sorted, p'' second differences)",
        reference="Bricken 2019, Tail Free Sampling; KoboldAI",
        llama_cpp="not in llama.cpp since 2024; pad: false is what it and KoboldCpp do",
        main="z",
        example=0.95,
        neutral={"z": 1.0},
        aliases=("tfs_z", "tail_free", "tail_free_sampling"),
        stage=Stage.TOP_P + 1,
        keeps_likeliest=True,
    )

    z: float = Field(default=1.0, ge=0, le=1, description="share of the curvature to keep; 1 = off")
    pad: bool = Field(default=True, description="true: KoboldAI's count; false: KoboldCpp's, one token fewer")

    def apply(self, candidates: Candidates) -> None:
        """Keep the head of the sorted distribution."""
        size = len(candidates)
        if self.z >= 1 or size == 1 or (size == 2 and not self.pad):
            return
        candidates.order()
        weights = candidates.weights().astype(np.float64)
        bends = np.abs(np.diff(weights / weights.sum(), n=2))
        candidates.truncate(max(self._padded(bends) if self.pad else self._plain(bends), 1))

    def _padded(self, bends: NDArray[np.float64]) -> int:
        total = bends.sum()
        if not total:  # no bend anywhere: all but the last stand at 0
            return bends.size + 1
        return 1 + int(np.count_nonzero(bends.cumsum() / total <= self.z))

    def _plain(self, bends: NDArray[np.float64]) -> int:
        total = bends.sum()
        shares = bends / total if total > _FLAT else np.full(bends.size, 1 / bends.size)
        beyond = shares.cumsum()[1:] > self.z  # the first token stays in any case
        return 1 + int(beyond.argmax()) if beyond.any() else bends.size + 2
