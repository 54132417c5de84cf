"""k tokens a call: as many as the window shows beside one token of known logprob, the anchor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from ..endpoints.base import Bias, EndpointAnswer
from ..numerics import from_anchor
from ..task import RecoveryTask
from .single import single_each

_FIRST_BIAS_NATS = 40.0
"""More than almost any two logits differ by."""
_MOST_ROUNDS = 30
"""Biases that grow by half each time reach any limit before."""
_LEAST_REDUCTION_NATS = 0.25
"""By how much a bias is reduced at least to see that it acts: well above the 0.02 nats of an API's decimals."""
_PUSHED_GROWTH = 4
"""Each time so many times more tokens are pushed down."""


def parallel(task: RecoveryTask, tokens: Sequence[int]) -> None:
    """Recover tokens, window - 1 a call, by `from_anchor`; the anchor is the likeliest token.

    Tokens and anchor get the same bias, which lifts them above all others. A token that is not shown was too
    unlikely: it gets a larger bias and is asked for again, together with others like it. If the anchor is not
    shown, the tokens were too likely beside it: they get a smaller bias.

    Where biases cannot grow, the anchor's is taken away, and then the likeliest known tokens are pushed down, so
    that others come into the window. That may also be tokens whose own bias is ignored, so each is asked for again
    with another bias, which must give the same. A token that was seen, but never beside the anchor, or in an
    answer that cannot be true, is left to `single`. What cannot be brought into the window, or is contradicted,
    stays NaN.
    """
    first = task.bias_range.rounded(min(_FIRST_BIAS_NATS, task.bias_range.largest))
    rounds = _ParallelRounds(task, first, anchor_bias=first)
    remaining = task.estimates.unknown(tokens)
    for _ in range(_MOST_ROUNDS):
        missed = rounds.ask(remaining)
        goes_on = bool(missed) and rounds.go_further(missed, len(missed) < len(remaining))
        remaining = missed
        if not goes_on:
            break
    unresolved = rounds.shown_alone | rounds.implausible
    single_each(task, [token for token in task.estimates.unknown(tokens) if token in unresolved])


@dataclass
class _AnchoredBiasSearch:
    """The search for a token's bias: not shown at ``low``, shown without the anchor at ``high``."""

    bias: float
    low: float = -inf
    high: float = inf

    def increase(self, largest: float) -> None:
        """The token was not shown."""
        self.low = self.bias
        larger = max(1.5 * self.bias, self.bias + 1) if self.high == inf else (self.low + self.high) / 2
        self.bias = min(larger, largest)

    def decrease(self) -> None:
        """The token was shown, and the anchor was not."""
        self.high = self.bias
        self.bias = self.bias / 2 if self.low == -inf else (self.low + self.high) / 2


