"""Bisection, for an endpoint that returns only the likeliest token: how large a bias makes it another one?

Do the endpoint's biases add up, and how sharp is a threshold? Both are checked, since bisection would otherwise
measure something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

from ..endpoints.base import EndpointResponse, QueryKind
from ..errors import RecoverError
from ..task import RecoveryTask

_FIRST_BIAS_NATS = 16.0
"""Chooses most tokens; doubled for others."""
_MAX_BIAS_NATS = 512.0
"""Larger than differences between logits are, by a wide margin."""
_FIRST_TOKEN_COUNT = 4
"""Tokens among which a first threshold is found, if no window shows a likely one."""


def bisection(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover how far tokens are below the likeliest one.

    Token i is chosen if its bias exceeds log p_top - log p_i.
    The bias doubles from 16 on until the token is chosen; then the interval is halved until it is no wider than
    ``max_error_nats``. Its middle is off by at most half of that, or by what answers to one question differ.
    This gives
    differences. Those of a whole vocabulary become logprobs, since its probabilities sum to 1; others stay
    relative to the likeliest token, at 0. What was found before, on another scale, is forgotten. Raises
    ``RecoverError`` if biases do not add up.
    """
    max_error_nats, estimates = task.settings.bisection_error_nats, task.estimates
    top_token = _find_top_token(task)
    estimates.restart_relative_to(top_token, max_error_nats / 2)
    if not task.unbiased_window.logprobs:
        task.notes.append("choices alone do not show a factor on all biases, or a temperature")
    remaining = estimates.unknown_among(tokens)
    other_shown_tokens = [token for token in task.unbiased_window.ranked_tokens if token != top_token]
    first_tokens = other_shown_tokens[:1] or remaining[:_FIRST_TOKEN_COUNT]
    intervals = _narrow_intervals(task, first_tokens)
    width_nats = 0.0
    if intervals:
        token = min(intervals, key=lambda candidate: intervals[candidate].high)
        threshold = _ChoiceThreshold(top_token, token, intervals[token].low, intervals[token].high)
        width_nats = _measure_uncertain_width(task, threshold)
        task.drift_monitor.measure_with(lambda number: _threshold_shift_nats(task, threshold, width_nats, number))
        estimates.set_error(top_token, max(max_error_nats / 2, width_nats))
    intervals |= _narrow_intervals(task, [token for token in remaining if token not in first_tokens])
    for token, interval in intervals.items():
        middle = (interval.low + interval.high) / 2
        estimates.add(token, [-middle], max(max_error_nats / 2, width_nats, interval.error(middle)))
    estimates.normalize()


def ranking(task: RecoveryTask, top_count: int) -> list[int]:
    """Return the ``top_count`` likeliest tokens in order: each is chosen once those before it are pushed down."""
    suppression_nats = min(_MAX_BIAS_NATS, task.limits.max_bias)
    max_biases = task.limits.max_biases_per_call
    ranked_tokens = [_find_top_token(task)]
    while len(ranked_tokens) < top_count:
        if max_biases is not None and len(ranked_tokens) > max_biases:
            raise RecoverError(
                f"the endpoint takes {max_biases:,} biases a call, too few to find the {top_count:,} likeliest "
                f"tokens"
            )
        (responses,) = task.send_queries([dict.fromkeys(ranked_tokens, -suppression_nats)], QueryKind.TOP_TOKEN)
        votes = [response.token for response in responses]
        token = max(votes, key=votes.count)
        if token is None:
            raise RecoverError(
                f"the next token has no name of its own: ask for the {len(ranked_tokens):,} likeliest"
            )
        if token in ranked_tokens:
            raise RecoverError(
                f"token {token} is chosen again with a bias of -{suppression_nats:g}: ask for the "
                f"{len(ranked_tokens):,} likeliest"
            )
        ranked_tokens.append(token)
    return ranked_tokens


def calls_per_token(width_nats: float, max_error_nats: float) -> int:
    """Return the calls for a token: halvings of an interval of ``width_nats`` nats to ``max_error_nats``, and
    one to find it.
    """
    return max(0, ceil(log2(width_nats / max_error_nats))) + 1


_EQUAL_NATS = 1e-3
"""Logprobs that differ by less are the same: float32 and decimals round them."""


def _find_top_token(task: RecoveryTask) -> int:
    """Return the token that is chosen without a bias, each time."""
    unbiased_window = task.unbiased_window
    token, second_token = unbiased_window.first_two_tokens
    if unbiased_window.logprobs and task.session.endpoint.has_top_token_query:
        ((first, second),) = task.session.send_queries([{}], calls_per_query=2, kind=QueryKind.TOP_TOKEN)
        token, second_token = first.token, second.token
    if token is None:
        raise RecoverError(
            "the endpoint does not say which token it chose, so that bisection has nothing to go by"
        )
    is_drawn = token != second_token
    if unbiased_window.logprobs:  # a token that was drawn twice may seem to be chosen
        highest = max(unbiased_window.logprobs.values()) - 2 * unbiased_window.spread_nats - _EQUAL_NATS
        is_drawn |= unbiased_window.logprobs.get(token, -inf) < highest
    if is_drawn:
        raise RecoverError(
            "the endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
        )
    return token


