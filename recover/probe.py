"""The probe: a few calls that measure the effect of biases at an endpoint, so that no method gives wrong numbers.

It measures whether a bias is added to the logprobs, up to which size, in fractions, and together with others, or
whether it only chooses the token.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, floor, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.text import count_noun
from .endpoints.base import Bias, EndpointLimits, EndpointResponse
from .numerics import log_odds
from .session import QuerySession
from .unbiased_response import UnbiasedResponse

# Chooses nearly any token, so that the endpoint must show its name. It is OpenAI's largest bias.
_CHOOSING_BIAS_NATS = 100.0
_MIN_BIAS_NATS = 1.0  # the effect of a smaller bias could not be distinguished from noise


@dataclass(frozen=True)
class EndpointProfile:
    """The measured effect of biases at an endpoint."""

    shown_logprob_count: int  # number of logprobs that a call shows; 0: only the token
    relative_error: float  # relative error of a shown probability
    can_shift_logprobs: bool = False  # whether a bias is added to the token's logit before logprobs are computed
    are_biases_additive: bool = True  # whether several biases in one call are all added
    can_force_token: bool = False  # whether a bias determines the chosen token
    # whether the endpoint shows the logprob that the chosen token has without the bias
    reports_chosen_logprob: bool = False
    max_exact_bias_nats: float = inf  # the largest bias that is added exactly, nats
    max_confirmed_bias_nats: float = 0.0  # the largest bias that a response has shown to be added exactly, nats
    bias_step_nats: float = 0.0  # the endpoint rounds biases to multiples of this step, nats; 0: no rounding
    unnameable_ids: frozenset[int] = frozenset()  # ids that a response has shown to be unnameable
    findings: tuple[str, ...] = ()  # the measured facts in words, for the user

    @property
    def pointwise_method(self) -> str:
        """The cheapest method that works for tokens given by id."""
        if self.can_shift_logprobs:
            return "parallel" if self.shown_logprob_count > 1 and self.are_biases_additive else "single"
        return "forced" if self.reports_chosen_logprob else "bisection"


def probe(session: QuerySession, unbiased_response: UnbiasedResponse, tokens: NDArray[np.intp]) -> EndpointProfile:
    """Measure the effect of biases with one or more queries. Raises ``RecoverError``, ``RecoveryStoppedError``."""
    if not unbiased_response.logprob_count:
        choice_effect = _measure_choice_effect(session, unbiased_response)
        findings = (
            "only the token is shown",
            *(() if choice_effect.can_force_token else ("a bias does not change the token",)),
        )
        unnameable_ids = _unnameable_ids(session, tokens)
        return EndpointProfile(
            0,
            unbiased_response.relative_error,
            can_force_token=choice_effect.can_force_token,
            unnameable_ids=unnameable_ids,
            findings=findings,
        )
    bias_effect = _BiasProbe(session, unbiased_response, unbiased_response.agreement_tolerance_nats).measure()
    choice_effect = (
        _MeasuredChoiceEffect(True)
        if bias_effect.max_exact_bias_nats
        else _measure_choice_effect(session, unbiased_response)
    )
    # If biases are added, but not exactly, a chosen token does not determine a logprob.
    is_usable = bias_effect.unexpected_effect is None
    return EndpointProfile(
        shown_logprob_count=unbiased_response.logprob_count,
        relative_error=unbiased_response.relative_error
        if unbiased_response.is_noisy
        else max(unbiased_response.relative_error, bias_effect.error_nats),
        can_shift_logprobs=bias_effect.max_exact_bias_nats > 0,
        are_biases_additive=bias_effect.are_biases_additive,
        can_force_token=choice_effect.can_force_token and is_usable,
        reports_chosen_logprob=choice_effect.reports_chosen_logprob and is_usable,
        max_exact_bias_nats=bias_effect.max_exact_bias_nats,
        max_confirmed_bias_nats=bias_effect.max_exact_bias_nats
        if unbiased_response.logprob_count > 1 and bias_effect.are_biases_additive
        else 0.0,
        bias_step_nats=bias_effect.bias_step_nats,
        unnameable_ids=_unnameable_ids(session, tokens),
        findings=_describe_findings(session, unbiased_response, bias_effect, choice_effect),
    )


def _describe_findings(
    session: QuerySession,
    unbiased_response: UnbiasedResponse,
    bias_effect: _MeasuredBiasEffect,
    choice_effect: _MeasuredChoiceEffect,
) -> tuple[str, ...]:
    """Return the measured facts in words, for the user."""
    repeatability = (
        f"responses differ by up to {unbiased_response.spread_nats:.1e} nats from call to call"
        if unbiased_response.is_noisy
        else "responses repeat"
    )
    logprobs = f"{count_noun(unbiased_response.logprob_count, 'logprob')} per call"
    return (
        logprobs,
        repeatability,
        *_describe_bias_findings(session, unbiased_response, bias_effect, choice_effect),
    )


def _describe_bias_findings(
    session: QuerySession,
    unbiased_response: UnbiasedResponse,
    bias_effect: _MeasuredBiasEffect,
    choice_effect: _MeasuredChoiceEffect,
) -> list[str]:
    max_exact_bias_nats, unexpected_effect = bias_effect.max_exact_bias_nats, bias_effect.unexpected_effect
    if max_exact_bias_nats:
        is_limited = (
            max_exact_bias_nats < _max_useful_bias_nats(session.endpoint.limits) - bias_effect.bias_step_nats
        )
        exact_range = f"biases up to {max_exact_bias_nats:.4g} shift logprobs exactly" + (
            ", larger ones are limited" if is_limited else ""
        )
        findings = [exact_range if unbiased_response.logprob_count > 1 else "a bias shifts the odds exactly"]
        if bias_effect.bias_step_nats:
            findings.append(f"biases are rounded to multiples of {bias_effect.bias_step_nats:g}")
        if not bias_effect.are_biases_additive:
            findings.append("only one bias per call is added")
        return findings
    if unexpected_effect is not None:
        return [
            f"a bias shifts logprobs by {unexpected_effect.measured_nats:.3g} nats instead of the expected "
            f"{unexpected_effect.expected_nats:.3g}"
        ]
    return [
        "a bias does not shift logprobs, but it can force the choice of a token"
        if choice_effect.can_force_token
        else "a bias changes neither the logprobs nor the chosen token"
    ]


def _unnameable_ids(session: QuerySession, tokens: NDArray[np.intp]) -> frozenset[int]:
    """Query once for the requested ids that cannot be named without bytes, if the endpoint shows no bytes."""
    ids_that_need_bytes = session.endpoint.ids_that_need_bytes & set(tokens.tolist())
    if not ids_that_need_bytes:
        return frozenset()
    token = min(ids_that_need_bytes)
    ((response,),) = session.send_queries(
        [{token: min(_CHOOSING_BIAS_NATS, session.endpoint.limits.max_bias_nats)}]
    )
    is_named = token == response.token or token in response.logprobs or not response.unmatched_logprobs
    return frozenset() if is_named else ids_that_need_bytes


# a token is suppressed with this many times `_CHOOSING_BIAS_NATS`, if the endpoint accepts that
_EXPULSION_FACTOR = 5
_PROBABILITY_TOLERANCE = 1e-3  # Logprobs are rounded, so the sum of two probabilities may exceed 1 by this much


@dataclass(frozen=True)
class _MeasuredChoiceEffect:
    """The effect of a bias on the chosen token."""

    can_force_token: bool  # whether a bias determines the chosen token
    # whether the endpoint shows the logprob that the chosen token has without the bias
    reports_chosen_logprob: bool = False


def _measure_choice_effect(session: QuerySession, unbiased_response: UnbiasedResponse) -> _MeasuredChoiceEffect:
    """Query once with a bias that should choose another token."""
    max_bias_nats = session.endpoint.limits.max_bias_nats
    if not unbiased_response.logprobs:  # only tokens are shown, so the top token is suppressed
        top_token = unbiased_response.first_two_tokens[0]
        bias = (
            {} if top_token is None else {top_token: -min(max_bias_nats, _EXPULSION_FACTOR * _CHOOSING_BIAS_NATS)}
        )
        ((response,),) = session.send_queries([bias])
        return _MeasuredChoiceEffect(response.token not in (top_token, None))
    top_token = unbiased_response.ranked_tokens[0]
    token = session.prefer_complete_utf8(
        sorted(unbiased_response.logprobs, key=lambda shown_token: unbiased_response.logprobs[shown_token])
    )[0]
    if token == top_token:
        token = (top_token + 1) % session.endpoint.vocab_size
    ((response,),) = session.send_queries([{token: min(max_bias_nats, _CHOOSING_BIAS_NATS)}])
    if response.token != token:
        return _MeasuredChoiceEffect(False)
    chosen_logprob = response.logprob
    is_unbiased = (
        chosen_logprob is not None
        and exp(chosen_logprob) + exp(unbiased_response.logprobs[top_token]) <= 1 + _PROBABILITY_TOLERANCE
    )
    return _MeasuredChoiceEffect(True, is_unbiased)


# Biases on a pair of tokens differ by at least this much, so that the effect exceeds the noise
_MIN_GAP_NATS = 2.0
# Steps that are tried: 0 for arbitrary biases, 1 for an endpoint that rounds biases to integers
_BIAS_STEPS_NATS = (0.0, 1.0)


class _LogprobShift(NamedTuple):
    """The change of a difference of two logprobs."""

    measured_nats: float  # the measured change, nats
    expected_nats: float  # the change that the biases should have caused, nats


class _TokenPair(NamedTuple):
    """Two tokens of the unbiased response; the difference of their logprobs is measured."""

    token: int  # the least likely shown token
    top_token: int  # the most likely token


@dataclass(frozen=True)
class _MeasuredBiasEffect:
    """The effect of biases on logprobs."""

    max_exact_bias_nats: float = 0.0  # the largest bias that is added exactly, nats; 0: no bias is
    bias_step_nats: float = 0.0  # the endpoint rounds biases to multiples of this step, nats; 0: no rounding
    are_biases_additive: bool = True  # whether several biases in one call are all added
    error_nats: float = 0.0  # difference between the measured and the expected effect, nats
    # an effect that was not the expected one, if no bias is added exactly; None if there was no effect
    unexpected_effect: _LogprobShift | None = None


_NO_BIAS_EFFECT = _MeasuredBiasEffect()
_NO_SHIFT_FRACTION = 0.1  # a logprob that shifts by less than this fraction of the tolerance counts as not shifted


class _BiasProbe:
    """Queries with biases on the least likely shown token and on the most likely one."""

    def __init__(self, session: QuerySession, unbiased_response: UnbiasedResponse, tolerance_nats: float) -> None:
        self._session = session
        self._unbiased_response = unbiased_response
        self._tolerance_nats = tolerance_nats
        self._limits = session.endpoint.limits

    def measure(self) -> _MeasuredBiasEffect:
        """Return the effect of biases."""
        # Tries arbitrary biases first, then integers, then a single bias per call.
        bias_effect = _NO_BIAS_EFFECT
        for bias_step_nats in _BIAS_STEPS_NATS:
            measured_effect = (
                self._measure_pair(bias_step_nats)
                if self._unbiased_response.logprob_count > 1
                else self._measure_odds(bias_step_nats)
            )
            if measured_effect.max_exact_bias_nats or (
                bias_step_nats == 0 and measured_effect.unexpected_effect is None
            ):
                return measured_effect
            bias_effect = bias_effect if measured_effect.unexpected_effect is None else measured_effect
        return (self._measure_one_bias() if self._unbiased_response.logprob_count > 1 else None) or bias_effect

    def _choose_pair(self) -> _TokenPair:
        """Return the least and the most likely shown token whose bytes are complete UTF-8."""
        ranked_tokens = self._session.prefer_complete_utf8(self._unbiased_response.ranked_tokens)
        if len(ranked_tokens) < 2:
            ranked_tokens = self._unbiased_response.ranked_tokens
        return _TokenPair(ranked_tokens[-1], ranked_tokens[0])

    def _gap_nats(self, pair: _TokenPair) -> float:
        return max(
            _MIN_GAP_NATS,
            self._unbiased_response.logprobs[pair.top_token] - self._unbiased_response.logprobs[pair.token],
        )

    def _measure_one_bias(self) -> _MeasuredBiasEffect | None:
        """Query with one bias, for an endpoint that does not add two; None if it does not add one exactly."""
        pair, max_bias_nats = self._choose_pair(), _max_useful_bias_nats(self._limits)
        bias = min(max_bias_nats, self._gap_nats(pair))
        response = self._query_pair(pair, {pair.token: bias})
        if response is None:
            return None
        error_nats = abs(self._pair_shift_nats(pair, response) - bias)
        return (
            _MeasuredBiasEffect(max_bias_nats, are_biases_additive=False, error_nats=error_nats)
            if error_nats <= self._tolerance_nats
            else None
        )

    def _measure_pair(self, bias_step_nats: float) -> _MeasuredBiasEffect:
        """Find the largest bias that is added exactly, if two or more logprobs are shown."""
        # The least likely token gets a bias b. The most likely one gets b minus the gap between their logprobs.
        # This brings the two tokens close to each other, so that both are shown for every b. The difference of
        # their logprobs must change by the difference of the biases. Neither bias is 0, so that an endpoint that
        # adds only one of them is noticed.
        pair = self._choose_pair()
        gap_nats = ceil(self._gap_nats(pair)) if bias_step_nats else self._gap_nats(pair)
        max_useful_bias = _max_useful_bias_nats(self._limits)
        start_bias = bias = floor(max_useful_bias) if bias_step_nats else max_useful_bias
        bias_effect = _NO_BIAS_EFFECT
        while bias >= min(_MIN_BIAS_NATS, start_bias) > 0:
            top_token_bias = bias - gap_nats if bias - gap_nats >= _MIN_BIAS_NATS else -min(bias, _MIN_BIAS_NATS)
            response = self._query_pair(pair, {pair.token: bias, pair.top_token: top_token_bias})
            if response is not None:
                measured_shift = _LogprobShift(self._pair_shift_nats(pair, response), bias - top_token_bias)
                error_nats = abs(measured_shift.measured_nats - measured_shift.expected_nats)
                if error_nats <= self._tolerance_nats:
                    max_exact_bias = bias if bias == start_bias else self._find_bias_limit(pair, bias)
                    return _MeasuredBiasEffect(
                        floor(max_exact_bias) if bias_step_nats else max_exact_bias,
                        bias_step_nats,
                        error_nats=error_nats,
                    )
                if self._has_no_effect(pair, response):
                    return _NO_BIAS_EFFECT
                bias_effect = _MeasuredBiasEffect(unexpected_effect=measured_shift)
            bias = bias // 2 if bias_step_nats else bias / 2
        return bias_effect

    def _query_pair(self, pair: _TokenPair, bias: Bias) -> EndpointResponse | None:
        """Return the response if it shows both tokens; None otherwise."""
        ((response,),) = self._session.send_queries([bias])
        return response if response.logprobs.keys() >= {*pair} else None

    def _pair_shift_nats(self, pair: _TokenPair, response: EndpointResponse) -> float:
        """Return the change of the difference between the two logprobs, nats."""
        unbiased_logprobs = self._unbiased_response.logprobs
        return (response.logprobs[pair.token] - response.logprobs[pair.top_token]) - (
            unbiased_logprobs[pair.token] - unbiased_logprobs[pair.top_token]
        )

    def _has_no_effect(self, pair: _TokenPair, response: EndpointResponse) -> bool:
        """Return whether both tokens have the same logprobs as without a bias."""
        max_shift_nats = max(
            abs(response.logprobs[token] - self._unbiased_response.logprobs[token]) for token in pair
        )
        return max_shift_nats <= self._tolerance_nats

    def _find_bias_limit(self, pair: _TokenPair, bias: float) -> float:
        """Return the bias to which the endpoint limits ``2 * bias``; the other token of the pair gets ``bias``."""
        response = self._query_pair(pair, {pair.token: 2 * bias, pair.top_token: bias})
        return bias if response is None else bias + max(0.0, min(bias, self._pair_shift_nats(pair, response)))

    def _measure_odds(self, bias_step_nats: float) -> _MeasuredBiasEffect:
        """Measure whether a bias shifts the odds of the only shown token."""
        # If it does, all biases count as exact.
        # A single response cannot show that large biases are added exactly; `single` tests each bias that it uses.
        top_token = self._session.prefer_complete_utf8(self._unbiased_response.ranked_tokens)[0]
        unbiased_response, max_bias_nats = self._unbiased_response, self._limits.max_bias_nats
        # A probability that was rounded to 1 would have infinite odds. So a logprob is at most -relative_error.
        unbiased_log_odds = log_odds(min(unbiased_response.logprobs[top_token], -unbiased_response.relative_error))
        bias = 1.0 - unbiased_log_odds if abs(1.0 - unbiased_log_odds) >= _MIN_BIAS_NATS else 1.0
        bias = max(-max_bias_nats, min(max_bias_nats, (round(bias) or 1) if bias_step_nats else bias))
        ((response,),) = self._session.send_queries([{top_token: bias}])
        biased_logprob = response.logprobs.get(top_token)
        if (
            biased_logprob is None
            or abs(biased_logprob - unbiased_response.logprobs[top_token])
            <= _NO_SHIFT_FRACTION * self._tolerance_nats
        ):
            return _NO_BIAS_EFFECT
        measured_nats = log_odds(min(biased_logprob, -unbiased_response.relative_error)) - unbiased_log_odds
        # The effect has no error_nats, because odds near p = 1 are far less exact than logprobs.
        if abs(measured_nats - bias) <= self._tolerance_nats:
            return _MeasuredBiasEffect(max_bias_nats, bias_step_nats)
        return _MeasuredBiasEffect(unexpected_effect=_LogprobShift(measured_nats, bias))


# the largest useful bias exceeds the absolute value of the lowest reliable logprob by this much
_EXTRA_BIAS_NATS = 20.0


def _max_useful_bias_nats(limits: EndpointLimits) -> float:
    """Return the largest bias that the endpoint accepts and that is useful: it lifts any token to the top."""
    return min(limits.max_bias_nats, _EXTRA_BIAS_NATS - limits.min_reliable_logprob)


_REDUCED_BIAS_FRACTION = 0.8  # After the endpoint has limited a bias, this fraction of the bias is tried


class BiasRange:
    """The biases that may be used. The probe measures the range, and methods confirm or reject larger biases."""

    def __init__(self, profile: EndpointProfile) -> None:
        self.max_bias_nats = profile.max_exact_bias_nats  # the largest bias to use, nats
        # the largest bias that a response has shown to be added exactly, nats
        self.max_confirmed_bias_nats = profile.max_confirmed_bias_nats
        self._bias_step_nats = profile.bias_step_nats

    def round_toward_zero(self, bias: float) -> float:
        """Return the bias, rounded toward 0 to a multiple of the step of the endpoint."""
        return int(bias / self._bias_step_nats) * self._bias_step_nats if self._bias_step_nats else bias

    def confirm(self, bias: float) -> None:
        self.max_confirmed_bias_nats = bias

    def reject(self, bias: float) -> None:
        """Record that this bias was not added exactly; smaller biases are used from now on."""
        self.max_bias_nats = max(
            self.max_confirmed_bias_nats, _MIN_BIAS_NATS, self.round_toward_zero(_REDUCED_BIAS_FRACTION * bias)
        )
