"""The probe: a few calls that measure the effect of biases at an endpoint, so that no method gives wrong numbers.

It measures whether the endpoint adds a bias to a token's logit or only lets the bias choose the token. If biases
are added, it measures the largest bias, whether fractions are rounded, and whether a call may have several biases.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.text import count_noun
from .endpoints.base import Bias, EndpointResponse
from .numerics import log_odds
from .session import QuerySession
from .unbiased_response import UnbiasedResponse

# Chooses nearly any token, so that the endpoint must show its name. It is OpenAI's largest bias.
_CHOOSING_BIAS_NATS = 100.0
_MIN_BIAS_NATS = 1.0  # the effect of a smaller bias could not be distinguished from noise
_REDUCED_BIAS_FRACTION = 0.8  # after the endpoint has limited a bias, this fraction of it is tried


@dataclass
class BiasRange:
    """The biases that may be used. The probe measures the range, and methods confirm or reject larger biases."""

    max_bias_nats: float = 0.0  # the largest bias to use, nats; 0: no bias is added exactly
    # the largest bias that a response has shown to be added exactly, nats
    max_confirmed_bias_nats: float = 0.0
    step_nats: float = 0.0  # the endpoint rounds biases to multiples of this step, nats; 0: no rounding

    def round_toward_zero(self, bias: float) -> float:
        """Return the bias, rounded toward 0 to a multiple of the step of the endpoint."""
        if not self.step_nats:
            return bias
        step_count = int(bias / self.step_nats)
        return step_count * self.step_nats

    def reject(self, bias: float) -> None:
        """Record that this bias was not added exactly; smaller biases are used from now on."""
        reduced_bias = self.round_toward_zero(_REDUCED_BIAS_FRACTION * bias)
        # A bias that was confirmed before is exact, and a bias below the minimum shows nothing.
        self.max_bias_nats = max(self.max_confirmed_bias_nats, _MIN_BIAS_NATS, reduced_bias)


@dataclass(frozen=True)
class EndpointProfile:
    """The measured effect of biases at an endpoint."""

    shown_logprob_count: int  # number of logprobs that a call shows; 0: only the token
    relative_error: float  # relative error of a shown probability
    findings: tuple[str, ...]  # the measured facts in words, for the user
    bias_range: BiasRange = field(default_factory=BiasRange)  # the biases that are added exactly to logits
    are_biases_additive: bool = True  # whether several biases in one call are all added
    can_force_token: bool = False  # whether a bias determines the chosen token
    # whether the endpoint shows the logprob that the chosen token has without the bias
    reports_chosen_logprob: bool = False

    @property
    def can_shift_logprobs(self) -> bool:
        """Whether a bias is added to the token's logit before logprobs are computed."""
        return self.bias_range.max_bias_nats > 0

    @property
    def pointwise_method(self) -> str:
        """The cheapest method that works for tokens given by id."""
        if self.can_shift_logprobs:
            return "parallel" if self.shown_logprob_count > 1 and self.are_biases_additive else "single"
        return "forced" if self.reports_chosen_logprob else "bisection"


def probe(session: QuerySession, unbiased_response: UnbiasedResponse) -> EndpointProfile:
    """Measure the effect of biases with one or more queries. Raises ``RecoverError``, ``RecoveryStoppedError``."""
    if not unbiased_response.logprob_count:
        return _probe_token_only(session, unbiased_response)
    effect = _BiasProbe(session, unbiased_response).measure()
    if effect.bias_range.max_bias_nats:
        choice = _ChoiceEffect(can_force_token=True, reports_unbiased_logprob=False)
    else:
        choice = _measure_choice(session, unbiased_response)
    # If biases are added, but not exactly, a chosen token does not determine a logprob.
    is_usable = not effect.unexpected_effect
    relative_error = unbiased_response.relative_error
    repetition = "responses repeat"
    if unbiased_response.is_noisy:
        repetition = f"responses differ by up to {unbiased_response.spread_nats:.1e} nats from call to call"
    else:  # noise would hide the error of a bias
        relative_error = max(relative_error, effect.error_nats)
    return EndpointProfile(
        shown_logprob_count=unbiased_response.logprob_count,
        relative_error=relative_error,
        findings=(
            f"{count_noun(unbiased_response.logprob_count, 'logprob')} per call",
            repetition,
            *_describe_effect(session, unbiased_response, effect, choice.can_force_token),
        ),
        bias_range=effect.bias_range,
        are_biases_additive=effect.are_biases_additive,
        can_force_token=choice.can_force_token and is_usable,
        reports_chosen_logprob=choice.reports_unbiased_logprob and is_usable,
    )


