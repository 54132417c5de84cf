"""Logit bias and bans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator

from ..base import FLOAT32_MAX, BuildContext, Sampler, SamplerInfo, Stage
from ..candidates import Candidates
from ..errors import SamplingError
from ..kernels import Floats, Positions
from ..stages import logit_changes, token_count
from ..tokens import token_of

if TYPE_CHECKING:
    from ..stages import StageCandidates

BAN = float("-inf")


class _BiasTables(NamedTuple):
    """The biases of all tokens of a vocabulary."""

    added_biases: Floats  # the number to add to the logit of each token, (V,)
    is_banned: NDArray[np.bool_]  # for each token, whether it is banned, (V,)
    biased_ids: Positions  # Ids of the tokens with a number to add, (m,)


def _read_bias(value: object) -> object:
    """Read ``false`` and the string ``-inf`` as a ban."""
    return BAN if value is False or value == "-inf" else value


def _check_bias(value: float) -> float:
    if not (value == BAN or abs(value) <= FLOAT32_MAX):
        raise ValueError("must be a finite float32, -inf or false")
    return value


def _write_bias(value: float) -> float | bool:
    """Write a ban as ``false``, since JSON has no -inf."""
    return False if value == BAN else value


Bias = Annotated[
    float,
    Field(allow_inf_nan=True),
    # Pydantic's schema has only the number, since `_read_bias` converts the bans first.
    WithJsonSchema({"anyOf": [{"type": "number"}, {"const": False}, {"const": "-inf"}]}),
    AfterValidator(_check_bias),
    BeforeValidator(_read_bias),
    PlainSerializer(_write_bias),
]


class LogitBias(Sampler):
    """Add a number to the logits of chosen tokens, or ban them.

    Formula: logit_i + bias_i, float32 (n,), nats; an overflow is clamped to float32. A key is a token id, or a
    string that encodes to one token. ``-inf`` or ``false`` bans the token: its row is dropped.

    Neutral: an empty table. Raises ``SamplingError`` for a string of several tokens, an id outside the vocabulary,
    a token that two keys name, and if every remaining candidate is banned. Source: OpenAI's API, llama.cpp's
    ``logit_bias``. Equals llama.cpp's, except that a ban drops the row, and that rows sorted by an earlier step
    count as unsorted after this one.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="logit_bias",
        summary="raise, lower or ban chosen tokens",
        formula="logit_i + bias_i;  -inf or false: drop i",
        reference="llama.cpp `logit_bias`; OpenAI API `logit_bias`",
        llama_cpp="equal; a ban drops the token instead of setting it to -inf",
        main_parameter="bias",
        example={42: -1.5},
        off_values={"bias": {}},
        stage=Stage.LOGIT_BIAS,
        is_bias=True,
        mergeable_parameters=("bias",),
    )

    bias: dict[int | str, Bias] = Field(
        default_factory=dict,
        description="{token id or text: number to add to its logit; -inf or false bans the token}",
    )

    __slots__ = ("_bias_by_id", "_tables")

    @field_validator("bias")
    @classmethod
    def _check_ids(cls, bias: dict[int | str, float]) -> dict[int | str, float]:
        negative_ids = [key for key in bias if isinstance(key, int) and key < 0]
        if negative_ids:
            raise ValueError(f"token id {negative_ids[0]} is not ≥ 0")
        return bias

    def bind(self, context: BuildContext) -> None:
        self._bias_by_id: dict[int, float] = {}
        self._tables: _BiasTables | None = None
        for key, value in self.bias.items():
            token = token_of(key, context, "bias")
            if token in self._bias_by_id:
                raise SamplingError(f"{key!r} is token {token}, which another key names, too", place=("bias",))
            self._bias_by_id[token] = value

    def apply(self, candidates: Candidates) -> None:
        if self._tables is None or self._tables.added_biases.size != candidates.vocab_size:
            self._tables = self._make_tables(candidates.vocab_size)
        added_biases, is_banned, biased_rows = self._tables
        if not candidates.is_full_vocabulary:
            is_banned = is_banned[candidates.ids]
            biased_rows = candidates.positions_where(added_biases)
        if biased_rows.size:
            biases = added_biases[candidates.tokens(biased_rows)]
            candidates.set_logits_at(biased_rows, candidates.logits[biased_rows] + biases)
        is_allowed = ~is_banned
        if not is_allowed.any():
            raise SamplingError("logit_bias: every candidate left is banned")
        candidates.filter_rows(is_allowed)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        dropped_count = len(before) - len(after)
        banned_text = f", {token_count(dropped_count)} banned" if dropped_count else ""
        return logit_changes(before, after) + banned_text

    def _make_tables(self, size: int) -> _BiasTables:
        """Return the biases as arrays for a vocabulary of ``size`` tokens."""
        added_biases = np.zeros(size, dtype=np.float32)
        is_banned = np.zeros(size, dtype=np.bool_)
        for token, value in self._bias_by_id.items():
            if token >= size:
                raise SamplingError(f"logit_bias.bias: token id {token} is not within 0..{size - 1}")
            if value == BAN:
                is_banned[token] = True
            else:
                added_biases[token] = value
        return _BiasTables(added_biases, is_banned, added_biases.nonzero()[0])
