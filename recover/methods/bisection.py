"""Bisection, for an endpoint that returns only the likeliest token: how large a bias makes it another one?

Do the endpoint's biases add up, and how sharp is a threshold? Both are checked, since bisection would otherwise
measure something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

from ..endpoints.base import EndpointAnswer, QuestionKind
from ..errors import RecoverError
from ..task import RecoveryTask

_FIRST_BIAS_NATS = 16.0
"""Chooses most tokens; doubled for others."""
_LARGEST_BIAS_NATS = 512.0
"""Larger than differences between logits are, by a wide margin."""
_PILOT_TOKENS = 4
"""Tokens among which a first threshold is found, if no window shows a likely one."""


def bisection(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover how far tokens are below the likeliest one.

    Token i is chosen if its bias exceeds log p_top - log p_i.
    The bias doubles from 16 on until the token is chosen; then the interval is halved until it is no wider than
    ``eps``. Its middle is off by at most half of that, or by what answers to one question differ. This gives
    differences. Those of a whole vocabulary become logprobs, since its probabilities sum to 1; others stay
    relative to the likeliest token, at 0. What was found before, on another scale, is forgotten. Raises
    ``RecoverError`` if biases do not add up.
    """
    eps, estimates = task.settings.eps, task.estimates
    top = _likeliest(task)
    estimates.restart_from(top, eps / 2)
    if not task.base.logprobs:
        task.notes.append("choices alone do not show a factor on all biases, or a temperature")
    remaining = estimates.unknown(tokens)
    beside = [token for token in task.base.ranked if token != top]
    pilots = beside[:1] or remaining[:_PILOT_TOKENS]
    brackets = _narrow_brackets(task, pilots)
    width = 0.0
    if brackets:
        token = min(brackets, key=lambda one: brackets[one].high)
        threshold = _ChoiceThreshold(top, token, brackets[token].low, brackets[token].high)
        width = _uncertain_width(task, threshold)
        task.drift.measure_by(lambda number: _threshold_shift(task, threshold, width, number))
        estimates.set_error(top, max(eps / 2, width))
    brackets |= _narrow_brackets(task, [token for token in remaining if token not in pilots])
    for token, bracket in brackets.items():
        middle = (bracket.low + bracket.high) / 2
        estimates.add(token, [-middle], max(eps / 2, width, bracket.error(middle)))
    estimates.normalise()


def ranking(task: RecoveryTask, n: int) -> list[int]:
    """Return the ``n`` likeliest tokens in order: each is chosen once those before it are pushed down."""
    push = min(_LARGEST_BIAS_NATS, task.limits.max_bias)
    most = task.limits.most_biases
    ranked = [_likeliest(task)]
    while len(ranked) < n:
        if most is not None and len(ranked) > most:
            raise RecoverError(
                f"the endpoint takes {most:,} biases a call, too few to find the {n:,} likeliest tokens"
            )
        (answers,) = task.ask([dict.fromkeys(ranked, -push)], QuestionKind.LIKELIEST_TOKEN)
        votes = [answer.token for answer in answers]
        token = max(votes, key=votes.count)
        if token is None:
            raise RecoverError(f"the next token has no name of its own: ask for the {len(ranked):,} likeliest")
        if token in ranked:
            raise RecoverError(
                f"token {token} is chosen again with a bias of -{push:g}: ask for the {len(ranked):,} likeliest"
            )
        ranked.append(token)
    return ranked


def calls_per_token(width: float, eps: float) -> int:
    """Return the calls for a token: halvings of an interval of ``width`` nats to ``eps``, and one to find it."""
    return max(0, ceil(log2(width / eps))) + 1


_EQUAL_NATS = 1e-3
"""Logprobs that differ by less are the same: float32 and decimals round them."""


