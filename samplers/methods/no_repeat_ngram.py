"""no_repeat_ngram: no n-gram of the text is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from ..base import Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..stages import token_count
from ..tokens import check_tokens

if TYPE_CHECKING:
    from ..stages import StageCandidates


class NoRepeatNgram(Sampler):
    """Drop the tokens that would repeat an n-gram of the prompt or the output.

    Formula: drop i if (t_(T-n+2), …, t_T, i) occurs in t_1 … t_T. n = 1 drops every token of the text. If every
    candidate would be dropped, all stay. The logits, float32 (n,), and the order stay. A step takes the same time
    at any length of the text. Memory grows by n token ids per token.

    Range: n >= 0 tokens; neutral at 0. Raises ``SamplingError`` for a token of the text outside the vocabulary.
    Source: Paulus, Xiong & Socher 2017; transformers, text-generation-webui, Aphrodite. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="no_repeat_ngram",
        summary="drop tokens that would repeat an n-gram of the text so far",
        formula="drop i if the last n - 1 tokens followed by i occur in the text already",
        reference="Paulus, Xiong & Socher 2017; transformers `no_repeat_ngram_size`",
        llama_cpp="not in llama.cpp",
        main_parameter="n",
        example=4,
        off_values={"n": 0},
        aliases=("no_repeat_ngram_size",),
        stage=Stage.DRY + 1,
    )

    n: int = Field(default=0, ge=0, description="length of the n-grams, in tokens; 0 = off")

    __slots__ = ("_followers_by_context", "_last_tokens")

    def reset(self, prompt: Sequence[int]) -> None:
        self._followers_by_context: dict[tuple[int, ...], set[int]] = {}
        self._last_tokens: tuple[int, ...] = ()
        for token in prompt:
            self.accept(token)

    def accept(self, token: int) -> None:
        context_size = self.n - 1
        if len(self._last_tokens) == context_size:
            self._followers_by_context.setdefault(self._last_tokens, set()).add(token)
        self._last_tokens = (*self._last_tokens, token)[-context_size:] if context_size > 0 else ()

    def apply(self, candidates: Candidates) -> None:
        followers = self._followers_by_context.get(self._last_tokens) if self.n > 0 else None
        if not followers:
            return
        tokens = list(followers)
        check_tokens("no_repeat_ngram", tokens, candidates.vocab_size)
        is_allowed = ~candidates.mask_of(tokens)
        if (candidates.logits[is_allowed] > -np.inf).any():
            candidates.filter_rows(is_allowed)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        dropped_count = len(before) - len(after)
        if dropped_count:
            return f"{token_count(dropped_count)} that would repeat {self.n} tokens dropped"
        followers = list(self._followers_by_context.get(self._last_tokens, ()))
        allowed = before.logits[~before.candidates.mask_of(followers)]
        if not (allowed > -np.inf).any():
            return f"each token would repeat {self.n} tokens: all stay"
        return f"no token would repeat {self.n} tokens"
