"""A few calls that show what an endpoint does with biases, so that no method is used where it would be wrong."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import numpy as np

from ..endpoints.base import EndpointAnswer, look_alikes
from ..errors import RecoverError
from ..run import EndpointProfile, RecoveryRun
from .bias_response import BiasResponse, choices, highest, moves

START = 40.0
"""The bias that `parallel` begins with: more than almost any two logits are apart."""
_TOLERANCE = 0.02
_NOISY_TURNS = 4
_LIFT = 100.0
_DECIMALS = 8
_CUT_OFF = 1e-6
_ABOVE = 100.0


def probe(run: RecoveryRun) -> None:
    """Fill ``run.found``, ``run.base``, ``run.turns`` and what is known of errors, with about four calls.

    Two without a bias: how many logprobs are shown, and are they the same again? Then biases on two tokens: do
    their logprobs move, and by all of the biases? Raises ``RecoverError``.
    """
    ((first, second),) = run.asker.ask([{}], turns=2)
    tokens = (first.token, second.token)
    window = min(len(first.logprobs), len(second.logprobs))
    if not window:
        _only_tokens(run, first, tokens)
        return
    noisy = _measure_noise(run, first, second)
    run.turns = run.settings.repeats or (_NOISY_TURNS if noisy else 1)
    _learn_base(run, [first, second], noisy)
    spread = run.found.spread
    _look_for_cut(run)
    said = f"answers differ by up to {spread:.1e} nats from call to call" if noisy else "answers repeat"
    lines = [f"{window} {'logprob' if window == 1 else 'logprobs'} a call", said]
    run.found = EndpointProfile(window, spread, tokens)
    found = moves(run, max(_TOLERANCE, 10 * spread))
    chooses, forces = (True, False) if found.most else choices(run)
    lines += _said_of(run, found, (chooses, forces))
    run.found = replace(
        run.found,
        moves=found.most > 0,
        together=found.together,
        # A token that is chosen although biases are not added as asked tells no number.
        chooses=chooses and found.seen is None,
        forces=forces and found.seen is None,
        max_bias=found.most,
        step=found.step,
        lines=tuple(lines),
    )
    run.trusted = found.most if window > 1 and found.together else 0.0
    if not noisy:
        run.measured = max(run.measured, found.off)
    _look_alikes(run)


def _only_tokens(run: RecoveryRun, first: EndpointAnswer, tokens: tuple[int | None, ...]) -> None:
    """The findings where no logprobs are shown."""
    if first.token is None and first.unnamed:
        raise RecoverError(
            "the endpoint names tokens by texts that the tokenizer does not have, or that several of its tokens "
            "share: is it the tokenizer of this model?"
        )
    if first.token is None:
        raise RecoverError("the endpoint shows neither logprobs nor a token")
    run.turns = run.settings.repeats or 1
    run.found = EndpointProfile(0, tokens=tokens)
    chooses, _ = choices(run)
    lines = ("only the token is shown", *(() if chooses else ("a bias does not change it",)))
    run.found = replace(run.found, chooses=chooses, lines=lines)
    _look_alikes(run)


def _measure_noise(run: RecoveryRun, first: EndpointAnswer, second: EndpointAnswer) -> bool:
    """How far two answers to one question are apart, and to how many decimals they are rounded."""
    both = first.logprobs.keys() & second.logprobs.keys()
    apart = [first.logprobs[token] - second.logprobs[token] for token in both]
    spread = max((abs(value) for value in apart), default=0.0)
    run.found = EndpointProfile(len(first.logprobs), spread)
    noisy = spread > 20 * run.precision
    told = [value for value in first.logprobs.values() if value]
    for decimals in range(_DECIMALS if len(told) > 1 else 0):
        if all(abs(round(value, decimals) - value) <= 1e-12 for value in told):
            run.measured = 0.5 * 10.0**-decimals
            break
    return noisy


def _learn_base(run: RecoveryRun, answers: list[EndpointAnswer], noisy: bool) -> None:
    """The window without a bias, as the mean over as many answers as each question gets, or more for noise."""
    count = max(run.turns, _NOISY_TURNS) if noisy else run.turns
    if count > 2:
        answers = answers + next(iter(run.asker.ask([{}], count - 2, first=2)))
    kept = answers[:count]
    common = set.intersection(*(set(answer.logprobs) for answer in kept))
    if not common:
        raise RecoverError(
            "without a bias the endpoint shows other tokens at each call: it draws them, and none can be compared"
        )
    if noisy:
        each = [[answer.logprobs[token] for answer in kept] for token in common]
        run.noise = float(np.sqrt(2 * np.mean(np.var(each, axis=1, ddof=1))))
        run.found = replace(run.found, spread=float(np.ptp(each, axis=1).max()))
    for token in common:
        told = [answer.logprobs[token] for answer in kept]
        run.base[token] = float(np.mean(told))
        run.learn(token, told, run.precision)
    others = [value for answer in kept for token, value in answer.logprobs.items() if token not in common]
    run.ceiling = max([min(run.base.values()), *others]) + run.margin
    run.outranked(kept[0].unnamed)


def _look_for_cut(run: RecoveryRun) -> None:
    """Is nothing left for the tokens behind the base window, though its least one is likely?

    Then the endpoint cuts them off before it tells logprobs. Where it also shows fewer than were asked for, that
    is sure, and refused; else it is noted. Raises ``RecoverError``.
    """
    shown = sum(exp(value) for value in (*run.base.values(), *run.nameless))
    left = max(1 - shown, 10 * run.precision, 10 * run.found.spread, _CUT_OFF)
    count, endpoint = run.found.window + len(run.nameless), run.asker.endpoint
    if not 1 < count < endpoint.vocab_size or exp(min(run.base.values())) <= _ABOVE * left:
        return
    said = f"the {count:,} tokens shown without a bias have all the probability"
    if count < endpoint.limits.window:
        raise RecoverError(f"{said}: the endpoint cuts off the others (top_p, top_k, min_p); switch that off")
    run.notes.append(f"{said}: if the endpoint cuts off others (top_p, top_k, min_p), what is told is wrong")


def _said_of(run: RecoveryRun, found: BiasResponse, chosen: tuple[bool, bool]) -> list[str]:
    """The findings on biases, in words."""
    chooses, _ = chosen
    if found.most:
        cut = found.most < highest(run) - found.step
        moved = f"biases up to {found.most:.4g} move logprobs as asked" + (", larger ones are cut" if cut else "")
        said = [moved if run.found.window > 1 else "a bias moves its odds as asked"]
        if found.step:
            said.append(f"the bias step is {found.step:g}: others are rounded")
        if not found.together:
            said.append("one bias in a call is, but not several")
        return said
    if found.seen is not None:
        moved_by, asked = found.seen
        return [f"a bias moves logprobs, but not as asked: by {moved_by:.3g} where {asked:.3g} was asked for"]
    return ["a bias does not move logprobs" + (", but chooses the token" if chooses else ", nor the choice")]


def _look_alikes(run: RecoveryRun) -> None:
    """Are tokens whose bytes are no text named by their bytes, or are they all alike? One of them is lifted."""
    alike = look_alikes(run.asker.endpoint) & set(run.wanted.tolist())
    if not alike:
        return
    token = min(alike)
    ((answer,),) = run.asker.ask([{token: min(_LIFT, run.asker.endpoint.limits.max_bias)}])
    if token != answer.token and token not in answer.logprobs and answer.unnamed:
        run.blocked |= alike
