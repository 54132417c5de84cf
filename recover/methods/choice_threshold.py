"""Do an endpoint's biases add up, and how sharp is a threshold? If not, bisection would measure something else."""

from __future__ import annotations

from dataclasses import dataclass

from ..endpoints.base import QuestionKind
from ..errors import RecoverError
from ..task import RecoveryTask

_VOTES = 4
"""Pairs of questions that must all be answered as expected: chance does so with 1 in 256."""
_WIDEST_NATS = 0.5
"""An endpoint whose choices differ over a wider range draws its tokens."""
_COARSEST_NATS = 0.25
"""How far biases may miss a sum; endpoints that round to integers miss it by more."""
_COMMON_BIAS_NATS = 2.3719
"""A bias on both tokens: not a multiple of a step that an endpoint may round to."""
_LEAST_COMMON_BIAS_NATS = 0.1
"""A smaller bias on both tokens would not show whether biases add up."""


@dataclass(frozen=True)
class ChoiceThreshold:
    """With a bias above ``high`` a ``token`` is chosen, with one below ``low`` the likeliest one, ``top``."""

    top: int
    token: int
    low: float
    high: float

    def holds(
        self,
        task: RecoveryTask,
        distance: float,
        *,
        common_bias: float = 0.0,
        drift_check: int = 0,
        votes: int = _VOTES,
    ) -> bool:
        """True if biases farther from the threshold than ``distance`` give the expected choices.

        No question is asked twice, since an endpoint may draw the same token each time for the same question.

        Args:
            task: the recovery.
            distance: nats from the threshold.
            common_bias: added to both tokens.
            drift_check: number of the drift check that asks.
            votes: pairs of questions, from ``distance`` to twice as far.
        """
        limit = task.limits.max_bias
        common = {self.top: common_bias} if common_bias else {}
        questions, expected = [], []
        for vote in range(votes):
            away = distance * (1 + vote / votes)
            questions.append(common | {self.token: min(self.high + away + common_bias, limit)})
            questions.append(common | {self.token: self.low - away + common_bias})
            expected += [self.token, self.top]
        answered = task.session.ask(questions, kind=QuestionKind.LIKELIEST_TOKEN, drift_check=drift_check)
        return [answer.token for (answer,) in answered] == expected


def uncertain_width(task: RecoveryTask, threshold: ChoiceThreshold) -> float:
    """Return how far from its threshold a token is chosen only at times, nats; 0: nowhere.

    A few questions are asked farther and farther away, until all answers agree. They must also agree with the same
    bias on both tokens: biases that are rounded or reshaped are refused, and so is a threshold that the shown
    logprobs contradict. A factor common to all biases, a temperature, shows in no choice, but it shows in
    logprobs. Raises ``RecoverError``.
    """
    distance = eps = task.settings.eps
    token, high = threshold.token, threshold.high
    while not threshold.holds(task, distance):
        distance *= 2
        if distance > _WIDEST_NATS:
            raise RecoverError(
                f"whether token {token} is chosen with a bias of {high:.4g} differs from call to call: the "
                f"endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
            )
    _compare_with_window(task, threshold, distance)
    coarsest = min(max(_COARSEST_NATS, 4 * distance), _WIDEST_NATS)
    common = min(_COMMON_BIAS_NATS, task.limits.max_bias - high - 4 * coarsest)
    while common >= _LEAST_COMMON_BIAS_NATS and not threshold.holds(task, distance, common_bias=common):
        distance *= 2
        if distance > coarsest:
            raise RecoverError(
                f"biases do not add up: token {token} is chosen from a bias of {high:.4g} on, but not from "
                f"{common:g} more where the likeliest has {common:g}: the endpoint rounds or reshapes them, or "
                f"draws its tokens, and bisection would be wrong"
            )
    if distance == eps:
        return 0.0
    task.notes.append(f"choices differ from call to call within {distance:.1e} nats of a threshold")
    return distance


def threshold_shift(task: RecoveryTask, threshold: ChoiceThreshold, width: float, drift_check: int) -> float:
    """Return how far a threshold has moved since it was found, nats; 0 if not beyond its width.

    Args:
        task: the recovery.
        threshold: as it was found.
        width: how far from it a token was chosen only at times, nats.
        drift_check: number of the drift check that asks.
    """
    start = distance = max(2 * task.settings.eps, 2 * width)
    while distance <= _WIDEST_NATS and not threshold.holds(task, distance, drift_check=drift_check, votes=1):
        distance *= 2
    return 0.0 if distance == start else distance


def _compare_with_window(task: RecoveryTask, threshold: ChoiceThreshold, distance: float) -> None:
    """Raise ``RecoverError`` for a threshold that the shown logprobs contradict."""
    logprobs = task.base.logprobs
    if not {threshold.top, threshold.token} <= logprobs.keys():
        return
    gap = logprobs[threshold.top] - logprobs[threshold.token]
    difference = abs((threshold.low + threshold.high) / 2 - gap)
    if difference > max(task.base.margin, 2 * task.profile.precision) + distance:
        raise RecoverError(
            f"token {threshold.token} is chosen from a bias of {threshold.high:.4g} on, but its logprob lacks "
            f"{gap:.4g} to the likeliest: biases do not act as asked, and bisection would measure something else"
        )
