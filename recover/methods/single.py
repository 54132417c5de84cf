"""One token a call, out of its own logprob alone: also where the window shows but one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, log

import numpy as np

from ..endpoints.base import EndpointAnswer
from ..numerics import from_single, log1mexp, log_odds, single_error
from ..run import RecoveryRun

_WORST = 20.0
"""The error may grow by this factor in 1 - p', not more: else the bias was too large."""
_PILOT, _CHUNK = 32, 1024
_ROUNDS = 60
_STEP = 10.0
_ABOVE = 8.0
_AGREE = 0.02


@dataclass
class _Search:
    """A token's bias, and what is known of it: not shown at ``low``, too close to p' = 1 at ``high``."""

    token: int
    bias: float
    low: float = -inf
    high: float = inf

    def try_more(self, most: float) -> None:
        """The token was not shown."""
        self.low = self.bias
        self.bias = min(most, self.bias + _STEP if self.high == inf else (self.low + self.high) / 2)

    def try_less(self, bias: float) -> None:
        """The token left too little for the others."""
        self.high = self.bias
        self.bias = bias if self.low < bias < self.high else max(self.bias - _STEP, (self.low + self.high) / 2)


def single(run: RecoveryRun, tokens: Sequence[int]) -> None:
    """Recover tokens one a call, by `from_single`.

    The bias should bring a token near even odds. It starts at the median of what was found so far; a token that is
    not shown gets a larger one, a token near p' = 1 the one that its answer tells, and both are asked again.
    """
    single_each(run, run.unknown(tokens))


def single_each(run: RecoveryRun, tokens: Sequence[int]) -> None:
    """The same, also for tokens that are known: what is found takes the place of what was."""
    done: list[int] = []
    start = 0
    while start < len(tokens):
        chunk = tokens[start : start + (_CHUNK if done else _PILOT)]
        start += len(chunk)
        guess = float(-np.median(run.logprobs[done])) if done else _ABOVE - min(run.base.values())
        searches = [_Search(token, min(guess, run.found.max_bias)) for token in chunk]
        for _ in range(_ROUNDS):
            left = _round(run, searches)
            done += [search.token for search in searches if search not in left]
            searches = [search for search in left if search.low < run.found.max_bias]
            if not searches:
                break


def _round(run: RecoveryRun, searches: Sequence[_Search]) -> list[_Search]:
    """Ask for each token once; returns those that are to be asked again."""
    for search in searches:
        search.bias = run.stepped(search.bias)
    questions = [{search.token: search.bias} for search in searches]
    left = []
    for search, answers in zip(searches, run.ask(questions), strict=True):
        estimates = _read(run, search, answers)
        if estimates and (search.bias <= run.trusted or _confirmed(run, search, estimates)):
            true = float(np.mean(estimates))
            after = min(answer.logprobs[search.token] for answer in answers)
            error = hypot(run.precision, run.noise / len(estimates) ** 0.5)
            run.learn(search.token, estimates, single_error(after, min(true, -1e-300), error))
        else:
            left.append(search)
    return left


def _read(run: RecoveryRun, search: _Search, answers: Sequence[EndpointAnswer]) -> list[float]:
    """The logprob by each answer; nothing, and another bias, where they do not tell it."""
    if any(not answer.logprobs and answer.token == search.token for answer in answers):
        search.try_less(search.bias - _STEP)  # some servers hide the window behind a token such as this
        return []
    if not all(search.token in answer.logprobs for answer in answers):
        search.try_more(run.found.max_bias)
        return []
    told = [answer.logprobs[search.token] for answer in answers]
    rest = log1mexp(max(told))
    if rest < log(_WORST * run.precision):
        search.try_less(search.bias - _STEP)
        return []
    estimates = [from_single(value, search.bias) for value in told]
    true = max(estimates)
    if log1mexp(true) - rest > log(_WORST):
        search.try_less(-log_odds(true))
        return []
    return estimates


def _confirmed(run: RecoveryRun, search: _Search, estimates: Sequence[float]) -> bool:
    """Was a bias larger than any before added in full? Another one must give the same logprob.

    If not, biases this large are cut by the endpoint, and smaller ones are tried.
    """
    least = max(run.trusted, 1.0)
    for bias in (search.bias - 1, search.bias + 1):
        (answers,) = run.ask([{search.token: bias}])
        told = [answer.logprobs.get(search.token) for answer in answers]
        again = [from_single(value, bias) for value in told if value is not None and value < -run.precision]
        if len(again) == len(told):
            if abs(np.mean(again) - np.mean(estimates)) <= max(_AGREE, 10 * run.found.spread):
                run.trusted = search.bias
                return True
            break
    run.found = replace(run.found, max_bias=max(least, run.stepped(0.8 * search.bias)))
    search.low, search.bias = -inf, run.found.max_bias
    return False
