"""Sequence bias: a number for the token that completes a text, or a sequence of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, PlainSerializer

from ..base import BuildContext, Sampler, SamplerInfo, Stage, need_vocabulary
from ..candidates import Candidates
from ..errors import SamplingError
from ..stages import logit_changes, token_count
from ..tokens import encode_utf8, text_pieces, token_of
from .logit_bias import BAN, Bias

if TYPE_CHECKING:
    from ..stages import StageCandidates


def _check_text(text: str) -> str:
    if not text:
        raise ValueError("an empty string is completed by no token")
    return text


def _check_ids(ids: list[int]) -> list[int]:
    if not ids:
        raise ValueError("a sequence needs at least one token id")
    if min(ids) < 0:
        raise ValueError(f"token id {min(ids)} is not ≥ 0")
    return ids


def _check_distinct(pairs: list[tuple[list[int], float]]) -> list[tuple[list[int], float]]:
    seen: set[tuple[int, ...]] = set()
    for ids, _ in pairs:
        if tuple(ids) in seen:
            raise ValueError(f"the sequence {ids} is listed twice")
        seen.add(tuple(ids))
    return pairs


def _write_pair(pair: tuple[list[int], float]) -> list[list[int] | float]:
    """Write a pair as a list, and a ban as ``false``, since JSON has neither tuples nor -inf."""
    ids, value = pair
    return [ids, False if value == BAN else value]


_IdPair = Annotated[
    tuple[Annotated[list[int], AfterValidator(_check_ids)], Bias],
    Field(strict=False),  # presets and JSON have lists, not tuples
    PlainSerializer(_write_pair),
]


class SequenceBias(Sampler):
    """Add a number to the logit of a token that would complete a text or a sequence of tokens.

    Formula: logit_i + sum of the biases whose text or sequence token i completes, float32 (n,), nats; an overflow
    is clamped to float32.

    - ``ids``: the last token of a sequence is biased while the text ends with the other tokens of the sequence,
      and always if the sequence is one token.
    - ``bias``: a token is biased if the bytes of the text so far and of the token end with the string, and the
      token has no bytes before the string. So it does not matter how the string is divided into tokens, and what
      precedes it: ``New York`` also counts after a space or in quotes. A token that is the entire string is
      always biased, also if a space precedes the string in the token. A control token writes no text.

    Prompt and output count. ``-inf`` or ``false`` drops the token. Neutral: both are empty. Raises
    ``SamplingError`` for strings without a vocabulary, an id outside the vocabulary, and if every remaining
    candidate is dropped. Source and equal, for ``ids``: transformers' ``SequenceBiasLogitsProcessor``. Not in
    llama.cpp.
    """

    about: ClassVar[SamplerInfo] = SamplerInfo(
        name="sequence_bias",
        summary="raise, lower or ban the token that completes a text",
        formula="logit_i + sum of the biases of all sequences that end with i, if the text ends with the rest",
        reference="transformers `SequenceBiasLogitsProcessor`",
        llama_cpp="not in llama.cpp",
        main_parameter="bias",
        example={"New York": -2.5},
        off_values={"bias": {}, "ids": []},
        stage=Stage.LOGIT_BIAS + 1,
        is_bias=True,
        mergeable_parameters=("bias",),
    )

    bias: dict[Annotated[str, AfterValidator(_check_text)], Bias] = Field(
        default_factory=dict, description="{text: number for the token that completes it; -inf or false bans it}"
    )
    ids: Annotated[list[_IdPair], AfterValidator(_check_distinct)] = Field(
        default_factory=list, description="[[token ids], number] for each sequence of tokens"
    )

    state_slots: ClassVar[tuple[str, ...]] = ("_last_tokens", "_text_end")
    __slots__ = (
        "_bias_anywhere",
        "_biases_after_tokens",
        "_last_tokens",
        "_max_end_bytes",
        "_max_last_tokens",
        "_pieces",
        "_text_end",
        "_texts",
        "_token_counts",
    )

    def bind(self, context: BuildContext) -> None:
        self._bias_anywhere: dict[int, float] = defaultdict(float)
        self._biases_after_tokens: dict[tuple[int, ...], list[tuple[int, float]]] = defaultdict(list)
        for ids, value in self.ids:
            *first_tokens, last_token = [token_of(token, context, "ids") for token in ids]
            if first_tokens:
                self._biases_after_tokens[tuple(first_tokens)].append((last_token, value))
            else:
                self._bias_anywhere[last_token] += value
        self._token_counts = sorted({len(first_tokens) for first_tokens in self._biases_after_tokens})
        self._texts: list[_TextBias] = []
        self._pieces: Sequence[bytes] = ()
        if self.bias:
            self._pieces = text_pieces(need_vocabulary(context, "bias"))
            self._bind_texts({encode_utf8(text, "bias"): value for text, value in self.bias.items()})
        # The last tokens and bytes of the text that can be a beginning of a sequence or a text
        self._max_last_tokens = max(self._token_counts, default=0)
        self._max_end_bytes = max((len(text.text) - 1 for text in self._texts), default=0)

    def _bind_texts(self, value_by_text: dict[bytes, float]) -> None:
        tokens_by_piece = _tokens_by_piece(self._pieces, value_by_text)
        for text, value in value_by_text.items():
            for token in _whole_tokens(text, tokens_by_piece):
                self._bias_anywhere[token] += value
            self._texts.append(_TextBias(text, value, tokens_by_piece))

    def reset(self, prompt: Sequence[int]) -> None:
        text_end = b""
        for token in reversed(prompt):
            if len(text_end) >= self._max_end_bytes:
                break
            text_end = self._bytes_of(token) + text_end
        self._text_end = _last_items(text_end, self._max_end_bytes)
        self._last_tokens: tuple[int, ...] = tuple(_last_items(prompt, self._max_last_tokens))

    def accept(self, token: int) -> None:
        if self._max_last_tokens:
            self._last_tokens = _last_items((*self._last_tokens, token), self._max_last_tokens)
        if self._max_end_bytes:
            self._text_end = _last_items(self._text_end + self._bytes_of(token), self._max_end_bytes)

    def apply(self, candidates: Candidates) -> None:
        size = candidates.vocab_size
        if self._texts and len(self._pieces) != size:
            raise SamplingError(f"sequence_bias: the row has {size} logits, the vocabulary {len(self._pieces)}")
        biases = self._current_biases()
        if not biases:
            return
        tokens = np.array(sorted(biases), dtype=np.intp)
        if tokens[-1] >= size:
            raise SamplingError(f"sequence_bias.ids: token id {tokens[-1]} is not within 0..{size - 1}")
        bias_of_token = np.array([biases[token] for token in tokens.tolist()])
        rows, token_indexes = candidates.positions_of(tokens)
        bias_of_row = bias_of_token[token_indexes]
        is_banned = bias_of_row == BAN
        changed_rows = rows[~is_banned]
        if changed_rows.size:
            new_logits = candidates.logits[changed_rows].astype(np.float64) + bias_of_row[~is_banned]
            candidates.set_logits_at(changed_rows, new_logits)
        if is_banned.any():
            is_kept = np.ones(len(candidates), dtype=np.bool_)
            is_kept[rows[is_banned]] = False
            if not is_kept.any():
                raise SamplingError("sequence_bias: every candidate left is banned")
            candidates.filter_rows(is_kept)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        dropped_count = len(before) - len(after)
        banned_text = f", {token_count(dropped_count)} banned" if dropped_count else ""
        return logit_changes(before, after) + banned_text

    def _current_biases(self) -> dict[int, float]:
        """Return the sum of the biases of each token that is biased after the text so far."""
        biases = defaultdict(float, self._bias_anywhere)
        for token, value in self._completions():
            biases[token] += value
        return biases

    def _completions(self) -> Iterator[tuple[int, float]]:
        """Yield the tokens that would complete a sequence or a text, each with the bias."""
        for count in self._token_counts:
            if count <= len(self._last_tokens):  # a slice of more tokens would be the entire text
                yield from self._biases_after_tokens.get(self._last_tokens[-count:], ())
        for text in self._texts:
            for beginning, tokens in text.tokens_after_beginning:
                if self._text_end.endswith(beginning):
                    for token in tokens:
                        yield token, text.value

    def _bytes_of(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""


_Items = TypeVar("_Items", bytes, tuple[int, ...], Sequence[int])


def _last_items(items: _Items, count: int) -> _Items:
    """Return the last items; none for a count of 0, for which the slice ``items[-count:]`` would return all."""
    return items[max(len(items) - count, 0) :]


class _TextBias:
    """A text with its bias, and the tokens that can complete it."""

    def __init__(self, text: bytes, value: float, tokens_by_piece: dict[bytes, list[int]]) -> None:
        self.text = text
        self.value = value  # the bias
        # Each beginning of the text, with the tokens that are exactly the rest
        self.tokens_after_beginning: list[tuple[bytes, list[int]]] = []
        max_piece_bytes = max((len(piece) for piece in tokens_by_piece), default=0)
        for byte_count in range(max(1, len(text) - max_piece_bytes), len(text)):
            tokens = tokens_by_piece.get(text[byte_count:])
            if tokens:
                self.tokens_after_beginning.append((text[:byte_count], tokens))


def _tokens_by_piece(pieces: Sequence[bytes], texts: Iterable[bytes]) -> dict[bytes, list[int]]:
    """Return the tokens that are an ending of a text, or a space and a text, by their bytes."""
    max_piece_bytes = max((len(piece) for piece in pieces), default=0)
    needed_pieces: set[bytes] = set()
    for text in texts:
        needed_pieces.add(b" " + text)
        first_start = max(0, len(text) - max_piece_bytes)
        needed_pieces.update(text[start:] for start in range(first_start, len(text)))
    tokens_by_piece = defaultdict(list)
    for token, piece in enumerate(pieces):
        if piece in needed_pieces:
            tokens_by_piece[piece].append(token)
    return dict(tokens_by_piece)


def _whole_tokens(text: bytes, tokens_by_piece: dict[bytes, list[int]]) -> list[int]:
    """Return the tokens that are a text, or a space and the text."""
    tokens = list(tokens_by_piece.get(text, ()))
    if not text[:1].isspace():
        tokens += tokens_by_piece.get(b" " + text, ())
    return tokens
