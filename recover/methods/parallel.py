"""`parallel`: several tokens per call, as many as the endpoint shows in addition to an anchor.

The anchor a is a token of known logprob, the most likely one. Biases b change the normalizing sum, which is the
same for all tokens of a call. So the ratio of two tokens shows their true ratio:

    p'_i / p'_a = p_i e^(b_i) / (p_a e^(b_a))
    log p_i = log p'_i - log p'_a + log p_a - (b_i - b_a)

Source: Finlayson, "Obtaining logprobs from an LLM API" (openlogprobs), section "Full logprobs in v/k API calls".
It solves for the sum of the biased tokens instead, p_i = p'_i / ((1 - S) e^b + S). That needs no anchor, but loses
digits if one token is much more likely than expected. Here nothing cancels, so that tokens of very different
probability can share a call. If all tokens of a call have the same bias, the size of the bias does not matter,
even if the endpoint limits biases.

Tokens and anchor get the same bias, which lifts them above all other tokens. A token that is not shown was too
unlikely. It is queried again with a larger bias, together with similar tokens. If the anchor is not shown, the
tokens were too likely, and get a smaller bias. If biases cannot grow, the bias of the anchor is removed. If this
is not enough, the most likely known tokens are suppressed, so that other tokens are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from ..endpoints.base import Bias, EndpointResponse
from ..task import RecoveryTask
from .single import single_each

_FIRST_BIAS_NATS = 40.0  # more than nearly any difference between two logits
_MAX_ROUNDS = 30  # more rounds than needed: a bias that grows by half in each round reaches any limit earlier
# smallest reduction of a bias that shows its effect, well above the 0.02 nats that decimals of an API hide
_MIN_REDUCTION_NATS = 0.25
_SUPPRESSED_GROWTH = 4  # the number of suppressed tokens is multiplied by this factor each time


def logprob_from_anchor(
    biased_logprob: float, bias: float, anchor_biased_logprob: float, anchor_logprob: float
) -> float:
    """Return log p_i from log p'_i, b_i - b_a, log p'_a and log p_a."""
    return biased_logprob - anchor_biased_logprob + anchor_logprob - bias


def parallel(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover the tokens that are still unknown. A token that is never shown, or contradicted, stays NaN."""
    # Two kinds of tokens are left to `single`: those that were shown, but never together with the anchor, and
    # those of an implausible response.
    rounds = _Rounds(task)
    remaining_tokens = task.estimates.unknown_among(tokens)
    for _ in range(_MAX_ROUNDS):
        unresolved_tokens = rounds.send_round(remaining_tokens)
        has_progress = len(unresolved_tokens) < len(remaining_tokens)
        remaining_tokens = unresolved_tokens
        if not remaining_tokens or not rounds.raise_or_suppress_biases(remaining_tokens, has_progress):
            break
    tokens_for_single = rounds.shown_without_anchor | rounds.implausible_tokens
    single_each(task, [token for token in task.estimates.unknown_among(tokens) if token in tokens_for_single])


@dataclass
class _AnchoredBiasSearch:
    """The search for a bias with which both a token and the anchor are shown."""

    bias: float  # the bias to try next, nats
    # the largest bias at which the token was not shown, nats; -inf: it was always shown
    hidden_at_bias: float = -inf
    # the smallest bias at which the anchor was not shown, nats; inf: it was always shown
    anchor_hidden_at_bias: float = inf

    def raise_bias(self, max_bias_nats: float) -> None:
        """Try a larger bias, because the token was not shown."""
        self.hidden_at_bias = self.bias
        larger_bias = max(1.5 * self.bias, self.bias + 1)
        if self.anchor_hidden_at_bias < inf:
            larger_bias = self._middle
        self.bias = min(max_bias_nats, larger_bias)

    def lower_bias(self) -> None:
        """Try a smaller bias, because the token was shown without the anchor."""
        self.anchor_hidden_at_bias = self.bias
        self.bias = self._middle if self.hidden_at_bias > -inf else self.bias / 2

    @property
    def _middle(self) -> float:
        return (self.hidden_at_bias + self.anchor_hidden_at_bias) / 2