@dataclass
class _BiasInterval:
    """A bias with which a token is not chosen, and one with which it is, by most votes.

    ``min_bias_with_vote``: the smallest bias with a vote for the token. ``max_bias_without_vote``: the largest
    with one against
    it.
    """

    low: float = 0.0
    high: float = inf
    min_bias_with_vote: float = inf
    max_bias_without_vote: float = -inf

    def add_votes(self, token: int, bias: float, responses: Sequence[EndpointResponse]) -> None:
        """Take the votes on one bias."""
        votes = sum(response.token == token for response in responses)
        if 2 * votes > len(responses):
            self.high = bias
        else:
            self.low = bias
        if votes:
            self.min_bias_with_vote = min(self.min_bias_with_vote, bias)
        if votes < len(responses):
            self.max_bias_without_vote = max(self.max_bias_without_vote, bias)

    def error(self, middle: float) -> float:
        """Return how far from the middle the votes allow the threshold to be, nats."""
        return max(
            max(self.high, self.max_bias_without_vote) - middle, middle - min(self.low, self.min_bias_with_vote)
        )


def _narrow_intervals(task: RecoveryTask, tokens: Sequence[int]) -> dict[int, _BiasInterval]:
    """Return an interval no wider than ``max_error_nats`` for each token that a bias can make the chosen one."""
    intervals = _find_intervals(task, tokens)
    max_error_nats = task.settings.bisection_error_nats
    max_width_nats = max((interval.high - interval.low for interval in intervals.values()), default=0.0)
    for _ in range(max(0, ceil(log2(max_width_nats / max_error_nats))) if intervals else 0):
        unfinished_tokens = [
            token for token, interval in intervals.items() if interval.high - interval.low > max_error_nats
        ]
        _query_choices(
            task,
            intervals,
            {token: (intervals[token].low + intervals[token].high) / 2 for token in unfinished_tokens},
        )
    return intervals


def _find_intervals(task: RecoveryTask, tokens: Sequence[int]) -> dict[int, _BiasInterval]:
    """Return for each token that can be chosen a bias with which it is, and one with which it is not."""
    max_bias_nats = min(task.limits.max_bias, _MAX_BIAS_NATS)
    intervals = {token: _BiasInterval() for token in tokens}
    bias = min(_FIRST_BIAS_NATS, max_bias_nats)
    remaining = list(tokens)
    while remaining:
        _query_choices(task, intervals, dict.fromkeys(remaining, bias))
        remaining = [token for token in remaining if intervals[token].high == inf]
        if bias >= max_bias_nats:
            break
        bias = min(2 * bias, max_bias_nats)
    return {token: interval for token, interval in intervals.items() if interval.high < inf}


def _query_choices(
    task: RecoveryTask, intervals: Mapping[int, _BiasInterval], biases: Mapping[int, float]
) -> None:
    """Ask for each token whether its bias makes it the chosen one."""
    queries = ({token: bias} for token, bias in biases.items())
    for (token, bias), responses in zip(
        biases.items(), task.send_queries(queries, QueryKind.TOP_TOKEN), strict=True
    ):
        intervals[token].add_votes(token, bias, responses)


_VOTE_PAIRS = 4
"""Pairs of questions that must all be answered as expected: chance does so with 1 in 256."""
_MAX_UNCERTAIN_WIDTH_NATS = 0.5
"""An endpoint whose choices differ over a wider range draws its tokens."""
_MAX_SUM_ERROR_NATS = 0.25
"""How far biases may miss a sum; endpoints that round to integers miss it by more."""
_COMMON_BIAS_NATS = 2.3719
"""A bias on both tokens: not a multiple of a step that an endpoint may round to."""
_MIN_COMMON_BIAS_NATS = 0.1
"""A smaller bias on both tokens would not show whether biases add up."""


