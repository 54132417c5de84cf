"""k-shift: the text begins with the k-th most likely token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..kernels import Positions
from ..stages import token_count

if TYPE_CHECKING:
    from ..stages import StageCandidates


class KShift(Sampler):
    """Keep only the k-th most likely token while fewer than ``steps`` tokens were generated.

    Formula: keep the row with the k-th highest logit, float32 (n,); of equal logits the earlier row is higher. If
    fewer than k logits are finite, the lowest finite one stays. After ``steps`` tokens of output all rows stay.
    Before greedy, different k give texts that each begin with another token and then continue without chance.

    Range: k >= 0 tokens, steps >= 0 tokens; neutral at k = 0 and at steps = 0. Source: Wang & Zhou 2024,
    Chain-of-Thought Reasoning without Prompting. Not in llama.cpp; its pull request 10048 drops the k highest
    tokens at the start and draws among the others, where greedy then takes number k + 1.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="k_shift",
        summary="begin the text with the k-th most likely token",
        formula="output < steps tokens: keep i if rank(logit_i) = k",
        reference="Wang & Zhou 2024, Chain-of-Thought Reasoning without Prompting",
        llama_cpp="not in llama.cpp",
        main_parameter="k",
        example=2,
        off_values={"k": 0},
        stage=Stage.DRY + 2,
    )

    k: int = Field(default=0, ge=0, description="rank of the token to take; 1 = the most likely, 0 = off")
    steps: int = Field(default=1, ge=0, description="number of tokens at the start of the text; 0 = off")

    state_slots: ClassVar[tuple[str, ...]] = ("_generated_count",)
    __slots__ = ("_generated_count",)

    @property
    def is_neutral(self) -> bool:
        """True if k or steps is 0."""
        return not (self.k and self.steps)

    def reset(self, prompt: Sequence[int]) -> None:
        self._generated_count = 0

    def accept(self, token: int) -> None:
        self._generated_count += 1

    def apply(self, candidates: Candidates) -> None:
        if self.k and self._generated_count < self.steps:
            candidates.select_rows(self._highest(candidates)[-1:], is_ordered=True)
            candidates.masked_count = 0

    def _highest(self, candidates: Candidates) -> Positions:
        """Return the positions of the k highest finite logits, or of all finite ones if there are fewer."""
        positions = candidates.top_positions(min(self.k, len(candidates)))
        return positions[: np.count_nonzero(candidates.logits[positions] > -np.inf)]

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if self._generated_count >= self.steps:
            return f"{token_count(self._generated_count)} generated: all stay"
        rank = self._highest(before.candidates).size
        if rank < self.k:
            return f"only rank {rank:,}, since there is no rank {self.k:,}"
        return f"only rank {rank:,}"
