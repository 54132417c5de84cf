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
    """Drop the end-of-generation tokens until n tokens were generated.

    Formula: drop i if i is an end-of-generation token of the vocabulary and fewer than n tokens of output were
    accepted. The other rows, float32 (n,), and their order stay.

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
        """Look up the end-of-generation tokens."""
        self._end_tokens = end_tokens(need_vocabulary(context, "min_tokens.n"))

    def reset(self, prompt: Sequence[int]) -> None:
        """Set the count to 0."""
        self._generated_count = 0

    def accept(self, token: int) -> None:
        """Count one token."""
        self._generated_count += 1

    def apply(self, candidates: Candidates) -> None:
        """Drop the end-of-generation tokens if fewer than n tokens were generated."""
        if self._generated_count < self.n:
            drop_ends("min_tokens", candidates, self._end_tokens)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Return the number of generated tokens, and the number of dropped tokens."""
        if self._generated_count >= self.n:
            return f"{token_count(self._generated_count)} generated: the text may end"
        dropped_text = dropped_tokens(before, after, "end token")
        return f"{self._generated_count:,} of {token_count(self.n)} generated: {dropped_text}"
