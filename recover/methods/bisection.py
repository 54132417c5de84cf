"""`bisection`: for an endpoint that returns only the most likely token.

Token i becomes the most likely one if its bias exceeds the difference of two logprobs, which is the threshold

    b_i = log p_top - log p_i

The bias is doubled, from 16 on, until the token is chosen. Then the interval is halved until its width is at most
``bisection_error_nats``, and its middle is b_i. The differences of a whole vocabulary become logprobs, because its
probabilities sum to 1:

    log p_i = -b_i - log sum_j e^(-b_j)

Otherwise they remain relative to the most likely token, which has 0.

Source: openlogprobs bisects a logprob in the same way. Bisection is wrong if biases are not additive or if the
endpoint draws its tokens. So both are checked at the first threshold. This threshold is measured again during the
run, to notice a change of the endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

import numpy as np

from ..endpoints.base import Bias, EndpointResponse, QueryKind
from ..errors import RecoverError
from ..numerics import logsumexp
from ..task import RecoveryTask

# a bias that makes most tokens the most likely one; it is doubled for the remaining tokens
_FIRST_BIAS_NATS = 16.0
_MAX_BIAS_NATS = 512.0  # Much larger than any difference between two logits
_FIRST_TOKEN_COUNT = 4  # number of tokens with which a first threshold is found, if no likely tokens are shown


def bisection(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover the tokens. Raises ``RecoverError`` if biases are not additive."""
    # Logprobs that were known before are discarded, because they have another scale.
    estimates = task.estimates
    # An interval of this width has its middle at most half of it from the threshold.
    half_width_nats = task.settings.bisection_error_nats / 2
    top_token = _find_top_token(task)
    estimates.logprobs[:] = np.nan
    estimates.errors[:] = np.nan
    estimates.max_hidden_logprob = inf
    estimates.is_normalized = False
    estimates.set(top_token, 0.0, half_width_nats)
    if not task.unbiased_response.logprobs:
        task.notes.append(
            "a common factor on all biases, such as a temperature, cannot be noticed from choices alone"
        )
    remaining_tokens = estimates.unknown_among(tokens)
    other_shown_tokens = [token for token in task.unbiased_response.ranked_tokens if token != top_token]
    first_tokens = other_shown_tokens[:1] or remaining_tokens[:_FIRST_TOKEN_COUNT]
    intervals = _narrow_intervals(task, first_tokens)
    width_nats = 0.0
    if intervals:
        token = min(intervals, key=lambda candidate: intervals[candidate].high)
        threshold = _ChoiceThreshold(task, top_token, token, intervals[token])
        width_nats = threshold.measure_uncertain_width()
        task.measure_drift = lambda check_number: threshold.shift_nats(width_nats, check_number)
        estimates.errors[top_token] = max(half_width_nats, width_nats)
    other_tokens = [token for token in remaining_tokens if token not in first_tokens]
    intervals |= _narrow_intervals(task, other_tokens)
    for token, interval in intervals.items():
        error_nats = max(half_width_nats, width_nats, interval.error_nats)
        estimates.add(token, [-interval.middle], error_nats)
    if not np.isnan(estimates.logprobs).any():
        # The sum is wrong by at most the mean error, which is added to each token's error.
        estimates.logprobs -= logsumexp(estimates.logprobs)
        estimates.errors += float(np.exp(estimates.logprobs) @ estimates.errors)
        estimates.is_normalized = True


def ranking(task: RecoveryTask, top_count: int) -> list[int]:
    """Return the ``top_count`` most likely tokens in order."""
    # Each token is chosen once all tokens before it are suppressed.
    suppression_nats = min(_MAX_BIAS_NATS, task.limits.max_bias_nats)
    max_biases = task.limits.max_biases_per_call
    ranked_tokens = [_find_top_token(task)]
    while len(ranked_tokens) < top_count:
        if max_biases is not None and len(ranked_tokens) > max_biases:
            raise RecoverError(
                f"the endpoint accepts {max_biases:,} biases per call, too few to find the {top_count:,} most "
                "likely tokens"
            )
        (responses,) = task.send_queries([dict.fromkeys(ranked_tokens, -suppression_nats)], QueryKind.TOP_TOKEN)
        votes = [response.token for response in responses]
        token = max(votes, key=votes.count)
        if token is None:
            raise RecoverError(
                f"the endpoint cannot name the next token; request only the {len(ranked_tokens):,} most likely"
            )
        if token in ranked_tokens:
            raise RecoverError(
                f"token {token} is chosen again with a bias of -{suppression_nats:g}; request only the "
                f"{len(ranked_tokens):,} most likely"
            )
        ranked_tokens.append(token)
    return ranked_tokens


def calls_per_token(width_nats: float, max_error_nats: float) -> int:
    """Return the number of calls for one token: one to find the interval, and one for each halving."""
    return max(0, ceil(log2(width_nats / max_error_nats))) + 1


_EQUAL_NATS = 1e-3  # Logprobs that differ by less count as equal, because float32 and decimals round them


