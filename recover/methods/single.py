"""One token a call, from its own logprob alone: works also where the window shows only one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log

import numpy as np

from ..endpoints.base import EndpointAnswer
from ..numerics import from_single, log1mexp, log_odds, single_error
from ..task import RecoveryTask

_MOST_ERROR_GROWTH = 20.0
"""The error may grow by this factor in 1 - p'; beyond it the bias was too large."""
_PILOT_TOKENS, _CHUNK_TOKENS = 32, 1024
"""Tokens that are asked for before the first bias is adapted to them, and before each further time."""
_MOST_ROUNDS = 60
"""A search that halves an interval of biases ends long before."""
_BIAS_STEP_NATS = 10.0
"""By how much a bias grows until the token is shown."""
_FIRST_LIFT_NATS = 8.0
"""By how much the first bias lifts a token above the window's last one."""
_LEAST_SIZE_NATS = 1e-300
"""Keeps a logprob below 0, where its odds are finite; near the smallest normal float64."""


@dataclass
class _EvenOddsSearch:
    """The search for a bias that brings a token near even odds.

    The token was not shown at ``low``, and was too close to p' = 1 at ``high``.
    """

    token: int
    bias: float
    low: float = -inf
    high: float = inf

    def increase(self, largest: float) -> None:
        """The token was not shown."""
        self.low = self.bias
        self.bias = min(largest, self.bias + _BIAS_STEP_NATS if self.high == inf else (self.low + self.high) / 2)

    def decrease(self, bias: float) -> None:
        """The token left too little for the others: try ``bias`` if nothing speaks against it."""
        self.high = self.bias
        is_between = self.low < bias < self.high
        self.bias = bias if is_between else max(self.bias - _BIAS_STEP_NATS, (self.low + self.high) / 2)

    def restart(self, bias: float) -> None:
        """The endpoint cut the bias: search again below it."""
        self.low, self.bias = -inf, bias


def single(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens one a call, by `from_single`.

    The bias should bring a token near even odds. It starts at the median of what was found so far. A token that is
    not shown gets a larger bias, a token near p' = 1 the one that its answer suggests, and both are asked for
    again.
    """
    single_each(task, task.estimates.unknown(tokens))


def single_each(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens as `single`, also known ones, whose values are replaced."""
    done: list[int] = []
    start = 0
    while start < len(tokens):
        chunk = tokens[start : start + (_CHUNK_TOKENS if done else _PILOT_TOKENS)]
        start += len(chunk)
        bias = min(_first_bias(task, done), task.bias_range.largest)
        searches = [_EvenOddsSearch(token, bias) for token in chunk]
        for _ in range(_MOST_ROUNDS):
            unfinished = _ask_each(task, searches)
            done += [search.token for search in searches if search not in unfinished]
            searches = [search for search in unfinished if search.low < task.bias_range.largest]
            if not searches:
                break


def _first_bias(task: RecoveryTask, done: Sequence[int]) -> float:
    """Return a bias that should bring the next tokens near even odds."""
    recovered = [token for token in done if task.estimates.is_known(token)]  # the others are contradicted
    if not recovered:
        return _FIRST_LIFT_NATS - min(task.base.logprobs.values())
    return float(-np.median(task.estimates.logprobs[recovered]))


def _ask_each(task: RecoveryTask, searches: Sequence[_EvenOddsSearch]) -> list[_EvenOddsSearch]:
    """Ask for each token once; return the searches that go on."""
    for search in searches:
        search.bias = task.bias_range.rounded(search.bias)
    questions = [{search.token: search.bias} for search in searches]
    unfinished = []
    for search, answers in zip(searches, task.ask(questions), strict=True):
        values = _read(task, search, answers)
        if values and (search.bias <= task.bias_range.confirmed or _is_confirmed(task, search, values)):
            true = float(np.mean(values))
            after = min(answer.logprobs[search.token] for answer in answers)
            error = hypot(task.profile.precision, task.base.noise / len(values) ** 0.5)
            task.estimates.add(search.token, values, single_error(after, min(true, -_LEAST_SIZE_NATS), error))
        else:
            unfinished.append(search)
    return unfinished


def _read(task: RecoveryTask, search: _EvenOddsSearch, answers: Sequence[EndpointAnswer]) -> list[float]:
    """Return the logprob by each answer; if they do not give it, return nothing and choose another bias."""
    if any(not answer.logprobs and answer.token == search.token for answer in answers):
        search.decrease(search.bias - _BIAS_STEP_NATS)  # some servers hide the window behind a token such as this
        return []
    if not all(search.token in answer.logprobs for answer in answers):
        search.increase(task.bias_range.largest)
        return []
    after = [answer.logprobs[search.token] for answer in answers]
    log_remainder = log1mexp(max(after))
    if log_remainder < log(_MOST_ERROR_GROWTH * task.profile.precision):
        search.decrease(search.bias - _BIAS_STEP_NATS)
        return []
    values = [from_single(value, search.bias) for value in after]
    true = max(values)
    if log1mexp(true) - log_remainder > log(_MOST_ERROR_GROWTH):
        search.decrease(-log_odds(true))
        return []
    return values


def _is_confirmed(task: RecoveryTask, search: _EvenOddsSearch, values: Sequence[float]) -> bool:
    """True if a bias larger than any before was added in full: another one must give the same logprob.

    If not, the endpoint cuts biases this large, and smaller ones are tried.
    """
    precision = task.profile.precision
    for bias in (search.bias - 1, search.bias + 1):
        (answers,) = task.ask([{search.token: bias}])
        after = [answer.logprobs.get(search.token) for answer in answers]
        again = [from_single(value, bias) for value in after if value is not None and value < -precision]
        if len(again) == len(after):
            if abs(np.mean(again) - np.mean(values)) <= task.base.margin:
                task.bias_range.confirm(search.bias)
                return True
            break
    task.bias_range.reject(search.bias)
    search.restart(task.bias_range.largest)
    return False
