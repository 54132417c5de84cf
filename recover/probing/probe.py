"""A few calls that measure what an endpoint does with biases: no method is used where it would be wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..query_session import QuerySession
from .base_window import BaseWindow
from .bias_response import BiasProbe, BiasResponse, ChoiceResponse, largest_useful_bias, measure_choice_response
from .profile import EndpointProfile

_NAMING_BIAS_NATS = 100.0
"""Lifts a token to where the endpoint must name it; OpenAI's largest bias."""


def probe(session: QuerySession, base: BaseWindow, tokens: NDArray[np.intp]) -> EndpointProfile:
    """Ask one to a few questions with biases: do logprobs move, by all of the biases, or only choices?

    Raises ``RecoverError``, ``StopAskingError``.

    Args:
        session: asks the endpoint.
        base: the window without a bias.
        tokens: the requested ids, int (n,).
    """
    if not base.size:
        choice = measure_choice_response(session, base)
        findings = ("only the token is shown", *(() if choice.chooses_token else ("a bias does not change it",)))
        unnameable = _unnameable(session, tokens)
        return EndpointProfile(
            0, base.precision, chooses_token=choice.chooses_token, unnameable=unnameable, findings=findings
        )
    response = BiasProbe(session, base, base.margin).measure()
    choice = ChoiceResponse(True) if response.largest else measure_choice_response(session, base)
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
    session: QuerySession, base: BaseWindow, response: BiasResponse, choice: ChoiceResponse
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
    session: QuerySession, base: BaseWindow, response: BiasResponse, choice: ChoiceResponse
) -> list[str]:
    largest, effect = response.largest, response.wrong_effect
    if largest:
        is_cut = largest < largest_useful_bias(session.endpoint.limits) - response.step
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
    ((answer,),) = session.ask([{token: min(_NAMING_BIAS_NATS, session.endpoint.limits.max_bias)}])
    is_named = token == answer.token or token in answer.logprobs or not answer.unnamed
    return frozenset() if is_named else look_alikes
