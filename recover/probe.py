"""A few calls that measure what an endpoint does with biases, so that no method is used where it would be wrong.

Is a bias added, in full, in fractions, and together with others? Does it only choose the token?
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .endpoints.base import Bias, EndpointLimits, EndpointResponse
from .numerics import log_odds
from .session import QuerySession
from .unbiased_window import UnbiasedWindow

_CHOOSING_BIAS_NATS = 100.0
"""Chooses nearly any token, and lifts it to where the endpoint must name it. OpenAI's largest bias."""
_MIN_BIAS_NATS = 1.0
"""A smaller bias would move logprobs by little more than noise does."""


@dataclass(frozen=True)
class EndpointProfile:
    """What an endpoint does with biases.

    Args:
        shown_logprob_count: number of logprobs that a call shows.
        relative_error: relative error of an answered probability.
        can_shift_logprobs: a bias changes the logprobs as asked.
        are_biases_additive: several biases in one call do so.
        can_choose_token: a bias chooses the token.
        reports_chosen_logprob: it does, and the token's own logprob is given without the bias.
        max_exact_bias_nats: the largest bias that is added as asked.
        max_confirmed_bias_nats: biases up to it were seen to be added in full.
        bias_step_nats: biases are multiples of it; 0: any.
        unnameable_ids: ids that the endpoint was seen not to name.
        findings: all this in words.
    """

    shown_logprob_count: int
    relative_error: float
    can_shift_logprobs: bool = False
    are_biases_additive: bool = True
    can_choose_token: bool = False
    reports_chosen_logprob: bool = False
    max_exact_bias_nats: float = inf
    max_confirmed_bias_nats: float = 0.0
    bias_step_nats: float = 0.0
    unnameable_ids: frozenset[int] = frozenset()
    findings: tuple[str, ...] = ()

    @property
    def pointwise_method(self) -> str:
        """The cheapest method for named tokens that works."""
        if self.can_shift_logprobs:
            return "parallel" if self.shown_logprob_count > 1 and self.are_biases_additive else "single"
        return "forced" if self.reports_chosen_logprob else "bisection"


def probe(session: QuerySession, unbiased_window: UnbiasedWindow, tokens: NDArray[np.intp]) -> EndpointProfile:
    """Ask one to a few questions with biases: do logprobs move, by all of the biases, or only choices?

    Raises ``RecoverError``, ``RecoveryStoppedError``.

    Args:
        session: asks the endpoint.
        unbiased_window: the window without a bias.
        tokens: the requested ids, int (n,).
    """
    if not unbiased_window.logprob_count:
        choice_effect = _measure_choice_effect(session, unbiased_window)
        findings = (
            "only the token is shown",
            *(() if choice_effect.can_choose_token else ("a bias does not change it",)),
        )
        unnameable_ids = _unnameable_ids(session, tokens)
        return EndpointProfile(
            0,
            unbiased_window.relative_error,
            can_choose_token=choice_effect.can_choose_token,
            unnameable_ids=unnameable_ids,
            findings=findings,
        )
    bias_effect = _BiasProbe(session, unbiased_window, unbiased_window.agreement_tolerance_nats).measure()
    choice_effect = (
        _MeasuredChoiceEffect(True)
        if bias_effect.max_exact_bias_nats
        else _measure_choice_effect(session, unbiased_window)
    )
    # A token that is chosen although biases are not added as asked gives no number.
    is_usable = bias_effect.unexpected_effect is None
    return EndpointProfile(
        shown_logprob_count=unbiased_window.logprob_count,
        relative_error=unbiased_window.relative_error
        if unbiased_window.is_noisy
        else max(unbiased_window.relative_error, bias_effect.error_nats),
        can_shift_logprobs=bias_effect.max_exact_bias_nats > 0,
        are_biases_additive=bias_effect.are_biases_additive,
        can_choose_token=choice_effect.can_choose_token and is_usable,
        reports_chosen_logprob=choice_effect.reports_chosen_logprob and is_usable,
        max_exact_bias_nats=bias_effect.max_exact_bias_nats,
        max_confirmed_bias_nats=bias_effect.max_exact_bias_nats
        if unbiased_window.logprob_count > 1 and bias_effect.are_biases_additive
        else 0.0,
        bias_step_nats=bias_effect.bias_step_nats,
        unnameable_ids=_unnameable_ids(session, tokens),
        findings=_findings(session, unbiased_window, bias_effect, choice_effect),
    )


