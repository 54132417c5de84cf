"""Recovery of several tokens per call: as many as the endpoint shows in addition to an anchor, a token of known
logprob."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from ..endpoints.base import Bias, EndpointResponse
from ..numerics import logprob_from_anchor
from ..task import RecoveryTask
from .single import single_each

_FIRST_BIAS_NATS = 40.0  # more than nearly any difference between two logits
_MAX_ROUNDS = 30  # more rounds than needed: a bias that grows by half in each round reaches any limit earlier
# smallest reduction of a bias that shows its effect, well above the 0.02 nats that decimals of an API hide
_MIN_REDUCTION_NATS = 0.25
_SUPPRESSED_GROWTH = 4  # the number of suppressed tokens is multiplied by this factor each time


def parallel(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover one token less per call than logprobs are shown, by `logprob_from_anchor`."""
    # The anchor is the most likely token.
    # Tokens and anchor get the same bias, which lifts them above all other tokens. A token that is not shown was
    # too unlikely: it is queried again with a larger bias, together with similar tokens. If the anchor is not
    # shown, the tokens were too likely: they get a smaller bias.
    # If biases cannot grow, the bias of the anchor is removed. If this is not enough, the most likely known tokens
    # are suppressed, so that other tokens are shown. These may include tokens whose bias the endpoint ignores, so
    # each token is queried again with another bias, and must have the same logprob. Two kinds of tokens are left
    # to `single`: those that were shown, but never together with the anchor, and those of an implausible response.
    # A token that is never shown, or contradicted, stays NaN.
    first_bias = task.bias_range.round_toward_zero(min(_FIRST_BIAS_NATS, task.bias_range.max_bias_nats))
    rounds = _ParallelRounds(task, first_bias, anchor_token_bias=first_bias)
    remaining_tokens = task.estimates.unknown_among(tokens)
    for _ in range(_MAX_ROUNDS):
        unresolved_tokens = rounds.send_round(remaining_tokens)
        can_continue = bool(unresolved_tokens) and rounds.raise_or_suppress_biases(
            unresolved_tokens, len(unresolved_tokens) < len(remaining_tokens)
        )
        remaining_tokens = unresolved_tokens
        if not can_continue:
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
        larger_bias = (
            max(1.5 * self.bias, self.bias + 1)
            if self.anchor_hidden_at_bias == inf
            else (self.hidden_at_bias + self.anchor_hidden_at_bias) / 2
        )
        self.bias = min(larger_bias, max_bias_nats)

    def lower_bias(self) -> None:
        """Try a smaller bias, because the token was shown without the anchor."""
        self.anchor_hidden_at_bias = self.bias
        self.bias = (
            self.bias / 2
            if self.hidden_at_bias == -inf
            else (self.hidden_at_bias + self.anchor_hidden_at_bias) / 2
        )