class _Rounds:
    """Rounds of queries. Each round queries all tokens that are still unknown."""

    def __init__(self, task: RecoveryTask) -> None:
        self.shown_without_anchor: set[int] = set()  # tokens that were shown without the anchor
        self.implausible_tokens: set[int] = set()  # tokens of responses that cannot be true
        self._task = task
        self._bias_range = task.profile.bias_range
        # first bias of each token, nats
        self._first_bias = self._bias_range.round_toward_zero(
            min(_FIRST_BIAS_NATS, self._bias_range.max_bias_nats)
        )
        self._anchor_bias = self._first_bias
        self._searches: dict[int, _AnchoredBiasSearch] = {}  # the search for the bias of each token
        self._suppressing_biases: dict[int, float] = {}  # negative biases of known likely tokens, nats
        max_tokens_per_call = task.profile.shown_logprob_count
        if task.limits.max_biases_per_call is not None:
            max_tokens_per_call = min(max_tokens_per_call, task.limits.max_biases_per_call)
        self._batch_size = max(1, max_tokens_per_call - 1)  # the anchor is one of the tokens of a call

    def send_round(self, tokens: Sequence[int]) -> list[int]:
        """Query each token once; return the tokens that are still unknown."""
        estimates = self._task.estimates
        # Tokens of similar bias share a call.
        sorted_tokens = sorted(tokens, key=lambda token: (self._search(token).bias, token))
        starts = range(0, len(sorted_tokens), self._batch_size)
        batches = [sorted_tokens[start : start + self._batch_size] for start in starts]
        responses_of_batches = self._task.send_queries(self._biases_of(batches))
        for batch, responses in zip(batches, responses_of_batches, strict=True):
            self._read_batch(batch, responses)
        if self._suppressing_biases:
            known_batches = [[token for token in batch if estimates.is_known(token)] for batch in batches]
            self._repeat_with_smaller_biases([batch for batch in known_batches if batch])
        return [token for token in estimates.unknown_among(tokens) if token not in self.implausible_tokens]

    def raise_or_suppress_biases(self, unresolved_tokens: Sequence[int], has_progress: bool) -> bool:
        """Prepare a round with larger biases or more suppressed tokens; return False if neither can help."""
        max_bias_nats = self._bias_range.max_bias_nats
        if any(self._search(token).hidden_at_bias < max_bias_nats for token in unresolved_tokens):
            return True
        if self._anchor_bias:
            self._anchor_bias = 0.0
            self._searches.clear()
            return True
        return self._suppress_known_tokens(has_progress)

    def _search(self, token: int) -> _AnchoredBiasSearch:
        """Return the search for a token's bias, or a new one."""
        return self._searches.get(token) or _AnchoredBiasSearch(self._first_bias)

    def _biases_of(self, batches: Sequence[Sequence[int]], reduction_nats: float = 0.0) -> Iterator[Bias]:
        """Yield the biases of each batch, with each token's bias reduced by ``reduction_nats``."""
        for batch in batches:
            token_biases = {token: self._search(token).bias - reduction_nats for token in batch}
            yield self._suppressing_biases | {self._task.anchor: self._anchor_bias} | token_biases

    def _read_batch(self, batch: Sequence[int], responses: Sequence[EndpointResponse]) -> None:
        """Add the logprobs of a batch to the estimates, or prepare another bias for each token without one."""
        task = self._task
        estimates = task.estimates
        error_nats = 2 * task.profile.relative_error + float(estimates.errors[task.anchor])
        logprobs_by_token = {token: self._read_logprobs(token, responses) for token in batch}
        measured_means = [float(np.mean(logprobs)) for logprobs in logprobs_by_token.values() if logprobs]
        if max(measured_means, default=-inf) > estimates.max_hidden_logprob:
            # A token seems more likely than any hidden token can be, so not all biases of this call were added.
            self.implausible_tokens.update(batch)
            return
        for token, logprobs in logprobs_by_token.items():
            if logprobs:
                estimates.add(token, logprobs, error_nats)
                continue
            is_shown = all(token in response.logprobs for response in responses)
            if is_shown:
                self.shown_without_anchor.add(token)
            self._prepare_other_bias(token, is_shown=is_shown)

    def _prepare_other_bias(self, token: int, *, is_shown: bool) -> None:
        search = self._search(token)
        if is_shown:
            search.lower_bias()
        else:
            search.raise_bias(self._bias_range.max_bias_nats)
        search.bias = self._bias_range.round_toward_zero(search.bias)
        self._searches[token] = search

    def _read_logprobs(
        self, token: int, responses: Sequence[EndpointResponse], reduction_nats: float = 0.0
    ) -> list[float]:
        """Return the token's logprob by each response; none if a response lacks the token or the anchor."""
        anchor = self._task.anchor
        if not all(token in response.logprobs and anchor in response.logprobs for response in responses):
            return []
        bias = self._search(token).bias - reduction_nats - self._anchor_bias
        anchor_logprob = float(self._task.estimates.logprobs[anchor])
        return [
            logprob_from_anchor(response.logprobs[token], bias, response.logprobs[anchor], anchor_logprob)
            for response in responses
        ]

    def _repeat_with_smaller_biases(self, batches: Sequence[Sequence[int]]) -> None:
        """Query known tokens again with smaller biases, and reject those whose logprob changes."""
        # The endpoint ignores the bias of such a token. The token was shown because others were suppressed.
        task = self._task
        step_nats = self._bias_range.step_nats
        tolerance_nats = task.unbiased_response.agreement_tolerance_nats
        reduction_nats = max(_MIN_REDUCTION_NATS, 4 * tolerance_nats, step_nats)
        if step_nats:
            reduction_nats = ceil(reduction_nats / step_nats) * step_nats
        responses_of_batches = task.send_queries(self._biases_of(batches, reduction_nats))
        for batch, responses in zip(batches, responses_of_batches, strict=True):
            for token in batch:
                logprobs = self._read_logprobs(token, responses, reduction_nats)
                if not logprobs:  # it is queried again in the next round, with more tokens suppressed
                    task.estimates.forget(token)
                elif abs(float(np.mean(logprobs)) - task.estimates.logprobs[token]) > tolerance_nats:
                    task.estimates.mark_contradicted(token)

    def _suppress_known_tokens(self, has_progress: bool) -> bool:
        """Suppress more of the most likely known tokens, except the anchor. Return False if that cannot help."""
        task = self._task
        shown_count = task.profile.shown_logprob_count
        suppressed_count = len(self._suppressing_biases)
        known_tokens = [token for token in task.estimates.known_by_logprob() if token != task.anchor]
        count = min(_SUPPRESSED_GROWTH * max(suppressed_count, shown_count), len(known_tokens))
        if task.limits.max_biases_per_call is not None:  # the shown tokens need biases, too
            count = max(0, min(count, task.limits.max_biases_per_call - shown_count))
        has_more = count > suppressed_count
        if not has_more and not has_progress:
            return False
        self._suppressing_biases = dict.fromkeys(known_tokens[:count], -self._bias_range.max_bias_nats)
        return count > 0
