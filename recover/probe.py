"""The probe: a few calls that measure the effect of biases at an endpoint, so that no method gives wrong numbers.

It measures whether a bias is added to the logprobs, up to which size, in fractions, and together with others, or
whether it only chooses the token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, exp, floor

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
_REDUCED_BIAS_FRACTION = 0.8  # After the endpoint has limited a bias, this fraction of the bias is tried


@dataclass
class BiasRange:
    """The biases that may be used. The probe measures the range, and methods confirm or reject larger biases."""

    max_bias_nats: float = 0.0  # the largest bias to use, nats; 0: no bias is added exactly
    # the largest bias that a response has shown to be added exactly, nats
    max_confirmed_bias_nats: float = 0.0
    step_nats: float = 0.0  # the endpoint rounds biases to multiples of this step, nats; 0: no rounding

    def round_toward_zero(self, bias: float) -> float:
        """Return the bias, rounded toward 0 to a multiple of the step of the endpoint."""
        return int(bias / self.step_nats) * self.step_nats if self.step_nats else bias

    def reject(self, bias: float) -> None:
        """Record that this bias was not added exactly; smaller biases are used from now on."""
        self.max_bias_nats = max(
            self.max_confirmed_bias_nats, _MIN_BIAS_NATS, self.round_toward_zero(_REDUCED_BIAS_FRACTION * bias)
        )


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
        can_force_token = _can_suppress_token(session, unbiased_response.first_two_tokens[0])
        findings = ["only the token is shown"] + ([] if can_force_token else ["a bias does not change the token"])
        return EndpointProfile(
            0, unbiased_response.relative_error, tuple(findings), can_force_token=can_force_token
        )
    effect = _BiasProbe(session, unbiased_response).measure()
    can_force_token, reports_chosen_logprob = (
        (True, False) if effect.bias_range.max_bias_nats else _measure_choice(session, unbiased_response)
    )
    # If biases are added, but not exactly, a chosen token does not determine a logprob.
    is_usable = not effect.unexpected_effect
    return EndpointProfile(
        shown_logprob_count=unbiased_response.logprob_count,
        relative_error=unbiased_response.relative_error
        if unbiased_response.is_noisy
        else max(unbiased_response.relative_error, effect.error_nats),
        findings=(
            f"{count_noun(unbiased_response.logprob_count, 'logprob')} per call",
            f"responses differ by up to {unbiased_response.spread_nats:.1e} nats from call to call"
            if unbiased_response.is_noisy
            else "responses repeat",
            *_describe_effect(session, unbiased_response, effect, can_force_token),
        ),
        bias_range=effect.bias_range,
        are_biases_additive=effect.are_biases_additive,
        can_force_token=can_force_token and is_usable,
        reports_chosen_logprob=reports_chosen_logprob and is_usable,
    )


def _describe_effect(
    session: QuerySession, unbiased_response: UnbiasedResponse, effect: _BiasEffect, can_force_token: bool
) -> list[str]:
    bias_range = effect.bias_range
    if effect.unexpected_effect:
        return [effect.unexpected_effect]
    if not bias_range.max_bias_nats:
        return [
            "a bias does not shift logprobs, but it can force the choice of a token"
            if can_force_token
            else "a bias changes neither the logprobs nor the chosen token"
        ]
    findings = ["a bias shifts the odds exactly"]
    if unbiased_response.logprob_count > 1:
        is_limited = bias_range.max_bias_nats < _max_useful_bias_nats(session) - bias_range.step_nats
        findings = [
            f"biases up to {bias_range.max_bias_nats:.4g} shift logprobs exactly"
            + (", larger ones are limited" if is_limited else "")
        ]
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
    ((response,),) = session.send_queries(
        [{token: min(_CHOOSING_BIAS_NATS, session.endpoint.limits.max_bias_nats)}]
    )
    is_named = token == response.token or token in response.logprobs or not response.unmatched_logprobs
    return frozenset() if is_named else ids_that_need_bytes


# a token is suppressed with this many times `_CHOOSING_BIAS_NATS`, if the endpoint accepts that
_EXPULSION_FACTOR = 5
_PROBABILITY_TOLERANCE = 1e-3  # Logprobs are rounded, so the sum of two probabilities may exceed 1 by this much


def _can_suppress_token(session: QuerySession, top_token: int | None) -> bool:
    """Query once with a bias that should make another token the chosen one."""
    bias = min(session.endpoint.limits.max_bias_nats, _EXPULSION_FACTOR * _CHOOSING_BIAS_NATS)
    ((response,),) = session.send_queries([{} if top_token is None else {top_token: -bias}])
    return response.token not in (top_token, None)


def _measure_choice(session: QuerySession, unbiased_response: UnbiasedResponse) -> tuple[bool, bool]:
    """Query once with a bias that should choose an unlikely token.

    Return whether it was chosen, and whether the logprob that it has without the bias is shown.
    """
    top_token = unbiased_response.ranked_tokens[0]
    unlikely_first = sorted(unbiased_response.logprobs, key=unbiased_response.logprobs.__getitem__)
    token = session.prefer_complete_utf8(unlikely_first)[0]
    if token == top_token:
        token = (top_token + 1) % session.endpoint.vocab_size
    ((response,),) = session.send_queries(
        [{token: min(session.endpoint.limits.max_bias_nats, _CHOOSING_BIAS_NATS)}]
    )
    if response.token != token:
        return False, False
    is_unbiased = (
        response.logprob is not None
        and exp(response.logprob) + exp(unbiased_response.logprobs[top_token]) <= 1 + _PROBABILITY_TOLERANCE
    )
    return True, is_unbiased


# Biases on a pair of tokens differ by at least this much, so that the effect exceeds the noise
_MIN_GAP_NATS = 2.0
# Steps that are tried: 0 for arbitrary biases, 1 for an endpoint that rounds biases to integers
_BIAS_STEPS_NATS = (0.0, 1.0)


@dataclass(frozen=True)
class _BiasEffect:
    """The effect of biases on logprobs."""

    bias_range: BiasRange = field(default_factory=BiasRange)  # the biases that are added exactly
    are_biases_additive: bool = True  # whether several biases in one call are all added
    error_nats: float = 0.0  # difference between the measured and the expected effect, nats
    unexpected_effect: str = ""  # an effect in words, if biases have one, but none is added exactly


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
        self._token, self._top_token = ranked_tokens[-1], ranked_tokens[0]

    def measure(self) -> _BiasEffect:
        """Return the effect of biases: of arbitrary ones, else of integers, else of a single one per call."""
        shows_pairs = self._unbiased_response.logprob_count > 1
        measured_effect = _BiasEffect()
        for bias_step_nats in _BIAS_STEPS_NATS:
            effect = self._measure_pair(bias_step_nats) if shows_pairs else self._measure_odds(bias_step_nats)
            if effect.bias_range.max_bias_nats or (bias_step_nats == 0 and not effect.unexpected_effect):
                return effect
            measured_effect = effect if effect.unexpected_effect else measured_effect
        return (self._measure_one_bias() if shows_pairs else None) or measured_effect

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
        gap_nats = ceil(self._gap_nats) if bias_step_nats else self._gap_nats
        max_useful_bias = _max_useful_bias_nats(self._session)
        start_bias = bias = floor(max_useful_bias) if bias_step_nats else max_useful_bias
        effect = _BiasEffect()
        while bias >= min(_MIN_BIAS_NATS, start_bias) > 0:
            top_token_bias = bias - gap_nats if bias - gap_nats >= _MIN_BIAS_NATS else -min(bias, _MIN_BIAS_NATS)
            response = self._query_pair({self._token: bias, self._top_token: top_token_bias})
            if response is not None:
                measured_nats, expected_nats = self._pair_shift_nats(response), bias - top_token_bias
                error_nats = abs(measured_nats - expected_nats)
                if error_nats <= self._tolerance_nats:
                    max_bias = bias if bias == start_bias else self._find_bias_limit(bias)
                    max_bias = floor(max_bias) if bias_step_nats else max_bias
                    return _BiasEffect(BiasRange(max_bias, max_bias, bias_step_nats), error_nats=error_nats)
                if self._is_unchanged(response):
                    return _BiasEffect()
                effect = _unexpected_effect(measured_nats, expected_nats)
            bias = bias // 2 if bias_step_nats else bias / 2
        return effect

    def _query_pair(self, bias: Bias) -> EndpointResponse | None:
        """Return the response if it shows both tokens; None otherwise."""
        ((response,),) = self._session.send_queries([bias])
        return response if response.logprobs.keys() >= {self._token, self._top_token} else None

    def _pair_shift_nats(self, response: EndpointResponse) -> float:
        """Return the change of the difference between the two logprobs, nats."""
        biased, token, top_token = response.logprobs, self._token, self._top_token
        return (biased[token] - biased[top_token]) - (self._logprobs[token] - self._logprobs[top_token])

    def _is_unchanged(self, response: EndpointResponse) -> bool:
        """Return whether both tokens have the same logprobs as without a bias."""
        return all(
            abs(response.logprobs[token] - self._logprobs[token]) <= self._tolerance_nats
            for token in (self._token, self._top_token)
        )

    def _find_bias_limit(self, bias: float) -> float:
        """Return the bias to which the endpoint limits ``2 * bias``; the other token of the pair gets ``bias``."""
        response = self._query_pair({self._token: 2 * bias, self._top_token: bias})
        return bias if response is None else bias + max(0.0, min(bias, self._pair_shift_nats(response)))

    def _measure_odds(self, bias_step_nats: float) -> _BiasEffect:
        """Measure whether a bias shifts the odds of the only shown token."""
        # If it does, all biases count as exact, but none as confirmed: a single response cannot show that large
        # biases are added exactly, so `single` tests each bias that it uses.
        max_bias_nats = self._session.endpoint.limits.max_bias_nats
        # A probability that was rounded to 1 would have infinite odds. So a logprob is at most this.
        max_logprob = -self._unbiased_response.relative_error
        unbiased_log_odds = log_odds(min(self._logprobs[self._top_token], max_logprob))
        bias = 1.0 - unbiased_log_odds if abs(1.0 - unbiased_log_odds) >= _MIN_BIAS_NATS else 1.0
        bias = max(-max_bias_nats, min(max_bias_nats, (round(bias) or 1) if bias_step_nats else bias))
        ((response,),) = self._session.send_queries([{self._top_token: bias}])
        biased_logprob = response.logprobs.get(self._top_token)
        min_shift_nats = _NO_SHIFT_FRACTION * self._tolerance_nats
        if biased_logprob is None or abs(biased_logprob - self._logprobs[self._top_token]) <= min_shift_nats:
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
