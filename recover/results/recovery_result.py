"""What a recovery returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..numerics import Float64s


@dataclass(frozen=True)
class Recovery:
    """Recovered logprobs.

    Args:
        logprobs: float64 (V,), nats, NaN where a token was not asked for or not found.
        errors: the estimated error of each, float64 (V,), nats.
        error: the largest of them.
        queries: calls behind the result, those of a checkpoint included.
        sent: calls of this run.
        method: the method that was used.
        complete: every token that was asked for has a logprob, and nothing contradicts the result.
        normalised: False if values are relative to the likeliest token (bisection of a part of the vocabulary).
        notes: findings about the endpoint and the result.
        pieces: bytes of tokens, as far as known.
        stopped: why the run ended early, if it did: ``max_calls`` or ``interrupted``.
    """

    logprobs: Float64s
    errors: Float64s
    error: float
    queries: int
    sent: int
    method: str
    complete: bool
    normalised: bool = True
    notes: tuple[str, ...] = ()
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    stopped: str | None = None
