"""An endpoint that returns only the likeliest token: how large must a bias be for it to be another one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

import numpy as np

from ..endpoints.base import EndpointAnswer, greedy
from ..errors import RecoverError
from ..numerics import logsumexp
from ..run import RecoveryRun
from .choice_threshold import Threshold, flip_zone, moved

FIRST = 16.0
_MOST = 512.0
_PILOTS = 4


def bisection(run: RecoveryRun, tokens: Sequence[int]) -> None:
    """Recover what tokens lack to the likeliest one: token i is chosen once its bias exceeds log p_top - log p_i.

    The bias grows from 16 by doubling until the token is chosen; then the interval is halved until it is no wider
    than ``eps``, and its middle is off by half of that at most, or by what answers to one question differ. This
    gives differences; they become logprobs where they are those of the whole vocabulary, whose sum is 1, which
    moves all by no more than the mean error. Else they stay relative to the likeliest token, at 0; what was
    learned before, on another scale, is forgotten. Raises ``RecoverError`` where biases do not add up.
    """
    top = _top(run)
    run.logprobs[:] = run.errors[:] = np.nan
    run.ceiling = inf
    run.logprobs[top], run.errors[top] = 0.0, run.settings.eps / 2
    if not run.base:
        run.notes.append("choices alone do not show a factor on all biases, or a temperature")
    todo = run.unknown(tokens)
    beside = [token for token in sorted(run.base, key=lambda token: -run.base[token]) if token != top]
    pilots = beside[:1] or todo[:_PILOTS]
    brackets = _bisected(run, pilots)
    zone = 0.0
    if brackets:
        token = min(brackets, key=lambda one: brackets[one].high)
        seen = Threshold(top, token, brackets[token].low, brackets[token].high)
        zone = flip_zone(run, seen)
        run.watch = lambda turn: moved(run, seen, zone, turn)
        run.errors[top] = max(run.settings.eps / 2, zone)
    brackets |= _bisected(run, [token for token in todo if token not in pilots])
    for token, bracket in brackets.items():
        middle = (bracket.low + bracket.high) / 2
        run.learn(token, [-middle], max(run.settings.eps / 2, zone, bracket.off(middle)))
    _normalise(run)


def ranking(run: RecoveryRun, n: int) -> list[int]:
    """The ``n`` likeliest tokens, from the first on: each is chosen once those before it are pushed down."""
    push = min(_MOST, run.asker.endpoint.limits.max_bias)
    most = run.asker.endpoint.limits.most_biases
    found = [_top(run)]
    while len(found) < n:
        if most is not None and len(found) > most:
            raise RecoverError(
                f"the endpoint takes {most:,} biases a call, too few to find the {n:,} likeliest tokens"
            )
        (answers,) = run.ask([dict.fromkeys(found, -push)], likeliest=True)
        told = [answer.token for answer in answers]
        token = max(told, key=told.count)
        if token is None:
            raise RecoverError(f"the next token has no name of its own: ask for the {len(found):,} likeliest")
        if token in found:
            raise RecoverError(
                f"token {token} is chosen again with a bias of -{push:g}: ask for the {len(found):,} likeliest"
            )
        found.append(token)
    return found


def calls(width: float, eps: float) -> int:
    """Calls for a token: halvings of an interval, and one or two to find it."""
    return max(0, ceil(log2(width / eps))) + 1


@dataclass
class _Bracket:
    """A bias with which a token is not chosen, and one with which it is, by most votes.

    ``least`` and ``largest``: the smallest bias with a vote for it, and the largest with one against it.
    """

    low: float = 0.0
    high: float = inf
    least: float = inf
    largest: float = -inf

    def read(self, token: int, bias: float, answers: Sequence[EndpointAnswer]) -> None:
        """Take in the votes on one bias."""
        votes = sum(answer.token == token for answer in answers)
        if 2 * votes > len(answers):
            self.high = bias
        else:
            self.low = bias
        if votes:
            self.least = min(self.least, bias)
        if votes < len(answers):
            self.largest = max(self.largest, bias)

    def off(self, middle: float) -> float:
        """How far the votes let the threshold be from the middle."""
        return max(max(self.high, self.largest) - middle, middle - min(self.low, self.least))


def _bisected(run: RecoveryRun, tokens: Sequence[int]) -> dict[int, _Bracket]:
    """An interval no wider than ``eps`` for each token that a bias can bring."""
    found = _brackets(run, tokens)
    eps = run.settings.eps
    widest = max((bracket.high - bracket.low for bracket in found.values()), default=0.0)
    for _ in range(max(0, ceil(log2(widest / eps))) if found else 0):
        wide = [token for token, bracket in found.items() if bracket.high - bracket.low > eps]
        _vote(run, found, {token: (found[token].low + found[token].high) / 2 for token in wide})
    return found


def _vote(run: RecoveryRun, brackets: Mapping[int, _Bracket], biases: Mapping[int, float]) -> None:
    questions = ({token: bias} for token, bias in biases.items())
    for (token, bias), answers in zip(biases.items(), run.ask(questions, likeliest=True), strict=True):
        brackets[token].read(token, bias, answers)


def _brackets(run: RecoveryRun, todo: Sequence[int]) -> dict[int, _Bracket]:
    """For each token that can be chosen, a bias with which it is, and one with which it is not."""
    most = min(run.asker.endpoint.limits.max_bias, _MOST)
    found = {token: _Bracket() for token in todo}
    bias = min(FIRST, most)
    left = list(todo)
    while left:
        _vote(run, found, dict.fromkeys(left, bias))
        left = [token for token in left if found[token].high == inf]
        if bias >= most:
            break
        bias = min(2 * bias, most)
    return {token: bracket for token, bracket in found.items() if bracket.high < inf}


def _top(run: RecoveryRun) -> int:
    """The token that is chosen without a bias, each time."""
    token, again = run.found.tokens
    if run.base and greedy(run.asker.endpoint) is not None:
        ((first, second),) = run.asker.ask([{}], turns=2, likeliest=True)
        token, again = first.token, second.token
    if token is None:
        raise RecoverError(
            "the endpoint does not say which token it chose, so that bisection has nothing to go by"
        )
    draws = token != again
    if run.base:  # a token that was drawn twice may seem to be chosen
        draws |= run.base.get(token, -inf) < max(run.base.values()) - 2 * run.found.spread - 1e-3
    if draws:
        raise RecoverError(
            "the endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
        )
    return token


def _normalise(run: RecoveryRun) -> None:
    """Make differences logprobs, if those of all tokens are known."""
    run.normalised = not np.isnan(run.logprobs).any()
    if run.normalised:
        run.logprobs -= logsumexp(run.logprobs)
        run.errors += float(np.exp(run.logprobs) @ run.errors)