@dataclass(frozen=True)
class _ChoiceThreshold:
    """With a bias above ``high`` a ``token`` is chosen, with one below ``low`` the likeliest one,
    ``top_token``.
    """

    top_token: int
    token: int
    low: float
    high: float

    def gives_expected_choices(
        self,
        task: RecoveryTask,
        distance_nats: float,
        *,
        common_bias_nats: float = 0.0,
        drift_check: int = 0,
        vote_pairs: int = _VOTE_PAIRS,
    ) -> bool:
        """True if biases farther from the threshold than ``distance_nats`` give the expected choices.

        No question is asked twice, since an endpoint may draw the same token each time for the same question.

        Args:
            task: the recovery.
            distance_nats: nats from the threshold.
            common_bias_nats: added to both tokens.
            drift_check: number of the drift check that asks.
            vote_pairs: pairs of questions, from ``distance_nats`` to twice as far.
        """
        limit = task.limits.max_bias
        common = {self.top_token: common_bias_nats} if common_bias_nats else {}
        queries, expected = [], []
        for pair in range(vote_pairs):
            bias_distance_nats = distance_nats * (1 + pair / vote_pairs)
            queries.append(common | {self.token: min(self.high + bias_distance_nats + common_bias_nats, limit)})
            queries.append(common | {self.token: self.low - bias_distance_nats + common_bias_nats})
            expected += [self.token, self.top_token]
        all_responses = task.session.send_queries(queries, kind=QueryKind.TOP_TOKEN, drift_check=drift_check)
        return [response.token for (response,) in all_responses] == expected


def _measure_uncertain_width(task: RecoveryTask, threshold: _ChoiceThreshold) -> float:
    """Return how far from its threshold a token is chosen only at times, nats; 0: nowhere.

    A few questions are asked farther and farther away, until all answers agree. They must also agree with the same
    bias on both tokens: biases that are rounded or reshaped are refused, and so is a threshold that the shown
    logprobs contradict. A factor common to all biases, a temperature, shows in no choice, but it shows in
    logprobs. Raises ``RecoverError``.
    """
    distance_nats = max_error_nats = task.settings.bisection_error_nats
    token, high = threshold.token, threshold.high
    while not threshold.gives_expected_choices(task, distance_nats):
        distance_nats *= 2
        if distance_nats > _MAX_UNCERTAIN_WIDTH_NATS:
            raise RecoverError(
                f"whether token {token} is chosen with a bias of {high:.4g} differs from call to call: the "
                f"endpoint draws its tokens; bisection needs one that returns the likeliest (temperature 0)"
            )
    _compare_with_shown_logprobs(task, threshold, distance_nats)
    max_distance_nats = min(max(_MAX_SUM_ERROR_NATS, 4 * distance_nats), _MAX_UNCERTAIN_WIDTH_NATS)
    common = min(_COMMON_BIAS_NATS, task.limits.max_bias - high - 4 * max_distance_nats)
    while common >= _MIN_COMMON_BIAS_NATS and not threshold.gives_expected_choices(
        task, distance_nats, common_bias_nats=common
    ):
        distance_nats *= 2
        if distance_nats > max_distance_nats:
            raise RecoverError(
                f"biases do not add up: token {token} is chosen from a bias of {high:.4g} on, but not from "
                f"{common:g} more where the likeliest has {common:g}: the endpoint rounds or reshapes them, or "
                f"draws its tokens, and bisection would be wrong"
            )
    if distance_nats == max_error_nats:
        return 0.0
    task.notes.append(f"choices differ from call to call within {distance_nats:.1e} nats of a threshold")
    return distance_nats


def _compare_with_shown_logprobs(task: RecoveryTask, threshold: _ChoiceThreshold, distance_nats: float) -> None:
    """Raise ``RecoverError`` for a threshold that the shown logprobs contradict."""
    logprobs = task.unbiased_window.logprobs
    if not {threshold.top_token, threshold.token} <= logprobs.keys():
        return
    gap_nats = logprobs[threshold.top_token] - logprobs[threshold.token]
    difference_nats = abs((threshold.low + threshold.high) / 2 - gap_nats)
    if (
        difference_nats
        > max(task.unbiased_window.agreement_tolerance_nats, 2 * task.profile.relative_error) + distance_nats
    ):
        raise RecoverError(
            f"token {threshold.token} is chosen from a bias of {threshold.high:.4g} on, but its logprob lacks "
            f"{gap_nats:.4g} to the likeliest: biases do not act as asked, and bisection would measure "
            f"something else"
        )


def _threshold_shift_nats(
    task: RecoveryTask, threshold: _ChoiceThreshold, width_nats: float, drift_check: int
) -> float:
    """Return how far a threshold has moved since it was found, nats; 0 if not beyond its width.

    Args:
        task: the recovery.
        threshold: as it was found.
        width_nats: how far from it a token was chosen only at times, nats.
        drift_check: number of the drift check that asks.
    """
    start = distance_nats = max(2 * task.settings.bisection_error_nats, 2 * width_nats)
    while distance_nats <= _MAX_UNCERTAIN_WIDTH_NATS and not threshold.gives_expected_choices(
        task, distance_nats, drift_check=drift_check, vote_pairs=1
    ):
        distance_nats *= 2
    return 0.0 if distance_nats == start else distance_nats
