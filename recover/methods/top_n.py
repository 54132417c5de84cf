"""The n likeliest tokens: known ones are pushed down, so that the next ones come into the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..endpoints.base import EndpointResponse
from ..errors import RecoverError
from ..numerics import logprob_from_anchor, logprob_from_penalty, penalty_error
from ..task import RecoveryTask
from .single import single_each

_MAX_SUPPRESSING_BIAS_NATS = 100.0
"""Pushes any token below all others, and is OpenAI's largest bias."""
_ANCHOR_LIFT_NATS = 8.0
"""Lifts the anchor to where it is drawn nearly always: e^8 is 3000."""
_SPARE_NATS = 10.0
"""How far above the lowest shown logprob the next tokens must stay beside the anchor."""
_MAX_ERROR_GROWTH = 1e3
"""Where `logprob_from_penalty` makes the error larger than so many times the precision, `single` is used."""
_AGREEMENT_NATS = 1e-4
"""Values by `logprob_from_penalty` and by `single` agree if they differ by less."""


def top_n(task: RecoveryTask, top_count: int) -> None:
    """Recover the ``top_count`` likeliest tokens, window - 1 a call.

    All known tokens but an anchor are pushed down as far as the endpoint allows. The anchor stands in the window
    with the new ones (`logprob_from_anchor`), so that the size of the push does not matter; it is lifted to
    where it is
    drawn. It is the likeliest token, as long as the next ones are shown beside it; else the least likely known
    one.

    A window of one has no room for an anchor: then `logprob_from_penalty` is used. It is compared with `single`
    at the
    first token, and again whenever the remaining probability has halved; `single` replaces it where it loses its
    digits. Raises ``RecoverError`` if no new token appears.
    """
    next_tokens = _NextTokens(task)
    estimates = task.estimates
    while (missing_count := top_count - len(known_tokens := estimates.known_by_logprob())) > 0:
        estimates.lower_max_hidden_logprob(
            estimates.logprobs[known_tokens[-1]] + task.unbiased_window.agreement_tolerance_nats
        )
        next_tokens.query_next(known_tokens, missing_count)
        if estimates.contradicted_ids:
            raise RecoverError(
                f"token {min(estimates.contradicted_ids)} comes out likelier than the {len(known_tokens):,} "
                f"before it: "
                f"the endpoint does not add all biases of a call; ask for at most the {len(known_tokens):,} "
                f"likeliest"
            )
        if len(estimates.known_by_logprob()) == len(known_tokens):
            if estimates.unmatched_logprobs:
                task.notes.append(
                    f"behind the {len(known_tokens):,} likeliest the window shows only tokens without a name"
                )
                return
            raise RecoverError(
                f"the endpoint shows no new token with the {len(known_tokens):,} likeliest biased by "
                f"-{next_tokens.suppression_nats:g}; it may cut biases: ask for at most the "
                f"{len(known_tokens):,} likeliest, or for "
                "all tokens"
            )


