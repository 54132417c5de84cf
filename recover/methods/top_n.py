"""`top_n`: the most likely tokens; known tokens are suppressed, so that the endpoint shows the next ones.

Source: Finlayson, "Obtaining logprobs from an LLM API" (openlogprobs), section "Top-n logprobs". With a bias -b on
tokens whose probabilities sum to P, another token of probability p is shown with p':

    p = p' (1 + (e^-b - 1) P)
    log p = log p' + log1p(expm1(-b) P)

If an endpoint shows at least two logprobs, one known token, the anchor, is lifted instead, and shown together with
the new tokens (`logprob_from_anchor`). Then the size of the suppression does not matter. The anchor is the most
likely token if the next tokens can be shown together with it; otherwise, it is the least likely known token.

If only one logprob is shown, the formula above is compared with `single` at the first token, and again whenever
the remaining probability 1 - P has halved. `single` replaces it where the digits of 1 - P cancel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..endpoints.base import EndpointResponse
from ..errors import RecoverError
from ..numerics import Float64s
from ..task import RecoveryTask
from .parallel import logprob_from_anchor
from .single import single_each

_MAX_SUPPRESSING_BIAS_NATS = 100.0  # Suppresses any token below all others. It is OpenAI's largest bias.
_ANCHOR_LIFT_NATS = 8.0  # Makes the anchor the chosen token nearly always: e^8 is 3000
_SPARE_NATS = 10.0  # Next to the anchor, the next tokens must stay this far above the lowest reliable logprob
# If `logprob_from_suppression` multiplies the relative error by more than this, `single` replaces it
_MAX_ERROR_GROWTH = 1e3
_AGREEMENT_NATS = 1e-4  # Values of `logprob_from_suppression` and of `single` agree if they differ by less
_MIN_REMAINDER = 1e-300  # Keeps a division by 1 - P finite if P rounds to 1


def logprob_from_suppression(biased_logprob: float, suppressed_token_logprobs: Float64s, bias: float) -> float:
    """Return log p from log p', the logprobs of the suppressed tokens, and b."""
    change = np.expm1(-bias) * np.exp(suppressed_token_logprobs).sum()
    if change <= -1:  # P rounds to 1, so only e^-b P is left of the sum, and its logarithm is -b
        return biased_logprob - bias
    return biased_logprob + float(np.log1p(change))


def suppression_error(suppressed_token_logprobs: Float64s, relative_error: float) -> float:
    """Return the error of `logprob_from_suppression`, nats: 1 - P has the absolute error of P."""
    suppressed_probability = float(np.exp(suppressed_token_logprobs).sum())
    return relative_error * (1 + suppressed_probability / max(1 - suppressed_probability, _MIN_REMAINDER))


def top_n(task: RecoveryTask, top_count: int) -> None:
    """Recover the ``top_count`` most likely tokens. Raises ``RecoverError`` if no new token appears."""
    next_tokens = _NextTokens(task)
    estimates = task.estimates
    while True:
        known_tokens = estimates.known_by_logprob()
        missing_count = top_count - len(known_tokens)
        if missing_count <= 0:
            return
        # No hidden token is more likely than the least likely of the known ones.
        lowest_known_logprob = estimates.logprobs[known_tokens[-1]]
        estimates.max_hidden_logprob = min(
            estimates.max_hidden_logprob,
            lowest_known_logprob + task.unbiased_response.agreement_tolerance_nats,
        )
        next_tokens.query_next(known_tokens, missing_count)
        if estimates.contradicted_ids:
            raise RecoverError(
                f"token {min(estimates.contradicted_ids)} is more likely than the {len(known_tokens):,} tokens "
                "before it: the endpoint does not add all biases of a call; request at most the "
                f"{len(known_tokens):,} most likely"
            )
        has_progress = len(estimates.known_tokens()) > len(known_tokens)
        if not has_progress:
            if estimates.unmatched_logprobs:
                task.notes.append(
                    f"after the {len(known_tokens):,} most likely tokens, the endpoint shows only tokens that it "
                    "cannot name"
                )
                return
            raise RecoverError(
                f"the endpoint shows no new token if the {len(known_tokens):,} most likely have a bias of "
                f"-{next_tokens.suppression_nats:g}; it may limit biases: request at most the "
                f"{len(known_tokens):,} most likely, or all tokens"
            )


