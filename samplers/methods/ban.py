"""Banned tokens and banned strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from ..base import BuildContext, ListParameter, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..stages import dropped_tokens
from ..tokens import (
    TextCompletions,
    TokenBytesIndex,
    check_token_parameter,
    encode_utf8,
    once_for_vocabulary,
    text_pieces,
    token_of,
)

if TYPE_CHECKING:
    from ..stages import StageCandidates


def _check_string(value: str) -> str:
    if not value:
        raise ValueError("an empty string cannot be banned, since every text contains it")
    return value


_TokenOrId = Annotated[int | str, AfterValidator(check_token_parameter)]
_NonEmptyString = Annotated[str, AfterValidator(_check_string), Field(json_schema_extra={"minLength": 1})]


class Ban(Sampler):
    """Drop banned tokens, and every token that would complete a banned string.

    Formula: drop i if i is in ``tokens``; drop i if the text so far plus the bytes of i would contain one of
    ``strings`` that it did not contain before. A string may begin in the prompt and end anywhere in a token, so
    it never appears in the output. A token is an id, or a text that encodes to one token. The logits, float32
    (n,), and the order of the other rows stay.

    Neutral: both lists empty. Raises ``SamplingError`` for a text of several tokens, an id outside the
    vocabulary, strings or texts without a vocabulary, and if every remaining candidate is banned. Source:
    KoboldCpp's token bans and banned strings. KoboldCpp finds a string after it was written, and then discards it.
    Here the token that would complete it is dropped. llama.cpp: banned tokens equal its ``logit_bias`` of -inf; it
    has no banned strings.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="ban",
        summary="never write certain tokens or strings",
        formula="drop i if it is banned, or if text + piece(i) would contain a banned string",
        reference="KoboldCpp `banned_tokens`, `banned_strings`; YALS `banned_strings`",
        llama_cpp="tokens: its `logit_bias` of -inf; strings: not in llama.cpp",
        main_parameter="tokens",
        example=["\n"],
        off_values={"tokens": [], "strings": []},
        aliases=("bans", "banned", "banned_tokens"),
        stage=Stage.LOGIT_BIAS - 1,
        is_bias=True,
    )

    tokens: Annotated[list[_TokenOrId], ListParameter()] = Field(
        default_factory=list, description="token ids, or strings of one token each"
    )
    strings: Annotated[list[_NonEmptyString], ListParameter()] = Field(
        default_factory=list, description="strings that must not appear in the output"
    )
    ignore_case: bool = Field(
        default=False, description="ban strings in upper and lower case; applies to A-Z only"
    )

    state_slots: ClassVar[tuple[str, ...]] = ("_text_end",)
    __slots__ = ("_completions", "_ids", "_is_banned_by_id", "_max_string_bytes", "_pieces", "_text_end")

    def bind(self, context: BuildContext) -> None:
        hint = "; or use ban.strings"
        self._ids = [token_of(token, context, "tokens", hint) for token in self.tokens]
        self._completions: list[TextCompletions] = []
        self._pieces: Sequence[bytes] = ()
        self._is_banned_by_id = np.zeros(0, dtype=np.bool_)
        if self.strings:
            vocabulary = need_vocabulary(context, "strings")
            pieces = text_pieces(vocabulary)
            self._pieces = [piece.lower() for piece in pieces] if self.ignore_case else pieces
            strings = [encode_utf8(string, "strings") for string in self.strings]
            if self.ignore_case:
                strings = [string.lower() for string in strings]
            fact_name = f"index of texts, {self.ignore_case}"
            index = once_for_vocabulary(vocabulary, fact_name, lambda _: TokenBytesIndex(self._pieces))
            self._completions = [TextCompletions(string, index) for string in strings]
        self._max_string_bytes = max((len(text.text) for text in self._completions), default=0)

    def reset(self, prompt: Sequence[int]) -> None:
        text_end = b""
        for token in reversed(prompt):
            if len(text_end) >= self._max_string_bytes:
                break
            text_end = self._bytes_of(token) + text_end
        self._text_end = text_end[-self._max_string_bytes :] if self._max_string_bytes else b""

    def accept(self, token: int) -> None:
        if self._max_string_bytes:
            self._text_end = (self._text_end + self._bytes_of(token))[-self._max_string_bytes :]

    def apply(self, candidates: Candidates) -> None:
        if self._is_banned_by_id.size != candidates.vocab_size:
            self._is_banned_by_id = self._find_banned_tokens(candidates.vocab_size)
        is_banned = self._is_banned_by_id
        completing_ids = [ids for text in self._completions for ids in text.completing(self._text_end)]
        if completing_ids:
            is_banned = is_banned.copy()
            is_banned[np.concatenate(completing_ids)] = True
        if not candidates.is_full_vocabulary:
            is_banned = is_banned[candidates.ids]
        is_allowed = ~is_banned
        if not (candidates.logits[is_allowed] > -np.inf).any():
            raise SamplingError("ban: every candidate left is banned")
        candidates.filter_rows(is_allowed)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        """Count the tokens that were dropped."""
        return dropped_tokens(before, after, "banned token")

    def _find_banned_tokens(self, size: int) -> NDArray[np.bool_]:
        """Return the tokens that are banned at every position, bool (size,)."""
        if self._completions and len(self._pieces) != size:
            raise SamplingError(f"ban: the row has {size} logits, the vocabulary {len(self._pieces)}")
        is_banned = np.zeros(size, dtype=np.bool_)
        for token in self._ids:
            if token >= size:
                raise SamplingError(f"ban.tokens: token id {token} is not within 0..{size - 1}")
            is_banned[token] = True
        for text in self._completions:
            is_banned[text.single_tokens] = True
        return is_banned

    def _bytes_of(self, token: int) -> bytes:
        if not 0 <= token < len(self._pieces):
            return b""
        return self._pieces[token]
