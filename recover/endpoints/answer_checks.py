"""Checks of what an endpoint returns: any of the allowed forms becomes one `EndpointAnswer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from operator import index

from ..errors import RecoverError
from .base import Endpoint, EndpointAnswer, RawAnswer

_LARGEST_LOGPROB_NATS = 1e-3
"""Rounding in float32 and in decimals leaves logprobs of likely tokens a little above 0."""


@dataclass(frozen=True)
class Window:
    """The shown logprobs in nats: those of tokens by id, and those of texts that are not exactly one token's."""

    logprobs: dict[int, float]
    unnamed: tuple[float, ...]


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


def cut_to_window(logprobs: Mapping[int, float], unnamed: Sequence[float], size: int) -> Window:
    """Return the ``size`` likeliest entries of both (0: all): some APIs show the drawn token beside the window."""
    if not size or len(logprobs) + len(unnamed) <= size:
        return Window(dict(logprobs), tuple(unnamed))
    least = sorted([*logprobs.values(), *unnamed])[-size]
    return Window(
        {token: value for token, value in logprobs.items() if value >= least},
        tuple(value for value in unnamed if value >= least),
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


def _checked_logprob(value: float, token: int) -> float:
    """Return the value as a logprob <= 0, which may be -inf. Raises ``RecoverError``."""
    try:
        logprob = float(value)
    except (TypeError, ValueError, OverflowError):
        logprob = inf
    if not logprob <= _LARGEST_LOGPROB_NATS:
        raise RecoverError(f"the endpoint gives token {token} the logprob {value}, which is none")
    return min(logprob, 0.0)