class _NextTokens:
    """Queries for the tokens that follow the known ones in order of probability."""

    def __init__(self, task: RecoveryTask) -> None:
        bias_range = task.profile.bias_range
        # absolute value of the negative bias of suppressed tokens, nats
        self.suppression_nats = bias_range.round_toward_zero(
            min(_MAX_SUPPRESSING_BIAS_NATS, task.limits.max_bias_nats)
        )
        self._anchor_lift_nats = bias_range.round_toward_zero(min(_ANCHOR_LIFT_NATS, bias_range.max_bias_nats))
        self._task = task
        # the remaining probability at the last comparison of `logprob_from_suppression` with `single`
        self._remaining_probability_at_comparison = np.inf
        # Upper limit of the fraction of a probability that suppression leaves, according to the last comparison
        self._max_suppressed_fraction = np.inf

    def query_next(self, known_tokens: Sequence[int], missing_count: int) -> None:
        """Query once, with the known tokens suppressed."""
        task = self._task
        anchor = self._choose_anchor(known_tokens) if task.profile.shown_logprob_count > 1 else None
        biases = {token: -self.suppression_nats for token in known_tokens if token != anchor}
        if anchor is not None:
            biases[anchor] = self._anchor_lift_nats
        max_biases = task.limits.max_biases_per_call
        if max_biases is not None and len(biases) > max_biases:
            raise RecoverError(
                f"the endpoint accepts {max_biases:,} biases per call, too few to suppress the {len(biases):,} "
                f"most likely tokens; {missing_count:,} tokens are missing: request fewer, or all tokens"
            )
        (responses,) = task.send_queries([biases])
        tokens_of_responses = [set(response.logprobs) for response in responses]
        shown_tokens = set.intersection(*tokens_of_responses)
        new_tokens = sorted(shown_tokens - biases.keys())
        if anchor is None:
            self._add_by_suppression(biases, new_tokens, responses)
        elif anchor in shown_tokens:
            self._add_by_anchor(anchor, new_tokens, responses)
        else:
            raise RecoverError(
                f"token {anchor} is more likely than the next tokens, but was not shown together with them"
            )

    def _choose_anchor(self, known_tokens: Sequence[int]) -> int:
        """Return the most likely token if the next ones can be shown with it; otherwise the least likely known."""
        task = self._task
        logprobs = task.estimates.logprobs
        gap_nats = float(logprobs[task.anchor] - logprobs[known_tokens[-1]])
        if gap_nats + self._anchor_lift_nats + _SPARE_NATS < -task.limits.min_reliable_logprob:
            return task.anchor
        least_likely_first = known_tokens[::-1]
        return task.session.prefer_complete_utf8(least_likely_first)[0]

    def _add_by_anchor(
        self, anchor: int, new_tokens: Sequence[int], responses: Sequence[EndpointResponse]
    ) -> None:
        estimates = self._task.estimates
        anchor_logprob = float(estimates.logprobs[anchor])
        error_nats = 2 * self._task.profile.relative_error + float(estimates.errors[anchor])

        def true_logprob(biased_logprob: float, response: EndpointResponse) -> float:
            return logprob_from_anchor(
                biased_logprob, -self._anchor_lift_nats, response.logprobs[anchor], anchor_logprob
            )

        first_response = responses[0]  # all responses show the same texts without a token
        estimates.record_unmatched_logprobs(
            [true_logprob(value, first_response) for value in first_response.unmatched_logprobs]
        )
        for token in new_tokens:
            logprobs = [true_logprob(response.logprobs[token], response) for response in responses]
            estimates.add(token, logprobs, error_nats)

    def _add_by_suppression(
        self, biases: Mapping[int, float], new_tokens: Sequence[int], responses: Sequence[EndpointResponse]
    ) -> None:
        task, estimates = self._task, self._task.estimates
        suppressed_logprobs = estimates.logprobs[list(biases)]

        def true_logprob(biased_logprob: float) -> float:
            return logprob_from_suppression(biased_logprob, suppressed_logprobs, self.suppression_nats)

        estimates.record_unmatched_logprobs([true_logprob(value) for value in responses[0].unmatched_logprobs])
        known_probability = float(np.exp(suppressed_logprobs).sum())
        error_nats = suppression_error(suppressed_logprobs, task.profile.relative_error)
        is_too_inexact = error_nats > _MAX_ERROR_GROWTH * task.profile.relative_error
        for token in new_tokens:
            if is_too_inexact:
                single_each(task, [token])
            else:
                logprobs = [true_logprob(response.logprobs[token]) for response in responses]
                self._add_compared(token, logprobs, error_nats, known_probability)

    def _add_compared(
        self, token: int, logprobs: Sequence[float], error_nats: float, known_probability: float
    ) -> None:
        """Add the logprobs of a token, as far as comparisons with `single` show that tokens are suppressed."""
        task = self._task
        estimates = task.estimates
        remaining_probability = 1 - known_probability
        suppressed_odds = known_probability / remaining_probability
        if remaining_probability < self._remaining_probability_at_comparison / 2:
            single_each(task, [token])
            difference_nats = abs(float(estimates.logprobs[token]) - float(np.mean(logprobs)))
            max_difference_nats = max(_AGREEMENT_NATS, 10 * task.unbiased_response.spread_nats, 10 * error_nats)
            if difference_nats > max_difference_nats:
                return
            has_value_of_single = not np.isnan(difference_nats)
            if has_value_of_single:
                self._remaining_probability_at_comparison = remaining_probability
                largest_error_nats = difference_nats + error_nats + float(estimates.errors[token])
                self._max_suppressed_fraction = largest_error_nats / suppressed_odds
            elif self._max_suppressed_fraction * suppressed_odds > _AGREEMENT_NATS:
                return
        estimates.add(token, logprobs, error_nats + self._max_suppressed_fraction * suppressed_odds)