def _findings(
    session: QuerySession,
    unbiased_window: UnbiasedWindow,
    bias_effect: _MeasuredBiasEffect,
    choice_effect: _MeasuredChoiceEffect,
) -> tuple[str, ...]:
    """Return in words what was measured.

    Args:
        session: asks the endpoint.
        unbiased_window: the window without a bias.
        bias_effect: what biases do.
        choice_effect: what a bias does to the chosen token.
    """
    repeats = (
        f"answers differ by up to {unbiased_window.spread_nats:.1e} nats from call to call"
        if unbiased_window.is_noisy
        else "answers repeat"
    )
    logprobs = (
        f"{unbiased_window.logprob_count} {'logprob' if unbiased_window.logprob_count == 1 else 'logprobs'} a call"
    )
    return (logprobs, repeats, *_bias_findings(session, unbiased_window, bias_effect, choice_effect))


def _bias_findings(
    session: QuerySession,
    unbiased_window: UnbiasedWindow,
    bias_effect: _MeasuredBiasEffect,
    choice_effect: _MeasuredChoiceEffect,
) -> list[str]:
    max_exact_bias_nats, effect = bias_effect.max_exact_bias_nats, bias_effect.unexpected_effect
    if max_exact_bias_nats:
        is_cut = max_exact_bias_nats < _max_useful_bias_nats(session.endpoint.limits) - bias_effect.bias_step_nats
        measured_nats = f"biases up to {max_exact_bias_nats:.4g} move logprobs as asked" + (
            ", larger ones are cut" if is_cut else ""
        )
        findings = [measured_nats if unbiased_window.logprob_count > 1 else "a bias moves its odds as asked"]
        if bias_effect.bias_step_nats:
            findings.append(f"the bias step is {bias_effect.bias_step_nats:g}: others are rounded")
        if not bias_effect.are_biases_additive:
            findings.append("one bias in a call is, but not several")
        return findings
    if effect is not None:
        by, expected_nats = effect
        return [f"a bias moves logprobs, but not as asked: by {by:.3g} where {expected_nats:.3g} was asked for"]
    return [
        "a bias does not move logprobs"
        + (", but chooses the token" if choice_effect.can_choose_token else ", nor the choice")
    ]


def _unnameable_ids(session: QuerySession, tokens: NDArray[np.intp]) -> frozenset[int]:
    """Return the requested look-alikes if the endpoint does not give their bytes: one of them is lifted to see."""
    ids_that_need_bytes = session.endpoint.ids_that_need_bytes & set(tokens.tolist())
    if not ids_that_need_bytes:
        return frozenset()
    token = min(ids_that_need_bytes)
    ((response,),) = session.send_queries([{token: min(_CHOOSING_BIAS_NATS, session.endpoint.limits.max_bias)}])
    is_named = token == response.token or token in response.logprobs or not response.unmatched_logprobs
    return frozenset() if is_named else ids_that_need_bytes


_EXPULSION_FACTOR = 5
"""A token is pushed down by so many times `_CHOOSING_BIAS_NATS`, if the endpoint takes that."""
_PROBABILITY_TOLERANCE = 1e-3
"""By how much the sum of two probabilities may exceed 1: logprobs are rounded."""


@dataclass(frozen=True)
class _MeasuredChoiceEffect:
    """Whether a bias chooses the token, and whether that token's own logprob is given without the bias."""

    can_choose_token: bool
    reports_chosen_logprob: bool = False


def _measure_choice_effect(session: QuerySession, unbiased_window: UnbiasedWindow) -> _MeasuredChoiceEffect:
    """Ask once with a bias that should choose another token."""
    limit = session.endpoint.limits.max_bias
    if not unbiased_window.logprobs:  # only tokens are shown: another one appears if the first is pushed down
        top = unbiased_window.first_two_tokens[0]
        bias = {} if top is None else {top: -min(limit, _EXPULSION_FACTOR * _CHOOSING_BIAS_NATS)}
        ((response,),) = session.send_queries([bias])
        return _MeasuredChoiceEffect(response.token not in (top, None))
    top = unbiased_window.ranked_tokens[0]
    token = session.prefer_complete_utf8(
        sorted(unbiased_window.logprobs, key=lambda top_token_bias: unbiased_window.logprobs[top_token_bias])
    )[0]
    if token == top:
        token = (top + 1) % session.endpoint.vocab_size
    ((response,),) = session.send_queries([{token: min(limit, _CHOOSING_BIAS_NATS)}])
    if response.token != token:
        return _MeasuredChoiceEffect(False)
    chosen_logprob = response.logprob
    is_unbiased = (
        chosen_logprob is not None
        and exp(chosen_logprob) + exp(unbiased_window.logprobs[top]) <= 1 + _PROBABILITY_TOLERANCE
    )
    return _MeasuredChoiceEffect(True, is_unbiased)


_MIN_GAP_NATS = 2.0
"""Biases on a pair of tokens differ by at least this much, so that the change stands out from noise."""
_BIAS_STEPS_NATS = (0.0, 1.0)
"""Tried steps: 0 for any number, 1 for an endpoint that rounds biases to integers."""


