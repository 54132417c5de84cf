"""Encoder repetition penalty: it favors the tokens of the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import logit_changes
from ..tokens import token_table

if TYPE_CHECKING:
    from ..stages import StageCandidates


class EncoderRepetitionPenalty(Sampler):
    """Raise the logits of the prompt's tokens, to avoid invented names and facts in summaries.

    Formula, float32 (n,), for a token that occurs in the prompt: logit / penalty if logit < 0, else logit *
    penalty; once per token. An overflow is clamped to float32. Below 1 it makes these tokens less likely.

    Range: penalty > 0; neutral at 1. Raises ``SamplingError`` for a prompt token outside the vocabulary. Source:
    transformers' ``EncoderRepetitionPenaltyLogitsProcessor``, called "hallucination filter" in
    text-generation-webui. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="encoder_repetition_penalty",
        summary="make the tokens of the prompt more likely, to avoid invented facts",
        formula="token in the prompt: l < 0: l / penalty, else l * penalty",
        reference="transformers `EncoderRepetitionPenaltyLogitsProcessor`; text-generation-webui",
        llama_cpp="not in llama.cpp",
        main_parameter="penalty",
        example=1.2,
        off_values={"penalty": 1.0},
        aliases=("encoder_rep_pen", "hallucination_penalty"),
        stage=Stage.PENALTIES - 1,
    )

    penalty: float = Field(default=1.0, gt=0, description="above 1 favors the prompt's tokens; 1 = off")

    __slots__ = ("_is_prompt_token_by_id", "_prompt")

    def reset(self, prompt: Sequence[int]) -> None:
        self._prompt = list(prompt)
        self._is_prompt_token_by_id = np.zeros(0, dtype=np.bool_)

    def apply(self, candidates: Candidates) -> None:
        if self._is_prompt_token_by_id.size != candidates.vocab_size:
            self._is_prompt_token_by_id = token_table(
                "encoder_repetition_penalty", self._prompt, candidates.vocab_size
            )
        penalized_rows = candidates.positions_where(self._is_prompt_token_by_id)
        if penalized_rows.size:
            old_logits = candidates.logits[penalized_rows]
            penalty = np.float32(self.penalty)
            # The penalty may be 0 in float32, and a product may overflow; `set_logits_at` clamps the result.
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                new_logits = np.where(old_logits < 0, old_logits / penalty, old_logits * penalty)
                candidates.set_logits_at(penalized_rows, new_logits)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return logit_changes(before, after)
