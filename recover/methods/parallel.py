"""k tokens a call: as many as the window shows beside one token of known logprob, the anchor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from ..endpoints.base import Bias, EndpointResponse
from ..numerics import logprob_from_anchor
from ..task import RecoveryTask
from .single import single_each

_FIRST_BIAS_NATS = 40.0
"""More than almost any two logits differ by."""
_MAX_ROUNDS = 30
"""Biases that grow by half each time reach any limit before."""
_MIN_REDUCTION_NATS = 0.25
"""By how much a bias is reduced at least to see that it acts: well above the 0.02 nats of an API's decimals."""
_SUPPRESSED_GROWTH = 4
"""Each time so many times more tokens are pushed down."""


def parallel(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens, window - 1 a call, by `logprob_from_anchor`; the anchor is the likeliest token.

    Tokens and anchor get the same bias, which lifts them above all others. A token that is not shown was too
    unlikely: it gets a larger bias and is asked for again, together with others like it. If the anchor is not
    shown, the tokens were too likely beside it: they get a smaller bias.

    Where biases cannot grow, the anchor's is taken away, and then the likeliest known tokens are pushed down, so
    that others come into the window. That may also be tokens whose own bias is ignored, so each is asked for again
    with another bias, which must give the same. A token that was seen, but never beside the anchor, or in an
    answer that cannot be true, is left to `single`. What cannot be brought into the window, or is contradicted,
    stays NaN.
    """
    first_bias = task.bias_range.round_toward_zero(min(_FIRST_BIAS_NATS, task.bias_range.max_bias_nats))
    rounds = _ParallelRounds(task, first_bias, anchor_bias=first_bias)
    remaining = task.estimates.unknown_among(tokens)
    for _ in range(_MAX_ROUNDS):
        unresolved_tokens = rounds.send_round(remaining)
        can_continue = bool(unresolved_tokens) and rounds.raise_or_suppress_biases(
            unresolved_tokens, len(unresolved_tokens) < len(remaining)
        )
        remaining = unresolved_tokens
        if not can_continue:
            break
    left_to_single = rounds.shown_without_anchor | rounds.implausible
    single_each(task, [token for token in task.estimates.unknown_among(tokens) if token in left_to_single])


@dataclass
class _AnchoredBiasSearch:
    """The search for a token's bias: not shown at ``hidden_at_bias``, shown without the anchor at
    ``anchor_hidden_at_bias``.
    """

    bias: float
    hidden_at_bias: float = -inf
    anchor_hidden_at_bias: float = inf

    def raise_bias(self, max_bias_nats: float) -> None:
        """The token was not shown."""
        self.hidden_at_bias = self.bias
        larger = (
            max(1.5 * self.bias, self.bias + 1)
            if self.anchor_hidden_at_bias == inf
            else (self.hidden_at_bias + self.anchor_hidden_at_bias) / 2
        )
        self.bias = min(larger, max_bias_nats)

    def lower_bias(self) -> None:
        """The token was shown, and the anchor was not."""
        self.anchor_hidden_at_bias = self.bias
        self.bias = (
            self.bias / 2
            if self.hidden_at_bias == -inf
            else (self.hidden_at_bias + self.anchor_hidden_at_bias) / 2
        )


@dataclass
class _ParallelRounds:
    """Rounds of questions, each for all tokens that are still unknown.

    Args:
        task: the recovery.
        first_bias: each token's first bias.
        anchor_bias: the anchor's bias.
        searches: the search for each token's bias.
        suppressing_biases: negative biases of known likely tokens.
        shown_without_anchor: tokens that were shown without the anchor.
        implausible: tokens of answers that cannot be true.
    """

    task: RecoveryTask
    first_bias: float
    anchor_bias: float
    searches: dict[int, _AnchoredBiasSearch] = field(default_factory=dict)
    suppressing_biases: dict[int, float] = field(default_factory=dict)
    shown_without_anchor: set[int] = field(default_factory=set)
    implausible: set[int] = field(default_factory=set)

    def send_round(self, tokens: Sequence[int]) -> list[int]:
        """Ask for each token once; return those that are still unknown."""
        estimates, size = self.task.estimates, self._batch_size
        ordered = sorted(tokens, key=lambda token: (self._search(token).bias, token))
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        for batch, responses in zip(batches, self.task.send_queries(self._queries(batches)), strict=True):
            self._read_batch(batch, responses)
        if self.suppressing_biases:
            self._repeat_with_smaller_biases(
                [[token for token in batch if estimates.is_known(token)] for batch in batches]
            )
        return [token for token in estimates.unknown_among(tokens) if token not in self.implausible]

    def raise_or_suppress_biases(self, unresolved_tokens: Sequence[int], has_progress: bool) -> bool:
        """Prepare larger biases or a further push. Returns False if neither can help."""
        if any(
            self._search(token).hidden_at_bias < self.task.bias_range.max_bias_nats for token in unresolved_tokens
        ):
            return True
        if self.anchor_bias:
            self.anchor_bias = 0.0
            self.searches.clear()
            return True
        return self._suppress_known_tokens(has_progress)

    @property
    def _batch_size(self) -> int:
        """The number of tokens that fit into the window, and into the biases of a call, beside the anchor."""
        shown_logprob_count, max_biases_per_call = (
            self.task.profile.shown_logprob_count,
            self.task.limits.max_biases_per_call,
        )
        return (
            shown_logprob_count - 1
            if max_biases_per_call is None
            else max(1, min(shown_logprob_count, max_biases_per_call) - 1)
        )

    def _search(self, token: int) -> _AnchoredBiasSearch:
        return self.searches.get(token) or _AnchoredBiasSearch(self.first_bias)

    def _queries(self, batches: Sequence[Sequence[int]], reduction: float = 0.0) -> Iterator[Bias]:
        anchor = {self.task.anchor: self.anchor_bias}
        return (
            self.suppressing_biases | anchor | {token: self._search(token).bias - reduction for token in batch}
            for batch in batches
        )

    def _read_batch(self, batch: Sequence[int], responses: Sequence[EndpointResponse]) -> None:
        """Take the logprobs of a batch, or another bias for each token that has none."""
        task, anchor = self.task, self.task.anchor
        error = 2 * task.profile.relative_error + float(task.estimates.errors[anchor])
        values = self._values(batch, responses)
        if any(
            token_logprob and task.estimates.exceeds_max_hidden_logprob(float(np.mean(token_logprob)))
            for token_logprob in values.values()
        ):
            # Likelier than a token behind the base window can be: not all biases of this call were added.
            self.implausible.update(batch)
            return
        for token in batch:
            if values[token]:
                task.estimates.add(token, values[token], error)
                continue
            search = self._search(token)
            if not all(token in response.logprobs for response in responses):
                search.raise_bias(task.bias_range.max_bias_nats)
            else:
                self.shown_without_anchor.add(token)
                search.lower_bias()
            search.bias = task.bias_range.round_toward_zero(search.bias)
            self.searches[token] = search

    def _values(
        self, batch: Sequence[int], responses: Sequence[EndpointResponse], reduction: float = 0.0
    ) -> dict[int, list[float]]:
        """Return each token's logprob by each answer; none if one of them does not show it beside the anchor."""
        anchor = self.task.anchor
        anchor_logprob = float(self.task.estimates.logprobs[anchor])
        values: dict[int, list[float]] = {}
        for token in batch:
            bias = self._search(token).bias - reduction - self.anchor_bias
            both = [(response.logprobs.get(token), response.logprobs.get(anchor)) for response in responses]
            pairs = [
                (token_logprob, anchor_biased_logprob)
                for token_logprob, anchor_biased_logprob in both
                if token_logprob is not None and anchor_biased_logprob is not None
            ]
            is_shown = len(pairs) == len(responses)
            values[token] = (
                [
                    logprob_from_anchor(token_logprob, bias, anchor_biased_logprob, anchor_logprob)
                    for token_logprob, anchor_biased_logprob in pairs
                ]
                if is_shown
                else []
            )
        return values

    def _repeat_with_smaller_biases(self, batches: Sequence[Sequence[int]]) -> None:
        """Ask again with smaller biases: a token that was shown without its bias now gives another logprob."""
        task, bias_step_nats, tolerance_nats = (
            self.task,
            self.task.profile.bias_step_nats,
            self.task.unbiased_window.agreement_tolerance_nats,
        )
        known_batches = [batch for batch in batches if batch]
        reduction = max(_MIN_REDUCTION_NATS, 4 * tolerance_nats, bias_step_nats)
        reduction = ceil(reduction / bias_step_nats) * bias_step_nats if bias_step_nats else reduction
        for batch, responses in zip(
            known_batches, task.send_queries(self._queries(known_batches, reduction)), strict=True
        ):
            for token, values in self._values(batch, responses, reduction).items():
                if not values:  # asked for again, with others pushed out of its way
                    task.estimates.forget(token)
                elif abs(float(np.mean(values)) - task.estimates.logprobs[token]) > tolerance_nats:
                    task.estimates.mark_contradicted(token)

    def _suppress_known_tokens(self, has_progress: bool) -> bool:
        """Push more of the likeliest known tokens down, all but the anchor. Returns False if that cannot help."""
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
