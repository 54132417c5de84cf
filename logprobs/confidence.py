"""The confidence of an answer: how probable the model finds the tokens that were drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .records import finite_or_none


@dataclass(frozen=True, slots=True)
class Confidence:
    """The logprobs that the model gives the drawn tokens of an answer, summed up. They are in nats.

    Attributes:
        token_count: number of drawn tokens, at least 1.
        logprob: sum of their logprobs.
        min_logprob: lowest of their logprobs.
    """

    token_count: int
    logprob: float
    min_logprob: float

    @classmethod
    def of(cls, logprobs: Sequence[float]) -> Confidence | None:
        """Return the confidence for the logprobs of drawn tokens; None if no token was drawn."""
        return cls(len(logprobs), math.fsum(logprobs), min(logprobs)) if logprobs else None

    @property
    def mean_logprob(self) -> float:
        """The mean logprob of a token."""
        return self.logprob / self.token_count

    @property
    def perplexity(self) -> float:
        """exp(-mean logprob); infinite beyond float64."""
        try:
            return math.exp(-self.mean_logprob)
        except OverflowError:
            return math.inf

    def as_json(self) -> dict[str, float | None]:
        """Return the JSON fields ``mean_logprob, min_logprob, perplexity``, null where a number is infinite."""
        values = {
            "mean_logprob": self.mean_logprob,
            "min_logprob": self.min_logprob,
            "perplexity": self.perplexity,
        }
        return {name: finite_or_none(value) for name, value in values.items()}


def join_confidences(confidences: Iterable[Confidence | None]) -> Confidence | None:
    """Return the confidence of all drawn tokens of several answers; None if no token was drawn."""
    known = [confidence for confidence in confidences if confidence is not None]
    if not known:
        return None
    return Confidence(
        sum(each.token_count for each in known),
        math.fsum(each.logprob for each in known),
        min(each.min_logprob for each in known),
    )


@dataclass(frozen=True, slots=True)
class FieldConfidence:
    """The logprob that the model gives a value of a JSON answer.

    Attributes:
        logprob: sum of the logprobs of the drawn tokens that have a byte of the value's JSON text, in nats.
        token_count: number of tokens that have one, drawn or forced.
        forced_count: number of these tokens that were forced.
    """

    logprob: float
    token_count: int
    forced_count: int

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``logprob, probability, tokens, forced``."""
        return {
            "logprob": finite_or_none(self.logprob),
            "probability": math.exp(self.logprob),
            "tokens": self.token_count,
            "forced": self.forced_count,
        }
