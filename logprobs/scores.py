"""Scores: sums and means of the logprobs of a text, and their JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, isfinite, log
from typing import Any

from .records import TokenRecord, display_text, finite_or_none


@dataclass(frozen=True)
class Score:
    """The score of a text: the sum of its tokens' logprobs.

    Tokens without a logprob are not scored. The first token of a text is one of them.

    Attributes:
        sum_logprob: sum of the logprobs of the scored tokens, nats.
        tokens: number of scored tokens.
        bytes: number of bytes of the scored tokens, without bytes that the tokenizer added.
    """

    sum_logprob: float
    tokens: int
    bytes: int

    @classmethod
    def of(cls, tokens: Iterable[TokenRecord]) -> Score:
        """Return the score of these tokens. A token of probability 0 makes the sum -inf."""
        scored_tokens = [token for token in tokens if token.distributions]
        values = [finite_or_none(token.distributions[0].logprob) for token in scored_tokens]
        total = _exact_sum(-inf if value is None else value for value in values)
        return cls(total, len(scored_tokens), sum(len(token.own_data) for token in scored_tokens))

    @property
    def per_token(self) -> float | None:
        """Mean logprob of a scored token, nats; None if no token was scored."""
        return self.sum_logprob / self.tokens if self.tokens else None

    @property
    def per_byte(self) -> float | None:
        """Mean logprob of a scored byte, nats; None if no byte was scored."""
        return self.sum_logprob / self.bytes if self.bytes else None

    @property
    def perplexity(self) -> float | None:
        """The perplexity exp(-sum / tokens); None if no token was scored."""
        mean = self.per_token
        return None if mean is None else MeanSurprise(-mean).perplexity

    @property
    def bits_per_byte(self) -> float | None:
        """The mean bits of a scored byte, -sum / (bytes · ln 2); None if no byte was scored."""
        mean = self.per_byte
        return None if mean is None else 0.0 - mean / log(2)

    def as_json(self) -> dict[str, Any]:
        """Return the properties as JSON fields, null if no token was scored, and the two counts."""
        return {
            "sum_logprob": finite_or_none(self.sum_logprob) if self.tokens else None,
            "per_token": finite_or_none(self.per_token),
            "per_byte": finite_or_none(self.per_byte),
            "perplexity": finite_or_none(self.perplexity),
            "bits_per_byte": finite_or_none(self.bits_per_byte),
            "scored_tokens": self.tokens,
            "scored_bytes": self.bytes,
        }


@dataclass(frozen=True)
class MeanSurprise:
    """The mean of surprises or of entropies.

    Attributes:
        nats: the mean in nats.
    """

    nats: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanSurprise | None:
        """Return the mean of the values, which are in nats; None without values."""
        return cls(_exact_sum(values) / len(values)) if values else None

    @property
    def bits(self) -> float:
        """The mean in bits."""
        return self.nats / log(2)

    @property
    def perplexity(self) -> float:
        """The perplexity exp(mean); infinite if it exceeds float64."""
        try:
            return exp(self.nats)
        except OverflowError:
            return inf


def _exact_sum(values: Iterable[float]) -> float:
    """Return the exact sum, rounded once; infinite if it exceeds float64."""
    values = list(values)
    try:
        return fsum(values)
    except OverflowError:
        return sum(values)


def text_score(tokens: Sequence[TokenRecord]) -> dict[str, Any]:
    """Return the JSON fields of a scored text: ``tokens[], ids[], bytes[], token_logprobs[]``, and its `Score`.

    The first token's logprob is null.
    """
    return {
        "logprobs_from": "model",
        "tokens": [display_text(token.data) for token in tokens],
        "ids": [token.id for token in tokens],
        "bytes": [list(token.data) for token in tokens],
        "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        **Score.of(tokens).as_json(),
    }


def choice_scores(
    choices: Sequence[tuple[str, Sequence[TokenRecord]]], truncated_tokens: Sequence[int] = ()
) -> list[dict[str, Any]]:
    """Return the JSON fields of the scores of several continuations of one prompt, one object for each.

    ``probability`` is computed from ``sum_logprob`` and normalized over the list, in which each of several equal
    choices counts; null if every sum is -inf. An empty choice has the sum 0, and null for ``per_token`` and
    ``per_byte``.
    ``is_greedy`` is true if each token is the model's most probable one, so that greedy decoding writes the
    choice; null if tokens have no top logprobs. ``tokens`` and ``bytes`` leave out a space that the tokenizer
    added.

    Args:
        choices: the text of each continuation, with its tokens.
        truncated_tokens: for each continuation, the number of leading prompt tokens that were left out. If this is
            empty, the objects have no field ``truncated_prompt_tokens``.
    """
    scores = [Score.of(tokens) for _, tokens in choices]
    max_sum_logprob = max(score.sum_logprob for score in scores)
    weights = [exp(score.sum_logprob - max_sum_logprob) if isfinite(max_sum_logprob) else 0.0 for score in scores]
    total_weight = fsum(weights)
    records = [
        {
            "text": text,
            "sum_logprob": finite_or_none(score.sum_logprob),
            "per_token": finite_or_none(score.per_token),
            "per_byte": finite_or_none(score.per_byte),
            "probability": weight / total_weight if total_weight else None,
            "is_greedy": _is_greedy(tokens),
            "tokens": [display_text(token.own_data) for token in tokens],
            "ids": [token.id for token in tokens],
            "bytes": [list(token.own_data) for token in tokens],
            "token_logprobs": [finite_or_none(token.chosen.logprob) for token in tokens],
        }
        for (text, tokens), score, weight in zip(choices, scores, weights, strict=True)
    ]
    if not truncated_tokens:
        return records
    return [
        record | {"truncated_prompt_tokens": count}
        for record, count in zip(records, truncated_tokens, strict=True)
    ]


def failed_score(
    message: str, line: int, name: str | int | None = None, code: str = "invalid_request"
) -> dict[str, Any]:
    """Return the JSON fields of a task that could not be scored: ``id``, ``line`` and ``error``."""
    # ``line`` is counted from 1. Without a ``name``, there is no ``id``.
    error = {"code": code, "message": f"line {line}: {message}", "line": line}
    return {**({} if name is None else {"id": name}), "line": line, "error": error}


def _is_greedy(tokens: Sequence[TokenRecord]) -> bool | None:
    if not all(token.top for token in tokens):
        return None
    return all(token.top[0].id == token.id for token in tokens)