def _find_top_token(task: RecoveryTask) -> int:
    """Return the token that is chosen without a bias. Raises ``RecoverError`` if the endpoint draws its tokens."""
    unbiased_response = task.unbiased_response
    top_token, second_token = unbiased_response.first_two_tokens
    if unbiased_response.logprobs and task.session.endpoint.has_top_token_query:
        ((first_response, second_response),) = task.session.send_queries(
            [{}], calls_per_query=2, kind=QueryKind.TOP_TOKEN
        )
        top_token, second_token = first_response.token, second_response.token
    if top_token is None:
        raise RecoverError("the endpoint does not show which token it chose, so bisection does not work")
    is_drawn = top_token != second_token
    if unbiased_response.logprobs:
        # One token may have been drawn twice by chance. Then it need not be the most likely one.
        top_logprob = max(unbiased_response.logprobs.values())
        min_top_logprob = top_logprob - 2 * unbiased_response.spread_nats - _EQUAL_NATS
        is_drawn |= unbiased_response.logprobs.get(top_token, -inf) < min_top_logprob
    if is_drawn:
        raise RecoverError("the endpoint draws its tokens; bisection needs the most likely token (temperature 0)")
    return top_token


@dataclass
class _BiasInterval:
    """The interval of biases in which a token becomes the chosen one."""

    low: float = 0.0  # the largest tried bias at which most responses chose another token, nats
    high: float = inf  # the smallest tried bias at which most responses chose the token, nats; inf: not found yet
    min_bias_with_vote: float = inf  # the smallest bias at which any response chose the token, nats
    max_bias_without_vote: float = -inf  # the largest bias at which any response chose another token, nats

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def error_nats(self) -> float:
        """The largest distance of the middle to a threshold that the responses allow, nats."""
        highest_threshold = max(self.high, self.max_bias_without_vote)
        lowest_threshold = min(self.low, self.min_bias_with_vote)
        return max(highest_threshold - self.middle, self.middle - lowest_threshold)

    def next_bias(self, first_bias: float, max_bias_nats: float) -> float:
        """Return the middle of the interval; until the token is chosen, twice the bias before."""
        if self.high < inf:
            return self.middle
        if not self.low:
            return first_bias
        return min(2 * self.low, max_bias_nats)

    def can_narrow(self, max_bias_nats: float, max_width_nats: float) -> bool:
        """Return whether another bias is to be tried."""
        if self.high == inf:
            return self.low < max_bias_nats
        return self.high - self.low > max_width_nats and self.low < self.middle < self.high

    def add_votes(self, token: int, bias: float, responses: Sequence[EndpointResponse]) -> None:
        """Narrow the interval by the responses to one bias."""
        votes = sum(response.token == token for response in responses)
        if 2 * votes > len(responses):
            self.high = bias
        else:
            self.low = bias
        if votes:
            self.min_bias_with_vote = min(self.min_bias_with_vote, bias)
        if votes < len(responses):
            self.max_bias_without_vote = max(self.max_bias_without_vote, bias)


def _narrow_intervals(task: RecoveryTask, tokens: Sequence[int]) -> dict[int, _BiasInterval]:
    """Return an interval of ``bisection_error_nats`` for each token that a bias can make the chosen one."""
    max_bias_nats = min(task.limits.max_bias_nats, _MAX_BIAS_NATS)
    first_bias = min(_FIRST_BIAS_NATS, max_bias_nats)
    intervals = {token: _BiasInterval() for token in tokens}
    unfinished = intervals
    while unfinished:
        biases = {token: interval.next_bias(first_bias, max_bias_nats) for token, interval in unfinished.items()}
        queries = ({token: bias} for token, bias in biases.items())
        for token, responses in zip(biases, task.send_queries(queries, QueryKind.TOP_TOKEN), strict=True):
            intervals[token].add_votes(token, biases[token], responses)
        unfinished = {
            token: interval
            for token, interval in unfinished.items()
            if interval.can_narrow(max_bias_nats, task.settings.bisection_error_nats)
        }
    return {token: interval for token, interval in intervals.items() if interval.high < inf}


# Number of pairs of queries whose responses must all be as expected. Chance achieves this once in 256 times.
_VOTE_PAIRS = 4
_MAX_UNCERTAIN_WIDTH_NATS = 0.5  # an endpoint whose choices vary over a wider range draws its tokens
_MAX_SUM_ERROR_NATS = 0.25  # Allowed error of a sum of biases. Endpoints that round biases to integers exceed it.
_COMMON_BIAS_NATS = 2.3719  # A bias on both tokens. It is not a multiple of a step to which an endpoint may round.
_MIN_COMMON_BIAS_NATS = 0.1  # a smaller bias on both tokens would not show whether biases are additive


