"""The base class of endpoints, which take a prompt and logit biases and show a few logprobs or only a token.

What an endpoint returns is checked, and any of the allowed forms becomes one `EndpointResponse`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf, isfinite
from operator import index
from typing import Any

from ...common.renamed import supports_old_names
from ..errors import RecoverError

Bias = Mapping[int, float]
"""Token id -> what is added to its logit."""


ClaimCall = Callable[[], object]
"""Called before each request of an answer but the first; raises where no further call is allowed."""


MAX_VOCAB_SIZE = 1 << 24
"""No vocabulary is larger: a larger number is an error of the endpoint."""


@supports_old_names
class QueryKind(Enum):
    """What a question asks for."""

    NEXT_TOKEN = auto()
    """The next token, which may be drawn at random, and its window of logprobs."""
    TOP_TOKEN = auto()
    """The likeliest token."""


@supports_old_names
@dataclass(frozen=True)
class EndpointLimits:
    """What an endpoint allows, as far as this is known before it is asked.

    Args:
        window: number of logprobs that a call shows; 0: only the token.
        max_bias: largest absolute value of a bias.
        max_biases_per_call: largest number of biased tokens in one call; None: any.
        relative_error: relative error of an answered probability.
        min_reliable_logprob: smallest logprob that is shown correctly, nats; smaller ones count as not shown.
    """

    window: int
    max_bias: float = inf
    max_biases_per_call: int | None = None
    relative_error: float = 1e-6
    min_reliable_logprob: float = -80.0


@supports_old_names
@dataclass(frozen=True, slots=True)
class EndpointResponse:
    """One answer of an endpoint. Logprobs are in nats.

    Args:
        token: the next token, None if it has no id.
        logprob: its logprob, None if the endpoint does not give it.
        logprobs: the window, {id: logprob}.
        token_bytes: bytes of tokens, where the endpoint names them.
        calls: number of requests that the answer took.
        unmatched_logprobs: logprobs of entries of the window whose text is not that of exactly one token (0
            where the
            endpoint shows only a token).
    """

    token: int | None = None
    logprob: float | None = None
    logprobs: Mapping[int, float] = field(default_factory=dict)
    token_bytes: Mapping[int, bytes] = field(default_factory=dict)
    calls: int = 1
    unmatched_logprobs: tuple[float, ...] = ()


RawResponse = EndpointResponse | Mapping[int, float] | int
"""What `Endpoint.query` may return: an answer, a window {id: logprob}, or only a token id."""


@supports_old_names
class Endpoint(ABC):
    """Something that says which token follows a prompt, under logit biases.

    A subclass sets ``vocab_size``, ``limits`` and ``identity`` and defines `query`. All else has a default.

    Attributes:
        vocab_size: number of tokens. It may be a property that asks a server.
        limits: what a call may ask for.
        identity: what distinguishes this endpoint from others, stored in checkpoints; holds no secrets.
        has_top_token_query: True if `query_top_token` asks in another way than `query`, which then may draw its
            token.
        token_bytes: the bytes of every token by id (None: no text); empty if they are not known.
        unnameable_ids: ids of tokens that the endpoint has, but cannot name.
        ids_that_need_bytes: ids of tokens that it can name only if it gives bytes that are not text.
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
        """Return the next token after a prompt, with biases added to the logits. Raises ``RecoverError``."""

    def query_top_token(self, prompt: str, logit_bias: Bias) -> RawResponse:
        """Return the likeliest next token. Override it and set ``has_top_token_query`` if `query` draws its
        token.
        """
        return self.query(prompt, logit_bias)

    def answer(self, prompt: str, logit_bias: Bias, kind: QueryKind, claim_call: ClaimCall) -> RawResponse:
        """Answer one question. A recovery calls only this method.

        Override it if an answer may take several requests; then ``EndpointAnswer.calls`` is their number.

        Args:
            prompt: the text before the token.
            logit_bias: what is added to the logits.
            kind: whether the likeliest token is asked for.
            claim_call: to be called before each request but the first.
        """
        if kind is QueryKind.TOP_TOKEN:
            return self.query_top_token(prompt, logit_bias)
        return self.query(prompt, logit_bias)

    def count_tokens(self, prompt: str) -> int | None:
        """Return the number of tokens of a prompt; None if the endpoint cannot tell."""
        return None

    def allow_retries(self) -> None:  # noqa: B027 - most endpoints have no retries
        """Called when a run begins: failed requests may be tried again."""

    def stop_retries(self) -> None:  # noqa: B027 - most endpoints have no retries
        """Called when a run ends early: fail at once instead of trying again."""

    def close(self) -> None:  # noqa: B027 - most endpoints hold nothing open
        """Release connections and models."""


