"""Allowed tokens: all others are dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ..base import BuildContext, ListParameter, Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..errors import SamplingError
from ..stages import dropped_tokens
from ..tokens import check_token_parameter, token_of

if TYPE_CHECKING:
    from ..stages import StageCandidates


class Allow(Sampler):
    """Keep only the listed tokens.

    Formula: drop i if i is not in ``tokens``. A token is an id, or a text that encodes to one token. The logits,
    float32 (n,), and the order of the remaining rows stay.

    Neutral: an empty list. Raises ``SamplingError`` for a text of several tokens, an id outside the vocabulary,
    and if no listed token is left. An end-of-generation token can be chosen only if it is listed. Source: vLLM's
    ``allowed_token_ids``, which sets the logits of all other tokens to -inf. Not in llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="allow",
        summary="write certain tokens only",
        formula="drop i if it is not in tokens",
        reference="vLLM `allowed_token_ids`",
        llama_cpp="not in llama.cpp",
        main_parameter="tokens",
        example=[7, 8],
        off_values={"tokens": []},
        aliases=("allowed_tokens", "allowed_token_ids"),
        stage=Stage.LOGIT_BIAS - 2,
        is_bias=True,
    )

    tokens: Annotated[list[Annotated[int | str, AfterValidator(check_token_parameter)]], ListParameter()] = Field(
        default_factory=list, description="token ids, or strings of one token each"
    )

    __slots__ = ("_ids", "_table")

    def bind(self, context: BuildContext) -> None:
        self._ids = [token_of(token, context, "tokens", "") for token in self.tokens]
        self._table: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def apply(self, candidates: Candidates) -> None:
        """Drop the tokens that are not listed. An empty list drops none."""
        if not self._ids:
            return
        if self._table.size != candidates.vocab_size:
            self._table = self._make_table(candidates.vocab_size)
        allowed = self._table if candidates.is_full_vocabulary else self._table[candidates.ids]
        if not (candidates.logits[allowed] > -np.inf).any():
            raise SamplingError("allow: no allowed token is left")
        candidates.filter_rows(allowed)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        return dropped_tokens(before, after, "token")

    def _make_table(self, size: int) -> NDArray[np.bool_]:
        """Return the allowed tokens, bool (size,)."""
        table = np.zeros(size, dtype=np.bool_)
        for token in self._ids:
            if token >= size:
                raise SamplingError(f"allow.tokens: token id {token} is not within 0..{size - 1}")
            table[token] = True
        return table