def _likeliest(task: RecoveryTask) -> int:
    """Return the token that is chosen without a bias, each time."""
    base = task.base
    token, again = base.drawn
    if base.logprobs and task.session.endpoint.has_likeliest:
        ((first, second),) = task.session.ask([{}], repeats=2, kind=QuestionKind.LIKELIEST_TOKEN)
        token, again = first.token, second.token
    if token is None:
        raise RecoverError(
            "the endpoint does not say which token it chose, so that bisection has nothing to go by"
        )
    is_drawn = token != again
    if base.logprobs:  # a token that was drawn twice may seem to be chosen
        highest = max(base.logprobs.values()) - 2 * base.spread - _EQUAL_NATS
        is_drawn |= base.logprobs.get(token, -inf) < highest
    if is_drawn:
        raise RecoverError(
            "the endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
        )
    return token


@dataclass
class _Bracket:
    """A bias with which a token is not chosen, and one with which it is, by most votes.

    ``least_for``: the smallest bias with a vote for the token. ``largest_against``: the largest with one against
    it.
    """

    low: float = 0.0
    high: float = inf
    least_for: float = inf
    largest_against: float = -inf

    def add_votes(self, token: int, bias: float, answers: Sequence[EndpointAnswer]) -> None:
        """Take the votes on one bias."""
        votes = sum(answer.token == token for answer in answers)
        if 2 * votes > len(answers):
            self.high = bias
        else:
            self.low = bias
        if votes:
            self.least_for = min(self.least_for, bias)
        if votes < len(answers):
            self.largest_against = max(self.largest_against, bias)

    def error(self, middle: float) -> float:
        """Return how far from the middle the votes allow the threshold to be, nats."""
        return max(max(self.high, self.largest_against) - middle, middle - min(self.low, self.least_for))


def _narrow_brackets(task: RecoveryTask, tokens: Sequence[int]) -> dict[int, _Bracket]:
    """Return an interval no wider than ``eps`` for each token that a bias can make the chosen one."""
    brackets = _find_brackets(task, tokens)
    eps = task.settings.eps
    widest = max((bracket.high - bracket.low for bracket in brackets.values()), default=0.0)
    for _ in range(max(0, ceil(log2(widest / eps))) if brackets else 0):
        wide = [token for token, bracket in brackets.items() if bracket.high - bracket.low > eps]
        _vote(task, brackets, {token: (brackets[token].low + brackets[token].high) / 2 for token in wide})
    return brackets


def _find_brackets(task: RecoveryTask, tokens: Sequence[int]) -> dict[int, _Bracket]:
    """Return for each token that can be chosen a bias with which it is, and one with which it is not."""
    largest = min(task.limits.max_bias, _LARGEST_BIAS_NATS)
    brackets = {token: _Bracket() for token in tokens}
    bias = min(_FIRST_BIAS_NATS, largest)
    remaining = list(tokens)
    while remaining:
        _vote(task, brackets, dict.fromkeys(remaining, bias))
        remaining = [token for token in remaining if brackets[token].high == inf]
        if bias >= largest:
            break
        bias = min(2 * bias, largest)
    return {token: bracket for token, bracket in brackets.items() if bracket.high < inf}


def _vote(task: RecoveryTask, brackets: Mapping[int, _Bracket], biases: Mapping[int, float]) -> None:
    """Ask for each token whether its bias makes it the chosen one."""
    questions = ({token: bias} for token, bias in biases.items())
    for (token, bias), answers in zip(
        biases.items(), task.ask(questions, QuestionKind.LIKELIEST_TOKEN), strict=True
    ):
        brackets[token].add_votes(token, bias, answers)


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
class _ChoiceThreshold:
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


def _uncertain_width(task: RecoveryTask, threshold: _ChoiceThreshold) -> float:
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


def _compare_with_window(task: RecoveryTask, threshold: _ChoiceThreshold, distance: float) -> None:
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


def _threshold_shift(task: RecoveryTask, threshold: _ChoiceThreshold, width: float, drift_check: int) -> float:
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