def claim_without_limit() -> None:
    """Claim a call where no limit holds."""


def checked_response(raw_response: RawResponse, endpoint: Endpoint) -> EndpointResponse:
    """Return an endpoint's answer in one form, its window without logprobs below ``limits.lowest``.

    Raises ``RecoverError`` for ids outside of the vocabulary and for numbers that are not logprobs.
    """
    if isinstance(raw_response, Mapping):
        raw_response = EndpointResponse(logprobs=raw_response)
    elif not isinstance(raw_response, EndpointResponse):
        raw_response = EndpointResponse(token=_checked_id(raw_response, endpoint))
    min_reliable_logprob = endpoint.limits.min_reliable_logprob
    all_logprobs = {
        _checked_id(token, endpoint): _checked_logprob(value, token)
        for token, value in raw_response.logprobs.items()
    }
    logprobs = {token: value for token, value in all_logprobs.items() if value >= min_reliable_logprob}
    token = None if raw_response.token is None else _checked_id(raw_response.token, endpoint)
    logprob = raw_response.logprob
    if logprob is not None and not (isfinite(logprob) and logprob >= min_reliable_logprob):
        logprob = None
    window = keep_top_entries(logprobs, raw_response.unmatched_logprobs, endpoint.limits.window)
    return EndpointResponse(
        token=token,
        logprob=None if logprob is None else float(logprob),
        logprobs=window.logprobs,
        token_bytes=raw_response.token_bytes,
        calls=raw_response.calls,
        unmatched_logprobs=window.unmatched_logprobs,
    )


def _checked_id(token: object, endpoint: Endpoint) -> int:
    """Return a token's id as an int. Raises ``RecoverError`` if the vocabulary does not have it."""
    size = endpoint.vocab_size
    try:
        token_id = index(token)  # type: ignore[arg-type] # what has no index is refused
    except TypeError:
        raise RecoverError(f"the endpoint answers {token!r}, which is no token id") from None
    if not 0 <= token_id < size:
        raise RecoverError(f"the endpoint names token {token_id}, which is not within 0..{size - 1}")
    return token_id


_MAX_ROUNDED_LOGPROB_NATS = 1e-3
"""Rounding in float32 and in decimals leaves logprobs of likely tokens a little above 0."""


def _checked_logprob(value: float, token: int) -> float:
    """Return the value as a logprob <= 0, which may be -inf. Raises ``RecoverError``."""
    try:
        logprob = float(value)
    except (TypeError, ValueError, OverflowError):
        logprob = inf
    if not logprob <= _MAX_ROUNDED_LOGPROB_NATS:
        raise RecoverError(f"the endpoint gives token {token} the logprob {value}, which is none")
    return min(logprob, 0.0)


def keep_top_entries(
    logprobs: Mapping[int, float], unmatched_logprobs: Sequence[float], size: int
) -> ShownLogprobs:
    """Return the ``size`` likeliest entries of both (0: all): some APIs show the drawn token beside the window."""
    if not size or len(logprobs) + len(unmatched_logprobs) <= size:
        return ShownLogprobs(dict(logprobs), tuple(unmatched_logprobs))
    min_kept_logprob = sorted([*logprobs.values(), *unmatched_logprobs])[-size]
    return ShownLogprobs(
        {token: value for token, value in logprobs.items() if value >= min_kept_logprob},
        tuple(value for value in unmatched_logprobs if value >= min_kept_logprob),
    )


@dataclass(frozen=True)
class ShownLogprobs:
    """The shown logprobs in nats: those of tokens by id, and those of texts that are not exactly one token's."""

    logprobs: dict[int, float]
    unmatched_logprobs: tuple[float, ...]
