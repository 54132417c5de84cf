"""No end before n tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from ..base import About, BuildContext, Sampler, need_vocabulary
from ..candidates import Candidates
from ..stage import Stage
from .ignore_eos import drop_ends, ends


class MinTokens(Sampler):
    """Drop the end-of-generation tokens until n tokens were made.

    Formula: p_i = 0 for i in the vocabulary's end-of-generation tokens, while fewer than n tokens of output
    were accepted. Neutral at 0. Raises ``SamplingError`` when built without a vocabulary, or when nothing else
    is left. Source: vLLM's and Aphrodite's ``min_tokens``. llama.cpp has none.
    """

    about: ClassVar[About] = About(
        name="min_tokens",
        summary="no end-of-generation token before n tokens were made",
        formula="drop i if i ends a generation and fewer than n tokens were made",
        reference="vLLM, Aphrodite `min_tokens`",
        llama_cpp="not in llama.cpp",
        main="n",
        example=20,
        neutral={"n": 0},
        aliases=("min_length", "min_new_tokens"),
        stage=Stage.IGNORE_EOS + 1,
        is_bias=True,
    )

    n: int = Field(default=0, ge=0, description="tokens before the text may end; 0 = off")

    __slots__ = ("_banned", "_made")

    def bind(self, context: BuildContext) -> None:
        """Look up the end-of-generation tokens."""
        self._banned = ends(need_vocabulary(context, "min_tokens.n"))

    def reset(self, prompt: Sequence[int]) -> None:
        """Nothing was made yet."""
        self._made = 0

    def accept(self, token: int) -> None:
        """Count one token."""
        self._made += 1

    def apply(self, candidates: Candidates) -> None:
        """Drop the rows of these tokens, if it is too early."""
        if self._made < self.n:
            drop_ends("min_tokens", candidates, self._banned)
