"""Recovery of one token per call, from the token's own logprob. This works even if only one logprob is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log

import numpy as np

from ..endpoints.base import EndpointResponse
from ..numerics import log1mexp, log_odds, logprob_from_single_bias, single_bias_error
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
        self.bias = min(
            max_bias_nats,
            self.bias + _BIAS_STEP_NATS
            if self.too_likely_at_bias == inf
            else (self.hidden_at_bias + self.too_likely_at_bias) / 2,
        )

    def lower_bias(self, bias: float) -> None:
        """Try a smaller bias, because the token was too likely: ``bias``, if it is within the interval."""
        self.too_likely_at_bias = self.bias
        is_between = self.hidden_at_bias < bias < self.too_likely_at_bias
        self.bias = (
            bias
            if is_between
            else max(self.bias - _BIAS_STEP_NATS, (self.hidden_at_bias + self.too_likely_at_bias) / 2)
        )

    def restart(self, bias: float) -> None:
        """Search again from a smaller bias, because the endpoint limited the last one."""
        self.hidden_at_bias, self.bias = -inf, bias


def single(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover one token per call, by `logprob_from_single_bias`."""
    # The bias should bring a token near even odds. It starts at the median of the logprobs found so far. A token
    # that is not shown is queried again with a larger bias. A token near p' = 1 is queried again with the bias
    # that its response suggests.
    single_each(task, task.estimates.unknown_among(tokens))


def single_each(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens like `single`, including tokens whose logprob is known, which is replaced."""
    finished_tokens: list[int] = []
    chunk_start = 0
    while chunk_start < len(tokens):
        chunk = tokens[chunk_start : chunk_start + (_CHUNK_TOKENS if finished_tokens else _FIRST_CHUNK_TOKENS)]
        chunk_start += len(chunk)
        bias = min(_first_bias(task, finished_tokens), task.bias_range.max_bias_nats)
        searches = [_EvenOddsSearch(token, bias) for token in chunk]
        for _ in range(_MAX_ROUNDS):
            unfinished_searches = _query_each(task, searches)
            finished_tokens += [search.token for search in searches if search not in unfinished_searches]
            searches = [
                search for search in unfinished_searches if search.hidden_at_bias < task.bias_range.max_bias_nats
            ]
            if not searches:
                break


def _first_bias(task: RecoveryTask, finished_tokens: Sequence[int]) -> float:
    """Return a bias that should bring the next tokens near even odds."""
    recovered_tokens = [
        token for token in finished_tokens if task.estimates.is_known(token)
    ]  # not the contradicted ones
    if not recovered_tokens:
        return _INITIAL_LIFT_NATS - min(task.unbiased_response.logprobs.values())
    return float(-np.median(task.estimates.logprobs[recovered_tokens]))


def _query_each(task: RecoveryTask, searches: Sequence[_EvenOddsSearch]) -> list[_EvenOddsSearch]:
    """Query each token once; return the searches that are not finished."""
    for search in searches:
        search.bias = task.bias_range.round_toward_zero(search.bias)
    queries = [{search.token: search.bias} for search in searches]
    unfinished_searches = []
    for search, responses in zip(searches, task.send_queries(queries), strict=True):
        logprobs = _read_logprobs(task, search, responses)
        if logprobs and (
            search.bias <= task.bias_range.max_confirmed_bias_nats or _confirm_bias(task, search, logprobs)
        ):
            true_logprob = float(np.mean(logprobs))
            min_biased_logprob = min(response.logprobs[search.token] for response in responses)
            error = hypot(task.profile.relative_error, task.unbiased_response.noise_nats / len(logprobs) ** 0.5)
            task.estimates.add(
                search.token,
                logprobs,
                single_bias_error(min_biased_logprob, min(true_logprob, -_MIN_LOGPROB_SIZE_NATS), error),
            )
        else:
            unfinished_searches.append(search)
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
        search.raise_bias(task.bias_range.max_bias_nats)
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
    relative_error = task.profile.relative_error
    for bias in (search.bias - 1, search.bias + 1):
        (responses,) = task.send_queries([{search.token: bias}])
        biased_logprobs = [response.logprobs.get(search.token) for response in responses]
        repeated_logprobs = [
            logprob_from_single_bias(value, bias)
            for value in biased_logprobs
            if value is not None and value < -relative_error
        ]
        if len(repeated_logprobs) == len(biased_logprobs):
            if (
                abs(np.mean(repeated_logprobs) - np.mean(logprobs))
                <= task.unbiased_response.agreement_tolerance_nats
            ):
                task.bias_range.confirm(search.bias)
                return True
            break
    task.bias_range.reject(search.bias)
    search.restart(task.bias_range.max_bias_nats)
    return False
