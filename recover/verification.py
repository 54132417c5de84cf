"""Asks for some recovered tokens once more, each by itself, and compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .base_window import DriftMonitor, measure_base_window
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.forced import forced
from .methods.single import single
from .numerics import Float64s
from .probe import BiasRange, probe
from .recovery import check_method, open_session
from .request import RecoverySettings
from .results import Recovery
from .session import QuerySession, StopAskingError
from .task import LogprobEstimates, RecoveryTask


@dataclass(frozen=True)
class Verification:
    """How far repeated answers are from recovered logprobs.

    Args:
        tokens: number of compared tokens.
        largest: the largest difference, nats; NaN if none was compared.
        token: the token that has it; None if none was compared.
        method: how the tokens were asked for.
        queries: calls.
        stopped: why it ended early, if it did: ``max_calls`` or ``interrupted``.
    """

    tokens: int
    largest: float
    token: int | None
    method: str
    queries: int
    stopped: str | None = None


def verify(
    endpoint: Endpoint, prompt: str, recovery: Recovery, count: int = 20, settings: RecoverySettings | None = None
) -> Verification:
    """Ask for ``count`` random recovered tokens again, by `single` (by `forced` if that was the method).

    What the probe sees does not count as an answer. Raises ``RecoverError`` if neither method works: an endpoint
    that only names tokens has no second way to ask.

    Args:
        endpoint: what is asked.
        prompt: the text before the token.
        recovery: what is verified.
        count: number of tokens.
        settings: as for `recover`; ``max_calls`` limits the recovery and the verification together.
    """
    if count < 1:
        raise RecoverError(f"verify: {count} is not ≥ 1")
    if not recovery.normalised:
        raise RecoverError(
            "verify: what was recovered is relative to the likeliest token; no single call tells that"
        )
    recovered = np.flatnonzero(~np.isnan(recovery.logprobs))
    if not len(recovered):
        raise RecoverError("verify: nothing was recovered")
    method = "forced" if recovery.method == "forced" else "single"
    plain = replace(settings or RecoverySettings(), checkpoint=None, resume=False, basis=None, progress=None)
    if plain.max_calls is not None:
        plain = replace(plain, max_calls=plain.max_calls - recovery.sent)
        if (plain.max_calls or 0) < 1:
            return Verification(0, float("nan"), None, method, 0, "max_calls")
    plain.check()
    tokens = np.sort(np.random.default_rng().choice(recovered, min(count, len(recovered)), replace=False))
    session = open_session(endpoint, prompt, plain)
    estimates = LogprobEstimates(len(recovery.logprobs), endpoint.collisions)
    stopped = None
    try:
        _ask(session, estimates, tokens, method, plain)
    except StopAskingError as stop:
        stopped = stop.reason
    differences = np.abs(estimates.logprobs[tokens] - recovery.logprobs[tokens])
    return _compared(tokens, differences, Verification(0, float("nan"), None, method, session.sent, stopped))


def _ask(
    session: QuerySession,
    estimates: LogprobEstimates,
    tokens: NDArray[np.intp],
    method: str,
    settings: RecoverySettings,
) -> None:
    """Ask for the tokens, and add them to the estimates.

    Args:
        session: asks the endpoint.
        estimates: gets the logprobs.
        tokens: ids, int (n,).
        method: ``single`` or ``forced``.
        settings: how the endpoint is asked.
    """
    base = measure_base_window(session, settings.repeats)
    estimates.limit_by(base)
    profile = probe(session, base, tokens)
    estimates.exclude(profile.unnameable)
    check_method(profile, method)
    task = RecoveryTask(
        session=session,
        settings=settings,
        tokens=tokens,
        base=base,
        profile=profile,
        bias_range=BiasRange(profile),
        estimates=estimates,
        drift=DriftMonitor(session, base, profile.precision),
        notes=[],
    )
    (forced if method == "forced" else single)(task, [int(token) for token in tokens])


def _compared(tokens: NDArray[np.intp], differences: Float64s, empty: Verification) -> Verification:
    """Return the largest of the differences, NaN where a token was not found. Raises ``RecoverError``."""
    count = int((~np.isnan(differences)).sum())
    if not count:
        if empty.stopped is None:
            raise RecoverError(f"verify: {empty.method} found none of the tokens")
        return empty
    index = int(np.nanargmax(differences))
    return replace(empty, tokens=count, largest=float(differences[index]), token=int(tokens[index]))
