"""The answer of an endpoint without a bias: its window of logprobs, and how exactly it repeats it.

In the course of a run this is asked again and again: does the endpoint still answer as it did at the beginning?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, inf

import numpy as np

from .endpoints.base import Endpoint, EndpointAnswer
from .errors import RecoverError
from .numerics import mean_logprob
from .session import QuerySession


@dataclass(frozen=True)
class BaseWindow:
    """The measured window without a bias.

    Args:
        drawn: the tokens of the first two answers.
        size: number of logprobs that a call shows; 0: only the token.
        repeats: how often each question of the recovery is asked.
        logprobs: the mean logprob of each token that all answers show, nats.
        errors: the error of each, nats.
        unnamed: logprobs of entries without a token of their own.
        spread: largest difference between two answers to the same question, nats.
        noise: standard deviation of the difference of two answered logprobs, nats; 0: answers repeat.
        precision: relative error of an answered probability, as declared or measured.
        ceiling: no token behind the window can be likelier, nats.
        is_noisy: answers differ by more than the declared precision.
        notes: findings that do not stop the recovery.
    """

    drawn: tuple[int | None, int | None] = (None, None)
    size: int = 0
    repeats: int = 1
    logprobs: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)
    unnamed: tuple[float, ...] = ()
    spread: float = 0.0
    noise: float = 0.0
    precision: float = 0.0
    ceiling: float = inf
    is_noisy: bool = False
    notes: tuple[str, ...] = ()

    @property
    def margin(self) -> float:
        """By how much two values of one logprob may differ, nats."""
        return _margin_of(self.spread)

    @cached_property
    def ranked(self) -> list[int]:
        """The tokens of the window, likeliest first."""
        return sorted(self.logprobs, key=lambda token: -self.logprobs[token])


_LEAST_MARGIN_NATS = 0.02
"""Two values of one logprob that differ by less agree. APIs show two decimals or more: rounding alone makes two
values differ by up to 0.01, and this is twice as much."""


def _margin_of(spread: float) -> float:
    """Return by how much two values of one logprob may differ, nats, if answers differ by ``spread``."""
    return max(_LEAST_MARGIN_NATS, 10 * spread)


_NOISY_REPEATS = 4
"""How often a question is asked if answers differ, to average: halves the noise."""
_NOISE_FACTOR = 20
"""Answers that differ by more than so many times the declared precision are noisy."""


def measure_base_window(session: QuerySession, repeats: int | None) -> BaseWindow:
    """Ask twice without a bias, and more often if the answers differ or ``repeats`` says so.

    Raises ``RecoverError`` if the answers cannot be compared or show neither logprobs nor a token.
    """
    ((first, second),) = session.ask([{}], repeats=2)
    precision = session.endpoint.limits.precision
    if not (first.logprobs and second.logprobs):
        _check_token(first)
        return BaseWindow((first.token, second.token), repeats=repeats or 1, precision=precision)
    is_noisy = _difference(first, second) > _NOISE_FACTOR * precision
    asked = repeats or (_NOISY_REPEATS if is_noisy else 1)
    count = max(asked, _NOISY_REPEATS) if is_noisy else asked
    answers = [first, second]
    if count > 2:
        answers += next(iter(session.ask([{}], count - 2, first_repetition=2)))
    return _averaged(session, _UnbiasedAnswers(answers, asked, is_noisy))


@dataclass(frozen=True)
class _UnbiasedAnswers:
    """The answers without a bias; each question of the recovery will be asked ``repeats`` times."""

    answers: Sequence[EndpointAnswer]
    repeats: int
    is_noisy: bool

    @property
    def averaged(self) -> Sequence[EndpointAnswer]:
        """The answers that the window is the mean of."""
        return self.answers[: max(self.repeats, _NOISY_REPEATS) if self.is_noisy else self.repeats]


def _averaged(session: QuerySession, unbiased: _UnbiasedAnswers) -> BaseWindow:
    """Return the window as the mean of the answers."""
    (first, second), used = unbiased.answers[:2], unbiased.averaged
    common = set.intersection(*(set(answer.logprobs) for answer in used))
    if not common:
        raise RecoverError(
            "without a bias the endpoint shows other tokens at each call: it draws them, and none can be compared"
        )
    spread, noise = _difference(first, second), 0.0
    if unbiased.is_noisy:
        rows = [[answer.logprobs[token] for answer in used] for token in common]
        noise = float(np.sqrt(2 * np.mean(np.var(rows, axis=1, ddof=1))))
        spread = float(np.ptp(rows, axis=1).max())
    precision = max(session.endpoint.limits.precision, _rounding_error(first))
    means = {
        token: mean_logprob([answer.logprobs[token] for answer in used], precision, noise) for token in common
    }
    logprobs = {token: mean.logprob for token, mean in means.items()}
    others = [value for answer in used for token, value in answer.logprobs.items() if token not in common]
    base = BaseWindow(
        drawn=(first.token, second.token),
        size=min(len(first.logprobs), len(second.logprobs)),
        repeats=unbiased.repeats,
        logprobs=logprobs,
        errors={token: mean.error for token, mean in means.items()},
        unnamed=used[0].unnamed,
        spread=spread,
        noise=noise,
        precision=precision,
        ceiling=max([min(logprobs.values()), *others]) + _margin_of(spread),
        is_noisy=unbiased.is_noisy,
    )
    note = _cut_off_note(base, len(first.logprobs) + len(base.unnamed), session.endpoint)
    return base if note is None else replace(base, notes=(note,))


def _check_token(answer: EndpointAnswer) -> None:
    """Raise ``RecoverError`` for an answer that shows neither logprobs nor a token."""
    if answer.token is None and answer.unnamed:
        raise RecoverError(
            "the endpoint names tokens by texts that the tokenizer does not have, or that several of its tokens "
            "share: is it the tokenizer of this model?"
        )
    if answer.token is None:
        raise RecoverError("the endpoint shows neither logprobs nor a token")


def _difference(first: EndpointAnswer, second: EndpointAnswer) -> float:
    """Return the largest difference of two answers to the same question, nats."""
    common = first.logprobs.keys() & second.logprobs.keys()
    return max((abs(first.logprobs[token] - second.logprobs[token]) for token in common), default=0.0)


_MOST_DECIMALS = 8
"""Logprobs that are rounded to more decimals than these do not differ from float32 ones."""
_DECIMAL_TOLERANCE = 1e-12
"""By how much float64 may miss a rounded decimal, nats."""


def _rounding_error(answer: EndpointAnswer) -> float:
    """Return half a unit of the last decimal to which the logprobs are rounded, nats; 0 if they are not."""
    logprobs = [value for value in answer.logprobs.values() if value]
    for decimals in range(_MOST_DECIMALS if len(logprobs) > 1 else 0):
        if all(abs(round(value, decimals) - value) <= _DECIMAL_TOLERANCE for value in logprobs):
            return 0.5 * 10.0**-decimals
    return 0.0


_LEAST_CUT_OFF = 1e-6
"""Probability that float32 sums may miss."""
_LIKELY_FACTOR = 100.0
"""A last token so many times likelier than all hidden ones together is a sign that the others were cut off."""


def _cut_off_note(base: BaseWindow, shown: int, endpoint: Endpoint) -> str | None:
    """Return a note if nothing remains for hidden tokens, although the window's last one is likely.

    Then the endpoint cuts tokens off before it computes logprobs. It is certain, and raises ``RecoverError``, if
    the endpoint also shows fewer than were asked for.
    """
    mass = sum(exp(value) for value in (*base.logprobs.values(), *base.unnamed))
    remaining = max(1 - mass, 10 * base.precision, 10 * base.spread, _LEAST_CUT_OFF)
    last = exp(min(base.logprobs.values()))
    if not 1 < shown < endpoint.vocab_size or last <= _LIKELY_FACTOR * remaining:
        return None
    finding = f"the {shown:,} tokens shown without a bias have all the probability"
    if shown < endpoint.limits.window:
        raise RecoverError(f"{finding}: the endpoint cuts off the others (top_p, top_k, min_p); switch that off")
    return f"{finding}: if the endpoint cuts off others (top_p, top_k, min_p), what is told is wrong"


QUESTIONS_PER_CHECK = 100
"""Questions between two checks: they cost one call in a hundred."""
_PRECISION_FACTOR, _SPREAD_FACTOR, _DRIFT_NOISE_FACTOR = 20, 3, 5
"""A change is drift if it is larger than so many times the precision, the spread and the noise."""


class DriftMonitor:
    """Asks a question with a known answer after every 100 questions.

    Args:
        session: asks the endpoint.
        base: the window without a bias, the known answer.
        precision: relative error of an answered probability.

    Attributes: ``largest``: the largest change of an answer in the course of the run, nats; 0: none.
    """

    def __init__(self, session: QuerySession, base: BaseWindow, precision: float) -> None:
        self.largest = 0.0
        self._session = session
        self._base = base
        self._explained = max(
            _PRECISION_FACTOR * precision, _SPREAD_FACTOR * base.spread, _DRIFT_NOISE_FACTOR * base.noise
        )
        self._questions = 0
        self._measure: Callable[[int], float] = self._base_window_change

    def measure_by(self, measure: Callable[[int], float]) -> None:
        """Replace the check: ``measure`` gets its number, from 1, and returns the change in nats."""
        self._measure = measure

    def count_question(self) -> None:
        """Count a question, and check after every hundredth."""
        self._questions += 1
        if self._questions % QUESTIONS_PER_CHECK == 0:
            self.largest = max(self.largest, self._measure(self._questions // QUESTIONS_PER_CHECK))

    def _base_window_change(self, number: int) -> float:
        """Ask again without a bias; return the change that precision and noise do not explain, nats."""
        ((answer,),) = self._session.ask([{}], drift_check=number)
        base = self._base.logprobs
        common = answer.logprobs.keys() & base.keys()
        change = max((abs(answer.logprobs[token] - base[token]) for token in common), default=0.0)
        return change if change > self._explained else 0.0