class _ChoiceThreshold:
    """The bias at which another token becomes the chosen one, with which the endpoint is tested."""

    def __init__(self, task: RecoveryTask, top_token: int, token: int, interval: _BiasInterval) -> None:
        self._task = task
        self._top_token = top_token  # the token that is chosen with a bias below the interval
        self._token = token  # the token that is chosen with a bias above the interval
        self._interval = interval

    def measure_uncertain_width(self) -> float:
        """Return the distance from the threshold up to which choices vary, nats; 0 if they do not vary."""
        # The distance of the queries is doubled until all choices are as expected. Then both tokens get the same
        # additional bias. If the endpoint rounds or reshapes biases, choices now differ. A common factor on all
        # biases (a temperature) changes no choice. So the threshold must also agree with the shown logprobs.
        # Raises ``RecoverError``.
        task = self._task
        token = self._token
        upper_end = self._interval.high
        min_distance_nats = task.settings.bisection_error_nats
        distance_nats = min_distance_nats
        while not self._gives_expected_choices(distance_nats):
            distance_nats *= 2
            if distance_nats > _MAX_UNCERTAIN_WIDTH_NATS:
                raise RecoverError(
                    f"the choice of token {token} with a bias of {upper_end:.4g} varies from call to call: "
                    f"the endpoint draws its tokens; bisection needs the most likely token (temperature 0)"
                )
        self._compare_with_shown_logprobs(distance_nats)
        max_distance_nats = min(max(_MAX_SUM_ERROR_NATS, 4 * distance_nats), _MAX_UNCERTAIN_WIDTH_NATS)
        common_bias_nats = min(_COMMON_BIAS_NATS, task.limits.max_bias_nats - upper_end - 4 * max_distance_nats)
        while common_bias_nats >= _MIN_COMMON_BIAS_NATS and not self._gives_expected_choices(
            distance_nats, common_bias_nats=common_bias_nats
        ):
            distance_nats *= 2
            if distance_nats > max_distance_nats:
                raise RecoverError(
                    f"biases are not additive: token {token} is chosen with a bias of {upper_end:.4g}, but not "
                    f"with {common_bias_nats:g} more if the most likely token has {common_bias_nats:g}; "
                    "the endpoint rounds or reshapes biases, or draws its tokens, so bisection would be wrong"
                )
        if distance_nats == min_distance_nats:
            return 0.0
        task.notes.append(f"choices vary from call to call within {distance_nats:.1e} nats of a threshold")
        return distance_nats

    def shift_nats(self, width_nats: float, drift_check: int) -> float:
        """Return the distance by which the threshold has moved, nats; 0 if it is within ``width_nats``."""
        start_distance_nats = 2 * max(self._task.settings.bisection_error_nats, width_nats)
        distance_nats = start_distance_nats
        while distance_nats <= _MAX_UNCERTAIN_WIDTH_NATS and not self._gives_expected_choices(
            distance_nats, drift_check=drift_check, vote_pairs=1
        ):
            distance_nats *= 2
        return 0.0 if distance_nats == start_distance_nats else distance_nats

    def _gives_expected_choices(
        self,
        distance_nats: float,
        *,
        common_bias_nats: float = 0.0,
        drift_check: int = 0,
        vote_pairs: int = _VOTE_PAIRS,
    ) -> bool:
        """Return whether biases that are far enough from the threshold give the expected choices."""
        # There are ``vote_pairs`` pairs of queries, at ``distance_nats`` to twice that distance. No query is sent
        # twice, because an endpoint may draw the same token each time for the same query.
        max_bias_nats = self._task.limits.max_bias_nats
        common_biases = {self._top_token: common_bias_nats} if common_bias_nats else {}
        queries: list[Bias] = []
        expected_tokens: list[int] = []
        for pair in range(vote_pairs):
            bias_distance_nats = distance_nats * (1 + pair / vote_pairs)
            upper_bias = min(self._interval.high + bias_distance_nats + common_bias_nats, max_bias_nats)
            lower_bias = self._interval.low - bias_distance_nats + common_bias_nats
            queries += [common_biases | {self._token: upper_bias}, common_biases | {self._token: lower_bias}]
            expected_tokens += [self._token, self._top_token]
        all_responses = self._task.session.send_queries(queries, kind=QueryKind.TOP_TOKEN, drift_check=drift_check)
        return [response.token for (response,) in all_responses] == expected_tokens

    def _compare_with_shown_logprobs(self, distance_nats: float) -> None:
        """Raise ``RecoverError`` for a threshold that the shown logprobs contradict."""
        unbiased = self._task.unbiased_response
        if not {self._top_token, self._token} <= unbiased.logprobs.keys():
            return
        gap_nats = unbiased.logprobs[self._top_token] - unbiased.logprobs[self._token]
        tolerance_nats = max(unbiased.agreement_tolerance_nats, 2 * self._task.profile.relative_error)
        if abs(self._interval.middle - gap_nats) > tolerance_nats + distance_nats:
            raise RecoverError(
                f"token {self._token} is chosen with a bias of {self._interval.high:.4g}, but its logprob is "
                f"{gap_nats:.4g} below the most likely one: biases are not added exactly, so bisection would be "
                "wrong"
            )
