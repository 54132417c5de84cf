"""length_decay: the longer the text, the more likely its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import FLOAT32_MAX, BuildContext, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..stages import logit_changes, token_count
from .ignore_eos import check_vocabulary_size, end_tokens

if TYPE_CHECKING:
    from ..stages import StageCandidates


class LengthDecay(Sampler):
    """Raise the logits of the end-of-generation tokens exponentially after ``start`` tokens, or lower them.

    Formula, float32 (n,), for each end-of-generation token, from its own logit z: z + |z| * (factor^(t - start)
    - 1) if t > start, where t is the number of tokens of output so far. An overflow is clamped to float32; -inf
    stays. With a factor above 1 the text ends sooner. With a factor below 1 it ends later: z falls toward 0 if
    z > 0, and toward 2 z if z < 0.

    Range: start >= 0 tokens, factor > 0; neutral at factor 1. Raises ``SamplingError`` when built without a
    vocabulary. Source and equal: transformers' ``ExponentialDecayLengthPenalty``, for the end tokens of its
    configuration. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="length_decay",
        summary="make the end of the text ever more likely after a number of tokens",
        formula="i ends a generation, t > start tokens: l_i + |l_i| * (factor^(t - start) - 1)",
        reference="transformers `ExponentialDecayLengthPenalty`",
        llama_cpp="not in llama.cpp",
        main_parameter="factor",
        example=1.05,
        off_values={"factor": 1.0},
        inactive_while_off={"start": "factor"},
        aliases=("exponential_decay_length_penalty",),
        stage=Stage.IGNORE_EOS + 2,
        is_bias=True,
    )

    factor: float = Field(
        default=1.0, gt=0, description="growth for each token; above 1 = ends sooner, below 1 = later, 1 = off"
    )
    start: int = Field(default=0, ge=0, description="number of tokens before the growth begins")

    state_slots: ClassVar[tuple[str, ...]] = ("_generated_count",)
    __slots__ = ("_end_tokens", "_generated_count")

    def bind(self, context: BuildContext) -> None:
        self._end_tokens = end_tokens(need_vocabulary(context, "factor"))

    def reset(self, prompt: Sequence[int]) -> None:
        self._generated_count = 0

    def accept(self, token: int) -> None:
        self._generated_count += 1

    def apply(self, candidates: Candidates) -> None:
        check_vocabulary_size("length_decay", candidates, self._end_tokens)
        exponent = self._generated_count - self.start
        if exponent <= 0:
            return
        rows = candidates.positions_where(self._end_tokens.table)
        rows = rows[candidates.logits[rows] > -np.inf]  # |-inf| would give NaN
        if rows.size:
            old_logits = candidates.logits[rows]
            with np.errstate(over="ignore"):  # `set_logits_at` clamps the sum
                growth = np.float32(min(np.float64(self.factor) ** exponent - 1, FLOAT32_MAX))
                change = np.multiply(np.abs(old_logits), growth, dtype=np.float32)
                candidates.set_logits_at(rows, old_logits + change)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if self._generated_count <= self.start:
            return f"{token_count(self._generated_count)} generated: no change up to {self.start:,}"
        excess = self._generated_count - self.start
        return f"{token_count(excess)} after the first {self.start:,}: {logit_changes(before, after)}"
