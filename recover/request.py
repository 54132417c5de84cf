"""The request of a recovery, checked before the endpoint is asked anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .basis import Basis
from .endpoints.base import MOST_TOKENS
from .errors import RecoverError

METHODS = ("auto", "single", "parallel", "top_n", "bisection", "forced", "basis")
NO_BASIS = "the method basis needs a basis; make one with gen recover-basis"


@dataclass(frozen=True)
class RecoveryRequest:
    """Which logprobs are asked for, and by which method.

    Args:
        method: one of `METHODS`.
        n: number of likeliest tokens; None: not so asked.
        ids: named tokens; None: not so asked.
    """

    method: str
    n: int | None = None
    ids: tuple[int, ...] | None = None

    @classmethod
    def checked(cls, prompt: str, method: str, n: int | None, tokens: Iterable[object] | None) -> RecoveryRequest:
        """Return the request. Raises ``RecoverError`` for what no endpoint could answer.

        Args:
            prompt: the text before the token.
            method: one of `METHODS`.
            n: number of likeliest tokens.
            tokens: named tokens.
        """
        ids = None if tokens is None else tuple(_token_id(token) for token in tokens)
        if method not in METHODS:
            raise RecoverError(f"method: {method!r} is none of {', '.join(METHODS)}")
        if not prompt:
            raise RecoverError("the prompt is empty: there is nothing that a token could follow")
        if n is not None and ids is not None:
            raise RecoverError("n and tokens: ask for the likeliest or for named tokens, not both")
        if method == "top_n" and n is None:
            raise RecoverError("top_n needs n, the number of likeliest tokens")
        if ids is not None and not ids:
            raise RecoverError("tokens: there are none")
        return cls(method, n, ids)

    def check_size(self, vocab_size: int) -> None:
        """Raise ``RecoverError`` for tokens that a vocabulary of this size does not have."""
        if not 1 <= vocab_size <= MOST_TOKENS:
            raise RecoverError(
                f"the endpoint says that it has {vocab_size} tokens, which is not within 1..{MOST_TOKENS}"
            )
        if self.n is not None and not 1 <= self.n <= vocab_size:
            raise RecoverError(f"n: {self.n} is not within 1..{vocab_size}")
        for token in self.ids or ():
            if not 0 <= token < vocab_size:
                raise RecoverError(f"token id {token} is not within 0..{vocab_size - 1}")

    def tokens(self, vocab_size: int) -> NDArray[np.intp]:
        """Return the ids that may be part of the result, sorted, int (n,): all if none are named."""
        if self.ids is None:
            return np.arange(vocab_size)
        return np.unique(np.asarray(self.ids, dtype=np.intp))

    @property
    def count(self) -> int | None:
        """Number of named tokens; None if none are named."""
        return None if self.ids is None else len(set(self.ids))


def _token_id(token: object) -> int:
    try:
        return index(token)  # type: ignore[arg-type] # what has no index is refused
    except TypeError:
        raise RecoverError(f"tokens: {token!r} is no token id") from None


@dataclass(frozen=True)
class RecoverySettings:
    """How a recovery is run.

    Args:
        basis: for the method of that name.
        eps: the error at which bisection stops, nats.
        tolerance: the largest error on held-out tokens with which a basis is used, nats.
        repeats: how often each question is asked, to average; None: once, or 4 times if the answers differ.
        max_calls: stop after so many new calls; None: no limit.
        in_flight: calls at once.
        checkpoint: a file that stores each answer.
        resume: continue with the checkpoint.
        progress: called with the number of recovered and of requested tokens.
        interrupted: asked again and again; True ends the run.
    """

    basis: Basis | None = None
    eps: float = 1e-3
    tolerance: float = 0.01
    repeats: int | None = None
    max_calls: int | None = None
    in_flight: int = 1
    checkpoint: Path | None = None
    resume: bool = False
    progress: Callable[[int, int], None] | None = None
    interrupted: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raise ``RecoverError`` for a value out of range."""
        for name, count in (
            ("repeats", self.repeats),
            ("max_calls", self.max_calls),
            ("in_flight", self.in_flight),
        ):
            if count is not None and count < 1:
                raise RecoverError(f"{name}: {count} is not ≥ 1")
        for name, number in (("eps", self.eps), ("tolerance", self.tolerance)):
            if not 0 < number < float("inf"):
                raise RecoverError(f"{name}: {number} is not a number > 0")
        if self.resume and self.checkpoint is None:
            raise RecoverError("resume: there is no checkpoint to go on with; name one")
