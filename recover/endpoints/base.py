"""The base class of endpoints. An endpoint receives a prompt and logit biases, and shows a few logprobs or only a
token.

Each return value of an endpoint is checked and converted to an `EndpointResponse`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from math import inf, isfinite
from operator import index
from typing import Any

from ..errors import RecoverError

Bias = Mapping[int, float]
"""Token id -> number, in nats, that is added to the token's logit."""


ClaimCall = Callable[[], object]
"""A function that is called before each request of a response except the first. It raises an exception if no more
calls are allowed."""


MAX_VOCAB_SIZE = 1 << 24  # No vocabulary is larger, so that a larger number is an error of the endpoint


class QueryKind(Enum):
    """The kind of token that a query wants."""

    NEXT_TOKEN = auto()
    """The next token, which may be drawn at random, and the shown logprobs."""
    TOP_TOKEN = auto()
    """The most likely token."""


@dataclass(frozen=True)
class EndpointLimits:
    """The limits of an endpoint, as far as they are known before the first query.

    Args:
        window: number of logprobs that a call shows; 0: only the token.
        max_bias_nats: largest absolute value of a bias, nats.
        max_biases_per_call: maximum number of biased tokens in one call; None: no limit.
        relative_error: relative error of a shown probability.
        min_reliable_logprob: smallest logprob that is shown correctly, nats; smaller ones are ignored.
    """

    window: int
    max_bias_nats: float = inf
    max_biases_per_call: int | None = None
    relative_error: float = 1e-6
    min_reliable_logprob: float = -80.0


@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """One response of an endpoint. Logprobs are in nats.

    Args:
        token: id of the next token; None if its text is not the text of exactly one token.
        logprob: logprob of the next token; None if the endpoint does not show it.
        logprobs: the shown logprobs, {id: logprob}.
        token_bytes: token id -> bytes of the token, where the endpoint shows them.
        calls: number of requests that the response took.
        unmatched_logprobs: shown logprobs of texts that are not the text of exactly one token; 0 for such a
            token without a logprob.
    """

    token: int | None = None
    logprob: float | None = None
    logprobs: Mapping[int, float] = field(default_factory=dict)
    token_bytes: Mapping[int, bytes] = field(default_factory=dict)
    calls: int = 1
    unmatched_logprobs: tuple[float, ...] = ()


# a value that `Endpoint.query` may return: a response, the shown logprobs {id: logprob}, or only a token id
RawResponse = EndpointResponse | Mapping[int, float] | int


class Endpoint(ABC):
    """A source of next tokens under logit biases, such as an API.

    A subclass sets ``vocab_size``, ``limits`` and ``identity`` and defines `query`. Everything else has a
    default.

    Attributes:
        vocab_size: number of tokens. It may be a property that asks a server.
        limits: the limits of a call.
        identity: JSON values that distinguish this endpoint from others, saved in checkpoints; must contain
            no secrets.
        has_top_token_query: whether `query_top_token` differs from `query`, which may then draw its token.
        token_bytes: the bytes of every token by id, None for a token without text; empty if the bytes are
            unknown.
        unnameable_ids: ids of tokens that the endpoint has, but cannot name.
        ids_that_need_bytes: ids of tokens that the endpoint can name only by bytes, because these are not
            UTF-8 text.
    """

    vocab_size: int
    limits: EndpointLimits
    identity: Mapping[str, Any]
    has_top_token_query: bool = False
    token_bytes: Sequence[bytes | None] = ()
    unnameable_ids: frozenset[int] = frozenset()
    ids_that_need_bytes: frozenset[int] = frozenset()

    @abstractmethod
    def query(self, prompt: str, logit_bias: Bias) -> RawResponse:
        """Return the next token after a prompt, with the biases added to the logits.

        Raises ``RecoverError``.
        """

    def query_top_token(self, prompt: str, logit_bias: Bias) -> RawResponse:
        """Return the most likely next token.

        Override this, and set ``has_top_token_query``, if `query` draws its token.
        """
        return self.query(prompt, logit_bias)

    def answer(self, prompt: str, logit_bias: Bias, kind: QueryKind, claim_call: ClaimCall) -> RawResponse:
        """Return the response to one query. A recovery calls only this method.

        Override it if a response may take several requests; ``EndpointResponse.calls`` must be their
        number.

        Args:
            prompt: the text before the token.
            logit_bias: token id -> number that is added to the logit, nats.
            kind: whether the next token or the most likely token is wanted.
            claim_call: must be called before each request except the first.
        """
        if kind is QueryKind.TOP_TOKEN:
            return self.query_top_token(prompt, logit_bias)
        return self.query(prompt, logit_bias)

    def count_tokens(self, prompt: str) -> int | None:
        """Return the number of tokens of a prompt; None if the endpoint does not know it."""
        return None

    def allow_retries(self) -> None:  # noqa: B027 - most endpoints have no retries
        """Allow retries of failed requests. Called when a run starts."""

    def stop_retries(self) -> None:  # noqa: B027 - most endpoints have no retries
        """Make failed requests raise immediately. Called when a run ends early."""

    def close(self) -> None:  # noqa: B027 - most endpoints hold nothing open
        """Release connections and models."""