@dataclass
class _ParallelRounds:
    """Rounds of queries. Each round queries all tokens that are still unknown."""

    task: RecoveryTask
    first_bias: float  # first bias of each token, nats
    anchor_token_bias: float  # bias on the anchor, a token of known logprob, nats
    searches: dict[int, _AnchoredBiasSearch] = field(default_factory=dict)  # the search for the bias of each token
    # negative biases of known likely tokens, nats
    suppressing_biases: dict[int, float] = field(default_factory=dict)
    shown_without_anchor: set[int] = field(default_factory=set)  # tokens that were shown without the anchor
    implausible_tokens: set[int] = field(default_factory=set)  # tokens of responses that cannot be true

    def send_round(self, tokens: Sequence[int]) -> list[int]:
        """Query each token once; return the tokens that are still unknown."""
        estimates, batch_size = self.task.estimates, self._batch_size
        sorted_tokens = sorted(tokens, key=lambda token: (self._bias_search(token).bias, token))
        batches = [sorted_tokens[start : start + batch_size] for start in range(0, len(sorted_tokens), batch_size)]
        for batch, responses in zip(
            batches, self.task.send_queries(self._biases_of_batches(batches)), strict=True
        ):
            self._read_batch(batch, responses)
        if self.suppressing_biases:
            self._repeat_with_smaller_biases(
                [[token for token in batch if estimates.is_known(token)] for batch in batches]
            )
        return [token for token in estimates.unknown_among(tokens) if token not in self.implausible_tokens]

    def raise_or_suppress_biases(self, unresolved_tokens: Sequence[int], has_progress: bool) -> bool:
        """Prepare a round with larger biases or more suppressed tokens; return False if neither can help."""
        if any(
            self._bias_search(token).hidden_at_bias < self.task.bias_range.max_bias_nats
            for token in unresolved_tokens
        ):
            return True
        if self.anchor_token_bias:
            self.anchor_token_bias = 0.0
            self.searches.clear()
            return True
        return self._suppress_known_tokens(has_progress)

    @property
    def _batch_size(self) -> int:
        """The number of tokens per call, limited by the shown logprobs and by the allowed biases."""
        # The anchor takes one of each.
        shown_logprob_count, max_biases_per_call = (
            self.task.profile.shown_logprob_count,
            self.task.limits.max_biases_per_call,
        )
        return (
            shown_logprob_count - 1
            if max_biases_per_call is None
            else max(1, min(shown_logprob_count, max_biases_per_call) - 1)
        )

    def _bias_search(self, token: int) -> _AnchoredBiasSearch:
        """Return the search for a token's bias, or a new one."""
        return self.searches.get(token) or _AnchoredBiasSearch(self.first_bias)

    def _biases_of_batches(self, batches: Sequence[Sequence[int]], reduction_nats: float = 0.0) -> Iterator[Bias]:
        """Yield the biases of each batch, with each token's bias reduced by ``reduction_nats``."""
        anchor_biases = {self.task.anchor: self.anchor_token_bias}
        return (
            self.suppressing_biases
            | anchor_biases
            | {token: self._bias_search(token).bias - reduction_nats for token in batch}
            for batch in batches
        )

    def _read_batch(self, batch: Sequence[int], responses: Sequence[EndpointResponse]) -> None:
        """Add the logprobs of a batch to the estimates, or prepare another bias for each token without one."""
        task, anchor = self.task, self.task.anchor
        error_nats = 2 * task.profile.relative_error + float(task.estimates.errors[anchor])
        logprobs_by_token = self._logprobs_by_token(batch, responses)
        if any(
            logprobs and task.estimates.exceeds_max_hidden_logprob(float(np.mean(logprobs)))
            for logprobs in logprobs_by_token.values()
        ):
            # More likely than any hidden token can be, so not all biases of this call were added.
            self.implausible_tokens.update(batch)
            return
        for token in batch:
            if logprobs_by_token[token]:
                task.estimates.add(token, logprobs_by_token[token], error_nats)
                continue
            search = self._bias_search(token)
            if not all(token in response.logprobs for response in responses):
                search.raise_bias(task.bias_range.max_bias_nats)
            else:
                self.shown_without_anchor.add(token)
                search.lower_bias()
            search.bias = task.bias_range.round_toward_zero(search.bias)
            self.searches[token] = search

    def _logprobs_by_token(
        self, batch: Sequence[int], responses: Sequence[EndpointResponse], reduction_nats: float = 0.0
    ) -> dict[int, list[float]]:
        """Return the logprob of each token by each response; none if a response lacks the token or the anchor."""
        anchor = self.task.anchor
        anchor_logprob = float(self.task.estimates.logprobs[anchor])
        logprobs_by_token: dict[int, list[float]] = {}
        for token in batch:
            bias = self._bias_search(token).bias - reduction_nats - self.anchor_token_bias
            shown_pairs = [(response.logprobs.get(token), response.logprobs.get(anchor)) for response in responses]
            pairs = [
                (token_logprob, anchor_biased_logprob)
                for token_logprob, anchor_biased_logprob in shown_pairs
                if token_logprob is not None and anchor_biased_logprob is not None
            ]
            is_shown = len(pairs) == len(responses)
            logprobs_by_token[token] = (
                [
                    logprob_from_anchor(token_logprob, bias, anchor_biased_logprob, anchor_logprob)
                    for token_logprob, anchor_biased_logprob in pairs
                ]
                if is_shown
                else []
            )
        return logprobs_by_token

    def _repeat_with_smaller_biases(self, batches: Sequence[Sequence[int]]) -> None:
        """Query again with smaller biases, and reject tokens whose logprob changes."""
        # Such a token was shown without its bias.
        task, bias_step_nats, tolerance_nats = (
            self.task,
            self.task.profile.bias_step_nats,
            self.task.unbiased_response.agreement_tolerance_nats,
        )
        known_batches = [batch for batch in batches if batch]
        reduction_nats = max(_MIN_REDUCTION_NATS, 4 * tolerance_nats, bias_step_nats)
        reduction_nats = (
            ceil(reduction_nats / bias_step_nats) * bias_step_nats if bias_step_nats else reduction_nats
        )
        for batch, responses in zip(
            known_batches, task.send_queries(self._biases_of_batches(known_batches, reduction_nats)), strict=True
        ):
            for token, logprobs in self._logprobs_by_token(batch, responses, reduction_nats).items():
                if not logprobs:  # queried again in the next round, with more tokens suppressed
                    task.estimates.forget(token)
                elif abs(float(np.mean(logprobs)) - task.estimates.logprobs[token]) > tolerance_nats:
                    task.estimates.mark_contradicted(token)

    def _suppress_known_tokens(self, has_progress: bool) -> bool:
        """Suppress more of the most likely known tokens, except the anchor. Return False if that cannot help."""
        task, shown_logprob_count = self.task, self.task.profile.shown_logprob_count
        max_biases_per_call = task.limits.max_biases_per_call
        max_suppressed_count = (
            task.session.endpoint.vocab_size
            if max_biases_per_call is None
            else max_biases_per_call - shown_logprob_count
        )
        known_tokens = [token for token in task.estimates.known_by_logprob() if token != task.anchor]
        suppressed_count = max(
            0,
            min(
                _SUPPRESSED_GROWTH * max(len(self.suppressing_biases), shown_logprob_count),
                max_suppressed_count,
                len(known_tokens),
            ),
        )
        if suppressed_count <= len(self.suppressing_biases) and not has_progress:
            return False
        self.suppressing_biases = dict.fromkeys(known_tokens[:suppressed_count], -task.bias_range.max_bias_nats)
        return suppressed_count > 0