def _probe_token_only(session: QuerySession, unbiased_response: UnbiasedResponse) -> EndpointProfile:
    """Return the profile of an endpoint that shows no logprobs."""
    top_token, _ = unbiased_response.first_two_tokens
    can_force_token = _can_suppress_token(session, top_token)
    findings = ["only the token is shown"]
    if not can_force_token:
        findings.append("a bias does not change the token")
    return EndpointProfile(
        shown_logprob_count=0,
        relative_error=unbiased_response.relative_error,
        findings=tuple(findings),
        can_force_token=can_force_token,
    )


def _describe_effect(
    session: QuerySession, unbiased_response: UnbiasedResponse, effect: _BiasEffect, can_force_token: bool
) -> list[str]:
    """Return the effect of biases in words, for the user."""
    bias_range = effect.bias_range
    if effect.unexpected_effect:
        return [effect.unexpected_effect]
    if not bias_range.max_bias_nats and can_force_token:
        return ["a bias does not shift logprobs, but it can force the choice of a token"]
    if not bias_range.max_bias_nats:
        return ["a bias changes neither the logprobs nor the chosen token"]
    findings = ["a bias shifts the odds exactly"]
    if unbiased_response.logprob_count > 1:
        is_limited = bias_range.max_bias_nats < _max_useful_bias_nats(session) - bias_range.step_nats
        limit = ", larger ones are limited" if is_limited else ""
        findings = [f"biases up to {bias_range.max_bias_nats:.4g} shift logprobs exactly{limit}"]
    if bias_range.step_nats:
        findings.append(f"biases are rounded to multiples of {bias_range.step_nats:g}")
    if not effect.are_biases_additive:
        findings.append("only one bias per call is added")
    return findings


def find_unnameable_ids(session: QuerySession, tokens: NDArray[np.intp]) -> frozenset[int]:
    """Query once for the requested ids that cannot be named without bytes, if the endpoint shows no bytes."""
    ids_that_need_bytes = session.endpoint.ids_that_need_bytes & set(tokens.tolist())
    if not ids_that_need_bytes:
        return frozenset()
    token = min(ids_that_need_bytes)
    bias = min(_CHOOSING_BIAS_NATS, session.endpoint.limits.max_bias_nats)
    ((response,),) = session.send_queries([{token: bias}])
    is_named = token == response.token or token in response.logprobs
    if is_named or not response.unmatched_logprobs:
        return frozenset()
    return ids_that_need_bytes


# a token is suppressed with this many times `_CHOOSING_BIAS_NATS`, if the endpoint accepts that
_EXPULSION_FACTOR = 5
_PROBABILITY_TOLERANCE = 1e-3  # Logprobs are rounded, so the sum of two probabilities may exceed 1 by this much


def _can_suppress_token(session: QuerySession, top_token: int | None) -> bool:
    """Query once with a bias that should make another token the chosen one."""
    bias = min(session.endpoint.limits.max_bias_nats, _EXPULSION_FACTOR * _CHOOSING_BIAS_NATS)
    biases = {} if top_token is None else {top_token: -bias}
    ((response,),) = session.send_queries([biases])
    return response.token is not None and response.token != top_token


class _ChoiceEffect(NamedTuple):
    """The effect of a bias on the chosen token."""

    can_force_token: bool  # whether the token with the bias was chosen
    reports_unbiased_logprob: bool  # whether the response shows the logprob that the token has without the bias


def _measure_choice(session: QuerySession, unbiased_response: UnbiasedResponse) -> _ChoiceEffect:
    """Query once with a bias that should choose an unlikely token."""
    top_token = unbiased_response.ranked_tokens[0]
    unlikely_first = sorted(unbiased_response.logprobs, key=unbiased_response.logprobs.__getitem__)
    token = session.prefer_complete_utf8(unlikely_first)[0]
    if token == top_token:
        token = (top_token + 1) % session.endpoint.vocab_size
    bias = min(session.endpoint.limits.max_bias_nats, _CHOOSING_BIAS_NATS)
    ((response,),) = session.send_queries([{token: bias}])
    if response.token != token:
        return _ChoiceEffect(can_force_token=False, reports_unbiased_logprob=False)
    if response.logprob is None:
        return _ChoiceEffect(can_force_token=True, reports_unbiased_logprob=False)
    # A bias would have made the token nearly certain. Then its probability and that of the top token exceed 1.
    total_probability = exp(response.logprob) + exp(unbiased_response.logprobs[top_token])
    is_unbiased = total_probability <= 1 + _PROBABILITY_TOLERANCE
    return _ChoiceEffect(can_force_token=True, reports_unbiased_logprob=is_unbiased)


