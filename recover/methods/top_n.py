"""Recovery of the most likely tokens: known tokens are suppressed, so that the endpoint shows the next ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..endpoints.base import EndpointResponse
from ..errors import RecoverError
from ..numerics import logprob_from_anchor, logprob_from_suppression, suppression_error
from ..task import RecoveryTask
from .single import single_each

_MAX_SUPPRESSING_BIAS_NATS = 100.0  # Suppresses any token below all others. It is OpenAI's largest bias.
_ANCHOR_LIFT_NATS = 8.0  # Makes the anchor the chosen token nearly always: e^8 is 3000
_SPARE_NATS = 10.0  # Next to the anchor, the next tokens must stay this far above the lowest reliable logprob
# If `logprob_from_suppression` multiplies the relative error by more than this, `single` replaces it
_MAX_ERROR_GROWTH = 1e3
_AGREEMENT_NATS = 1e-4  # Values of `logprob_from_suppression` and of `single` agree if they differ by less


def top_n(task: RecoveryTask, top_count: int) -> None:
    """Recover the ``top_count`` most likely tokens, one token less per call than logprobs are shown."""
    # All known tokens except an anchor are suppressed as far as the endpoint allows. The response shows the anchor
    # together with the new tokens (`logprob_from_anchor`), so that the size of the suppression does not matter.
    # The anchor is lifted until it is chosen. It is the most likely token if the next tokens can be shown together
    # with it; otherwise, it is the least likely known token.
    # If only one logprob is shown, an anchor cannot be used, and `logprob_from_suppression` is used instead. It is
    # compared with `single` at the first token, and again whenever the remaining probability has halved. `single`
    # replaces it where its digits cancel. Raises ``RecoverError`` if no new token appears.
    next_tokens = _NextTokens(task)
    estimates = task.estimates
    while (missing_count := top_count - len(known_tokens := estimates.known_by_logprob())) > 0:
        estimates.lower_max_hidden_logprob(
            estimates.logprobs[known_tokens[-1]] + task.unbiased_response.agreement_tolerance_nats
        )
        next_tokens.query_next(known_tokens, missing_count)
        if estimates.contradicted_ids:
            raise RecoverError(
                f"token {min(estimates.contradicted_ids)} is more likely than the {len(known_tokens):,} tokens "
                "before it: the endpoint does not add all biases of a call; request at most the "
                f"{len(known_tokens):,} most likely"
            )
        if len(estimates.known_by_logprob()) == len(known_tokens):
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
        # absolute value of the negative bias of suppressed tokens, nats
        self.suppression_nats = task.bias_range.round_toward_zero(
            min(_MAX_SUPPRESSING_BIAS_NATS, task.limits.max_bias_nats)
        )
        self._anchor_lift_nats = task.bias_range.round_toward_zero(
            min(_ANCHOR_LIFT_NATS, task.bias_range.max_bias_nats)
        )
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
        shown_tokens = set.intersection(*(set(response.logprobs) for response in responses))
        new_tokens = sorted(shown_tokens - biases.keys())
        if anchor is None:
            suppressed_token_logprobs = task.estimates.logprobs[list(biases)]
            first_response = responses[0]  # all responses show the same texts without a token
            unmatched_logprobs = [
                logprob_from_suppression(value, suppressed_token_logprobs, self.suppression_nats)
                for value in first_response.unmatched_logprobs
            ]
            task.estimates.record_unmatched_logprobs(unmatched_logprobs)
            for token in new_tokens:
                self._add_by_suppression(token, biases, [response.logprobs[token] for response in responses])
        elif anchor not in shown_tokens:
            raise RecoverError(
                f"token {anchor} is more likely than the next tokens, but was not shown together with them"
            )
        else:
            self._add_by_anchor(anchor, new_tokens, responses)

    def _choose_anchor(self, known_tokens: Sequence[int]) -> int:
        """Return the most likely token if the next ones can be shown with it; otherwise the least likely known."""
        task = self._task
        top_token = task.anchor
        gap_nats = float(task.estimates.logprobs[top_token] - task.estimates.logprobs[known_tokens[-1]])
        if gap_nats + self._anchor_lift_nats + _SPARE_NATS < -task.limits.min_reliable_logprob:
            return top_token
        return task.session.prefer_complete_utf8(known_tokens[::-1])[0]

    def _add_by_anchor(
        self, anchor: int, new_tokens: Sequence[int], responses: Sequence[EndpointResponse]
    ) -> None:
        estimates = self._task.estimates
        anchor_logprob, anchor_error = float(estimates.logprobs[anchor]), float(estimates.errors[anchor])
        anchor_biased_logprob = responses[0].logprobs[anchor]
        estimates.record_unmatched_logprobs(
            [
                logprob_from_anchor(value, -self._anchor_lift_nats, anchor_biased_logprob, anchor_logprob)
                for value in responses[0].unmatched_logprobs
            ]
        )
        for token in new_tokens:
            pairs = [(response.logprobs[token], response.logprobs[anchor]) for response in responses]
            logprobs = [
                logprob_from_anchor(token_logprob, -self._anchor_lift_nats, anchor_biased_logprob, anchor_logprob)
                for token_logprob, anchor_biased_logprob in pairs
            ]
            estimates.add(token, logprobs, 2 * self._task.profile.relative_error + anchor_error)

    def _add_by_suppression(
        self, token: int, biases: Mapping[int, float], biased_logprobs: Sequence[float]
    ) -> None:
        task, estimates = self._task, self._task.estimates
        suppressed_token_logprobs = estimates.logprobs[list(biases)]
        known_probability = float(np.exp(suppressed_token_logprobs).sum())
        error_nats = suppression_error(suppressed_token_logprobs, task.profile.relative_error)
        if error_nats > _MAX_ERROR_GROWTH * task.profile.relative_error:
            single_each(task, [token])
            return
        logprobs = [
            logprob_from_suppression(value, suppressed_token_logprobs, self.suppression_nats)
            for value in biased_logprobs
        ]
        suppressed_odds = known_probability / (1 - known_probability)
        if 1 - known_probability < self._remaining_probability_at_comparison / 2:
            single_each(task, [token])
            difference_nats = abs(float(estimates.logprobs[token]) - float(np.mean(logprobs)))
            if difference_nats > max(_AGREEMENT_NATS, 10 * task.unbiased_response.spread_nats, 10 * error_nats):
                return
            if not np.isnan(difference_nats):
                self._remaining_probability_at_comparison = 1 - known_probability
                self._max_suppressed_fraction = (
                    difference_nats + error_nats + float(estimates.errors[token])
                ) / suppressed_odds
            elif (
                self._max_suppressed_fraction * suppressed_odds > _AGREEMENT_NATS
            ):  # `single` found no usable bias
                return
        estimates.add(token, logprobs, error_nats + self._max_suppressed_fraction * suppressed_odds)