@dataclass
class _ParallelRounds:
    """Rounds of questions, each for all tokens that are still unknown.

    Args:
        task: the recovery.
        first_bias: each token's first bias.
        anchor_bias: the anchor's bias.
        searches: the search for each token's bias.
        pushed: negative biases of known likely tokens.
        shown_alone: tokens that were shown without the anchor.
        implausible: tokens of answers that cannot be true.
    """

    task: RecoveryTask
    first_bias: float
    anchor_bias: float
    searches: dict[int, _AnchoredBiasSearch] = field(default_factory=dict)
    pushed: dict[int, float] = field(default_factory=dict)
    shown_alone: set[int] = field(default_factory=set)
    implausible: set[int] = field(default_factory=set)

    def ask(self, tokens: Sequence[int]) -> list[int]:
        """Ask for each token once; return those that are still unknown."""
        estimates, size = self.task.estimates, self._batch_size
        ordered = sorted(tokens, key=lambda token: (self._search(token).bias, token))
        batches = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        for batch, answers in zip(batches, self.task.ask(self._questions(batches)), strict=True):
            self._read(batch, answers)
        if self.pushed:
            self._confirm([[token for token in batch if estimates.is_known(token)] for batch in batches])
        return [token for token in estimates.unknown(tokens) if token not in self.implausible]

    def go_further(self, missed: Sequence[int], has_progress: bool) -> bool:
        """Prepare larger biases or a further push. Returns False if neither can help."""
        if any(self._search(token).low < self.task.bias_range.largest for token in missed):
            return True
        if self.anchor_bias:
            self.anchor_bias = 0.0
            self.searches.clear()
            return True
        return self._push(has_progress)

    @property
    def _batch_size(self) -> int:
        """The number of tokens that fit into the window, and into the biases of a call, beside the anchor."""
        window, most_biases = self.task.profile.window, self.task.limits.most_biases
        return window - 1 if most_biases is None else max(1, min(window, most_biases) - 1)

    def _search(self, token: int) -> _AnchoredBiasSearch:
        return self.searches.get(token) or _AnchoredBiasSearch(self.first_bias)

    def _questions(self, batches: Sequence[Sequence[int]], reduction: float = 0.0) -> Iterator[Bias]:
        anchor = {self.task.anchor: self.anchor_bias}
        return (
            self.pushed | anchor | {token: self._search(token).bias - reduction for token in batch}
            for batch in batches
        )

    def _read(self, batch: Sequence[int], answers: Sequence[EndpointAnswer]) -> None:
        """Take the logprobs of a batch, or another bias for each token that has none."""
        task, anchor = self.task, self.task.anchor
        error = 2 * task.profile.precision + float(task.estimates.errors[anchor])
        values = self._values(batch, answers)
        if any(own and task.estimates.exceeds_ceiling(float(np.mean(own))) for own in values.values()):
            # Likelier than a token behind the base window can be: not all biases of this call were added.
            self.implausible.update(batch)
            return
        for token in batch:
            if values[token]:
                task.estimates.add(token, values[token], error)
                continue
            search = self._search(token)
            if not all(token in answer.logprobs for answer in answers):
                search.increase(task.bias_range.largest)
            else:
                self.shown_alone.add(token)
                search.decrease()
            search.bias = task.bias_range.rounded(search.bias)
            self.searches[token] = search

    def _values(
        self, batch: Sequence[int], answers: Sequence[EndpointAnswer], reduction: float = 0.0
    ) -> dict[int, list[float]]:
        """Return each token's logprob by each answer; none if one of them does not show it beside the anchor."""
        anchor = self.task.anchor
        anchor_logprob = float(self.task.estimates.logprobs[anchor])
        values: dict[int, list[float]] = {}
        for token in batch:
            bias = self._search(token).bias - reduction - self.anchor_bias
            both = [(answer.logprobs.get(token), answer.logprobs.get(anchor)) for answer in answers]
            pairs = [(own, beside) for own, beside in both if own is not None and beside is not None]
            is_shown = len(pairs) == len(answers)
            values[token] = (
                [from_anchor(own, bias, beside, anchor_logprob) for own, beside in pairs] if is_shown else []
            )
        return values

    def _confirm(self, batches: Sequence[Sequence[int]]) -> None:
        """Ask again with smaller biases: a token that was shown without its bias now gives another logprob."""
        task, step, margin = self.task, self.task.profile.bias_step, self.task.base.margin
        asked_batches = [batch for batch in batches if batch]
        reduction = max(_LEAST_REDUCTION_NATS, 4 * margin, step)
        reduction = ceil(reduction / step) * step if step else reduction
        for batch, answers in zip(asked_batches, task.ask(self._questions(asked_batches, reduction)), strict=True):
            for token, values in self._values(batch, answers, reduction).items():
                if not values:  # asked for again, with others pushed out of its way
                    task.estimates.forget(token)
                elif abs(float(np.mean(values)) - task.estimates.logprobs[token]) > margin:
                    task.estimates.contradict(token)

    def _push(self, has_progress: bool) -> bool:
        """Push more of the likeliest known tokens down, all but the anchor. Returns False if that cannot help."""
        task, window = self.task, self.task.profile.window
        most_biases = task.limits.most_biases
        room = task.session.endpoint.vocab_size if most_biases is None else most_biases - window
        recovered = [token for token in task.estimates.ranked() if token != task.anchor]
        count = max(0, min(_PUSHED_GROWTH * max(len(self.pushed), window), room, len(recovered)))
        if count <= len(self.pushed) and not has_progress:
            return False
        self.pushed = dict.fromkeys(recovered[:count], -task.bias_range.largest)
        return count > 0
