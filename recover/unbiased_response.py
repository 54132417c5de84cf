"""The logprobs that an endpoint shows without a bias, and how exactly it repeats them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    first_two_tokens: tuple[int | None, int | None]
    calls_per_query: int  # number of times that each query of the recovery is sent
    relative_error: float  # relative error of a shown probability, as declared or measured
    logprob_count: int = 0  # number of logprobs that a call shows; 0: only the token
    # token id -> mean logprob, nats, of the tokens that all responses show
    logprobs: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, float] = field(default_factory=dict)  # token id -> error of that mean, nats
    # logprobs, in nats, of shown texts that are not the text of exactly one token
    unmatched_logprobs: tuple[float, ...] = ()
    is_noisy: bool = False  # whether responses differ by more than the declared relative error explains
    spread_nats: float = 0.0  # largest difference between two responses, nats
    # standard deviation of the difference of two shown logprobs, nats; 0: responses repeat
    noise_nats: float = 0.0
    max_hidden_logprob: float = inf  # upper limit of the logprobs of tokens that are not shown, nats

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
    ((first, second),) = session.send_queries([{}], calls_per_query=2)
    first_two_tokens, relative_error = (first.token, second.token), session.endpoint.limits.relative_error
    if not (first.logprobs and second.logprobs):
        _check_shows_token(first)
        return UnbiasedResponse(first_two_tokens, calls_per_query or 1, relative_error)
    spread_nats, noise_nats = _difference_nats(first, second), 0.0
    is_noisy = spread_nats > _NOISE_FACTOR * relative_error
    calls_per_query = calls_per_query or (_NOISY_CALLS_PER_QUERY if is_noisy else 1)
    averaged_count = max(calls_per_query, _NOISY_CALLS_PER_QUERY) if is_noisy else calls_per_query
    responses = [first, second]
    if averaged_count > 2:
        (more_responses,) = session.send_queries([{}], averaged_count - 2, first_repetition=2)
        responses += more_responses
    responses = responses[:averaged_count]
    shared_tokens = set.intersection(*(set(response.logprobs) for response in responses))
    if not shared_tokens:
        raise RecoverError(
            "without a bias, each response shows other tokens; the endpoint draws them, so none can be compared"
        )
    values_by_token = {token: [response.logprobs[token] for response in responses] for token in shared_tokens}
    if is_noisy:
        values = list(values_by_token.values())
        noise_nats = float(np.sqrt(2 * np.mean(np.var(values, axis=1, ddof=1))))
        spread_nats = float(np.ptp(values, axis=1).max())
    relative_error = max(relative_error, _rounding_error(first))
    logprobs, errors = {}, {}
    for token, values_of_token in values_by_token.items():
        logprobs[token], errors[token] = mean_logprob(values_of_token, relative_error, noise_nats)
    partly_shown = [
        value for response in responses for token, value in response.logprobs.items() if token not in shared_tokens
    ]
    max_shown_in_part = max([min(logprobs.values()), *partly_shown])
    return UnbiasedResponse(
        first_two_tokens,
        calls_per_query,
        relative_error,
        logprob_count=min(len(first.logprobs), len(second.logprobs)),
        logprobs=logprobs,
        errors=errors,
        unmatched_logprobs=first.unmatched_logprobs,
        is_noisy=is_noisy,
        spread_nats=spread_nats,
        noise_nats=noise_nats,
        max_hidden_logprob=max_shown_in_part + _agreement_tolerance_nats(spread_nats),
    )


def _check_shows_token(response: EndpointResponse) -> None:
    """Raise ``RecoverError`` for a response that shows neither logprobs nor a token."""
    if response.token is not None:
        return
    if response.unmatched_logprobs:
        raise RecoverError(
            "the endpoint shows texts that no token of the tokenizer has, or that several tokens have; use the "
            "tokenizer of this model"
        )
    raise RecoverError("the endpoint shows neither logprobs nor a token")


def _difference_nats(first: EndpointResponse, second: EndpointResponse) -> float:
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


def truncation_note(unbiased_response: UnbiasedResponse, endpoint: Endpoint) -> str | None:
    """Return a note if no probability remains for hidden tokens, although each shown token is likely."""
    # Then the endpoint truncates tokens before it computes logprobs. If it also shows fewer logprobs than
    # requested, the truncation is certain, and ``RecoverError`` is raised.
    shown_count = unbiased_response.logprob_count + len(unbiased_response.unmatched_logprobs)
    if not 1 < shown_count < endpoint.vocab_size or not unbiased_response.logprobs:
        return None
    logprobs = [*unbiased_response.logprobs.values(), *unbiased_response.unmatched_logprobs]
    max_hidden_probability = max(
        1 - sum(exp(value) for value in logprobs),
        10 * unbiased_response.relative_error,
        10 * unbiased_response.spread_nats,
        _MIN_HIDDEN_PROBABILITY,
    )
    min_shown_probability = exp(min(unbiased_response.logprobs.values()))
    if min_shown_probability <= _TRUNCATION_FACTOR * max_hidden_probability:
        return None
    finding = f"the {shown_count:,} tokens shown without a bias have all the probability"
    if shown_count < endpoint.limits.window:
        raise RecoverError(f"{finding}: the endpoint truncates its tokens (top_p, top_k, min_p); turn that off")
    return f"{finding}: if the endpoint truncates its tokens (top_p, top_k, min_p), the logprobs are wrong"