# Biases on a pair of tokens differ by at least this much, so that the effect exceeds the noise
_MIN_GAP_NATS = 2.0
# the steps of biases that are tried
_ANY_BIAS = 0.0
_INTEGER_BIAS = 1.0  # for an endpoint that rounds biases to integers


@dataclass(frozen=True)
class _BiasEffect:
    """The effect of biases on logprobs."""

    bias_range: BiasRange = field(default_factory=BiasRange)  # the biases that are added exactly
    are_biases_additive: bool = True  # whether several biases in one call are all added
    error_nats: float = 0.0  # difference between the measured and the expected effect, nats
    unexpected_effect: str = ""  # if biases have an effect, but none is added exactly: the effect in words

    @property
    def is_exact(self) -> bool:
        """True if biases are added exactly."""
        return self.bias_range.max_bias_nats > 0


def _unexpected_effect(measured_nats: float, expected_nats: float) -> _BiasEffect:
    return _BiasEffect(
        unexpected_effect=f"a bias shifts logprobs by {measured_nats:.3g} nats instead of the expected "
        f"{expected_nats:.3g}"
    )


_NO_SHIFT_FRACTION = 0.1  # a logprob that shifts by less than this fraction of the tolerance counts as not shifted


class _BiasProbe:
    """Queries with biases on the least likely shown token and on the most likely one."""

    def __init__(self, session: QuerySession, unbiased_response: UnbiasedResponse) -> None:
        self._session = session
        self._unbiased_response = unbiased_response
        self._logprobs = unbiased_response.logprobs
        self._tolerance_nats = unbiased_response.agreement_tolerance_nats
        ranked_tokens = session.prefer_complete_utf8(unbiased_response.ranked_tokens)
        if len(ranked_tokens) < 2:
            ranked_tokens = unbiased_response.ranked_tokens
        self._top_token = ranked_tokens[0]
        self._token = ranked_tokens[-1]

    def measure(self) -> _BiasEffect:
        """Return the effect of biases: of arbitrary ones, else of integers, else of a single one per call."""
        shows_pairs = self._unbiased_response.logprob_count > 1
        measure_effect = self._measure_pair if shows_pairs else self._measure_odds
        effect_of_any = measure_effect(_ANY_BIAS)
        if effect_of_any.is_exact or not effect_of_any.unexpected_effect:
            return effect_of_any
        effect_of_integers = measure_effect(_INTEGER_BIAS)
        if effect_of_integers.is_exact:
            return effect_of_integers
        effect_of_one = self._measure_one_bias() if shows_pairs else None
        if effect_of_one is not None:
            return effect_of_one
        return effect_of_integers if effect_of_integers.unexpected_effect else effect_of_any

    @property
    def _gap_nats(self) -> float:
        return max(_MIN_GAP_NATS, self._logprobs[self._top_token] - self._logprobs[self._token])

    def _measure_one_bias(self) -> _BiasEffect | None:
        """Query with one bias, for an endpoint that does not add two; None if it does not add one exactly."""
        max_bias_nats = _max_useful_bias_nats(self._session)
        bias = min(max_bias_nats, self._gap_nats)
        response = self._query_pair({self._token: bias})
        if response is None:
            return None
        error_nats = abs(self._pair_shift_nats(response) - bias)
        if error_nats > self._tolerance_nats:
            return None
        return _BiasEffect(BiasRange(max_bias_nats), are_biases_additive=False, error_nats=error_nats)

    def _measure_pair(self, bias_step_nats: float) -> _BiasEffect:
        """Find the largest bias that is added exactly, if two or more logprobs are shown."""
        # The least likely token gets a bias b. The most likely one gets b minus the gap between their logprobs.
        # This brings the two tokens close to each other, so that both are shown for every b. The difference of
        # their logprobs must change by the difference of the biases. Neither bias is 0, so that an endpoint that
        # adds only one of them is noticed.
        # Bias b is halved until this is so.
        is_integer = bias_step_nats == _INTEGER_BIAS
        gap_nats = self._gap_nats
        start_bias = _max_useful_bias_nats(self._session)
        if is_integer:
            gap_nats = ceil(gap_nats)
            start_bias = floor(start_bias)
        min_bias = min(_MIN_BIAS_NATS, start_bias)
        bias = start_bias
        effect = _BiasEffect()
        while bias >= min_bias > 0:
            top_token_bias = bias - gap_nats
            if top_token_bias < _MIN_BIAS_NATS:  # too close to 0, or negative
                top_token_bias = -min(bias, _MIN_BIAS_NATS)
            response = self._query_pair({self._token: bias, self._top_token: top_token_bias})
            if response is not None:
                measured_nats = self._pair_shift_nats(response)
                expected_nats = bias - top_token_bias
                error_nats = abs(measured_nats - expected_nats)
                if error_nats <= self._tolerance_nats:
                    max_bias = bias if bias == start_bias else self._find_bias_limit(bias)
                    if is_integer:
                        max_bias = floor(max_bias)
                    return _BiasEffect(BiasRange(max_bias, max_bias, bias_step_nats), error_nats=error_nats)
                if self._is_unchanged(response):
                    return _BiasEffect()
                effect = _unexpected_effect(measured_nats, expected_nats)
            bias = bias // 2 if is_integer else bias / 2
        return effect

    def _query_pair(self, bias: Bias) -> EndpointResponse | None:
        """Return the response if it shows both tokens; None otherwise."""
        ((response,),) = self._session.send_queries([bias])
        return response if response.logprobs.keys() >= {self._token, self._top_token} else None

    def _pair_shift_nats(self, response: EndpointResponse) -> float:
        """Return the change of the difference between the two logprobs, nats."""
        biased_difference = response.logprobs[self._token] - response.logprobs[self._top_token]
        unbiased_difference = self._logprobs[self._token] - self._logprobs[self._top_token]
        return biased_difference - unbiased_difference

    def _is_unchanged(self, response: EndpointResponse) -> bool:
        """Return whether both tokens have the same logprobs as without a bias."""
        return all(
            abs(response.logprobs[token] - self._logprobs[token]) <= self._tolerance_nats
            for token in (self._token, self._top_token)
        )

    def _find_bias_limit(self, bias: float) -> float:
        """Return the bias to which the endpoint limits ``2 * bias``; the other token of the pair gets ``bias``."""
        response = self._query_pair({self._token: 2 * bias, self._top_token: bias})
        if response is None:
            return bias
        # Without a limit the shift would be ``bias``.
        shift_nats = self._pair_shift_nats(response)
        return bias + max(0.0, min(bias, shift_nats))

    def _measure_odds(self, bias_step_nats: float) -> _BiasEffect:
        """Measure whether a bias shifts the odds of the only shown token."""
        # If it does, all biases count as exact, but none as confirmed: a single response cannot show that large
        # biases are added exactly, so `single` tests each bias that it uses.
        max_bias_nats = self._session.endpoint.limits.max_bias_nats
        # A probability that was rounded to 1 would have infinite odds. So a logprob is at most this.
        max_logprob = -self._unbiased_response.relative_error
        unbiased_logprob = self._logprobs[self._top_token]
        unbiased_log_odds = log_odds(min(unbiased_logprob, max_logprob))
        bias = 1.0 - unbiased_log_odds  # makes the odds e to 1
        if abs(bias) < _MIN_BIAS_NATS:
            bias = 1.0
        if bias_step_nats == _INTEGER_BIAS:
            bias = round(bias) or 1
        bias = max(-max_bias_nats, min(max_bias_nats, bias))
        ((response,),) = self._session.send_queries([{self._top_token: bias}])
        biased_logprob = response.logprobs.get(self._top_token)
        min_shift_nats = _NO_SHIFT_FRACTION * self._tolerance_nats
        if biased_logprob is None or abs(biased_logprob - unbiased_logprob) <= min_shift_nats:
            return _BiasEffect()
        measured_nats = log_odds(min(biased_logprob, max_logprob)) - unbiased_log_odds
        # The effect has no error_nats, because odds near p = 1 are far less exact than logprobs.
        if abs(measured_nats - bias) <= self._tolerance_nats:
            return _BiasEffect(BiasRange(max_bias_nats, step_nats=bias_step_nats))
        return _unexpected_effect(measured_nats, bias)


# the largest useful bias exceeds the absolute value of the lowest reliable logprob by this much
_EXTRA_BIAS_NATS = 20.0


def _max_useful_bias_nats(session: QuerySession) -> float:
    """Return the largest bias that the endpoint accepts and that is useful: it lifts any token to the top."""
    limits = session.endpoint.limits
    return min(limits.max_bias_nats, _EXTRA_BIAS_NATS - limits.min_reliable_logprob)
