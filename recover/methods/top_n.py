"""The n likeliest tokens: known ones are pushed down, so that the next ones come into the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..endpoints.base import EndpointAnswer
from ..errors import RecoverError
from ..numerics import from_anchor, from_penalty, penalty_error
from ..task import RecoveryTask
from .single import single_each

_PUSH_NATS = 100.0
"""Pushes any token below all others, and is OpenAI's largest bias."""
_ANCHOR_LIFT_NATS = 8.0
"""Lifts the anchor to where it is drawn nearly always: e^8 is 3000."""
_SPARE_NATS = 10.0
"""How far above the lowest shown logprob the next tokens must stay beside the anchor."""
_MOST_ERROR_GROWTH = 1e3
"""Where `from_penalty` makes the error larger than so many times the precision, `single` is used."""
_AGREEMENT_NATS = 1e-4
"""Values by `from_penalty` and by `single` agree if they differ by less."""


def top_n(task: RecoveryTask, n: int) -> None:
    """Recover the ``n`` likeliest tokens, window - 1 a call.

    All known tokens but an anchor are pushed down as far as the endpoint allows. The anchor stands in the window
    with the new ones (`from_anchor`), so that the size of the push does not matter; it is lifted to where it is
    drawn. It is the likeliest token, as long as the next ones are shown beside it; else the least likely known
    one.

    A window of one has no room for an anchor: then `from_penalty` is used. It is compared with `single` at the
    first token, and again whenever the remaining probability has halved; `single` replaces it where it loses its
    digits. Raises ``RecoverError`` if no new token appears.
    """
    search = _NextTokens(task)
    estimates = task.estimates
    while (missing := n - len(recovered := estimates.ranked())) > 0:
        estimates.lower_ceiling(estimates.logprobs[recovered[-1]] + task.base.margin)
        search.ask(recovered, missing)
        if estimates.contradicted:
            raise RecoverError(
                f"token {min(estimates.contradicted)} comes out likelier than the {len(recovered):,} before it: "
                f"the endpoint does not add all biases of a call; ask for at most the {len(recovered):,} likeliest"
            )
        if len(estimates.ranked()) == len(recovered):
            if estimates.unnamed:
                task.notes.append(
                    f"behind the {len(recovered):,} likeliest the window shows only tokens without a name"
                )
                return
            raise RecoverError(
                f"the endpoint shows no new token with the {len(recovered):,} likeliest biased by "
                f"-{search.push:g}; it may cut biases: ask for at most the {len(recovered):,} likeliest, or for "
                "all tokens"
            )


class _NextTokens:
    """Asks for the tokens after the known ones. ``push``: the size of the bias that pushes a token down."""

    def __init__(self, task: RecoveryTask) -> None:
        self.push = task.bias_range.rounded(min(_PUSH_NATS, task.limits.max_bias))
        self._lift = task.bias_range.rounded(min(_ANCHOR_LIFT_NATS, task.bias_range.largest))
        self._task = task
        self._compared_at = np.inf
        """The remaining probability when `from_penalty` last agreed with `single`."""
        self._pushed_part = np.inf
        """The part of a probability that a push leaves at most, as that comparison shows."""

    def ask(self, recovered: Sequence[int], missing: int) -> None:
        """Ask once, with the ``recovered`` tokens, likeliest first, pushed down."""
        task = self._task
        anchor = self._anchor(recovered) if task.profile.window > 1 else None
        bias = {token: -self.push for token in recovered if token != anchor}
        if anchor is not None:
            bias[anchor] = self._lift
        most = task.limits.most_biases
        if most is not None and len(bias) > most:
            raise RecoverError(
                f"the endpoint takes {most:,} biases a call, too few to look below the {len(bias):,} likeliest "
                f"tokens; {missing:,} are missing: ask for fewer, or for all tokens"
            )
        (answers,) = task.ask([bias])
        shown = set.intersection(*(set(answer.logprobs) for answer in answers))
        new = sorted(shown - bias.keys())
        if anchor is None:
            penalised = task.estimates.logprobs[list(bias)]
            unnamed = [from_penalty(value, penalised, self.push) for value in answers[0].unnamed]
            task.estimates.note_unnamed(unnamed)
            for token in new:
                self._add_by_penalty(token, bias, [answer.logprobs[token] for answer in answers])
        elif anchor not in shown:
            raise RecoverError(f"token {anchor} is likelier than the next ones, and was not shown beside them")
        else:
            self._add_by_anchor(anchor, new, answers)

    def _anchor(self, recovered: Sequence[int]) -> int:
        """Return the likeliest token if the next ones can be shown beside it, else the least likely known one."""
        task = self._task
        likeliest = task.anchor
        gap = float(task.estimates.logprobs[likeliest] - task.estimates.logprobs[recovered[-1]])
        if gap + self._lift + _SPARE_NATS < -task.limits.lowest:
            return likeliest
        return task.session.prefer_whole_text(recovered[::-1])[0]

    def _add_by_anchor(self, anchor: int, new: Sequence[int], answers: Sequence[EndpointAnswer]) -> None:
        estimates = self._task.estimates
        logprob, error = float(estimates.logprobs[anchor]), float(estimates.errors[anchor])
        beside = answers[0].logprobs[anchor]
        estimates.note_unnamed([from_anchor(value, -self._lift, beside, logprob) for value in answers[0].unnamed])
        for token in new:
            pairs = [(answer.logprobs[token], answer.logprobs[anchor]) for answer in answers]
            values = [from_anchor(own, -self._lift, its, logprob) for own, its in pairs]
            estimates.add(token, values, 2 * self._task.profile.precision + error)

    def _add_by_penalty(self, token: int, bias: Mapping[int, float], after: Sequence[float]) -> None:
        task, estimates = self._task, self._task.estimates
        penalised = estimates.logprobs[list(bias)]
        mass = float(np.exp(penalised).sum())
        error = penalty_error(penalised, task.profile.precision)
        if error > _MOST_ERROR_GROWTH * task.profile.precision:
            single_each(task, [token])
            return
        values = [from_penalty(value, penalised, self.push) for value in after]
        odds = mass / (1 - mass)
        if 1 - mass < self._compared_at / 2:
            single_each(task, [token])
            difference = abs(float(estimates.logprobs[token]) - float(np.mean(values)))
            if difference > max(_AGREEMENT_NATS, 10 * task.base.spread, 10 * error):
                return
            if not np.isnan(difference):
                self._compared_at = 1 - mass
                self._pushed_part = (difference + error + float(estimates.errors[token])) / odds
            elif self._pushed_part * odds > _AGREEMENT_NATS:  # no bias brings it to where `single` can read it
                return
        estimates.add(token, values, error + self._pushed_part * odds)
