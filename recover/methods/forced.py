"""`forced`: one token per call, if biases choose the token, but the endpoint shows the logprob before the biases.

A large bias b makes the endpoint choose the token, and the endpoint reports log p itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..task import RecoveryTask

_FIRST_BIAS_NATS = 100.0  # Chooses nearly any token. It is OpenAI's largest bias.
_MAX_BIAS_NATS = 1000.0  # Much larger than any difference between two logits


def forced(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover the tokens that are still unknown."""
    # A token that is not chosen gets a larger bias. A token that is not chosen with the largest bias stays NaN.
    max_bias_nats = min(task.limits.max_bias_nats, _MAX_BIAS_NATS)
    bias = min(_FIRST_BIAS_NATS, max_bias_nats)
    remaining_tokens = task.estimates.unknown_among(tokens)
    while remaining_tokens:
        queries = ({token: bias} for token in remaining_tokens)
        for token, responses in zip(remaining_tokens, task.send_queries(queries), strict=True):
            chosen_logprobs = [response.logprob for response in responses if response.token == token]
            logprobs = [value for value in chosen_logprobs if value is not None]
            if len(logprobs) == len(responses):
                task.estimates.add(token, logprobs, task.profile.relative_error)
        remaining_tokens = task.estimates.unknown_among(remaining_tokens)
        if bias >= max_bias_nats:
            break
        bias = min(2 * bias, max_bias_nats)
