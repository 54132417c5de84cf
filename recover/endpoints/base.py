"""The base class of endpoints, which take a prompt and logit biases and show a few logprobs or only a token.

What an endpoint returns is checked, and any of the allowed forms becomes one `EndpointAnswer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf, isfinite
from operator import index
from typing import Any

from ..errors import RecoverError

Bias = Mapping[int, float]
"""Token id -> what is added to its logit."""


ClaimCall = Callable[[], object]
"""Called before each request of an answer but the first; raises where no further call is allowed."""


MOST_TOKENS = 1 << 24
"""No vocabulary is larger: a larger number is an error of the endpoint."""


class QuestionKind(Enum):
    """What a question asks for."""

    NEXT_TOKEN = auto()
    """The next token, which may be drawn at random, and its window of logprobs."""
    LIKELIEST_TOKEN = auto()
    """The likeliest token."""


@dataclass(frozen=True)
class EndpointLimits:
    """What an endpoint allows, as far as this is known before it is asked.

    Args:
        window: number of logprobs that a call shows; 0: only the token.
        max_bias: largest absolute value of a bias.
        most_biases: largest number of biased tokens in one call; None: any.
        precision: relative error of an answered probability.
        lowest: smallest logprob that is shown correctly, nats; smaller ones count as not shown.
    """

    window: int
    max_bias: float = inf
    most_biases: int | None = None
    precision: float = 1e-6
    lowest: float = -80.0


@dataclass(frozen=True, slots=True)
class EndpointAnswer:
    """One answer of an endpoint. Logprobs are in nats.

    Args:
        token: the next token, None if it has no id.
        logprob: its logprob, None if the endpoint does not give it.
        logprobs: the window, {id: logprob}.
        pieces: bytes of tokens, where the endpoint names them.
        calls: number of requests that the answer took.
        unnamed: logprobs of entries of the window whose text is not that of exactly one token (0 where the
            endpoint shows only a token).
    """

    token: int | None = None
    logprob: float | None = None
    logprobs: Mapping[int, float] = field(default_factory=dict)
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    calls: int = 1
    unnamed: tuple[float, ...] = ()


RawAnswer = EndpointAnswer | Mapping[int, float] | int
"""What `Endpoint.query` may return: an answer, a window {id: logprob}, or only a token id."""


class Endpoint(ABC):
    """Something that says which token follows a prompt, under logit biases.

    A subclass sets ``vocab_size``, ``limits`` and ``identity`` and defines `query`. All else has a default.

    Attributes:
        vocab_size: number of tokens. It may be a property that asks a server.
        limits: what a call may ask for.
        identity: what distinguishes this endpoint from others, stored in checkpoints; holds no secrets.
        has_likeliest: True if `likeliest` asks in another way than `query`, which then may draw its token.
        pieces: the bytes of every token by id (None: no text); empty if they are not known.
        collisions: ids of tokens that the endpoint has, but cannot name.
        look_alikes: ids of tokens that it can name only if it gives bytes that are not text.
    """

    vocab_size: int
    limits: EndpointLimits
    identity: Mapping[str, Any]
    has_likeliest: bool = False
    pieces: Sequence[bytes | None] = ()
    collisions: frozenset[int] = frozenset()
    look_alikes: frozenset[int] = frozenset()

    @abstractmethod
    def query(self, prompt: str, logit_bias: Bias) -> RawAnswer:
        """Return the next token after a prompt, with biases added to the logits. Raises ``RecoverError``."""

    def likeliest(self, prompt: str, logit_bias: Bias) -> RawAnswer:
        """Return the likeliest next token. Override it and set ``has_likeliest`` if `query` draws its token."""
        return self.query(prompt, logit_bias)

    def answer(self, prompt: str, logit_bias: Bias, kind: QuestionKind, claim_call: ClaimCall) -> RawAnswer:
        """Answer one question. A recovery calls only this method.

        Override it if an answer may take several requests; then ``EndpointAnswer.calls`` is their number.

        Args:
            prompt: the text before the token.
            logit_bias: what is added to the logits.
            kind: whether the likeliest token is asked for.
            claim_call: to be called before each request but the first.
        """
        if kind is QuestionKind.LIKELIEST_TOKEN:
            return self.likeliest(prompt, logit_bias)
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


def unlimited() -> None:
    """Claim a call where no limit holds."""


def checked_answer(raw: RawAnswer, endpoint: Endpoint) -> EndpointAnswer:
    """Return an endpoint's answer in one form, its window without logprobs below ``limits.lowest``.

    Raises ``RecoverError`` for ids outside of the vocabulary and for numbers that are not logprobs.
    """
    if isinstance(raw, Mapping):
        raw = EndpointAnswer(logprobs=raw)
    elif not isinstance(raw, EndpointAnswer):
        raw = EndpointAnswer(token=_checked_id(raw, endpoint))
    lowest = endpoint.limits.lowest
    shown = {_checked_id(token, endpoint): _checked_logprob(value, token) for token, value in raw.logprobs.items()}
    logprobs = {token: value for token, value in shown.items() if value >= lowest}
    token = None if raw.token is None else _checked_id(raw.token, endpoint)
    logprob = raw.logprob
    if logprob is not None and not (isfinite(logprob) and logprob >= lowest):
        logprob = None
    window = cut_to_window(logprobs, raw.unnamed, endpoint.limits.window)
    return EndpointAnswer(
        token=token,
        logprob=None if logprob is None else float(logprob),
        logprobs=window.logprobs,
        pieces=raw.pieces,
        calls=raw.calls,
        unnamed=window.unnamed,
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


_LARGEST_LOGPROB_NATS = 1e-3
"""Rounding in float32 and in decimals leaves logprobs of likely tokens a little above 0."""


def _checked_logprob(value: float, token: int) -> float:
    """Return the value as a logprob <= 0, which may be -inf. Raises ``RecoverError``."""
    try:
        logprob = float(value)
    except (TypeError, ValueError, OverflowError):
        logprob = inf
    if not logprob <= _LARGEST_LOGPROB_NATS:
        raise RecoverError(f"the endpoint gives token {token} the logprob {value}, which is none")
    return min(logprob, 0.0)


def cut_to_window(logprobs: Mapping[int, float], unnamed: Sequence[float], size: int) -> Window:
    """Return the ``size`` likeliest entries of both (0: all): some APIs show the drawn token beside the window."""
    if not size or len(logprobs) + len(unnamed) <= size:
        return Window(dict(logprobs), tuple(unnamed))
    least = sorted([*logprobs.values(), *unnamed])[-size]
    return Window(
        {token: value for token, value in logprobs.items() if value >= least},
        tuple(value for value in unnamed if value >= least),
    )


@dataclass(frozen=True)
class Window:
    """The shown logprobs in nats: those of tokens by id, and those of texts that are not exactly one token's."""

    logprobs: dict[int, float]
    unnamed: tuple[float, ...]
