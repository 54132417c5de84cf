"""`single`: one token per call, from the token's own logprob. It works even if only one logprob is shown.

A bias b on one token turns its probability p into p', and multiplies its odds by e^b:

    p' / (1 - p') = e^b p / (1 - p)
    log p = log p' - log(e^b - e^(b + log p') + p')

Source: Finlayson, "Obtaining logprobs from an LLM API" (openlogprobs), section "Full logprobs in v API calls".

An error d of log p' becomes an error d (1 - p) / (1 - p') of log p. So a bias is searched that brings the token
near even odds: large enough that the token is shown, and small enough that 1 - p' keeps its digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log

import numpy as np

from ..endpoints.base import EndpointResponse
from ..numerics import log1mexp, log_odds
from ..task import RecoveryTask

_MAX_ERROR_GROWTH = 20.0  # Largest accepted growth of the error. If 1 - p' is smaller, the bias was too large.
# Tokens per chunk. The starting bias is adapted after each chunk. The first chunk is small, because nothing has
# been measured yet.
_FIRST_CHUNK_TOKENS, _CHUNK_TOKENS = 32, 1024
_MAX_ROUNDS = 60  # more rounds than needed: a search that halves an interval of biases ends earlier
_BIAS_STEP_NATS = 10.0  # Step by which a bias grows until the token is shown
_INITIAL_LIFT_NATS = 8.0  # the first bias lifts a token this far above the least likely shown token
# Keeps a logprob below 0, so that its odds are finite; near the smallest normal float64
_MIN_LOGPROB_SIZE_NATS = 1e-300


def logprob_from_single_bias(biased_logprob: float, bias: float) -> float:
    """Return log p from log p' and b."""
    # As log p' - logaddexp(b + log(1 - p'), log p'), which neither overflows nor cancels
    return biased_logprob - float(np.logaddexp(bias + log1mexp(biased_logprob), biased_logprob))


def single_bias_error(biased_logprob: float, true_logprob: float, relative_error: float) -> float:
    """Return the error of `logprob_from_single_bias`, nats."""
    return relative_error * float(np.exp(log1mexp(true_logprob) - log1mexp(biased_logprob)))


