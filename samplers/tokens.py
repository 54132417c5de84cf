"""Tokens as samplers look them up.

Tokens of the prompt and the output are checked and found by their positions. A parameter names a token by its id
or by a text. An index of all token bytes finds the tokens that can write a part of a text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from .base import BuildContext, need_vocabulary
from .errors import SamplingError


def check_token(name: str, token: int, size: int) -> None:
    """Raise ``SamplingError`` unless the token is an id below ``size``; ``name``: the sampler's."""
    if not 0 <= token < size:
        raise SamplingError(f"{name}: token id {token} in the text is not within 0..{size - 1}")


def check_tokens(name: str, tokens: Collection[int], size: int) -> None:
    """Raise ``SamplingError`` unless all of these are ids below ``size``; ``name``: the sampler's."""
    if len(tokens):
        check_token(name, int(min(tokens)), size)
        check_token(name, int(max(tokens)), size)


def token_table(name: str, tokens: Sequence[int], size: int) -> NDArray[np.bool_]:
    """Return which tokens of the vocabulary occur in ``tokens``, bool (size,). Raises as `check_tokens` does."""
    check_tokens(name, tokens, size)
    table = np.zeros(size, dtype=np.bool_)
    table[np.array(tokens, dtype=np.int64)] = True
    return table


class LastPositions:
    """The last position of each token in a history; adding a token costs the same at any length."""

    def __init__(self, name: str, tokens: Iterable[int]) -> None:
        """Start with a history; ``name``: the sampler's, for messages."""
        self._name = name
        self._last = {token: position for position, token in enumerate(tokens)}
        self._count = max(self._last.values(), default=-1) + 1
        self._positions: NDArray[np.int64] | None = None

    def add(self, token: int) -> None:
        """Append one token."""
        if self._positions is not None:
            check_token(self._name, token, self._positions.size)
            self._positions[token] = self._count
        self._last[token] = self._count
        self._count += 1

    def table(self, size: int) -> NDArray[np.int64]:
        """Return the last position of each token of the vocabulary, int64 (size,); -1 if it does not occur."""
        if self._positions is None or self._positions.size != size:
            check_tokens(self._name, list(self._last), size)
            self._positions = np.full(size, -1, dtype=np.int64)
            self._positions[list(self._last)] = list(self._last.values())
        return self._positions

    def __len__(self) -> int:
        return self._count


def token_of(key: int | str, context: BuildContext, parameter: str, hint: str = "") -> int:
    """Return the token id that ``key`` names: an id itself, or the one token of a text.

    Args:
        key: the id or the text.
        context: the vocabulary.
        parameter: what messages begin with.
        hint: what the message on a text of several tokens ends with.

    Raises ``SamplingError`` that begins with ``parameter``, for a text of several tokens or of none, a text
    without a vocabulary, and an id outside the vocabulary.
    """
    if isinstance(key, int):
        vocabulary = context.vocabulary
        if key < 0 or (vocabulary is not None and key >= vocabulary.size):
            limit = "≥ 0" if vocabulary is None else f"within 0..{vocabulary.size - 1}"
            raise SamplingError(f"{parameter}: token id {key} is not {limit}")
        return key
    tokens = need_vocabulary(context, f"{parameter}: {key!r}").tokenize(encode_utf8(key, parameter))
    if len(tokens) != 1:
        raise SamplingError(
            f"{parameter}: {key!r} is {len(tokens)} tokens {tokens}; give one token, or its id{hint}"
        )
    return tokens[0]


def encode_utf8(text: str, parameter: str) -> bytes:
    """Return a text in UTF-8. Raises ``SamplingError`` that begins with ``parameter`` if it has no UTF-8 form."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{parameter}: {text!r} is not UTF-8") from None


class TokenBytesIndex:
    """The bytes of every token, arranged once so that many texts can be looked up."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        """Index ``pieces``, the bytes of every token, by id."""
        self._order = np.array(sorted(range(len(pieces)), key=pieces.__getitem__), dtype=np.intp)
        self._sorted = [pieces[token] for token in self._order.tolist()]
        # All pieces in one text, and where each ends.
        self._joined = b"".join(pieces)
        self._ends = list(accumulate(map(len, pieces)))

    def containing(self, text: bytes) -> list[int]:
        """Return the tokens that contain this text, ascending. The text is not empty."""
        tokens = []
        at = self._joined.find(text)
        while at >= 0:
            token = bisect_right(self._ends, at)
            if at + len(text) <= self._ends[token]:
                tokens.append(token)
                at = self._ends[token] - 1  # on to the next token
            at = self._joined.find(text, at + 1)
        return tokens

    def beginning_with(self, text: bytes) -> NDArray[np.intp]:
        """Return the tokens that begin with this text, ascending. The text is not empty."""
        start = bisect_left(self._sorted, text)
        # The least text behind all that begin with `text`: its last byte below 255, plus one.
        head = text.rstrip(b"\xff")
        after = head[:-1] + bytes([head[-1] + 1]) if head else None
        end = len(self._sorted) if after is None else bisect_left(self._sorted, after, start)
        return np.sort(self._order[start:end])


class TextCompletions:
    """A text, and the tokens that would complete it.

    Attributes:
        text: its bytes.
        single_tokens: the tokens that contain all of it, ascending.
    """

    def __init__(self, text: bytes, index: TokenBytesIndex) -> None:
        self.text = text
        self.single_tokens = index.containing(text)
        # A beginning of the text, with the tokens that write the rest.
        endings = [(text[:count], index.beginning_with(text[count:])) for count in range(1, len(text))]
        self._endings = [(beginning, ids) for beginning, ids in endings if ids.size]

    def completing(self, tail: bytes) -> Iterator[NDArray[np.intp]]:
        """Yield ids of the tokens that would complete the text after ``tail``, the end of what was written."""
        for beginning, ids in self._endings:
            if tail.endswith(beginning):
                yield ids


def tokens_starting(text: bytes, pieces: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the tokens with which a text can begin, each with the bytes of the text that are still missing.

    A token may begin before the text. One that contains the whole text is yielded once, with no missing bytes. One
    that ends in several beginnings of the text is yielded once for each.
    """
    first = text[:1]
    for token, piece in enumerate(pieces):
        if text in piece:
            yield token, b""
            continue
        at = piece.find(first)
        while at >= 0:
            written = piece[at:]
            if text.startswith(written):
                yield token, text[len(written) :]
            at = piece.find(first, at + 1)
