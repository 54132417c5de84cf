"""The logprobs that an endpoint shows without a bias, and how exactly it repeats them.

During a run this query is repeated periodically, to see whether the endpoint still responds in the same way.
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
class UnbiasedResponse:
    """The mean response of an endpoint without a bias."""

    # the tokens of the first two responses; None for a token without an id
    first_two_tokens: tuple[int | None, int | None] = (None, None)
    logprob_count: int = 0  # number of logprobs that a call shows; 0: only the token
    calls_per_query: int = 1  # number of times that each query of the recovery is sent
    # token id -> mean logprob, nats, of the tokens that all responses show
    logprobs: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)  # token id -> error of that mean, nats
    # logprobs, in nats, of shown texts that are not the text of exactly one token
    unmatched_logprobs: tuple[float, ...] = ()
    spread_nats: float = 0.0  # largest difference between two responses, nats
    # standard deviation of the difference of two shown logprobs, nats; 0: responses repeat
    noise_nats: float = 0.0
    relative_error: float = 0.0  # relative error of a shown probability, as declared or measured
    max_hidden_logprob: float = inf  # upper limit of the logprobs of tokens that are not shown, nats
    is_noisy: bool = False  # whether responses differ by more than the declared relative error explains
    notes: tuple[str, ...] = ()  # findings that do not stop the recovery

    @property
    def agreement_tolerance_nats(self) -> float:
        """Largest difference at which two values of one logprob still agree, nats."""
        return _agreement_tolerance_nats(self.spread_nats)

    @cached_property
    def ranked_tokens(self) -> list[int]:
        return sorted(self.logprobs, key=lambda token: -self.logprobs[token])


# Two values of one logprob that differ by less agree. APIs show two decimals or more, so rounding alone makes two
# values differ by up to 0.01; the limit is twice that.
_MIN_AGREEMENT_TOLERANCE_NATS = 0.02


def _agreement_tolerance_nats(spread_nats: float) -> float:
    """Return the largest difference at which two values agree, if responses differ by ``spread_nats``."""
    return max(_MIN_AGREEMENT_TOLERANCE_NATS, 10 * spread_nats)


# Number of times that a query is sent if responses differ. The average has half the noise.
_NOISY_CALLS_PER_QUERY = 4
_NOISE_FACTOR = 20  # Responses that differ by more than this many times the declared relative error are noisy


def measure_unbiased_response(session: QuerySession, calls_per_query: int | None) -> UnbiasedResponse:
    """Query twice without a bias, and more often if the responses differ or ``calls_per_query`` is larger."""
    ((first_response, second_response),) = session.send_queries([{}], calls_per_query=2)
    relative_error = session.endpoint.limits.relative_error
    if not (first_response.logprobs and second_response.logprobs):
        _check_shows_token(first_response)
        return UnbiasedResponse(
            (first_response.token, second_response.token),
            calls_per_query=calls_per_query or 1,
            relative_error=relative_error,
        )
    is_noisy = _max_difference_nats(first_response, second_response) > _NOISE_FACTOR * relative_error
    calls_per_query = calls_per_query or (_NOISY_CALLS_PER_QUERY if is_noisy else 1)
    response_count = max(calls_per_query, _NOISY_CALLS_PER_QUERY) if is_noisy else calls_per_query
    responses = [first_response, second_response]
    if response_count > 2:
        responses += next(iter(session.send_queries([{}], response_count - 2, first_repetition=2)))
    return _average_responses(session, _ResponsesWithoutBias(responses, calls_per_query, is_noisy))


@dataclass(frozen=True)
class _ResponsesWithoutBias:
    """Responses to the query without a bias."""

    responses: Sequence[EndpointResponse]  # the responses, at least two
    calls_per_query: int  # number of times that each query of the recovery will be sent
    is_noisy: bool  # whether the responses differ by more than the declared relative error explains

    @property
    def averaged_responses(self) -> Sequence[EndpointResponse]:
        """The responses whose mean is used."""
        return self.responses[
            : max(self.calls_per_query, _NOISY_CALLS_PER_QUERY) if self.is_noisy else self.calls_per_query
        ]


def _average_responses(session: QuerySession, responses_without_bias: _ResponsesWithoutBias) -> UnbiasedResponse:
    (first_response, second_response), averaged_responses = (
        responses_without_bias.responses[:2],
        responses_without_bias.averaged_responses,
    )
    shared_tokens = set.intersection(*(set(response.logprobs) for response in averaged_responses))
    if not shared_tokens:
        raise RecoverError(
            "without a bias, each response shows other tokens; the endpoint draws them, so none can be compared"
        )
    spread_nats, noise_nats = _max_difference_nats(first_response, second_response), 0.0
    if responses_without_bias.is_noisy:
        logprobs_by_token = [
            [response.logprobs[token] for response in averaged_responses] for token in shared_tokens
        ]
        noise_nats = float(np.sqrt(2 * np.mean(np.var(logprobs_by_token, axis=1, ddof=1))))
        spread_nats = float(np.ptp(logprobs_by_token, axis=1).max())
    relative_error = max(session.endpoint.limits.relative_error, _rounding_error(first_response))
    mean_by_token = {
        token: mean_logprob(
            [response.logprobs[token] for response in averaged_responses], relative_error, noise_nats
        )
        for token in shared_tokens
    }
    logprobs = {token: mean.logprob for token, mean in mean_by_token.items()}
    partly_shown_logprobs = [
        value
        for response in averaged_responses
        for token, value in response.logprobs.items()
        if token not in shared_tokens
    ]
    unbiased_response = UnbiasedResponse(
        first_two_tokens=(first_response.token, second_response.token),
        logprob_count=min(len(first_response.logprobs), len(second_response.logprobs)),
        calls_per_query=responses_without_bias.calls_per_query,
        logprobs=logprobs,
        errors={token: mean.error for token, mean in mean_by_token.items()},
        unmatched_logprobs=averaged_responses[0].unmatched_logprobs,
        spread_nats=spread_nats,
        noise_nats=noise_nats,
        relative_error=relative_error,
        max_hidden_logprob=max([min(logprobs.values()), *partly_shown_logprobs])
        + _agreement_tolerance_nats(spread_nats),
        is_noisy=responses_without_bias.is_noisy,
    )
    note = _truncation_note(
        unbiased_response,
        len(first_response.logprobs) + len(unbiased_response.unmatched_logprobs),
        session.endpoint,
    )
    return unbiased_response if note is None else replace(unbiased_response, notes=(note,))


def _check_shows_token(response: EndpointResponse) -> None:
    """Raise ``RecoverError`` for a response that shows neither logprobs nor a token."""
    if response.token is None and response.unmatched_logprobs:
        raise RecoverError(
            "the endpoint shows texts that no token of the tokenizer has, or that several tokens have; use the "
            "tokenizer of this model"
        )
    if response.token is None:
        raise RecoverError("the endpoint shows neither logprobs nor a token")


def _max_difference_nats(first: EndpointResponse, second: EndpointResponse) -> float:
    """Return the largest difference of two responses to the same query, nats."""
    shared_tokens = first.logprobs.keys() & second.logprobs.keys()
    return max((abs(first.logprobs[token] - second.logprobs[token]) for token in shared_tokens), default=0.0)


_MAX_DECIMALS = 8  # Logprobs that are rounded to more decimals cannot be distinguished from float32 ones
_DECIMAL_TOLERANCE = 1e-12  # Error of a decimal number in float64, nats


def _rounding_error(response: EndpointResponse) -> float:
    """Return half a unit of the last decimal of the logprobs, nats; 0 if they are not rounded."""
    logprobs = [value for value in response.logprobs.values() if value]
    for decimals in range(_MAX_DECIMALS if len(logprobs) > 1 else 0):
        if all(abs(round(value, decimals) - value) <= _DECIMAL_TOLERANCE for value in logprobs):
            return 0.5 * 10.0**-decimals
    return 0.0


_MIN_HIDDEN_PROBABILITY = 1e-6  # Probability that may be lost in float32 sums
# If the least likely shown token is this many times more likely than all hidden tokens together, tokens were
# probably truncated
_TRUNCATION_FACTOR = 100.0


def _truncation_note(unbiased_response: UnbiasedResponse, shown_count: int, endpoint: Endpoint) -> str | None:
    """Return a note if no probability remains for hidden tokens, although each shown token is likely."""
    # Then the endpoint truncates tokens before it computes logprobs. If it also shows fewer logprobs than
    # requested, the truncation is certain, and ``RecoverError`` is raised.
    shown_probability = sum(
        exp(value) for value in (*unbiased_response.logprobs.values(), *unbiased_response.unmatched_logprobs)
    )
    max_hidden_probability = max(
        1 - shown_probability,
        10 * unbiased_response.relative_error,
        10 * unbiased_response.spread_nats,
        _MIN_HIDDEN_PROBABILITY,
    )
    min_shown_probability = exp(min(unbiased_response.logprobs.values()))
    if (
        not 1 < shown_count < endpoint.vocab_size
        or min_shown_probability <= _TRUNCATION_FACTOR * max_hidden_probability
    ):
        return None
    finding = f"the {shown_count:,} tokens shown without a bias have all the probability"
    if shown_count < endpoint.limits.window:
        raise RecoverError(f"{finding}: the endpoint truncates its tokens (top_p, top_k, min_p); turn that off")
    return f"{finding}: if the endpoint truncates its tokens (top_p, top_k, min_p), the logprobs are wrong"


QUERIES_PER_CHECK = 100  # number of queries between two drift checks, which therefore cost one call in a hundred
# a change is drift if it exceeds this many times the relative error, the spread and the noise
_RELATIVE_ERROR_FACTOR, _SPREAD_FACTOR, _DRIFT_NOISE_FACTOR = 20, 3, 5


class DriftMonitor:
    """A monitor that repeats a query with a known response after every 100 queries."""

    def __init__(self, session: QuerySession, unbiased_response: UnbiasedResponse, relative_error: float) -> None:
        self.max_change_nats = 0.0  # the largest change of the response during the run, nats; 0: no change
        self._session = session
        self._unbiased_response = unbiased_response
        self._max_explained_nats = max(
            _RELATIVE_ERROR_FACTOR * relative_error,
            _SPREAD_FACTOR * unbiased_response.spread_nats,
            _DRIFT_NOISE_FACTOR * unbiased_response.noise_nats,
        )
        self._query_count = 0
        self._measure: Callable[[int], float] = self._unbiased_response_change

    def measure_with(self, measure: Callable[[int], float]) -> None:
        """Replace the check; ``measure`` receives its number, counted from 1, and returns the change in nats."""
        self._measure = measure

    def count_query(self) -> None:
        """Count a query, and run a check after every hundredth one."""
        self._query_count += 1
        if self._query_count % QUERIES_PER_CHECK == 0:
            self.max_change_nats = max(self.max_change_nats, self._measure(self._query_count // QUERIES_PER_CHECK))

    def _unbiased_response_change(self, check_number: int) -> float:
        """Query without a bias; return the change that rounding and noise do not explain, nats."""
        ((response,),) = self._session.send_queries([{}], drift_check=check_number)
        unbiased_logprobs = self._unbiased_response.logprobs
        shared_tokens = response.logprobs.keys() & unbiased_logprobs.keys()
        change_nats = max(
            (abs(response.logprobs[token] - unbiased_logprobs[token]) for token in shared_tokens), default=0.0
        )
        return change_nats if change_nats > self._max_explained_nats else 0.0
