"""The n likeliest tokens: what is known is pushed down, so that the next ones come into the window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..endpoints.base import EndpointAnswer
from ..errors import RecoverError
from ..numerics import from_anchor, from_penalty, penalty_error
from ..run import RecoveryRun
from .single import single_each

_PUSH = 100.0
_LIFT = 8.0
_SPARE = 10.0
_SHARP = 1e3
"""`from_penalty` is left for `single` where it would make the error larger than this many times."""
_AGREE = 1e-4


def top_n(run: RecoveryRun, n: int) -> None:
    """Recover the ``n`` likeliest tokens, window - 1 a call.

    All known tokens are pushed down by as much as the endpoint takes, but for an anchor, which stands in the
    window with the new ones (`from_anchor`), so that the push's size does not matter; it is lifted to where it is
    the one that is drawn. It is the likeliest token, as long as the next ones are told beside it; else the least
    likely one that is known.
    With a window of one there is no room for it: then `from_penalty`, which is compared with `single` at the first
    token, and again whenever the rest has halved; and `single` alone where it loses its digits.
    """
    work = _Work(run)
    while (missing := n - len(known := _known(run))) > 0:
        run.ceiling = min(run.ceiling, run.logprobs[known[-1]] + run.margin)
        work.ask(known, missing)
        if run.doubted:
            raise RecoverError(
                f"token {min(run.doubted)} comes out likelier than the {len(known):,} before it: the endpoint "
                f"does not add all biases of a call; ask for at most the {len(known):,} likeliest"
            )
        if len(_known(run)) == len(known):
            if run.nameless:
                run.notes.append(
                    f"behind the {len(known):,} likeliest the window shows only tokens without a name"
                )
                return
            raise RecoverError(
                f"the endpoint shows no new token with the {len(known):,} likeliest biased by -{work.push:g}; "
                f"it may cut biases: ask for at most the {len(known):,} likeliest, or for all tokens"
            )


def _known(run: RecoveryRun) -> list[int]:
    """The known tokens, from the likeliest on."""
    ids = np.flatnonzero(~np.isnan(run.logprobs))
    return [int(token) for token in ids[np.argsort(-run.logprobs[ids], kind="stable")]]


class _Work:
    def __init__(self, run: RecoveryRun) -> None:
        self.push = run.stepped(min(_PUSH, run.asker.endpoint.limits.max_bias))
        self.lift = run.stepped(min(_LIFT, run.found.max_bias))
        self._run = run
        self._agreed_at = np.inf
        # What a push leaves of a probability, at most: how far the two were apart tells it.
        self._left = np.inf

    def ask(self, known: Sequence[int], missing: int) -> None:
        """One call more."""
        run = self._run
        anchor = self._anchor(known) if run.found.window > 1 else None
        bias = {token: -self.push for token in known if token != anchor}
        if anchor is not None:
            bias[anchor] = self.lift
        most = run.asker.endpoint.limits.most_biases
        if most is not None and len(bias) > most:
            raise RecoverError(
                f"the endpoint takes {most:,} biases a call, too few to look below the {len(bias):,} likeliest "
                f"tokens; {missing:,} are missing: ask for fewer, or for all tokens"
            )
        (answers,) = run.ask([bias])
        shown = set.intersection(*(set(answer.logprobs) for answer in answers))
        new = sorted(shown - bias.keys())
        if anchor is None:
            known_mass = run.logprobs[list(bias)]
            run.outranked([from_penalty(value, known_mass, self.push) for value in answers[0].unnamed])
            for token in new:
                self._alone(token, bias, [answer.logprobs[token] for answer in answers])
        elif anchor not in shown:
            raise RecoverError(f"token {anchor} is likelier than the next ones, and was not shown beside them")
        else:
            self._beside(anchor, new, answers)

    def _anchor(self, known: Sequence[int]) -> int:
        run = self._run
        apart = float(run.logprobs[run.anchor] - run.logprobs[known[-1]])
        near = apart + self.lift + _SPARE < -run.asker.endpoint.limits.lowest
        return run.anchor if near else run.open(known[::-1])[0]

    def _beside(self, anchor: int, new: Sequence[int], answers: Sequence[EndpointAnswer]) -> None:
        run = self._run
        level, error = float(run.logprobs[anchor]), float(run.errors[anchor])
        beside = answers[0].logprobs[anchor]
        run.outranked([from_anchor(value, -self.lift, beside, level) for value in answers[0].unnamed])
        for token in new:
            pairs = [(answer.logprobs[token], answer.logprobs[anchor]) for answer in answers]
            estimates = [from_anchor(own, -self.lift, its, level) for own, its in pairs]
            run.learn(token, estimates, 2 * run.precision + error)

    def _alone(self, token: int, bias: Mapping[int, float], told: Sequence[float]) -> None:
        run = self._run
        known = run.logprobs[list(bias)]
        mass = float(np.exp(known).sum())
        error = penalty_error(known, run.precision)
        if error > _SHARP * run.precision:
            single_each(run, [token])
            return
        estimates = [from_penalty(value, known, self.push) for value in told]
        odds = mass / (1 - mass)
        if 1 - mass < self._agreed_at / 2:
            single_each(run, [token])
            apart = abs(float(run.logprobs[token]) - float(np.mean(estimates)))
            if apart > max(_AGREE, 10 * run.found.spread, 10 * error):
                return
            if not np.isnan(apart):
                self._agreed_at = 1 - mass
                self._left = (apart + error + float(run.errors[token])) / odds
            elif self._left * odds > _AGREE:  # with no bias it can be lifted to where it is told by itself
                return
        run.learn(token, estimates, error + self._left * odds)
