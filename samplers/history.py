"""Tokens of the prompt and the output, as samplers look them up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

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
