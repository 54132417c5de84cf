"""The request of a recovery, checked before the endpoint is asked anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.renamed import supports_old_names
from .basis import Basis
from .endpoints.base import MAX_VOCAB_SIZE
from .errors import RecoverError

METHODS = ("auto", "single", "parallel", "top_n", "bisection", "forced", "basis")
NO_BASIS = "the method basis needs a basis; make one with gen recover-basis"


@dataclass(frozen=True)
class RecoveryRequest:
    """Which logprobs are asked for, and by which method.

    Args:
        method: one of `METHODS`.
        top_count: number of likeliest tokens; None: not so asked.
        ids: named tokens; None: not so asked.
    """

    method: str
    top_count: int | None = None
    ids: tuple[int, ...] | None = None

    @classmethod
    def checked(
        cls, prompt: str, method: str, top_count: int | None, tokens: Iterable[object] | None
    ) -> RecoveryRequest:
        """Return the request. Raises ``RecoverError`` for what no endpoint could answer.

        Args:
            prompt: the text before the token.
            method: one of `METHODS`.
            top_count: number of likeliest tokens.
            tokens: named tokens.
        """
        ids = None if tokens is None else tuple(_token_id(token) for token in tokens)
        if method not in METHODS:
            raise RecoverError(f"method: {method!r} is none of {', '.join(METHODS)}")
        if not prompt:
            raise RecoverError("the prompt is empty: there is nothing that a token could follow")
        if top_count is not None and ids is not None:
            raise RecoverError("top_count and tokens: ask for the most likely or for named tokens, not both")
        if method == "top_n" and top_count is None:
            raise RecoverError("top_n needs top_count, the number of most likely tokens")
        if ids is not None and not ids:
            raise RecoverError("tokens: there are none")
        return cls(method, top_count, ids)

    def check_size(self, vocab_size: int) -> None:
        """Raise ``RecoverError`` for tokens that a vocabulary of this size does not have."""
        if not 1 <= vocab_size <= MAX_VOCAB_SIZE:
            raise RecoverError(
                f"the endpoint says that it has {vocab_size} tokens, which is not within 1..{MAX_VOCAB_SIZE}"
            )
        if self.top_count is not None and not 1 <= self.top_count <= vocab_size:
            raise RecoverError(f"top_count: {self.top_count} is not within 1..{vocab_size}")
        for token in self.ids or ():
            if not 0 <= token < vocab_size:
                raise RecoverError(f"token id {token} is not within 0..{vocab_size - 1}")

    def tokens(self, vocab_size: int) -> NDArray[np.intp]:
        """Return the ids that may be part of the result, sorted, int (n,): all if none are named."""
        if self.ids is None:
            return np.arange(vocab_size)
        return np.unique(np.asarray(self.ids, dtype=np.intp))

    @property
    def requested_id_count(self) -> int | None:
        """Number of named tokens; None if none are named."""
        return None if self.ids is None else len(set(self.ids))


def _token_id(token: object) -> int:
    try:
        return index(token)  # type: ignore[arg-type] # what has no index is refused
    except TypeError:
        raise RecoverError(f"tokens: {token!r} is no token id") from None


@supports_old_names
@dataclass(frozen=True)
class RecoverySettings:
    """How a recovery is run.

    Args:
        basis: for the method of that name.
        bisection_error_nats: the error at which bisection stops, nats.
        max_held_out_error_nats: the largest error on held-out tokens with which a basis is used, nats.
        calls_per_query: how often each question is asked, to average; None: once, or 4 times if the answers
            differ.
        max_calls: stop after so many new calls; None: no limit.
        max_concurrent_calls: calls at once.
        checkpoint: a file that stores each answer.
        resume: continue with the checkpoint.
        progress: called with the number of recovered and of requested tokens.
        is_interrupted: asked again and again; True ends the run.
    """

    basis: Basis | None = None
    bisection_error_nats: float = 1e-3
    max_held_out_error_nats: float = 0.01
    calls_per_query: int | None = None
    max_calls: int | None = None
    max_concurrent_calls: int = 1
    checkpoint: Path | None = None
    resume: bool = False
    progress: Callable[[int, int], None] | None = None
    is_interrupted: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raise ``RecoverError`` for a value out of range."""
        for name, count in (
            ("calls_per_query", self.calls_per_query),
            ("max_calls", self.max_calls),
            ("max_concurrent_calls", self.max_concurrent_calls),
        ):
            if count is not None and count < 1:
                raise RecoverError(f"{name}: {count} is not ≥ 1")
        for name, number in (
            ("bisection_error_nats", self.bisection_error_nats),
            ("max_held_out_error_nats", self.max_held_out_error_nats),
        ):
            if not 0 < number < float("inf"):
                raise RecoverError(f"{name}: {number} is not a number > 0")
        if self.resume and self.checkpoint is None:
            raise RecoverError("resume: there is no checkpoint to go on with; name one")
