"""What samplers remember of the tokens so far."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .errors import SamplingError


def check_token(name: str, token: int, size: int) -> None:
    """Raise ``SamplingError`` that names the sampler unless this is an id below ``size``."""
    if not 0 <= token < size:
        raise SamplingError(f"{name}: token id {token} in the text is not within 0..{size - 1}")


def check_tokens(name: str, tokens: Collection[int], size: int) -> None:
    """Raise ``SamplingError`` that names the sampler unless all of these are ids below ``size``."""
    if len(tokens):
        check_token(name, int(min(tokens)), size)
        check_token(name, int(max(tokens)), size)


def token_table(name: str, tokens: Sequence[int], size: int) -> NDArray[np.bool_]:
    """Which tokens of the vocabulary occur in ``tokens``, bool (size,)."""
    check_tokens(name, tokens, size)
    table = np.zeros(size, dtype=np.bool_)
    table[np.array(tokens, dtype=np.int64)] = True
    return table


class LastSeen:
    """Where each token stood last; adding a token costs the same at any length.

    Parameters: ``name``, the sampler's, for complaints; ``tokens``, the history to start with.
    """

    def __init__(self, name: str, tokens: Iterable[int]) -> None:
        self._name = name
        self._last = {token: place for place, token in enumerate(tokens)}
        self._count = max(self._last.values(), default=-1) + 1
        self._places: NDArray[np.int64] | None = None

    def add(self, token: int) -> None:
        """Put one token at the end."""
        if self._places is not None:
            check_token(self._name, token, self._places.size)
            self._places[token] = self._count
        self._last[token] = self._count
        self._count += 1

    def places(self, size: int) -> NDArray[np.int64]:
        """Where each token stood last, int64 (size,): 0 is the first token of the history; -1: nowhere."""
        if self._places is None or self._places.size != size:
            check_tokens(self._name, list(self._last), size)
            self._places = np.full(size, -1, dtype=np.int64)
            self._places[list(self._last)] = list(self._last.values())
        return self._places

    def __len__(self) -> int:
        return self._count
