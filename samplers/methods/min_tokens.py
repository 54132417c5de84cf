"""min_tokens: the text cannot end before n tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ..base import BuildContext, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..stages import dropped_tokens, token_count
from .ignore_eos import drop_ends, end_tokens

if TYPE_CHECKING:
    from ..stages import StageCandidates


class MinTokens(Sampler):
    """Drop the tokens that end the text until n tokens were generated.

    Formula: drop i if i is an end-of-generation token of the vocabulary, or another token that ends the text, and
    fewer than n tokens of output were accepted. The other rows, float32 (n,), and their order stay. A run does not
    look for stop strings that end in these tokens either.

    Range: n >= 0 tokens; neutral at 0. Raises ``SamplingError`` when built without a vocabulary, and if no other
    token remains. Source: ``min_tokens`` of vLLM and Aphrodite. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="min_tokens",
        summary="never end the text before n tokens are generated",
        formula="drop i if i ends a generation and fewer than n tokens were generated",
        reference="vLLM, Aphrodite `min_tokens`",
        llama_cpp="not in llama.cpp",
        main_parameter="n",
        example=20,
        off_values={"n": 0},
        aliases=("min_length", "min_new_tokens"),
        stage=Stage.IGNORE_EOS + 1,
        is_bias=True,
    )

    n: int = Field(default=0, ge=0, description="least number of tokens before the text may end; 0 = off")

    state_slots: ClassVar[tuple[str, ...]] = ("_generated_count",)
    __slots__ = ("_end_tokens", "_generated_count")

    def bind(self, context: BuildContext) -> None:
        self._end_tokens = end_tokens(need_vocabulary(context, "n"), context.stop_tokens)

    def reset(self, prompt: Sequence[int]) -> None:
        self._generated_count = 0

    def accept(self, token: int) -> None:
        self._generated_count += 1

    def apply(self, candidates: Candidates) -> None:
        if self._generated_count < self.n:
            drop_ends("min_tokens", candidates, self._end_tokens)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        if self._generated_count >= self.n:
            return f"{token_count(self._generated_count)} generated: the text may end"
        dropped_text = dropped_tokens(before, after, "end token")
        return f"{self._generated_count:,} of {token_count(self.n)} generated: {dropped_text}"