def single(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover the tokens that are still unknown."""
    single_each(task, task.estimates.unknown_among(tokens))


def single_each(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens like `single`, including tokens whose logprob is known, which is replaced."""
    finished_tokens: list[int] = []
    chunk_start = 0
    while chunk_start < len(tokens):
        chunk = tokens[chunk_start : chunk_start + (_CHUNK_TOKENS if finished_tokens else _FIRST_CHUNK_TOKENS)]
        chunk_start += len(chunk)
        bias = min(_first_bias(task, finished_tokens), task.profile.bias_range.max_bias_nats)
        searches = [_EvenOddsSearch(token, bias) for token in chunk]
        for _ in range(_MAX_ROUNDS):
            unfinished_searches = _query_each(task, searches)
            finished_tokens += [search.token for search in searches if search not in unfinished_searches]
            max_bias_nats = task.profile.bias_range.max_bias_nats
            searches = [search for search in unfinished_searches if search.hidden_at_bias < max_bias_nats]
            if not searches:
                break


def _first_bias(task: RecoveryTask, finished_tokens: Sequence[int]) -> float:
    """Return a bias that should bring the next tokens near even odds: that of the median token so far."""
    logprobs = task.estimates.logprobs[list(finished_tokens)]
    recovered_logprobs = logprobs[~np.isnan(logprobs)]  # not those of contradicted tokens
    if not len(recovered_logprobs):
        return _INITIAL_LIFT_NATS - min(task.unbiased_response.logprobs.values())
    return float(-np.median(recovered_logprobs))


@dataclass
class _EvenOddsSearch:
    """The search for a bias that brings a token near even odds."""

    token: int
    bias: float  # the bias to try next, nats
    # the largest bias at which the token was not shown, nats; -inf: it was always shown
    hidden_at_bias: float = -inf
    too_likely_at_bias: float = inf  # the smallest bias at which p' was too close to 1, nats; inf: it never was

    def raise_bias(self, max_bias_nats: float) -> None:
        """Try a larger bias, because the token was not shown."""
        self.hidden_at_bias = self.bias
        is_limited = self.too_likely_at_bias < inf
        middle = (self.hidden_at_bias + self.too_likely_at_bias) / 2
        self.bias = min(max_bias_nats, middle if is_limited else self.bias + _BIAS_STEP_NATS)

    def lower_bias(self, bias: float) -> None:
        """Try a smaller bias, because the token was too likely: ``bias``, if it is within the interval."""
        self.too_likely_at_bias = self.bias
        middle = (self.hidden_at_bias + self.too_likely_at_bias) / 2
        is_between = self.hidden_at_bias < bias < self.too_likely_at_bias
        self.bias = bias if is_between else max(self.bias - _BIAS_STEP_NATS, middle)


def _query_each(task: RecoveryTask, searches: Sequence[_EvenOddsSearch]) -> list[_EvenOddsSearch]:
    """Query each token once; return the searches that are not finished."""
    bias_range, noise_nats = task.profile.bias_range, task.unbiased_response.noise_nats
    for search in searches:
        search.bias = bias_range.round_toward_zero(search.bias)
    queries = [{search.token: search.bias} for search in searches]
    unfinished_searches = []
    for search, responses in zip(searches, task.send_queries(queries), strict=True):
        logprobs = _read_logprobs(task, search, responses)
        if not logprobs or not (
            search.bias <= bias_range.max_confirmed_bias_nats or _confirm_bias(task, search, logprobs)
        ):
            unfinished_searches.append(search)
            continue
        true_logprob = min(float(np.mean(logprobs)), -_MIN_LOGPROB_SIZE_NATS)
        min_biased_logprob = min(response.logprobs[search.token] for response in responses)
        error = hypot(task.profile.relative_error, noise_nats / len(logprobs) ** 0.5)
        task.estimates.add(search.token, logprobs, single_bias_error(min_biased_logprob, true_logprob, error))
    return unfinished_searches


def _read_logprobs(
    task: RecoveryTask, search: _EvenOddsSearch, responses: Sequence[EndpointResponse]
) -> list[float]:
    """Return the logprob according to each response; none, with another bias chosen, if one does not show it."""
    if any(not response.logprobs and response.token == search.token for response in responses):
        # Some servers show no logprobs if they choose such a token, so it must not be chosen.
        search.lower_bias(search.bias - _BIAS_STEP_NATS)
        return []
    if not all(search.token in response.logprobs for response in responses):
        search.raise_bias(task.profile.bias_range.max_bias_nats)
        return []
    biased_logprobs = [response.logprobs[search.token] for response in responses]
    log_remainder = log1mexp(max(biased_logprobs))
    if log_remainder < log(_MAX_ERROR_GROWTH * task.profile.relative_error):
        search.lower_bias(search.bias - _BIAS_STEP_NATS)
        return []
    logprobs = [logprob_from_single_bias(value, search.bias) for value in biased_logprobs]
    true_logprob = max(logprobs)
    if log1mexp(true_logprob) - log_remainder > log(_MAX_ERROR_GROWTH):
        search.lower_bias(-log_odds(true_logprob))
        return []
    return logprobs


def _confirm_bias(task: RecoveryTask, search: _EvenOddsSearch, logprobs: Sequence[float]) -> bool:
    """Return whether the largest bias so far was added exactly: another bias must give the same logprob."""
    # If it was not, the endpoint limits biases of this size, and smaller ones are tried.
    bias_range, tolerance_nats = task.profile.bias_range, task.unbiased_response.agreement_tolerance_nats
    for bias in (search.bias - 1, search.bias + 1):
        (responses,) = task.send_queries([{search.token: bias}])
        biased_logprobs = [response.logprobs.get(search.token, 0.0) for response in responses]
        if max(biased_logprobs) < -task.profile.relative_error:
            repeated = [logprob_from_single_bias(value, bias) for value in biased_logprobs]
            if abs(np.mean(repeated) - np.mean(logprobs)) <= tolerance_nats:
                bias_range.max_confirmed_bias_nats = search.bias
                return True
            break
    bias_range.reject(search.bias)
    search.hidden_at_bias, search.bias = -inf, bias_range.max_bias_nats
    return False