class _LogprobShift(NamedTuple):
    """How far logprobs moved, and how far they should have, nats."""

    measured_nats: float
    expected_nats: float


class _TokenPair(NamedTuple):
    """Two tokens of the base window whose distance is measured: the unlikely one and the likeliest one."""

    token: int
    top: int


@dataclass(frozen=True)
class _MeasuredBiasEffect:
    """What biases do to logprobs.

    Args:
        max_exact_bias_nats: the largest bias that is added as asked; 0: none.
        bias_step_nats: biases are multiples of it; 0: any.
        are_biases_additive: several biases in one call are added.
        error_nats: the difference to what was asked, nats.
        unexpected_effect: an effect that was not as asked, if no bias is added as asked; None: nothing moved.
    """

    max_exact_bias_nats: float = 0.0
    bias_step_nats: float = 0.0
    are_biases_additive: bool = True
    error_nats: float = 0.0
    unexpected_effect: _LogprobShift | None = None


class _BiasProbe:
    """Asks with biases on the window's least likely token and on its likeliest one.

    Args:
        session: asks the endpoint.
        unbiased_window: the window without a bias.
        tolerance_nats: differences up to it are as asked, nats.
    """

    def __init__(self, session: QuerySession, unbiased_window: UnbiasedWindow, tolerance_nats: float) -> None:
        self._session = session
        self._unbiased_window = unbiased_window
        self._tolerance_nats = tolerance_nats
        self._limits = session.endpoint.limits

    def measure(self) -> _MeasuredBiasEffect:
        """Return what biases do to logprobs: any bias, else whole numbers, else one bias in a call."""
        bias_effect = _MeasuredBiasEffect()
        for bias_step_nats in _BIAS_STEPS_NATS:
            measured = (
                self._measure_pair(bias_step_nats)
                if self._unbiased_window.logprob_count > 1
                else self._measure_odds(bias_step_nats)
            )
            if measured.max_exact_bias_nats or (bias_step_nats == 0 and measured.unexpected_effect is None):
                return measured
            bias_effect = bias_effect if measured.unexpected_effect is None else measured
        return (self._measure_one_bias() if self._unbiased_window.logprob_count > 1 else None) or bias_effect

    def _pair(self) -> _TokenPair:
        """Return the least likely and the likeliest token of the window that may be drawn."""
        ranked = self._session.prefer_complete_utf8(self._unbiased_window.ranked_tokens)
        if len(ranked) < 2:
            ranked = self._unbiased_window.ranked_tokens
        return _TokenPair(ranked[-1], ranked[0])

    def _gap_nats(self, pair: _TokenPair) -> float:
        return max(
            _MIN_GAP_NATS, self._unbiased_window.logprobs[pair.top] - self._unbiased_window.logprobs[pair.token]
        )

    def _measure_one_bias(self) -> _MeasuredBiasEffect | None:
        """Ask with one bias, for an endpoint that does not add two."""
        pair, max_exact_bias_nats = self._pair(), _max_useful_bias_nats(self._limits)
        bias = min(max_exact_bias_nats, self._gap_nats(pair))
        response = self._query_pair(pair, {pair.token: bias})
        if response is None:
            return None
        error_nats = abs(self._pair_shift_nats(pair, response) - bias)
        return (
            _MeasuredBiasEffect(max_exact_bias_nats, are_biases_additive=False, error_nats=error_nats)
            if error_nats <= self._tolerance_nats
            else None
        )

    def _measure_pair(self, bias_step_nats: float) -> _MeasuredBiasEffect:
        """Find the largest bias that is added in full, for windows of two logprobs or more.

        The least likely token gets a bias b. The likeliest one gets b minus the gap between their logprobs. This
        brings the two near each other, so that both are shown for every b. Their difference must change by the
        difference of the biases. Neither bias is 0: an endpoint that adds only one of them is noticed.
        """
        pair = self._pair()
        gap_nats = ceil(self._gap_nats(pair)) if bias_step_nats else self._gap_nats(pair)
        useful = _max_useful_bias_nats(self._limits)
        max_exact_bias_nats = bias = floor(useful) if bias_step_nats else useful
        bias_effect = _MeasuredBiasEffect()
        while bias >= min(_MIN_BIAS_NATS, max_exact_bias_nats) > 0:
            top_token_bias = bias - gap_nats if bias - gap_nats >= _MIN_BIAS_NATS else -min(bias, _MIN_BIAS_NATS)
            response = self._query_pair(pair, {pair.token: bias, pair.top: top_token_bias})
            if response is not None:
                effect = _LogprobShift(self._pair_shift_nats(pair, response), bias - top_token_bias)
                error_nats = abs(effect.measured_nats - effect.expected_nats)
                if error_nats <= self._tolerance_nats:
                    limit = bias if bias == max_exact_bias_nats else self._find_bias_limit(pair, bias)
                    return _MeasuredBiasEffect(
                        floor(limit) if bias_step_nats else limit, bias_step_nats, error_nats=error_nats
                    )
                if self._is_unmoved(pair, response):
                    return _MeasuredBiasEffect()
                bias_effect = _MeasuredBiasEffect(unexpected_effect=effect)
            bias = bias // 2 if bias_step_nats else bias / 2
        return bias_effect

    def _query_pair(self, pair: _TokenPair, bias: Bias) -> EndpointResponse | None:
        """Return the answer, if it shows both tokens."""
        ((response,),) = self._session.send_queries([bias])
        return response if response.logprobs.keys() >= {*pair} else None

    def _pair_shift_nats(self, pair: _TokenPair, response: EndpointResponse) -> float:
        """Return by how much the unlikely token moved against the likeliest one, nats."""
        before = self._unbiased_window.logprobs
        return (response.logprobs[pair.token] - response.logprobs[pair.top]) - (
            before[pair.token] - before[pair.top]
        )

    def _is_unmoved(self, pair: _TokenPair, response: EndpointResponse) -> bool:
        """True if both tokens have the logprobs that they have without a bias."""
        measured_nats = max(
            abs(response.logprobs[token] - self._unbiased_window.logprobs[token]) for token in pair
        )
        return measured_nats <= self._tolerance_nats

    def _find_bias_limit(self, pair: _TokenPair, bias: float) -> float:
        """Return where biases are cut if twice this one is: one token gets that, the other one this."""
        response = self._query_pair(pair, {pair.token: 2 * bias, pair.top: bias})
        return bias if response is None else bias + max(0.0, min(bias, self._pair_shift_nats(pair, response)))

    def _measure_odds(self, bias_step_nats: float) -> _MeasuredBiasEffect:
        """With a window of one: does a bias move the odds of the only token shown? Then up to the limit, else 0.

        One answer does not show whether a large bias is added in full; `single` tests each that it uses.
        """
        top = self._session.prefer_complete_utf8(self._unbiased_window.ranked_tokens)[0]
        unbiased_window, limit = self._unbiased_window, self._limits.max_bias
        before = log_odds(min(unbiased_window.logprobs[top], -unbiased_window.relative_error))
        bias = 1.0 - before if abs(1.0 - before) >= _MIN_BIAS_NATS else 1.0
        bias = max(-limit, min(limit, (round(bias) or 1) if bias_step_nats else bias))
        ((response,),) = self._session.send_queries([{top: bias}])
        after = response.logprobs.get(top)
        if after is None or abs(after - unbiased_window.logprobs[top]) <= self._tolerance_nats / 10:
            return _MeasuredBiasEffect()
        measured_nats = log_odds(min(after, -unbiased_window.relative_error)) - before
        # The error is not measured here: near p = 1 odds are far less exact than logprobs.
        if abs(measured_nats - bias) <= self._tolerance_nats:
            return _MeasuredBiasEffect(limit, bias_step_nats)
        return _MeasuredBiasEffect(unexpected_effect=_LogprobShift(measured_nats, bias))


