"""Do an endpoint's biases add up, and how sharply does it choose? Else bisection would measure something else."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RecoverError
from ..run import RecoveryRun

_VOTES = 4
_WIDEST = 0.5
_COARSEST = 0.25
_BOTH = 2.3719
"""A bias on both tokens: no multiple of a step that an endpoint may round to."""
_LEAST = 0.1
_ALIKE = 0.02


@dataclass(frozen=True)
class Threshold:
    """With a bias above ``high`` a ``token`` is chosen, with one below ``low`` the likeliest one, ``top``."""

    top: int
    token: int
    low: float
    high: float

    def holds(self, run: RecoveryRun, apart: float, both: float = 0.0, turn: int = 0, votes: int = _VOTES) -> bool:
        """Is it so from ``apart`` on, wherever it is looked, also where both tokens get a bias beside it?

        No question is asked twice, since a token that is drawn may be the same one for the same question.
        """
        limit = run.asker.endpoint.limits.max_bias
        beside = {self.top: both} if both else {}
        questions, expected = [], []
        for vote in range(votes):
            further = apart * (1 + vote / votes)
            questions.append(beside | {self.token: min(self.high + further + both, limit)})
            questions.append(beside | {self.token: self.low - further + both})
            expected += [self.token, self.top]
        told = run.asker.ask(questions, first=turn, likeliest=True)
        return [answer.token for (answer,) in told] == expected


def flip_zone(run: RecoveryRun, seen: Threshold) -> float:
    """How far from its threshold a token is still chosen only at times, nats; 0: nowhere.

    Farther and farther away a few questions are asked, until all answers agree. With the same
    bias on both tokens they must agree too: biases that are rounded or reshaped are refused, and so is a threshold
    that the shown logprobs contradict. A factor common to all biases shows in no choice: it is a temperature.
    Where logprobs are shown, it shows in them. Raises ``RecoverError``.
    """
    apart = eps = run.settings.eps
    while not seen.holds(run, apart):
        apart *= 2
        if apart > _WIDEST:
            raise RecoverError(
                f"whether token {seen.token} is chosen with a bias of {seen.high:.4g} differs from call to call: "
                f"the endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
            )
    _compare(run, seen, apart)
    coarsest = min(max(_COARSEST, 4 * apart), _WIDEST)
    both = min(_BOTH, run.asker.endpoint.limits.max_bias - seen.high - 4 * coarsest)
    while both >= _LEAST and not seen.holds(run, apart, both):
        apart *= 2
        if apart > coarsest:
            raise RecoverError(
                f"biases do not add up: token {seen.token} is chosen from a bias of {seen.high:.4g} on, but not "
                f"from {both:g} more where the likeliest has {both:g}: the endpoint rounds or reshapes them, or "
                f"draws its tokens, and bisection would be wrong"
            )
    if apart == eps:
        return 0.0
    run.notes.append(f"choices differ from call to call within {apart:.1e} nats of a threshold")
    return apart


def moved(run: RecoveryRun, seen: Threshold, zone: float, turn: int) -> float:
    """How far a threshold has moved since it was found, nats; 0: no farther than it moved then."""
    start = apart = max(2 * run.settings.eps, 2 * zone)
    while apart <= _WIDEST and not seen.holds(run, apart, turn=turn, votes=1):
        apart *= 2
    return 0.0 if apart == start else apart


def _compare(run: RecoveryRun, seen: Threshold, apart: float) -> None:
    """Refuse a threshold that the shown logprobs contradict."""
    if not {seen.top, seen.token} <= run.base.keys():
        return
    lacks = run.base[seen.top] - run.base[seen.token]
    off = abs((seen.low + seen.high) / 2 - lacks)
    if off > max(_ALIKE, 10 * run.found.spread, 2 * run.precision) + apart:
        raise RecoverError(
            f"token {seen.token} is chosen from a bias of {seen.high:.4g} on, but its logprob lacks {lacks:.4g} "
            f"to the likeliest: biases do not act as asked, and bisection would measure something else"
        )
