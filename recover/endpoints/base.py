"""What an endpoint is: it takes a prompt and logit biases, and shows a few logprobs, or only a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from operator import index
from typing import Any, Protocol, SupportsIndex, runtime_checkable

from ..errors import RecoverError

Bias = Mapping[int, float]
"""Token id -> what is added to its logit."""


@dataclass(frozen=True)
class EndpointLimits:
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
class EndpointAnswer:
    """One answer: the token that was drawn, its logprob, and the window {id: logprob} in nats.

    ``pieces``: bytes of tokens, where the endpoint names them; ``calls``: requests that the answer took;
    ``unnamed``: logprobs of what was shown under a name that is no one token's (0 where only the token is told).
    """

    token: int | None = None
    logprob: float | None = None
    logprobs: Mapping[int, float] = field(default_factory=dict)
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    calls: int = 1
    unnamed: tuple[float, ...] = ()


@runtime_checkable
class Endpoint(Protocol):
    """Anything that can be asked. Answers may also be a plain {id: logprob}, or the id of the token alone.

    Where `query` draws its token, ``likeliest(prompt, logit_bias)``, which returns an `Answer` with the likeliest
    one, lets `bisection` work; it is left out where there is no difference.
    """

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""

    @property
    def limits(self) -> EndpointLimits:
        """What may be asked."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What tells this endpoint from others, for a checkpoint; holds no secrets."""

    def query(self, prompt: str, logit_bias: Bias) -> EndpointAnswer | Mapping[int, float] | int:
        """The next token after ``prompt`` with these biases added to the logits. Raises ``RecoverError``."""


Query = Callable[[str, Bias], "EndpointAnswer | Mapping[int, float] | int"]


def greedy(endpoint: Endpoint) -> Query | None:
    """How to ask for the likeliest token, where that is not what `query` tells."""
    found: Query | None = getattr(endpoint, "likeliest", None)
    return found


def unnamed(endpoint: Endpoint) -> frozenset[int]:
    """Ids of tokens that the endpoint has, but cannot name (`OpenAIEndpoint.collisions`)."""
    return frozenset(getattr(endpoint, "collisions", ()))


def look_alikes(endpoint: Endpoint) -> frozenset[int]:
    """Ids of tokens that it names only if it tells bytes that are no text (`OpenAIEndpoint.look_alikes`)."""
    return frozenset(getattr(endpoint, "look_alikes", ()))


def pieces_of(endpoint: Endpoint) -> Sequence[bytes | None]:
    """The bytes of every token by id, where the endpoint knows its vocabulary; else nothing."""
    return getattr(endpoint, "pieces", None) or ()


def checked(said: EndpointAnswer | Mapping[int, float] | SupportsIndex, endpoint: Endpoint) -> EndpointAnswer:
    """An endpoint's answer in one form: its window, without what is below ``limits.lowest``.

    Raises ``RecoverError`` for ids outside of the vocabulary and for numbers that are no logprobs.
    """
    if isinstance(said, Mapping):
        said = EndpointAnswer(logprobs=said)
    elif not isinstance(said, EndpointAnswer):
        said = EndpointAnswer(token=_id(said, endpoint))
    lowest = endpoint.limits.lowest
    shown = {_id(token, endpoint): _logprob(value, token) for token, value in said.logprobs.items()}
    kept = {token: value for token, value in shown.items() if value >= lowest}
    token = None if said.token is None else _id(said.token, endpoint)
    own = said.logprob
    if own is not None and not (isfinite(own) and own >= lowest):
        own = None
    kept, nameless = window_of(kept, said.unnamed, endpoint.limits.window)
    return EndpointAnswer(token, None if own is None else float(own), kept, said.pieces, said.calls, nameless)


def window_of(
    named: Mapping[int, float], nameless: Sequence[float], window: int
) -> tuple[dict[int, float], tuple[float, ...]]:
    """The ``window`` likeliest of both: some APIs show beside them the token that was drawn (0: all)."""
    if not window or len(named) + len(nameless) <= window:
        return dict(named), tuple(nameless)
    least = sorted([*named.values(), *nameless])[-window]
    return {token: value for token, value in named.items() if value >= least}, tuple(
        value for value in nameless if value >= least
    )


def _id(token: object, endpoint: Endpoint) -> int:
    """A token's id as an int, if the vocabulary has it."""
    size = endpoint.vocab_size
    try:
        found = index(token)  # type: ignore[arg-type] # what has no index is told of
    except TypeError:
        raise RecoverError(f"the endpoint answers {token!r}, which is no token id") from None
    if not 0 <= found < size:
        raise RecoverError(f"the endpoint names token {found}, which is not within 0..{size - 1}")
    return found


def _logprob(value: float, token: int) -> float:
    """The value, if it is a logprob or -inf; rounding may leave it a little above 0."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = inf
    if not found <= 1e-3:
        raise RecoverError(f"the endpoint gives token {token} the logprob {value}, which is none")
    return min(found, 0.0)
