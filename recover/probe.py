"""A few calls that measure what an endpoint does with biases, so that no method is used where it would be wrong.

Is a bias added, in full, in fractions, and together with others? Does it only choose the token?
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .base_window import BaseWindow
from .endpoints.base import Bias, EndpointAnswer, EndpointLimits
from .numerics import log_odds
from .session import QuerySession

_CHOOSING_BIAS_NATS = 100.0
"""Chooses nearly any token, and lifts it to where the endpoint must name it. OpenAI's largest bias."""
_LEAST_BIAS_NATS = 1.0
"""A smaller bias would move logprobs by little more than noise does."""


@dataclass(frozen=True)
class EndpointProfile:
    """What an endpoint does with biases.

    Args:
        window: number of logprobs that a call shows.
        precision: relative error of an answered probability.
        shifts_logprobs: a bias changes the logprobs as asked.
        adds_together: several biases in one call do so.
        chooses_token: a bias chooses the token.
        names_chosen_logprob: it does, and the token's own logprob is given without the bias.
        max_bias: the largest bias that is added as asked.
        confirmed_bias: biases up to it were seen to be added in full.
        bias_step: biases are multiples of it; 0: any.
        unnameable: ids that the endpoint was seen not to name.
        findings: all this in words.
    """

    window: int
    precision: float
    shifts_logprobs: bool = False
    adds_together: bool = True
    chooses_token: bool = False
    names_chosen_logprob: bool = False
    max_bias: float = inf
    confirmed_bias: float = 0.0
    bias_step: float = 0.0
    unnameable: frozenset[int] = frozenset()
    findings: tuple[str, ...] = ()

    @property
    def pointwise_method(self) -> str:
        """The cheapest method for named tokens that works."""
        if self.shifts_logprobs:
            return "parallel" if self.window > 1 and self.adds_together else "single"
        return "forced" if self.names_chosen_logprob else "bisection"


def probe(session: QuerySession, base: BaseWindow, tokens: NDArray[np.intp]) -> EndpointProfile:
    """Ask one to a few questions with biases: do logprobs move, by all of the biases, or only choices?

    Raises ``RecoverError``, ``StopAskingError``.

    Args:
        session: asks the endpoint.
        base: the window without a bias.
        tokens: the requested ids, int (n,).
    """
    if not base.size:
        choice = _measure_choice_response(session, base)
        findings = ("only the token is shown", *(() if choice.chooses_token else ("a bias does not change it",)))
        unnameable = _unnameable(session, tokens)
        return EndpointProfile(
            0, base.precision, chooses_token=choice.chooses_token, unnameable=unnameable, findings=findings
        )
    response = _BiasProbe(session, base, base.margin).measure()
    choice = _ChoiceResponse(True) if response.largest else _measure_choice_response(session, base)
    # A token that is chosen although biases are not added as asked gives no number.
    is_usable = response.wrong_effect is None
    return EndpointProfile(
        window=base.size,
        precision=base.precision if base.is_noisy else max(base.precision, response.error),
        shifts_logprobs=response.largest > 0,
        adds_together=response.adds_together,
        chooses_token=choice.chooses_token and is_usable,
        names_chosen_logprob=choice.names_chosen_logprob and is_usable,
        max_bias=response.largest,
        confirmed_bias=response.largest if base.size > 1 and response.adds_together else 0.0,
        bias_step=response.step,
        unnameable=_unnameable(session, tokens),
        findings=_findings(session, base, response, choice),
    )


def _findings(
    session: QuerySession, base: BaseWindow, response: _BiasResponse, choice: _ChoiceResponse
) -> tuple[str, ...]:
    """Return in words what was measured.

    Args:
        session: asks the endpoint.
        base: the window without a bias.
        response: what biases do.
        choice: what a bias does to the chosen token.
    """
    repeats = (
        f"answers differ by up to {base.spread:.1e} nats from call to call" if base.is_noisy else "answers repeat"
    )
    logprobs = f"{base.size} {'logprob' if base.size == 1 else 'logprobs'} a call"
    return (logprobs, repeats, *_bias_findings(session, base, response, choice))


def _bias_findings(
    session: QuerySession, base: BaseWindow, response: _BiasResponse, choice: _ChoiceResponse
) -> list[str]:
    largest, effect = response.largest, response.wrong_effect
    if largest:
        is_cut = largest < _largest_useful_bias(session.endpoint.limits) - response.step
        moved = f"biases up to {largest:.4g} move logprobs as asked" + (", larger ones are cut" if is_cut else "")
        findings = [moved if base.size > 1 else "a bias moves its odds as asked"]
        if response.step:
            findings.append(f"the bias step is {response.step:g}: others are rounded")
        if not response.adds_together:
            findings.append("one bias in a call is, but not several")
        return findings
    if effect is not None:
        by, asked = effect
        return [f"a bias moves logprobs, but not as asked: by {by:.3g} where {asked:.3g} was asked for"]
    return [
        "a bias does not move logprobs"
        + (", but chooses the token" if choice.chooses_token else ", nor the choice")
    ]


