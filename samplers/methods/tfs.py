"""Tail-free sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import mass_at

if TYPE_CHECKING:
    from ..stages import StageCandidates

_FLAT_SUM = 1e-6  # If the sum of second differences is below this, KoboldCpp treats all of them as equal


class Tfs(Sampler):
    """Cut the tail where the curve of the sorted probabilities stops bending.

    Formula, with probabilities from high to low, (n,): d_i = |p_i - 2 p_(i+1) + p_(i+2)|, divided by their sum;
    c_i is their running sum, float64. ``pad: true``: the tokens get the values 0, c_1, …, c_(n-2), 1, and tokens
    with a value above z are dropped. The first token stays, the last never does (KoboldAI, text-generation-webui,
    Aphrodite). ``pad: false``: the tokens before the first c_i > z with i > 1 stay. If there is none, as with up
    to three tokens, all stay (KoboldCpp, llama.cpp until 2024). Afterwards the rows are sorted from high to low;
    one or two rows keep their order.

    Range: z 0..1; neutral at 1. Source: Bricken 2019. Not in llama.cpp since 2024.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="tfs",
        summary="cut the tail where the sorted probabilities stop bending",
        formula="keep i if sum_{j<i} |p''_j| / sum |p''| <= z  (p sorted, p'' second differences)",
        reference="Bricken 2019, Tail Free Sampling; KoboldAI",
        llama_cpp="not in llama.cpp since 2024; before, it equaled pad: false, as KoboldCpp does",
        main_parameter="z",
        example=0.95,
        off_values={"z": 1.0},
        aliases=("tfs_z", "tail_free", "tail_free_sampling"),
        stage=Stage.TOP_P + 1,
        keeps_top_token=True,
    )

    z: float = Field(default=1.0, ge=0, le=1, description="share of the curvature to keep; 1 = off")
    pad: bool = Field(
        default=True, description="true: KoboldAI's rule; false: KoboldCpp's rule, which keeps one token fewer"
    )

    def apply(self, candidates: Candidates) -> None:
        size = len(candidates)
        if self.z >= 1 or size == 1 or (size == 2 and not self.pad):
            return
        candidates.sort_descending()
        weights = candidates.weights().astype(np.float64)
        bends = np.abs(np.diff(weights / weights.sum(), n=2))
        count = self._count_padded(bends) if self.pad else self._count_unpadded(bends)
        candidates.truncate(max(count, 1))

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return mass_at(before, after)

    def _count_padded(self, bends: NDArray[np.float64]) -> int:
        """Return the number of rows that stay if a 0 precedes the running sums and a 1 follows them."""
        total = bends.sum()
        if not total:  # without any bend, every token except the last has the value 0
            return bends.size + 1
        return 1 + int(np.count_nonzero(bends.cumsum() / total <= self.z))

    def _count_unpadded(self, bends: NDArray[np.float64]) -> int:
        """Return the number of rows that stay with the running sums alone."""
        total = bends.sum()
        bend_shares = bends / total if total > _FLAT_SUM else np.full(bends.size, 1 / bends.size)
        is_beyond_z = bend_shares.cumsum()[1:] > self.z  # the first token always stays
        return 1 + int(is_beyond_z.argmax()) if is_beyond_z.any() else bends.size + 2
