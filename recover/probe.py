"""A few calls that show what an endpoint does with biases, so that no method is used where it would be wrong."""

from __future__ import annotations

from math import exp

import numpy as np

from .endpoint import Answer
from .errors import RecoverError
from .numerics import log_odds
from .run import Findings, Run

START = 40.0
"""The bias that `parallel` begins with: more than almost any two logits are apart."""
_LEAST = 1.0
_APART = 2.0
_TOLERANCE = 0.02
_NOISY_TURNS = 4
_BESIDE = 20.0


def probe(run: Run) -> None:
    """Fill ``run.found``, ``run.base`` and ``run.turns``, with about four calls.

    Two without a bias: how many logprobs are shown, and are they the same again? Then a bias on one token: does
    its logprob move, and by all of the bias? Raises ``RecoverError``.
    """
    ((first, second),) = run.asker.ask([{}], turns=2)
    window = min(len(first.logprobs), len(second.logprobs))
    if not window:
        if first.token is None:
            raise RecoverError("the endpoint shows neither logprobs nor a token")
        run.found = Findings(0, tokens=(first.token, second.token), lines=("only the token is shown",))
        return
    both = first.logprobs.keys() & second.logprobs.keys()
    spread = max((abs(first.logprobs[token] - second.logprobs[token]) for token in both), default=0.0)
    noisy = spread > 20 * run.precision
    run.turns = run.settings.repeats or (_NOISY_TURNS if noisy else 1)
    _learn_base(run, [first, second])
    said = f"answers differ by up to {spread:.1e} nats from call to call" if noisy else "answers repeat"
    lines = [f"{window} {'logprob' if window == 1 else 'logprobs'} a call", said]
    tolerance = max(_TOLERANCE, 10 * spread)
    most = _largest(run, tolerance) if window > 1 else _odds_move(run, tolerance)
    if most:
        limits = run.asker.endpoint.limits
        cut = most < min(limits.max_bias, _BESIDE - limits.lowest)
        moved = f"biases up to {most:.4g} move logprobs as asked" + (", larger ones are cut" if cut else "")
        lines.append(moved if window > 1 else "a bias moves its odds as asked")
    forces = most == 0 and _forces(run)
    if not most:
        lines.append(
            "a bias does not move logprobs" + (", but chooses the token" if forces else ", nor the choice")
        )
    tokens = (first.token, second.token)
    run.found = Findings(window, spread, tokens, most > 0, forces, most, tuple(lines))
    run.trusted = most if window > 1 else 0.0


def _learn_base(run: Run, answers: list[Answer]) -> None:
    """The window without a bias, as the mean over as many answers as each question gets."""
    if run.turns > 2:
        answers = answers + next(iter(run.asker.ask([{}], run.turns - 2, first=2)))
    kept = answers[: run.turns]
    common = set.intersection(*(set(answer.logprobs) for answer in kept))
    if not common:
        raise RecoverError(
            "without a bias the endpoint shows other tokens at each call: it draws them, and none can be compared"
        )
    for token in common:
        told = [answer.logprobs[token] for answer in kept]
        run.base[token] = float(np.mean(told))
        run.learn(token, told, run.precision)


def _largest(run: Run, tolerance: float) -> float:
    """The largest bias that is added in full; 0: biases do not move logprobs. For windows from 2 on.

    The window's last token gets a bias b, and the anchor as much less as brings the two near each other, so
    that both are told whatever b is: they must move against each other by the difference.
    """
    limits = run.asker.endpoint.limits
    ranked = run.open(sorted(run.base, key=lambda token: -run.base[token]))
    if len(ranked) < 2:
        ranked = sorted(run.base, key=lambda token: -run.base[token])
    top, token = ranked[0], ranked[-1]
    most = bias = min(limits.max_bias, _BESIDE - limits.lowest)
    while bias >= min(_LEAST, most):
        less = min(bias, max(_APART, run.base[top] - run.base[token]))
        ((answer,),) = run.asker.ask([{token: bias, top: bias - less}])
        if answer.logprobs.keys() >= {token, top}:
            after = (answer.logprobs[token], answer.logprobs[top])
            moved = (after[0] - after[1]) - (run.base[token] - run.base[top])
            if abs(moved - less) <= tolerance:
                return bias if bias == most else _cut_at(run, (token, top), bias)
            if max(abs(after[0] - run.base[token]), abs(after[1] - run.base[top])) <= tolerance:
                return 0.0
        bias /= 2
    return 0.0


def _cut_at(run: Run, pair: tuple[int, int], bias: float) -> float:
    """Where biases are cut, if twice this ``bias`` is: the one token gets that, the other one this bias."""
    token, top = pair
    ((answer,),) = run.asker.ask([{token: 2 * bias, top: bias}])
    if not answer.logprobs.keys() >= {token, top}:
        return bias
    moved = (answer.logprobs[token] - answer.logprobs[top]) - (run.base[token] - run.base[top])
    return bias + max(0.0, min(bias, moved))


def _odds_move(run: Run, tolerance: float) -> float:
    """With a window of one: does a bias move the odds of the only token shown? Then the limit, else 0.

    Whether a large bias is added in full cannot be seen here; `single` tests each that it comes to use.
    """
    top = run.anchor
    limit = run.asker.endpoint.limits.max_bias
    before = log_odds(min(run.base[top], -run.precision))
    bias = 1.0 - before if abs(1.0 - before) >= _LEAST else 1.0
    bias = max(-limit, min(limit, bias))
    ((answer,),) = run.asker.ask([{top: bias}])
    after = answer.logprobs.get(top)
    if after is None or abs(log_odds(min(after, -run.precision)) - before - bias) > tolerance:
        return 0.0
    return limit


def _forces(run: Run) -> bool:
    """Does a bias choose a token, and is that token's own logprob named as it is without a bias?"""
    limit = run.asker.endpoint.limits.max_bias
    top = max(run.base, key=lambda other: run.base[other])
    token = run.open(sorted(run.base, key=lambda other: run.base[other]))[0]
    if token == top:
        token = (top + 1) % run.asker.endpoint.vocab_size
    ((answer,),) = run.asker.ask([{token: min(limit, 100.0)}])
    if answer.token != token or answer.logprob is None:
        return False
    return exp(answer.logprob) + exp(run.base[top]) <= 1 + 1e-3
