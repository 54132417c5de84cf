"""One token a call, from its own logprob alone: works also where the window shows only one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log

import numpy as np

from ..endpoints.base import EndpointResponse
from ..numerics import log1mexp, log_odds, logprob_from_single_bias, single_bias_error
from ..task import RecoveryTask

_MAX_ERROR_GROWTH = 20.0
"""The error may grow by this factor in 1 - p'; beyond it the bias was too large."""
_FIRST_CHUNK_TOKENS, _CHUNK_TOKENS = 32, 1024
"""Tokens that are asked for before the first bias is adapted to them, and before each further time."""
_MAX_ROUNDS = 60
"""A search that halves an interval of biases ends long before."""
_BIAS_STEP_NATS = 10.0
"""By how much a bias grows until the token is shown."""
_INITIAL_LIFT_NATS = 8.0
"""By how much the first bias lifts a token above the window's last one."""
_MIN_LOGPROB_SIZE_NATS = 1e-300
"""Keeps a logprob below 0, where its odds are finite; near the smallest normal float64."""


@dataclass
class _EvenOddsSearch:
    """The search for a bias that brings a token near even odds.

    The token was not shown at ``hidden_at_bias``, and was too close to p' = 1 at ``too_likely_at_bias``.
    """

    token: int
    bias: float
    hidden_at_bias: float = -inf
    too_likely_at_bias: float = inf

    def raise_bias(self, max_bias_nats: float) -> None:
        """The token was not shown."""
        self.hidden_at_bias = self.bias
        self.bias = min(
            max_bias_nats,
            self.bias + _BIAS_STEP_NATS
            if self.too_likely_at_bias == inf
            else (self.hidden_at_bias + self.too_likely_at_bias) / 2,
        )

    def lower_bias(self, bias: float) -> None:
        """The token left too little for the others: try ``bias`` if nothing speaks against it."""
        self.too_likely_at_bias = self.bias
        is_between = self.hidden_at_bias < bias < self.too_likely_at_bias
        self.bias = (
            bias
            if is_between
            else max(self.bias - _BIAS_STEP_NATS, (self.hidden_at_bias + self.too_likely_at_bias) / 2)
        )

    def restart(self, bias: float) -> None:
        """The endpoint cut the bias: search again below it."""
        self.hidden_at_bias, self.bias = -inf, bias


def single(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens one a call, by `logprob_from_single_bias`.

    The bias should bring a token near even odds. It starts at the median of what was found so far. A token that is
    not shown gets a larger bias, a token near p' = 1 the one that its answer suggests, and both are asked for
    again.
    """
    single_each(task, task.estimates.unknown_among(tokens))


def single_each(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens as `single`, also known ones, whose values are replaced."""
    finished_tokens: list[int] = []
    start = 0
    while start < len(tokens):
        chunk = tokens[start : start + (_CHUNK_TOKENS if finished_tokens else _FIRST_CHUNK_TOKENS)]
        start += len(chunk)
        bias = min(_first_bias(task, finished_tokens), task.bias_range.max_bias_nats)
        searches = [_EvenOddsSearch(token, bias) for token in chunk]
        for _ in range(_MAX_ROUNDS):
            unfinished = _query_each(task, searches)
            finished_tokens += [search.token for search in searches if search not in unfinished]
            searches = [search for search in unfinished if search.hidden_at_bias < task.bias_range.max_bias_nats]
            if not searches:
                break


def _first_bias(task: RecoveryTask, finished_tokens: Sequence[int]) -> float:
    """Return a bias that should bring the next tokens near even odds."""
    recovered = [
        token for token in finished_tokens if task.estimates.is_known(token)
    ]  # the others are contradicted
    if not recovered:
        return _INITIAL_LIFT_NATS - min(task.unbiased_window.logprobs.values())
    return float(-np.median(task.estimates.logprobs[recovered]))


def _query_each(task: RecoveryTask, searches: Sequence[_EvenOddsSearch]) -> list[_EvenOddsSearch]:
    """Ask for each token once; return the searches that go on."""
    for search in searches:
        search.bias = task.bias_range.round_toward_zero(search.bias)
    queries = [{search.token: search.bias} for search in searches]
    unfinished = []
    for search, responses in zip(searches, task.send_queries(queries), strict=True):
        values = _read_logprobs(task, search, responses)
        if values and (
            search.bias <= task.bias_range.max_confirmed_bias_nats or _confirm_bias(task, search, values)
        ):
            true_logprob = float(np.mean(values))
            biased_logprobs = min(response.logprobs[search.token] for response in responses)
            error = hypot(task.profile.relative_error, task.unbiased_window.noise_nats / len(values) ** 0.5)
            task.estimates.add(
                search.token,
                values,
                single_bias_error(biased_logprobs, min(true_logprob, -_MIN_LOGPROB_SIZE_NATS), error),
            )
        else:
            unfinished.append(search)
    return unfinished


def _read_logprobs(
    task: RecoveryTask, search: _EvenOddsSearch, responses: Sequence[EndpointResponse]
) -> list[float]:
    """Return the logprob by each answer; if they do not give it, return nothing and choose another bias."""
    if any(not response.logprobs and response.token == search.token for response in responses):
        search.lower_bias(
            search.bias - _BIAS_STEP_NATS
        )  # some servers hide the window behind a token such as this
        return []
    if not all(search.token in response.logprobs for response in responses):
        search.raise_bias(task.bias_range.max_bias_nats)
        return []
    biased_logprobs = [response.logprobs[search.token] for response in responses]
    log_remainder = log1mexp(max(biased_logprobs))
    if log_remainder < log(_MAX_ERROR_GROWTH * task.profile.relative_error):
        search.lower_bias(search.bias - _BIAS_STEP_NATS)
        return []
    values = [logprob_from_single_bias(value, search.bias) for value in biased_logprobs]
    true_logprob = max(values)
    if log1mexp(true_logprob) - log_remainder > log(_MAX_ERROR_GROWTH):
        search.lower_bias(-log_odds(true_logprob))
        return []
    return values


def _confirm_bias(task: RecoveryTask, search: _EvenOddsSearch, values: Sequence[float]) -> bool:
    """True if a bias larger than any before was added in full: another one must give the same logprob.

    If not, the endpoint cuts biases this large, and smaller ones are tried.
    """
    relative_error = task.profile.relative_error
    for bias in (search.bias - 1, search.bias + 1):
        (responses,) = task.send_queries([{search.token: bias}])
        biased_logprobs = [response.logprobs.get(search.token) for response in responses]
        repeated_values = [
            logprob_from_single_bias(value, bias)
            for value in biased_logprobs
            if value is not None and value < -relative_error
        ]
        if len(repeated_values) == len(biased_logprobs):
            if abs(np.mean(repeated_values) - np.mean(values)) <= task.unbiased_window.agreement_tolerance_nats:
                task.bias_range.confirm(search.bias)
                return True
            break
    task.bias_range.reject(search.bias)
    search.restart(task.bias_range.max_bias_nats)
    return False
