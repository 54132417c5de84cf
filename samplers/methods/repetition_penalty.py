"""KoboldAI's repetition penalty, with a range and a slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import logit_changes
from ..tokens import LastPositions

if TYPE_CHECKING:
    from ..stages import StageCandidates


class RepetitionPenalty(Sampler):
    """Lower the logits of tokens that occur in the text; with a slope, recent tokens more than older ones.

    Formula, float32 (n,): logit * r if logit <= 0, else logit / r, once per token. Without a slope r = penalty.
    With range n > 0 and slope s > 0, a token whose last occurrence is d tokens from the end (0: the last token)
    has x = 2 (n - 1 - d) / (n - 1) - 1, y = s x / (1 + |x| (s - 1)), r = 1 + (y + 1) / 2 * (penalty - 1): a
    sigmoid from 1 at the far end of the range to ``penalty`` at the near one. Range 1 has no far end, so
    r = penalty. ``shape: halves`` is KoboldCpp's: r = penalty for d < n - floor(n / 2), else
    r = 1 + (penalty - 1) s. It has no slope for s > 1 and for penalty < 1. Tokens beyond the range do not change.
    The text is prompt and output. An overflow is clamped to float32.

    Range: penalty > 0, range >= 0 tokens, slope >= 0; neutral at penalty 1. Raises ``SamplingError`` for a token
    of the text outside the vocabulary. Source: Keskar et al. 2019 (CTRL); Clover Edition and KoboldAI for range
    and slope; KoboldCpp's gpttype_adapter.cpp (``sample_rep_pen``) for halves, except that
    KoboldCpp also counts token 0 as seen while the text is shorter than the range. With slope 0 it equals
    llama.cpp's ``penalties`` with repeat: penalty.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="repetition_penalty",
        summary="KoboldAI's penalty on past tokens, sloping with their distance",
        formula="l > 0: l / r, else l * r;  r = 1 + (y + 1) / 2 * (penalty - 1), y a sigmoid of the distance",
        reference="Keskar et al. 2019, CTRL; KoboldAI wiki, Repetition penalty",
        llama_cpp="with slope 0: `penalties` with repeat: penalty and last_n: range (-1 for range 0)",
        main_parameter="penalty",
        example=1.1,
        off_values={"penalty": 1.0},
        aliases=("rep_pen", "repetition"),
        stage=Stage.PENALTIES - 2,
    )

    penalty: float = Field(
        default=1.0, gt=0, description="divides positive logits, multiplies negative ones; 1 = off"
    )
    range: int = Field(default=0, ge=0, description="tokens to look back; 0 = all")
    slope: float = Field(default=0.0, ge=0, description="steepness over the range; no slope if this or range is 0")
    shape: Literal["sigmoid", "halves"] = Field(
        default="sigmoid", description="shape of the slope: KoboldAI's sigmoid, or KoboldCpp's step in the middle"
    )

    __slots__ = ("_last_positions",)

    def reset(self, prompt: Sequence[int]) -> None:
        self._last_positions = LastPositions("repetition_penalty", prompt)

    def accept(self, token: int) -> None:
        self._last_positions.add(token)

    def rewind(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        self.reset([*prompt, *output])

    def apply(self, candidates: Candidates) -> None:
        positions = self._last_positions.table(candidates.vocab_size)
        text_length = len(self._last_positions)
        first_in_range = max(text_length - self.range, 0) if self.range else 0
        penalized_rows = candidates.positions_where(positions >= first_in_range)
        if not penalized_rows.size:
            return
        old_logits = candidates.logits[penalized_rows]
        distances = text_length - 1 - positions[candidates.tokens(penalized_rows)]
        factors = self._penalty_factors(distances)
        # The penalty may be 0 in float32, and a product may overflow; `set_logits_at` clamps the result.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            new_logits = np.where(old_logits <= 0, old_logits * factors, old_logits / factors)
            candidates.set_logits_at(penalized_rows, new_logits)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return logit_changes(before, after)

    def _penalty_factors(self, distances: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return r for each distance from the end, in tokens: float32 (n,)."""
        if not self.range or not self.slope or self.range == 1:
            return np.full(distances.size, self.penalty, dtype=np.float32)
        if self.shape == "halves":
            return self._penalty_factors_per_half_range(distances)
        x = 1 - 2 * distances / (self.range - 1)
        y = self.slope * x / (1 - np.abs(x) + np.abs(x) * self.slope)
        factor: NDArray[np.float32] = (1 + (y + 1) / 2 * (self.penalty - 1)).astype(np.float32)
        return factor

    def _penalty_factors_per_half_range(self, distances: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return r of ``shape: halves`` for each distance from the end, in tokens: float32 (n,)."""
        penalty, slope, one = np.float32(self.penalty), np.float32(self.slope), np.float32(1)
        has_slope = penalty > 1 and 0 < slope <= 1
        reduced_penalty = one + (penalty - one) * slope if has_slope else penalty
        is_near = distances < self.range - self.range // 2
        factor: NDArray[np.float32] = np.where(is_near, penalty, reduced_penalty)
        return factor