def claim_without_limit() -> None:
    """Accept a call without counting it."""


def checked_response(raw_response: RawResponse, endpoint: Endpoint) -> EndpointResponse:
    """Return the response of an endpoint, checked, as an `EndpointResponse`."""
    # Logprobs below ``min_reliable_logprob`` are removed. Raises ``RecoverError`` for ids outside of the
    # vocabulary and for numbers that are not logprobs.
    if isinstance(raw_response, Mapping):
        raw_response = EndpointResponse(logprobs=raw_response)
    elif not isinstance(raw_response, EndpointResponse):
        raw_response = EndpointResponse(token=_checked_id(raw_response, endpoint))
    min_reliable_logprob = endpoint.limits.min_reliable_logprob
    logprobs = {
        _checked_id(token, endpoint): shown_logprob
        for token, value in raw_response.logprobs.items()
        if (shown_logprob := _checked_logprob(value, token)) >= min_reliable_logprob
    }
    token = None if raw_response.token is None else _checked_id(raw_response.token, endpoint)
    logprob = raw_response.logprob
    if logprob is not None and not (isfinite(logprob) and logprob >= min_reliable_logprob):
        logprob = None
    response = replace(
        raw_response, token=token, logprob=None if logprob is None else float(logprob), logprobs=logprobs
    )
    return keep_top_logprobs(response, endpoint.limits.window)


def _checked_id(token: object, endpoint: Endpoint) -> int:
    """Return a token's id as an int. Raises ``RecoverError`` if the vocabulary does not have it."""
    vocab_size = endpoint.vocab_size
    try:
        token_id = index(token)  # type: ignore[arg-type] # other types raise TypeError
    except TypeError:
        raise RecoverError(f"the endpoint returned {token!r}, which is not a token id") from None
    if not 0 <= token_id < vocab_size:
        raise RecoverError(f"the endpoint returned token {token_id}, which is not within 0..{vocab_size - 1}")
    return token_id


# Rounding in float32 and in decimals can make the logprob of a likely token slightly positive
_MAX_ROUNDED_LOGPROB_NATS = 1e-3


def _checked_logprob(value: float, token: int) -> float:
    """Return the value as a logprob <= 0, which may be -inf. Raises ``RecoverError``."""
    try:
        logprob = float(value)
    except (TypeError, ValueError, OverflowError):
        logprob = inf
    if not logprob <= _MAX_ROUNDED_LOGPROB_NATS:
        raise RecoverError(f"the endpoint returned {value} for token {token}, which is not a logprob")
    return min(logprob, 0.0)


def keep_top_logprobs(response: EndpointResponse, max_count: int) -> EndpointResponse:
    """Return the response with the most likely logprobs (0: all), as some APIs also show a drawn token."""
    logprobs, unmatched_logprobs = response.logprobs, response.unmatched_logprobs
    if not max_count or len(logprobs) + len(unmatched_logprobs) <= max_count:
        return response
    min_kept_logprob = sorted([*logprobs.values(), *unmatched_logprobs])[-max_count]
    return replace(
        response,
        logprobs={token: value for token, value in logprobs.items() if value >= min_kept_logprob},
        unmatched_logprobs=tuple(value for value in unmatched_logprobs if value >= min_kept_logprob),
    )