_EXTRA_BIAS_NATS = 20.0
"""A bias this much larger than the lowest logprob's size lifts any token; larger ones are of no use."""


def _max_useful_bias_nats(limits: EndpointLimits) -> float:
    """Return the largest bias that the endpoint takes and that is of use."""
    return min(limits.max_bias, _EXTRA_BIAS_NATS - limits.min_reliable_logprob)


_REDUCTION = 0.8
"""A bias that was cut is followed by this part of it."""


class BiasRange:
    """Begins with what the probe measured; a method that uses larger biases confirms or rejects them.

    Attributes: ``max_bias_nats``: the largest bias to use. ``max_confirmed_bias_nats``: biases up to it were
        seen to be added in full.
    """

    def __init__(self, profile: EndpointProfile) -> None:
        self.max_bias_nats = profile.max_exact_bias_nats
        self.max_confirmed_bias_nats = profile.max_confirmed_bias_nats
        self._bias_step_nats = profile.bias_step_nats

    def round_toward_zero(self, bias: float) -> float:
        """Return the bias, or the next one towards 0 that the endpoint adds as asked."""
        return int(bias / self._bias_step_nats) * self._bias_step_nats if self._bias_step_nats else bias

    def confirm(self, bias: float) -> None:
        """Note that this bias was added in full."""
        self.max_confirmed_bias_nats = bias

    def reject(self, bias: float) -> None:
        """Note that this bias was not added in full: only smaller ones are used from now on."""
        self.max_bias_nats = max(
            self.max_confirmed_bias_nats, _MIN_BIAS_NATS, self.round_toward_zero(_REDUCTION * bias)
        )
