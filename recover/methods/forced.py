"""One token a call, where biases choose the token and do not change the logprobs."""

from __future__ import annotations

from collections.abc import Sequence

from ..task import RecoveryTask

_FIRST_BIAS_NATS = 100.0
"""Chooses nearly any token, and is OpenAI's largest bias."""
_LARGEST_BIAS_NATS = 1000.0
"""Larger than differences between logits are, by a wide margin."""


def forced(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens one a call: a large bias makes the endpoint choose the token, and it gives its logprob.

    A token that is not chosen gets a larger bias; one that is not chosen with the largest stays NaN.
    """
    largest = min(task.limits.max_bias, _LARGEST_BIAS_NATS)
    bias = min(_FIRST_BIAS_NATS, largest)
    remaining = task.estimates.unknown(tokens)
    while remaining:
        questions = ({token: bias} for token in remaining)
        for token, answers in zip(remaining, task.ask(questions), strict=True):
            own = [answer.logprob for answer in answers if answer.token == token]
            values = [value for value in own if value is not None]
            if len(values) == len(answers):
                task.estimates.add(token, values, task.profile.precision)
        remaining = task.estimates.unknown(remaining)
        if bias >= largest:
            break
        bias = min(2 * bias, largest)
