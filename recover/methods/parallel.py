"""k tokens a call: as many as the window shows beside one token of known logprob."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

import numpy as np

from ..endpoints.base import Bias, EndpointAnswer
from ..numerics import from_anchor
from ..probing.probe import START
from ..run import RecoveryRun
from .single import single_each

_ROUNDS = 30
_LESS = 0.25


def parallel(run: RecoveryRun, tokens: Sequence[int]) -> None:
    """Recover tokens, window - 1 a call, by `from_anchor`; the anchor is the likeliest token.

    Tokens and anchor get the same bias, which lifts them above all others. A token that is not shown was too
    unlikely: it gets a larger bias and is asked again, together with others like it. Where the anchor is not told,
    the tokens were too likely beside it: they get a smaller one. Where biases cannot grow, the anchor's is taken
    away, and then the likeliest known tokens are pushed down by as much, so that others come into the window: also
    tokens whose own bias is ignored, so that each is asked again with another bias, which must tell the same. A
    token that was seen, but never beside the anchor, or in an answer that cannot be true, is left to `single`.
    What cannot be brought into the window, or is contradicted, stays NaN.
    """
    start = run.stepped(min(START, run.found.max_bias))
    work = _Work(run, start, start)
    todo = run.unknown(tokens)
    for _ in range(_ROUNDS):
        missed = work.round(todo)
        further = bool(missed) and work.go_further(missed, len(missed) < len(todo))
        todo = missed
        if not further:
            break
    single_each(run, [token for token in run.unknown(tokens) if token in work.shown | work.strange])


@dataclass
class _Bias:
    """A token's bias, and what is known of it: not shown at ``low``, the anchor not told at ``high``."""

    value: float
    low: float = -inf
    high: float = inf

    def more(self, most: float) -> None:
        """The token was not shown."""
        self.low = self.value
        larger = max(1.5 * self.value, self.value + 1) if self.high == inf else (self.low + self.high) / 2
        self.value = min(larger, most)

    def less(self) -> None:
        """The token was shown, and the anchor not told."""
        self.high = self.value
        self.value = self.value / 2 if self.low == -inf else (self.low + self.high) / 2


@dataclass
class _Work:
    """``start``: each token's first bias; ``anchored``: the anchor's; ``pushed``: those of known likely tokens.

    ``shown``: tokens seen without the anchor; ``strange``: those of answers that cannot be true.
    """

    run: RecoveryRun
    start: float
    anchored: float
    biases: dict[int, _Bias] = field(default_factory=dict)
    pushed: dict[int, float] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)
    strange: set[int] = field(default_factory=set)

    def round(self, todo: Sequence[int]) -> list[int]:
        """Ask for each token once; returns those that are still unknown."""
        size = self.run.found.window - 1
        ordered = sorted(todo, key=lambda token: (self._of(token).value, token))
        batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        for batch, answers in zip(batches, self.run.ask(self._questions(batches)), strict=True):
            self._read(batch, answers)
        if self.pushed:
            self._confirm([[token for token in batch if self._learned(token)] for batch in batches])
        return [token for token in self.run.unknown(todo) if token not in self.strange]

    def _questions(self, batches: Sequence[Sequence[int]], less: float = 0.0) -> Iterator[Bias]:
        anchor = {self.run.anchor: self.anchored}
        return (
            self.pushed | anchor | {token: self._of(token).value - less for token in batch} for batch in batches
        )

    def _learned(self, token: int) -> bool:
        return not np.isnan(self.run.logprobs[token])

    def _confirm(self, batches: Sequence[Sequence[int]]) -> None:
        """Ask once more with smaller biases: a token that came without its bias now tells another logprob."""
        run = self.run
        kept = [batch for batch in batches if batch]
        less = max(_LESS, 4 * run.margin, run.found.step)
        less = ceil(less / run.found.step) * run.found.step if run.found.step else less
        for batch, answers in zip(kept, run.ask(self._questions(kept, less)), strict=True):
            for token, estimates in self._estimates(batch, answers, less).items():
                if not estimates:  # asked again, with others pushed out of its way
                    run.logprobs[token] = run.errors[token] = np.nan
                elif abs(float(np.mean(estimates)) - run.logprobs[token]) > run.margin:
                    run.doubt(token)

    def go_further(self, missed: Sequence[int], progress: bool) -> bool:
        """Larger biases, or a further push; False where neither can help."""
        if any(self._of(token).low < self.run.found.max_bias for token in missed):
            return True
        if self.anchored:
            self.anchored = 0.0
            self.biases.clear()
            return True
        return self._push(progress)

    def _of(self, token: int) -> _Bias:
        return self.biases.get(token) or _Bias(self.start)

    def _estimates(
        self, batch: Sequence[int], answers: Sequence[EndpointAnswer], less: float = 0.0
    ) -> dict[int, list[float]]:
        """Each token's logprob by each answer; none where one of them does not tell it beside the anchor."""
        anchor = self.run.anchor
        level = float(self.run.logprobs[anchor])
        found: dict[int, list[float]] = {}
        for token in batch:
            above = self._of(token).value - less - self.anchored
            told = [(answer.logprobs.get(token), answer.logprobs.get(anchor)) for answer in answers]
            pairs = [(own, its) for own, its in told if own is not None and its is not None]
            whole = len(pairs) == len(answers)
            found[token] = [from_anchor(own, above, its, level) for own, its in pairs] if whole else []
        return found

    def _read(self, batch: Sequence[int], answers: Sequence[EndpointAnswer]) -> None:
        run, anchor = self.run, self.run.anchor
        error = 2 * run.precision + float(run.errors[anchor])
        estimates = self._estimates(batch, answers)
        if any(told and float(np.mean(told)) > run.ceiling for told in estimates.values()):
            # Likelier than a token that was not in the base window can be: not all biases of this call were added.
            self.strange.update(batch)
            return
        for token in batch:
            bias = self._of(token)
            if estimates[token]:
                run.learn(token, estimates[token], error)
                continue
            if not all(token in answer.logprobs for answer in answers):
                bias.more(run.found.max_bias)
            else:
                self.shown.add(token)
                bias.less()
            bias.value = run.stepped(bias.value)
            self.biases[token] = bias

    def _push(self, progress: bool) -> bool:
        """Push more of the likeliest known tokens down, all but the anchor."""
        run = self.run
        size = run.found.window
        most = run.asker.endpoint.limits.most_biases
        room = run.asker.endpoint.vocab_size if most is None else most - size
        ids = np.flatnonzero(~np.isnan(run.logprobs))
        known = [int(token) for token in ids[np.argsort(-run.logprobs[ids])] if token != run.anchor]
        count = max(0, min(4 * max(len(self.pushed), size), room, len(known)))
        if count <= len(self.pushed) and not progress:
            return False
        self.pushed = dict.fromkeys(known[:count], -run.found.max_bias)
        return count > 0
