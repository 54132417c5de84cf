"""What an endpoint is: it takes a prompt and logit biases, and shows a few logprobs, or only a token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Protocol, runtime_checkable

from .errors import RecoverError

Bias = Mapping[int, float]
"""Token id -> what is added to its logit."""


@dataclass(frozen=True)
class Limits:
    """What an endpoint lets be asked, as far as it is known before it is asked.

    ``window``: logprobs shown a call; 0: only the token. ``max_bias``: largest size of a bias. ``most_biases``:
    tokens biased in one call. ``precision``: relative error of an answered probability. ``lowest``: logprobs below
    it (nats) are not told truly, and are read as not shown. ``spend``: does a call cost tokens?
    """

    window: int
    max_bias: float = inf
    most_biases: int | None = None
    precision: float = 1e-6
    lowest: float = -80.0
    spend: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: the token that was drawn, its logprob, and the window {id: logprob} in nats.

    ``pieces``: bytes of tokens, where the endpoint names them; ``calls``: requests that the answer took.
    """

    token: int | None = None
    logprob: float | None = None
    logprobs: Mapping[int, float] = field(default_factory=dict)
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    calls: int = 1


@runtime_checkable
class Endpoint(Protocol):
    """Anything that can be asked. Answers may also be a plain {id: logprob}, or the id of the token alone."""

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""

    @property
    def limits(self) -> Limits:
        """What may be asked."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells this endpoint from others, for a checkpoint; holds no secrets."""

    def query(self, prompt: str, logit_bias: Bias) -> Answer | Mapping[int, float] | int:
        """The next token after ``prompt`` with these biases added to the logits. Raises ``RecoverError``."""


def unnamed(endpoint: Endpoint) -> frozenset[int]:
    """Ids of tokens that the endpoint has, but cannot name (`OpenAIEndpoint.collisions`)."""
    return frozenset(getattr(endpoint, "collisions", ()))


def pieces_of(endpoint: Endpoint) -> Sequence[bytes | None]:
    """The bytes of every token by id, where the endpoint knows its vocabulary; else nothing."""
    return getattr(endpoint, "pieces", None) or ()


def checked(said: Answer | Mapping[int, float] | int, endpoint: Endpoint) -> Answer:
    """An endpoint's answer in one form, without what is below ``limits.lowest``.

    Raises ``RecoverError`` for ids outside of the vocabulary and for numbers that are no logprobs.
    """
    if isinstance(said, int):
        said = Answer(token=said)
    elif not isinstance(said, Answer):
        said = Answer(logprobs=said)
    size, lowest = endpoint.vocab_size, endpoint.limits.lowest
    named = [*said.logprobs, *(() if said.token is None else (said.token,))]
    for token in named:
        if not 0 <= token < size:
            raise RecoverError(f"the endpoint names token {token}, which is not within 0..{size - 1}")
    kept = {token: _logprob(value, token) for token, value in said.logprobs.items() if not value < lowest}
    own = said.logprob
    if own is not None and not (isfinite(own) and own >= lowest):
        own = None
    return Answer(said.token, own, kept, said.pieces, said.calls)


def _logprob(value: float, token: int) -> float:
    """The value, if it is a logprob; rounding may leave it a little above 0."""
    if not (isfinite(value) and value <= 1e-3):
        raise RecoverError(f"the endpoint gives token {token} the logprob {value}, which is none")
    return min(float(value), 0.0)
