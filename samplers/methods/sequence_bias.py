"""Sequence bias: a number for the token that completes a text, or a sequence of tokens."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

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
    counts = Counter(tuple(ids) for ids, _ in pairs)
    if counts and max(counts.values()) > 1:
        raise ValueError(f"the sequence {list(counts.most_common(1)[0][0])} is listed twice")
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
        "_always",
        "_by_previous_tokens",
        "_last_tokens",
        "_max_text_bytes",
        "_pieces",
        "_text_end",
        "_texts",
        "_token_counts",
    )

    def bind(self, context: BuildContext) -> None:
        self._always: dict[int, float] = defaultdict(float)
        self._by_previous_tokens: dict[tuple[int, ...], list[tuple[int, float]]] = defaultdict(list)
        for ids, value in self.ids:
            *previous, last = [token_of(token, context, "ids") for token in ids]
            if previous:
                self._by_previous_tokens[tuple(previous)].append((last, value))
            else:
                self._always[last] += value
        self._token_counts = sorted({len(previous) for previous in self._by_previous_tokens})
        self._texts: list[_TextBias] = []
        self._pieces: Sequence[bytes] = ()
        if self.bias:
            self._pieces = text_pieces(need_vocabulary(context, "bias"))
            texts = {encode_utf8(text, "bias"): value for text, value in self.bias.items()}
            tokens_by_piece = _tokens_by_piece(self._pieces, texts)
            for text, value in texts.items():
                for token in _whole_tokens(text, tokens_by_piece):
                    self._always[token] += value
                self._texts.append(_TextBias(text, value, tokens_by_piece))
        self._max_text_bytes = max((len(text.text) - 1 for text in self._texts), default=0)

    def reset(self, prompt: Sequence[int]) -> None:
        self._last_tokens: tuple[int, ...] = ()
        self._text_end = b""
        for token in reversed(prompt):
            if len(self._text_end) >= self._max_text_bytes:
                break
            self._text_end = self._bytes_of(token) + self._text_end
        self._text_end = self._text_end[-self._max_text_bytes :] if self._max_text_bytes else b""
        if self._token_counts:
            self._last_tokens = tuple(prompt[-self._token_counts[-1] :])

    def accept(self, token: int) -> None:
        if self._token_counts:
            self._last_tokens = (*self._last_tokens, token)[-self._token_counts[-1] :]
        if self._max_text_bytes:
            self._text_end = (self._text_end + self._bytes_of(token))[-self._max_text_bytes :]

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
        values = np.array([biases[token] for token in tokens.tolist()])
        rows, indexes = candidates.positions_of(tokens)
        is_dropped = values[indexes] == BAN
        changed_rows = rows[~is_dropped]
        if changed_rows.size:
            new_logits = candidates.logits[changed_rows].astype(np.float64) + values[indexes[~is_dropped]]
            candidates.set_logits_at(changed_rows, new_logits)
        if is_dropped.any():
            is_kept = np.ones(len(candidates), dtype=np.bool_)
            is_kept[rows[is_dropped]] = False
            if not is_kept.any():
                raise SamplingError("sequence_bias: every candidate left is banned")
            candidates.filter_rows(is_kept)

    def note(self, before: StageCandidates, after: StageCandidates) -> str:
        dropped_count = len(before) - len(after)
        banned_text = f", {token_count(dropped_count)} banned" if dropped_count else ""
        return logit_changes(before, after) + banned_text

    def _current_biases(self) -> dict[int, float]:
        """Return the sum of the biases of each token that is biased after the text so far."""
        biases = defaultdict(float, self._always)
        for token, value in self._completions():
            biases[token] += value
        return biases

    def _completions(self) -> Iterator[tuple[int, float]]:
        for count in self._token_counts:
            if count <= len(self._last_tokens):  # a shorter text would match sequences of its own length again
                yield from self._by_previous_tokens.get(self._last_tokens[-count:], ())
        for text in self._texts:
            for beginning, tokens in text.endings:
                if self._text_end.endswith(beginning):
                    yield from ((token, text.value) for token in tokens)

    def _bytes_of(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < len(self._pieces) else b""


class _TextBias:
    """A text with its bias, and the tokens that can complete it."""

    def __init__(self, text: bytes, value: float, tokens_by_piece: dict[bytes, list[int]]) -> None:
        self.text = text
        self.value = value  # the bias
        counts = range(max(1, len(text) - max(map(len, tokens_by_piece), default=0)), len(text))
        endings = ((text[:count], tokens_by_piece.get(text[count:])) for count in counts)
        # each beginning of the text, with the tokens that are exactly the rest
        self.endings: list[tuple[bytes, list[int]]] = [(start, tokens) for start, tokens in endings if tokens]


def _tokens_by_piece(pieces: Sequence[bytes], texts: Iterable[bytes]) -> dict[bytes, list[int]]:
    """Return the tokens that are an ending of a text, or a text after a space, by their bytes."""
    max_piece_bytes = max(map(len, pieces), default=0)
    endings = {b" " + text for text in texts}
    for text in texts:
        endings.update(text[start:] for start in range(max(0, len(text) - max_piece_bytes), len(text)))
    tokens_by_piece = defaultdict(list)
    for token, piece in enumerate(pieces):
        if piece in endings:
            tokens_by_piece[piece].append(token)
    return dict(tokens_by_piece)


def _whole_tokens(text: bytes, tokens_by_piece: dict[bytes, list[int]]) -> list[int]:
    """Return the tokens that are a text, or a space and the text."""
    after_space = [] if text[:1].isspace() else tokens_by_piece.get(b" " + text, [])
    return [*tokens_by_piece.get(text, []), *after_space]