def _unnameable(session: QuerySession, tokens: NDArray[np.intp]) -> frozenset[int]:
    """Return the requested look-alikes if the endpoint does not give their bytes: one of them is lifted to see."""
    look_alikes = session.endpoint.look_alikes & set(tokens.tolist())
    if not look_alikes:
        return frozenset()
    token = min(look_alikes)
    ((answer,),) = session.ask([{token: min(_CHOOSING_BIAS_NATS, session.endpoint.limits.max_bias)}])
    is_named = token == answer.token or token in answer.logprobs or not answer.unnamed
    return frozenset() if is_named else look_alikes


_EXPULSION_FACTOR = 5
"""A token is pushed down by so many times `_CHOOSING_BIAS_NATS`, if the endpoint takes that."""
_PROBABILITY_TOLERANCE = 1e-3
"""By how much the sum of two probabilities may exceed 1: logprobs are rounded."""


@dataclass(frozen=True)
class _ChoiceResponse:
    """Whether a bias chooses the token, and whether that token's own logprob is given without the bias."""

    chooses_token: bool
    names_chosen_logprob: bool = False


def _measure_choice_response(session: QuerySession, base: BaseWindow) -> _ChoiceResponse:
    """Ask once with a bias that should choose another token."""
    limit = session.endpoint.limits.max_bias
    if not base.logprobs:  # only tokens are shown: another one appears if the first is pushed down
        top = base.drawn[0]
        bias = {} if top is None else {top: -min(limit, _EXPULSION_FACTOR * _CHOOSING_BIAS_NATS)}
        ((answer,),) = session.ask([bias])
        return _ChoiceResponse(answer.token not in (top, None))
    top = base.ranked[0]
    token = session.prefer_whole_text(sorted(base.logprobs, key=lambda other: base.logprobs[other]))[0]
    if token == top:
        token = (top + 1) % session.endpoint.vocab_size
    ((answer,),) = session.ask([{token: min(limit, _CHOOSING_BIAS_NATS)}])
    if answer.token != token:
        return _ChoiceResponse(False)
    own = answer.logprob
    fits = own is not None and exp(own) + exp(base.logprobs[top]) <= 1 + _PROBABILITY_TOLERANCE
    return _ChoiceResponse(True, fits)


_LEAST_GAP_NATS = 2.0
"""Biases on a pair of tokens differ by at least this much, so that the change stands out from noise."""
_BIAS_STEPS_NATS = (0.0, 1.0)
"""Tried steps: 0 for any number, 1 for an endpoint that rounds biases to integers."""


class _BiasEffect(NamedTuple):
    """How far logprobs moved, and how far they should have, nats."""

    moved: float
    asked: float


class _TokenPair(NamedTuple):
    """Two tokens of the base window whose distance is measured: the unlikely one and the likeliest one."""

    token: int
    top: int


@dataclass(frozen=True)
class _BiasResponse:
    """What biases do to logprobs.

    Args:
        largest: the largest bias that is added as asked; 0: none.
        step: biases are multiples of it; 0: any.
        adds_together: several biases in one call are added.
        error: the difference to what was asked, nats.
        wrong_effect: an effect that was not as asked, if no bias is added as asked; None: nothing moved.
    """

    largest: float = 0.0
    step: float = 0.0
    adds_together: bool = True
    error: float = 0.0
    wrong_effect: _BiasEffect | None = None


