"""The answer of an endpoint without a bias: its window of logprobs, and how exactly it repeats it.

In the course of a run this is asked again and again: does the endpoint still answer as it did at the beginning?
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, inf

import numpy as np

from .endpoints.base import Endpoint, EndpointResponse
from .errors import RecoverError
from .numerics import mean_logprob
from .session import QuerySession


@dataclass(frozen=True)
class UnbiasedWindow:
    """The measured window without a bias.

    Args:
        first_two_tokens: the tokens of the first two answers.
        logprob_count: number of logprobs that a call shows; 0: only the token.
        calls_per_query: how often each question of the recovery is asked.
        logprobs: the mean logprob of each token that all answers show, nats.
        errors: the error of each, nats.
        unmatched_logprobs: logprobs of entries without a token of their own.
        spread_nats: largest difference between two answers to the same question, nats.
        noise_nats: standard deviation of the difference of two answered logprobs, nats; 0: answers repeat.
        relative_error: relative error of an answered probability, as declared or measured.
        max_hidden_logprob: no token behind the window can be likelier, nats.
        is_noisy: answers differ by more than the declared precision.
        notes: findings that do not stop the recovery.
    """

    first_two_tokens: tuple[int | None, int | None] = (None, None)
    logprob_count: int = 0
    calls_per_query: int = 1
    logprobs: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)
    unmatched_logprobs: tuple[float, ...] = ()
    spread_nats: float = 0.0
    noise_nats: float = 0.0
    relative_error: float = 0.0
    max_hidden_logprob: float = inf
    is_noisy: bool = False
    notes: tuple[str, ...] = ()

    @property
    def agreement_tolerance_nats(self) -> float:
        """By how much two values of one logprob may differ, nats."""
        return _agreement_tolerance_nats(self.spread_nats)

    @cached_property
    def ranked_tokens(self) -> list[int]:
        """The tokens of the window, likeliest first."""
        return sorted(self.logprobs, key=lambda token: -self.logprobs[token])


_MIN_AGREEMENT_TOLERANCE_NATS = 0.02
"""Two values of one logprob that differ by less agree. APIs show two decimals or more: rounding alone makes two
values differ by up to 0.01, and this is twice as much."""


def _agreement_tolerance_nats(spread_nats: float) -> float:
    """Return by how much two values of one logprob may differ, nats, if answers differ by ``spread_nats``."""
    return max(_MIN_AGREEMENT_TOLERANCE_NATS, 10 * spread_nats)


_NOISY_CALLS_PER_QUERY = 4
"""How often a question is asked if answers differ, to average: halves the noise."""
_NOISE_FACTOR = 20
"""Answers that differ by more than so many times the declared precision are noisy."""


def measure_unbiased_window(session: QuerySession, calls_per_query: int | None) -> UnbiasedWindow:
    """Ask twice without a bias, and more often if the answers differ or ``calls_per_query`` says so.

    Raises ``RecoverError`` if the answers cannot be compared or show neither logprobs nor a token.
    """
    ((first, second),) = session.send_queries([{}], calls_per_query=2)
    relative_error = session.endpoint.limits.relative_error
    if not (first.logprobs and second.logprobs):
        _check_shows_token(first)
        return UnbiasedWindow(
            (first.token, second.token), calls_per_query=calls_per_query or 1, relative_error=relative_error
        )
    is_noisy = _difference(first, second) > _NOISE_FACTOR * relative_error
    calls_per_query = calls_per_query or (_NOISY_CALLS_PER_QUERY if is_noisy else 1)
    response_count = max(calls_per_query, _NOISY_CALLS_PER_QUERY) if is_noisy else calls_per_query
    responses = [first, second]
    if response_count > 2:
        responses += next(iter(session.send_queries([{}], response_count - 2, first_repetition=2)))
    return _mean_window(session, _UnbiasedResponses(responses, calls_per_query, is_noisy))


@dataclass(frozen=True)
class _UnbiasedResponses:
    """The answers without a bias; each question of the recovery will be asked ``calls_per_query`` times."""

    responses: Sequence[EndpointResponse]
    calls_per_query: int
    is_noisy: bool

    @property
    def averaged_responses(self) -> Sequence[EndpointResponse]:
        """The answers that the window is the mean of."""
        return self.responses[
            : max(self.calls_per_query, _NOISY_CALLS_PER_QUERY) if self.is_noisy else self.calls_per_query
        ]


def _mean_window(session: QuerySession, unbiased: _UnbiasedResponses) -> UnbiasedWindow:
    """Return the window as the mean of the answers."""
    (first, second), averaged_responses = unbiased.responses[:2], unbiased.averaged_responses
    common = set.intersection(*(set(response.logprobs) for response in averaged_responses))
    if not common:
        raise RecoverError(
            "without a bias the endpoint shows other tokens at each call: it draws them, and none can be compared"
        )
    spread_nats, noise_nats = _difference(first, second), 0.0
    if unbiased.is_noisy:
        rows = [[response.logprobs[token] for response in averaged_responses] for token in common]
        noise_nats = float(np.sqrt(2 * np.mean(np.var(rows, axis=1, ddof=1))))
        spread_nats = float(np.ptp(rows, axis=1).max())
    relative_error = max(session.endpoint.limits.relative_error, _rounding_error(first))
    means = {
        token: mean_logprob(
            [response.logprobs[token] for response in averaged_responses], relative_error, noise_nats
        )
        for token in common
    }
    logprobs = {token: mean.logprob for token, mean in means.items()}
    others = [
        value
        for response in averaged_responses
        for token, value in response.logprobs.items()
        if token not in common
    ]
    unbiased_window = UnbiasedWindow(
        first_two_tokens=(first.token, second.token),
        logprob_count=min(len(first.logprobs), len(second.logprobs)),
        calls_per_query=unbiased.calls_per_query,
        logprobs=logprobs,
        errors={token: mean.error for token, mean in means.items()},
        unmatched_logprobs=averaged_responses[0].unmatched_logprobs,
        spread_nats=spread_nats,
        noise_nats=noise_nats,
        relative_error=relative_error,
        max_hidden_logprob=max([min(logprobs.values()), *others]) + _agreement_tolerance_nats(spread_nats),
        is_noisy=unbiased.is_noisy,
    )
    note = _cut_off_note(
        unbiased_window, len(first.logprobs) + len(unbiased_window.unmatched_logprobs), session.endpoint
    )
    return unbiased_window if note is None else replace(unbiased_window, notes=(note,))


def _check_shows_token(response: EndpointResponse) -> None:
    """Raise ``RecoverError`` for an answer that shows neither logprobs nor a token."""
    if response.token is None and response.unmatched_logprobs:
        raise RecoverError(
            "the endpoint names tokens by texts that the tokenizer does not have, or that several of its tokens "
            "share: is it the tokenizer of this model?"
        )
    if response.token is None:
        raise RecoverError("the endpoint shows neither logprobs nor a token")


def _difference(first: EndpointResponse, second: EndpointResponse) -> float:
    """Return the largest difference of two answers to the same question, nats."""
    common = first.logprobs.keys() & second.logprobs.keys()
    return max((abs(first.logprobs[token] - second.logprobs[token]) for token in common), default=0.0)


_MAX_DECIMALS = 8
"""Logprobs that are rounded to more decimals than these do not differ from float32 ones."""
_DECIMAL_TOLERANCE = 1e-12
"""By how much float64 may miss a rounded decimal, nats."""


def _rounding_error(response: EndpointResponse) -> float:
    """Return half a unit of the last decimal to which the logprobs are rounded, nats; 0 if they are not."""
    logprobs = [value for value in response.logprobs.values() if value]
    for decimals in range(_MAX_DECIMALS if len(logprobs) > 1 else 0):
        if all(abs(round(value, decimals) - value) <= _DECIMAL_TOLERANCE for value in logprobs):
            return 0.5 * 10.0**-decimals
    return 0.0


_MIN_HIDDEN_PROBABILITY = 1e-6
"""Probability that float32 sums may miss."""
_CUT_OFF_FACTOR = 100.0
"""A last token so many times likelier than all hidden ones together is a sign that the others were cut off."""


def _cut_off_note(unbiased_window: UnbiasedWindow, shown: int, endpoint: Endpoint) -> str | None:
    """Return a note if nothing remains for hidden tokens, although the window's last one is likely.

    Then the endpoint cuts tokens off before it computes logprobs. It is certain, and raises ``RecoverError``, if
    the endpoint also shows fewer than were asked for.
    """
    shown_probability = sum(
        exp(value) for value in (*unbiased_window.logprobs.values(), *unbiased_window.unmatched_logprobs)
    )
    max_hidden_probability = max(
        1 - shown_probability,
        10 * unbiased_window.relative_error,
        10 * unbiased_window.spread_nats,
        _MIN_HIDDEN_PROBABILITY,
    )
    last_probability = exp(min(unbiased_window.logprobs.values()))
    if not 1 < shown < endpoint.vocab_size or last_probability <= _CUT_OFF_FACTOR * max_hidden_probability:
        return None
    finding = f"the {shown:,} tokens shown without a bias have all the probability"
    if shown < endpoint.limits.window:
        raise RecoverError(f"{finding}: the endpoint cuts off the others (top_p, top_k, min_p); switch that off")
    return f"{finding}: if the endpoint cuts off others (top_p, top_k, min_p), what is told is wrong"


QUERIES_PER_CHECK = 100
"""Questions between two checks: they cost one call in a hundred."""
_PRECISION_FACTOR, _SPREAD_FACTOR, _DRIFT_NOISE_FACTOR = 20, 3, 5
"""A change is drift if it is larger than so many times the precision, the spread and the noise."""


class DriftMonitor:
    """Asks a question with a known answer after every 100 questions.

    Args:
        session: asks the endpoint.
        unbiased_window: the window without a bias, the known answer.
        relative_error: relative error of an answered probability.

    Attributes: ``max_change_nats``: the largest change of an answer in the course of the run, nats; 0: none.
    """

    def __init__(self, session: QuerySession, unbiased_window: UnbiasedWindow, relative_error: float) -> None:
        self.max_change_nats = 0.0
        self._session = session
        self._unbiased_window = unbiased_window
        self._max_explained_nats = max(
            _PRECISION_FACTOR * relative_error,
            _SPREAD_FACTOR * unbiased_window.spread_nats,
            _DRIFT_NOISE_FACTOR * unbiased_window.noise_nats,
        )
        self._query_count = 0
        self._measure: Callable[[int], float] = self._base_window_change

    def measure_with(self, measure: Callable[[int], float]) -> None:
        """Replace the check: ``measure`` gets its number, from 1, and returns the change in nats."""
        self._measure = measure

    def count_query(self) -> None:
        """Count a question, and check after every hundredth."""
        self._query_count += 1
        if self._query_count % QUERIES_PER_CHECK == 0:
            self.max_change_nats = max(self.max_change_nats, self._measure(self._query_count // QUERIES_PER_CHECK))

    def _base_window_change(self, check_number: int) -> float:
        """Ask again without a bias; return the change that precision and noise do not explain, nats."""
        ((response,),) = self._session.send_queries([{}], drift_check=check_number)
        unbiased_window = self._unbiased_window.logprobs
        common = response.logprobs.keys() & unbiased_window.keys()
        change = max((abs(response.logprobs[token] - unbiased_window[token]) for token in common), default=0.0)
        return change if change > self._max_explained_nats else 0.0
