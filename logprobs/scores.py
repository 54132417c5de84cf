"""Sums over the logprobs of a text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, isfinite, log
from typing import Any

from .records import TokenRecord, display_text, finite_or_none


@dataclass(frozen=True)
class Score:
    """How likely a text is, over its tokens that have a logprob: all but the first.

    Attributes:
        sum_logprob: the sum of their logprobs, nats.
        tokens: how many tokens were scored.
        bytes: how many bytes of the text they have, without what the tokenizer added to it.
    """

    sum_logprob: float
    tokens: int
    bytes: int

    @classmethod
    def of(cls, tokens: Iterable[TokenRecord]) -> Score:
        """Add up; a token of probability 0 makes the sum -inf."""
        scored = [token for token in tokens if token.distributions]
        values = [finite_or_none(token.distributions[0].logprob) for token in scored]
        total = _sum(-inf if value is None else value for value in values)
        return cls(total, len(scored), sum(len(token.own_data) for token in scored))

    @property
    def per_token(self) -> float | None:
        """Mean logprob of a token, nats; None where nothing was scored."""
        return self.sum_logprob / self.tokens if self.tokens else None

    @property
    def per_byte(self) -> float | None:
        """Mean logprob of a byte, nats."""
        return self.sum_logprob / self.bytes if self.bytes else None

    @property
    def perplexity(self) -> float | None:
        """exp(-sum / tokens)."""
        mean = self.per_token
        return None if mean is None else MeanSurprise(-mean).perplexity

    @property
    def bits_per_byte(self) -> float | None:
        """-sum / (bytes · ln 2)."""
        mean = self.per_byte
        return None if mean is None else 0.0 - mean / log(2)

    def as_json(self) -> dict[str, Any]:
        """``sum_logprob, per_token, per_byte, perplexity, bits_per_byte``, null if nothing was scored; counts."""
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
    """The mean of some surprises or entropies, in nats."""

    nats: float

    @classmethod
    def of(cls, values: Sequence[float]) -> MeanSurprise | None:
        """None where there are no values."""
        return cls(_sum(values) / len(values)) if values else None

    @property
    def bits(self) -> float:
        """The same in bits."""
        return self.nats / log(2)

    @property
    def perplexity(self) -> float:
        """exp(mean)."""
        try:
            return exp(self.nats)
        except OverflowError:
            return inf


def _sum(values: Iterable[float]) -> float:
    """Exact, and infinite where it is beyond float64."""
    values = list(values)
    try:
        return fsum(values)
    except OverflowError:
        return sum(values)


def text_score(tokens: Sequence[TokenRecord]) -> dict[str, Any]:
    """A scored text: ``tokens[], ids[], bytes[], token_logprobs[]`` (first null), and its `Score`."""
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
    """Continuations of one prompt: ``text, sum_logprob, per_token, per_byte, probability`` and their tokens.

    Probabilities are normalized over the choices, from the sums; None if every sum is -inf. ``tokens`` and
    ``bytes`` joined are the choice, without a space that the tokenizer added. ``is_greedy``: True if each token is
    the model's most likely one, so that greedy decoding writes the choice; None if tokens have no top logprobs.

    Args:
        choices: the text of each continuation, and its tokens.
        truncated_tokens: for each continuation, how many of the prompt's first tokens were left out; empty: there
            is no field ``truncated_prompt_tokens``.
    """
    scores = [Score.of(tokens) for _, tokens in choices]
    highest = max(score.sum_logprob for score in scores)
    weights = [exp(score.sum_logprob - highest) if isfinite(highest) else 0.0 for score in scores]
    total = fsum(weights)
    records = [
        {
            "text": text,
            "sum_logprob": finite_or_none(score.sum_logprob),
            "per_token": finite_or_none(score.per_token),
            "per_byte": finite_or_none(score.per_byte),
            "probability": weight / total if total else None,
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
    """A line that has no score: ``id`` if the line has one, ``line`` and ``error``, as in the results of a batch.

    Args:
        message: why there is no score, a sentence.
        line: number of the line in its file, from 1.
        name: the line's ``id``; None if it has none.
        code: the kind of the failure.
    """
    error = {"code": code, "message": f"line {line}: {message}", "line": line}
    return {**({} if name is None else {"id": name}), "line": line, "error": error}


def _is_greedy(tokens: Sequence[TokenRecord]) -> bool | None:
    if not all(token.top for token in tokens):
        return None
    return all(token.top[0].id == token.id for token in tokens)
