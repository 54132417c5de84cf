"""The request and the settings of a recovery, which are checked before the endpoint is queried."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .basis import Basis
from .endpoints.base import MAX_VOCAB_SIZE
from .errors import RecoverError, require_at_least, require_positive

METHODS = ("auto", "single", "parallel", "top_n", "bisection", "forced", "basis")


@dataclass(frozen=True)
class RecoveryRequest:
    """The requested logprobs, and the method."""

    method: str  # one of `METHODS`
    # number of most likely tokens; None if specific tokens or all tokens are requested
    top_count: int | None = None
    # requested token ids, ascending, each once; None if the most likely or all tokens are requested
    ids: tuple[int, ...] | None = None

    @classmethod
    def checked(
        cls, prompt: str, method: str, top_count: int | None, tokens: Iterable[object] | None
    ) -> RecoveryRequest:
        """Return the request. Raises ``RecoverError`` for a request that no endpoint could fulfill."""
        ids = None if tokens is None else tuple(sorted({_token_id(token) for token in tokens}))
        if method not in METHODS:
            raise RecoverError(f"method: {method!r} is not one of {', '.join(METHODS)}")
        if not prompt:
            raise RecoverError("the prompt is empty; give the text before the token")
        if top_count is not None and ids is not None:
            raise RecoverError("top_count and tokens cannot be combined; give one of them")
        if method == "top_n" and top_count is None:
            raise RecoverError("top_n needs top_count, the number of most likely tokens")
        if ids is not None and not ids:
            raise RecoverError("tokens: the list is empty; give at least one token id")
        return cls(method, top_count, ids)

    def check_size(self, vocab_size: int) -> None:
        """Raise ``RecoverError`` for tokens that a vocabulary of this size does not have."""
        if not 1 <= vocab_size <= MAX_VOCAB_SIZE:
            raise RecoverError(
                f"the endpoint reports {vocab_size} tokens in its vocabulary, which is not within "
                f"1..{MAX_VOCAB_SIZE}"
            )
        if self.top_count is not None and not 1 <= self.top_count <= vocab_size:
            raise RecoverError(f"top_count: {self.top_count} is not within 1..{vocab_size}")
        for token in self.ids or ():
            if not 0 <= token < vocab_size:
                raise RecoverError(f"token id {token} is not within 0..{vocab_size - 1}")

    def tokens(self, vocab_size: int) -> NDArray[np.intp]:
        """Return the ids that may be part of the result, ascending, int (n,): the requested ids, or all."""
        return np.arange(vocab_size) if self.ids is None else np.asarray(self.ids, dtype=np.intp)


def _token_id(token: object) -> int:
    try:
        return index(token)  # type: ignore[arg-type] # other types raise TypeError
    except TypeError:
        raise RecoverError(f"tokens: {token!r} is not a token id") from None


@dataclass(frozen=True)
class RecoverySettings:
    """The settings of a recovery.

    Args:
        basis: the basis for the method ``basis``, which ``auto`` uses too; None: no basis.
        bisection_error_nats: the error at which bisection stops, nats.
        max_held_out_error_nats: the largest error on held-out tokens, in nats, up to which a basis is
            accepted.
        calls_per_query: number of times that each query is sent, to average the responses; None: once, or 4
            times if the responses to one query differ.
        max_calls: maximum number of new calls; None: no limit.
        max_concurrent_calls: maximum number of calls that run at the same time.
        checkpoint: the file that saves each response; None: no file.
        resume: whether to continue with an existing checkpoint; without it an existing checkpoint is an
            error.
        progress: called with the number of recovered tokens and the number of requested tokens; None: not
            called.
        is_interrupted: called repeatedly; the run ends early once it returns True. None: not called.
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
        require_at_least(
            1,
            calls_per_query=self.calls_per_query,
            max_calls=self.max_calls,
            max_concurrent_calls=self.max_concurrent_calls,
        )
        require_positive(
            bisection_error_nats=self.bisection_error_nats, max_held_out_error_nats=self.max_held_out_error_nats
        )
        if self.resume and self.checkpoint is None:
            raise RecoverError("resume: there is no checkpoint to continue; set checkpoint to a file")

    def required_basis(self) -> Basis:
        """Return the basis. Raises ``RecoverError`` if there is none."""
        if self.basis is None:
            raise RecoverError("the method basis needs a basis; create one with gen recover-basis")
        return self.basis
