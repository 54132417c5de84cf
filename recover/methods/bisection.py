"""An endpoint that returns only the likeliest token: how large must a bias be for it to be another one?"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import numpy as np

from ..errors import RecoverError
from ..numerics import logsumexp
from ..run import Run

FIRST = 16.0
_MOST = 512.0


def bisection(run: Run, tokens: Sequence[int]) -> None:
    """Recover what tokens lack to the likeliest one: token i is chosen once its bias exceeds log p_top - log p_i.

    The bias grows from 16 by doubling until the token is chosen; then the interval is halved until it is no wider
    than ``eps``, and its middle is off by half of that at most. This gives differences; they become logprobs where
    they are those of the whole vocabulary, whose sum is 1, which moves all by at most another half. Else they stay
    relative to the likeliest token, at 0.
    """
    eps = run.settings.eps
    top = _top(run)
    run.logprobs[top], run.errors[top] = 0.0, eps / 2
    todo = run.unknown(tokens)
    low, high = _brackets(run, todo)
    widest = max((high[token] - low[token] for token in high), default=0.0)
    for _ in range(max(0, ceil(log2(widest / eps))) if high else 0):
        asked = [token for token in high if high[token] - low[token] > eps]
        middles = {token: (low[token] + high[token]) / 2 for token in asked}
        questions = ({token: middles[token]} for token in asked)
        for token, answers in zip(asked, run.ask(questions), strict=True):
            (high if answers[0].token == token else low)[token] = middles[token]
    for token in high:
        run.learn(token, [-(low[token] + high[token]) / 2], eps / 2)
    _normalise(run)


def ranking(run: Run, n: int) -> list[int]:
    """The ``n`` likeliest tokens, from the first on: each is chosen once those before it are pushed down."""
    push = min(_MOST, run.asker.endpoint.limits.max_bias)
    most = run.asker.endpoint.limits.most_biases
    found = [_top(run)]
    while len(found) < n:
        if most is not None and len(found) > most:
            raise RecoverError(
                f"the endpoint takes {most:,} biases a call, too few to find the {n:,} likeliest tokens"
            )
        token = _chosen(run, dict.fromkeys(found, -push))
        if token is None or token in found:
            raise RecoverError(
                f"token {token} is chosen again with a bias of -{push:g}: ask for the {len(found):,} likeliest"
            )
        found.append(token)
    return found


def calls(width: float, eps: float) -> int:
    """Calls for a token: halvings of an interval, and one or two to find it."""
    return max(0, ceil(log2(width / eps))) + 1


def _brackets(run: Run, todo: Sequence[int]) -> tuple[dict[int, float], dict[int, float]]:
    """For each token a bias with which it is not chosen, and one with which it is."""
    most = min(run.asker.endpoint.limits.max_bias, _MOST)
    low = dict.fromkeys(todo, 0.0)
    high: dict[int, float] = {}
    bias = min(FIRST, most)
    left = list(todo)
    while left:
        for token, answers in zip(left, run.ask([{token: bias} for token in left]), strict=True):
            (high if answers[0].token == token else low)[token] = bias
        left = [token for token in left if token not in high]
        if bias >= most:
            break
        bias = min(2 * bias, most)
    return low, high


def _top(run: Run) -> int:
    """The token that is chosen without a bias, each time."""
    token, again = run.found.tokens
    if token is None:
        raise RecoverError(
            "the endpoint does not say which token it chose, so that bisection has nothing to go by"
        )
    if token != again:
        raise RecoverError(
            "the endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
        )
    return token


def _chosen(run: Run, bias: dict[int, float]) -> int | None:
    ((answer,),) = run.asker.ask([bias])
    return answer.token


def _normalise(run: Run) -> None:
    """Make differences logprobs, if those of all tokens are known."""
    run.normalised = not np.isnan(run.logprobs).any()
    if run.normalised:
        run.logprobs -= logsumexp(run.logprobs)
        run.errors += run.settings.eps / 2
