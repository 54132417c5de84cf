"""What an endpoint does with a bias: is it added, in full, in fractions, and beside others?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, floor

from ..endpoints.base import Bias, EndpointAnswer
from ..numerics import log_odds
from ..run import RecoveryRun

_LEAST = 1.0
_APART = 2.0
_BESIDE = 20.0
_STEPS = (0.0, 1.0)
_CHOOSING = 100.0


@dataclass(frozen=True)
class BiasResponse:
    """``most``: the largest bias that is added as asked, 0: none. ``step``: biases are multiples of it, 0: any.

    ``together``: several in one call are added. ``off``: the difference to what was asked, nats. ``seen``: where
    nothing is as asked, how far logprobs moved, and how far they should have; None: they stay as they are.
    """

    most: float = 0.0
    step: float = 0.0
    together: bool = True
    off: float = 0.0
    seen: tuple[float, float] | None = None


def highest(run: RecoveryRun) -> float:
    """The largest bias that is of use."""
    limits = run.asker.endpoint.limits
    return min(limits.max_bias, _BESIDE - limits.lowest)


def moves(run: RecoveryRun, tolerance: float) -> BiasResponse:
    """What biases do to logprobs; the window's last token and the likeliest one are biased."""
    seen = BiasResponse()
    for step in _STEPS:
        found = _largest(run, step, tolerance) if run.found.window > 1 else _odds(run, step, tolerance)
        if found.most or (step == 0 and found.seen is None):
            return found
        seen = seen if found.seen is None else found
    if run.found.window > 1:
        top, token = _pair(run)
        bias = min(highest(run), max(_APART, run.base[top] - run.base[token]))
        answer = _told(run, (token, top), {token: bias})
        if answer is not None and (off := abs(_apart(run, (token, top), answer) - bias)) <= tolerance:
            return BiasResponse(highest(run), together=False, off=off)
    return seen


def _pair(run: RecoveryRun) -> tuple[int, int]:
    """The likeliest and the least likely token of the base window that may be drawn."""
    ranked: Sequence[int] = run.open(sorted(run.base, key=lambda token: -run.base[token]))
    if len(ranked) < 2:
        ranked = sorted(run.base, key=lambda token: -run.base[token])
    return ranked[0], ranked[-1]


def _largest(run: RecoveryRun, step: float, tolerance: float) -> BiasResponse:
    """The largest bias that is added in full. For windows from 2 on.

    The window's last token gets a bias b, and the likeliest one as much less as brings the two near each other, so
    that both are told whatever b is: they must move against each other by the difference. Neither bias is 0, so
    that a call in which only one of them is added is found out.
    """
    top, token = _pair(run)
    gap = max(_APART, run.base[top] - run.base[token])
    gap = ceil(gap) if step else gap
    most = bias = floor(highest(run)) if step else highest(run)
    seen = BiasResponse()
    while bias >= min(_LEAST, most) > 0:
        other = bias - gap if bias - gap >= _LEAST else -min(bias, _LEAST)
        answer = _told(run, (token, top), {token: bias, top: other})
        if answer is not None:
            moved = _apart(run, (token, top), answer)
            if (off := abs(moved - (bias - other))) <= tolerance:
                limit = bias if bias == most else _cut_at(run, (token, top), bias)
                return BiasResponse(floor(limit) if step else limit, step, off=off)
            if max(abs(answer.logprobs[one] - run.base[one]) for one in (token, top)) <= tolerance:
                return BiasResponse()
            seen = BiasResponse(seen=(moved, bias - other))
        bias = bias // 2 if step else bias / 2
    return seen


def _told(run: RecoveryRun, pair: tuple[int, int], bias: Bias) -> EndpointAnswer | None:
    """The answer, if it tells both tokens."""
    ((answer,),) = run.asker.ask([bias])
    return answer if answer.logprobs.keys() >= {*pair} else None


def _apart(run: RecoveryRun, pair: tuple[int, int], answer: EndpointAnswer) -> float:
    """By how much the first of two tokens moved against the second."""
    one, other = pair
    return (answer.logprobs[one] - answer.logprobs[other]) - (run.base[one] - run.base[other])


def _cut_at(run: RecoveryRun, pair: tuple[int, int], bias: float) -> float:
    """Where biases are cut, if twice this ``bias`` is: the one token gets that, the other one this bias."""
    token, top = pair
    answer = _told(run, pair, {token: 2 * bias, top: bias})
    return bias if answer is None else bias + max(0.0, min(bias, _apart(run, pair, answer)))


def _odds(run: RecoveryRun, step: float, tolerance: float) -> BiasResponse:
    """With a window of one: does a bias move the odds of the only token shown? Then up to the limit, else 0.

    Whether a large bias is added in full cannot be seen here; `single` tests each that it comes to use.
    """
    top = run.anchor
    limit = run.asker.endpoint.limits.max_bias
    before = log_odds(min(run.base[top], -run.precision))
    bias = 1.0 - before if abs(1.0 - before) >= _LEAST else 1.0
    bias = max(-limit, min(limit, (round(bias) or 1) if step else bias))
    ((answer,),) = run.asker.ask([{top: bias}])
    after = answer.logprobs.get(top)
    if after is None or abs(after - run.base[top]) <= tolerance / 10:
        return BiasResponse()
    moved = log_odds(min(after, -run.precision)) - before
    # The difference is one of odds, which near p = 1 are far less exact than the logprob.
    return BiasResponse(limit, step) if abs(moved - bias) <= tolerance else BiasResponse(seen=(moved, bias))


def choices(run: RecoveryRun) -> tuple[bool, bool]:
    """Does a bias choose the token; and is that token's own logprob named as it is without a bias?"""
    limit = run.asker.endpoint.limits.max_bias
    if not run.base:  # only tokens are told: another one comes where the first is pushed down
        top = run.found.tokens[0]
        ((answer,),) = run.asker.ask([{} if top is None else {top: -min(limit, 5 * _CHOOSING)}])
        return answer.token not in (top, None), False
    top = max(run.base, key=lambda other: run.base[other])
    token = run.open(sorted(run.base, key=lambda other: run.base[other]))[0]
    if token == top:
        token = (top + 1) % run.asker.endpoint.vocab_size
    ((answer,),) = run.asker.ask([{token: min(limit, _CHOOSING)}])
    if answer.token != token:
        return False, False
    own = answer.logprob
    return True, own is not None and exp(own) + exp(run.base[top]) <= 1 + 1e-3