class _NextTokens:
    """Asks for the tokens after the known ones. ``suppression_nats``: the size of the bias that pushes a token
    down.
    """

    def __init__(self, task: RecoveryTask) -> None:
        self.suppression_nats = task.bias_range.round_toward_zero(
            min(_MAX_SUPPRESSING_BIAS_NATS, task.limits.max_bias)
        )
        self._anchor_lift_nats = task.bias_range.round_toward_zero(
            min(_ANCHOR_LIFT_NATS, task.bias_range.max_bias_nats)
        )
        self._task = task
        self._remaining_probability_at_comparison = np.inf
        """The remaining probability when `logprob_from_penalty` last agreed with `single`."""
        self._max_suppressed_fraction = np.inf
        """The part of a probability that a push leaves at most, as that comparison shows."""

    def query_next(self, known_tokens: Sequence[int], missing_count: int) -> None:
        """Ask once, with the ``known_tokens`` tokens, likeliest first, pushed down."""
        task = self._task
        anchor = self._anchor(known_tokens) if task.profile.shown_logprob_count > 1 else None
        bias = {token: -self.suppression_nats for token in known_tokens if token != anchor}
        if anchor is not None:
            bias[anchor] = self._anchor_lift_nats
        max_biases = task.limits.max_biases_per_call
        if max_biases is not None and len(bias) > max_biases:
            raise RecoverError(
                f"the endpoint takes {max_biases:,} biases a call, too few to look below the {len(bias):,} "
                f"likeliest "
                f"tokens; {missing_count:,} are missing: ask for fewer, or for all tokens"
            )
        (responses,) = task.send_queries([bias])
        shown_tokens = set.intersection(*(set(response.logprobs) for response in responses))
        new_tokens = sorted(shown_tokens - bias.keys())
        if anchor is None:
            penalized_logprobs = task.estimates.logprobs[list(bias)]
            unmatched_logprobs = [
                logprob_from_penalty(value, penalized_logprobs, self.suppression_nats)
                for value in responses[0].unmatched_logprobs
            ]
            task.estimates.record_unmatched_logprobs(unmatched_logprobs)
            for token in new_tokens:
                self._add_by_penalty(token, bias, [response.logprobs[token] for response in responses])
        elif anchor not in shown_tokens:
            raise RecoverError(f"token {anchor} is likelier than the next ones, and was not shown beside them")
        else:
            self._add_by_anchor(anchor, new_tokens, responses)

    def _anchor(self, known_tokens: Sequence[int]) -> int:
        """Return the likeliest token if the next ones can be shown beside it, else the least likely known one."""
        task = self._task
        top_token = task.anchor
        gap = float(task.estimates.logprobs[top_token] - task.estimates.logprobs[known_tokens[-1]])
        if gap + self._anchor_lift_nats + _SPARE_NATS < -task.limits.min_reliable_logprob:
            return top_token
        return task.session.prefer_complete_utf8(known_tokens[::-1])[0]

    def _add_by_anchor(
        self, anchor: int, new_tokens: Sequence[int], responses: Sequence[EndpointResponse]
    ) -> None:
        estimates = self._task.estimates
        logprob, error = float(estimates.logprobs[anchor]), float(estimates.errors[anchor])
        anchor_biased_logprob = responses[0].logprobs[anchor]
        estimates.record_unmatched_logprobs(
            [
                logprob_from_anchor(value, -self._anchor_lift_nats, anchor_biased_logprob, logprob)
                for value in responses[0].unmatched_logprobs
            ]
        )
        for token in new_tokens:
            pairs = [(response.logprobs[token], response.logprobs[anchor]) for response in responses]
            values = [
                logprob_from_anchor(token_logprob, -self._anchor_lift_nats, anchor_biased_logprob, logprob)
                for token_logprob, anchor_biased_logprob in pairs
            ]
            estimates.add(token, values, 2 * self._task.profile.relative_error + error)

    def _add_by_penalty(self, token: int, bias: Mapping[int, float], biased_logprobs: Sequence[float]) -> None:
        task, estimates = self._task, self._task.estimates
        penalized_logprobs = estimates.logprobs[list(bias)]
        known_probability = float(np.exp(penalized_logprobs).sum())
        error = penalty_error(penalized_logprobs, task.profile.relative_error)
        if error > _MAX_ERROR_GROWTH * task.profile.relative_error:
            single_each(task, [token])
            return
        values = [
            logprob_from_penalty(value, penalized_logprobs, self.suppression_nats) for value in biased_logprobs
        ]
        odds = known_probability / (1 - known_probability)
        if 1 - known_probability < self._remaining_probability_at_comparison / 2:
            single_each(task, [token])
            difference = abs(float(estimates.logprobs[token]) - float(np.mean(values)))
            if difference > max(_AGREEMENT_NATS, 10 * task.unbiased_window.spread_nats, 10 * error):
                return
            if not np.isnan(difference):
                self._remaining_probability_at_comparison = 1 - known_probability
                self._max_suppressed_fraction = (difference + error + float(estimates.errors[token])) / odds
            elif (
                self._max_suppressed_fraction * odds > _AGREEMENT_NATS
            ):  # no bias brings it to where `single` can read it
                return
        estimates.add(token, values, error + self._max_suppressed_fraction * odds)
