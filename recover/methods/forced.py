"""One token a call where biases choose the token and leave the logprobs alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..run import RecoveryRun

_FIRST = 100.0
_MOST = 1000.0


def forced(run: RecoveryRun, tokens: Sequence[int]) -> None:
    """Recover tokens one a call: a large bias makes the endpoint choose the token, and it names its logprob.

    A token that is not chosen gets a larger bias; one that is not chosen with the largest stays NaN.
    """
    most = min(run.asker.endpoint.limits.max_bias, _MOST)
    bias = min(_FIRST, most)
    todo = run.unknown(tokens)
    while todo:
        questions = ({token: bias} for token in todo)
        for token, answers in zip(todo, run.ask(questions), strict=True):
            told = [answer.logprob for answer in answers if answer.token == token]
            estimates = [value for value in told if value is not None]
            if len(estimates) == len(answers):
                run.learn(token, estimates, run.precision)
        todo = run.unknown(todo)
        if bias >= most:
            break
        bias = min(2 * bias, most)
