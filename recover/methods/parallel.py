"""k tokens a call: as many as the window shows beside one token of known logprob."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ..endpoint import Answer
from ..numerics import from_anchor
from ..probe import START
from ..run import Run
from .single import single_each

_ROUNDS = 30


def parallel(run: Run, tokens: Sequence[int]) -> None:
    """Recover tokens, window - 1 a call, by `from_anchor`; the anchor is the likeliest token.

    Tokens and anchor get the same bias, which lifts them above all others. A token that is not shown was too
    unlikely: it gets a larger bias and is asked again, together with others like it. Where the anchor is not told,
    the tokens were too likely beside it: they get a smaller one. Where biases cannot grow, the anchor's is taken
    away, and then the likeliest known tokens are pushed down by as much, so that others come into the window. A
    token that was seen, but never beside the anchor, is left to `single`. What cannot be brought into the window
    stays NaN.
    """
    start = min(START, run.found.max_bias)
    work = _Work(run, start, start)
    todo = run.unknown(tokens)
    for _ in range(_ROUNDS):
        missed = work.round(todo)
        further = bool(missed) and work.go_further(missed, len(missed) < len(todo))
        todo = missed
        if not further:
            break
    single_each(run, [token for token in todo if token in work.shown])


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
    """``start``: each token's first bias; ``anchored``: the anchor's; ``pushed``: those of known likely tokens."""

    run: Run
    start: float
    anchored: float
    biases: dict[int, _Bias] = field(default_factory=dict)
    pushed: dict[int, float] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)

    def round(self, todo: Sequence[int]) -> list[int]:
        """Ask for each token once; returns those that are still unknown."""
        size = self.run.found.window - 1
        ordered = sorted(todo, key=lambda token: (self._of(token).value, token))
        batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
        anchor = {self.run.anchor: self.anchored}
        questions = (self.pushed | anchor | {token: self._of(token).value for token in batch} for batch in batches)
        for batch, answers in zip(batches, self.run.ask(questions), strict=True):
            self._read(batch, answers)
        return self.run.unknown(todo)

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

    def _read(self, batch: Sequence[int], answers: Sequence[Answer]) -> None:
        run, anchor = self.run, self.run.anchor
        level, error = float(run.logprobs[anchor]), float(run.errors[anchor])
        anchored = all(anchor in answer.logprobs for answer in answers)
        for token in batch:
            bias = self._of(token)
            if not all(token in answer.logprobs for answer in answers):
                bias.more(run.found.max_bias)
            elif not anchored:
                self.shown.add(token)
                bias.less()
            else:
                above = bias.value - self.anchored
                pairs = [(answer.logprobs[token], answer.logprobs[anchor]) for answer in answers]
                run.learn(
                    token, [from_anchor(own, above, its, level) for own, its in pairs], 2 * run.precision + error
                )
                continue
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