class _BiasProbe:
    """Asks with biases on the window's least likely token and on its likeliest one.

    Args:
        session: asks the endpoint.
        base: the window without a bias.
        tolerance: differences up to it are as asked, nats.
    """

    def __init__(self, session: QuerySession, base: BaseWindow, tolerance: float) -> None:
        self._session = session
        self._base = base
        self._tolerance = tolerance
        self._limits = session.endpoint.limits

    def measure(self) -> _BiasResponse:
        """Return what biases do to logprobs: any bias, else whole numbers, else one bias in a call."""
        response = _BiasResponse()
        for step in _BIAS_STEPS_NATS:
            measured = self._pair_response(step) if self._base.size > 1 else self._odds_response(step)
            if measured.largest or (step == 0 and measured.wrong_effect is None):
                return measured
            response = response if measured.wrong_effect is None else measured
        return (self._one_bias_response() if self._base.size > 1 else None) or response

    def _pair(self) -> _TokenPair:
        """Return the least likely and the likeliest token of the window that may be drawn."""
        ranked = self._session.prefer_whole_text(self._base.ranked)
        if len(ranked) < 2:
            ranked = self._base.ranked
        return _TokenPair(ranked[-1], ranked[0])

    def _gap(self, pair: _TokenPair) -> float:
        return max(_LEAST_GAP_NATS, self._base.logprobs[pair.top] - self._base.logprobs[pair.token])

    def _one_bias_response(self) -> _BiasResponse | None:
        """Ask with one bias, for an endpoint that does not add two."""
        pair, largest = self._pair(), _largest_useful_bias(self._limits)
        bias = min(largest, self._gap(pair))
        answer = self._ask(pair, {pair.token: bias})
        if answer is None:
            return None
        error = abs(self._moved(pair, answer) - bias)
        return _BiasResponse(largest, adds_together=False, error=error) if error <= self._tolerance else None

    def _pair_response(self, step: float) -> _BiasResponse:
        """Find the largest bias that is added in full, for windows of two logprobs or more.

        The least likely token gets a bias b. The likeliest one gets b minus the gap between their logprobs. This
        brings the two near each other, so that both are shown for every b. Their difference must change by the
        difference of the biases. Neither bias is 0: an endpoint that adds only one of them is noticed.
        """
        pair = self._pair()
        gap = ceil(self._gap(pair)) if step else self._gap(pair)
        useful = _largest_useful_bias(self._limits)
        largest = bias = floor(useful) if step else useful
        response = _BiasResponse()
        while bias >= min(_LEAST_BIAS_NATS, largest) > 0:
            other = bias - gap if bias - gap >= _LEAST_BIAS_NATS else -min(bias, _LEAST_BIAS_NATS)
            answer = self._ask(pair, {pair.token: bias, pair.top: other})
            if answer is not None:
                effect = _BiasEffect(self._moved(pair, answer), bias - other)
                error = abs(effect.moved - effect.asked)
                if error <= self._tolerance:
                    limit = bias if bias == largest else self._cut_at(pair, bias)
                    return _BiasResponse(floor(limit) if step else limit, step, error=error)
                if self._is_unmoved(pair, answer):
                    return _BiasResponse()
                response = _BiasResponse(wrong_effect=effect)
            bias = bias // 2 if step else bias / 2
        return response

    def _ask(self, pair: _TokenPair, bias: Bias) -> EndpointAnswer | None:
        """Return the answer, if it shows both tokens."""
        ((answer,),) = self._session.ask([bias])
        return answer if answer.logprobs.keys() >= {*pair} else None

    def _moved(self, pair: _TokenPair, answer: EndpointAnswer) -> float:
        """Return by how much the unlikely token moved against the likeliest one, nats."""
        before = self._base.logprobs
        return (answer.logprobs[pair.token] - answer.logprobs[pair.top]) - (before[pair.token] - before[pair.top])

    def _is_unmoved(self, pair: _TokenPair, answer: EndpointAnswer) -> bool:
        """True if both tokens have the logprobs that they have without a bias."""
        moved = max(abs(answer.logprobs[token] - self._base.logprobs[token]) for token in pair)
        return moved <= self._tolerance

    def _cut_at(self, pair: _TokenPair, bias: float) -> float:
        """Return where biases are cut if twice this one is: one token gets that, the other one this."""
        answer = self._ask(pair, {pair.token: 2 * bias, pair.top: bias})
        return bias if answer is None else bias + max(0.0, min(bias, self._moved(pair, answer)))

    def _odds_response(self, step: float) -> _BiasResponse:
        """With a window of one: does a bias move the odds of the only token shown? Then up to the limit, else 0.

        One answer does not show whether a large bias is added in full; `single` tests each that it uses.
        """
        top = self._session.prefer_whole_text(self._base.ranked)[0]
        base, limit = self._base, self._limits.max_bias
        before = log_odds(min(base.logprobs[top], -base.precision))
        bias = 1.0 - before if abs(1.0 - before) >= _LEAST_BIAS_NATS else 1.0
        bias = max(-limit, min(limit, (round(bias) or 1) if step else bias))
        ((answer,),) = self._session.ask([{top: bias}])
        after = answer.logprobs.get(top)
        if after is None or abs(after - base.logprobs[top]) <= self._tolerance / 10:
            return _BiasResponse()
        moved = log_odds(min(after, -base.precision)) - before
        # The error is not measured here: near p = 1 odds are far less exact than logprobs.
        if abs(moved - bias) <= self._tolerance:
            return _BiasResponse(limit, step)
        return _BiasResponse(wrong_effect=_BiasEffect(moved, bias))


_BIAS_BEYOND_LOWEST_NATS = 20.0
"""A bias this much larger than the lowest logprob's size lifts any token; larger ones are of no use."""


def _largest_useful_bias(limits: EndpointLimits) -> float:
    """Return the largest bias that the endpoint takes and that is of use."""
    return min(limits.max_bias, _BIAS_BEYOND_LOWEST_NATS - limits.lowest)


_REDUCTION = 0.8
"""A bias that was cut is followed by this part of it."""


class BiasRange:
    """Begins with what the probe measured; a method that uses larger biases confirms or rejects them.

    Attributes: ``largest``: the largest bias to use. ``confirmed``: biases up to it were seen to be added in full.
    """

    def __init__(self, profile: EndpointProfile) -> None:
        self.largest = profile.max_bias
        self.confirmed = profile.confirmed_bias
        self._step = profile.bias_step

    def rounded(self, bias: float) -> float:
        """Return the bias, or the next one towards 0 that the endpoint adds as asked."""
        return int(bias / self._step) * self._step if self._step else bias

    def confirm(self, bias: float) -> None:
        """Note that this bias was added in full."""
        self.confirmed = bias

    def reject(self, bias: float) -> None:
        """Note that this bias was not added in full: only smaller ones are used from now on."""
        self.largest = max(self.confirmed, _LEAST_BIAS_NATS, self.rounded(_REDUCTION * bias))
