"""A second opinion: some tokens asked for once more, each by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .endpoints.base import Endpoint, unnamed
from .errors import RecoverError
from .methods import forced, single
from .numerics import Float64s
from .probing.probe import probe
from .query_session import QuerySession, StopAskingError
from .recovery import allowed
from .run import RecoveryRun
from .settings import Recovery, RecoverySettings


@dataclass(frozen=True)
class Verification:
    """How far a second look was from the first.

    ``tokens`` compared, the ``largest`` difference in nats and the ``token`` that has it (NaN and None where none
    was compared), ``method``, calls. ``stopped``: why it ended early, if so: ``max_calls`` or ``interrupted``.
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
    """Ask for ``count`` random tokens again, by `single` (by `forced` where that was the method).

    Nothing that the probe learns is taken for an answer. ``settings.max_calls`` holds for the recovery and this
    together. Raises ``RecoverError`` where neither method works: an endpoint that only names tokens has no other
    way to tell.
    """
    if count < 1:
        raise RecoverError(f"verify: {count} is not ≥ 1")
    if not recovery.normalised:
        raise RecoverError(
            "verify: what was recovered is relative to the likeliest token; no single call tells that"
        )
    known = np.flatnonzero(~np.isnan(recovery.logprobs))
    if not len(known):
        raise RecoverError("verify: nothing was recovered")
    method = "forced" if recovery.method == "forced" else "single"
    plain = replace(settings or RecoverySettings(), checkpoint=None, resume=False, basis=None, progress=None)
    if plain.max_calls is not None:
        plain = replace(plain, max_calls=plain.max_calls - recovery.sent)
        if (plain.max_calls or 0) < 1:
            return Verification(0, float("nan"), None, method, 0, "max_calls")
    plain.check()
    chosen = np.sort(np.random.default_rng().choice(known, min(count, len(known)), replace=False))
    asker = QuerySession(endpoint, prompt, plain)
    stopped = None
    run = RecoveryRun(
        asker, plain, chosen, np.full_like(recovery.logprobs, np.nan), recovery.errors.copy(), method
    )
    run.blocked = unnamed(endpoint)
    try:
        _ask(run)
    except StopAskingError as stop:
        stopped = stop.reason
    return _compared(run, run.logprobs[chosen] - recovery.logprobs[chosen], stopped)


def _ask(run: RecoveryRun) -> None:
    """Fill in what was chosen, and nothing else; what the probe saw is forgotten."""
    try:
        probe(run)
        allowed(run.found, run.method)
    finally:
        run.logprobs[:] = np.nan
    (forced if run.method == "forced" else single)(run, [int(token) for token in run.wanted])


def _compared(run: RecoveryRun, off: Float64s, stopped: str | None) -> Verification:
    found = int((~np.isnan(off)).sum())
    if not found:
        if stopped is None:
            raise RecoverError(f"verify: {run.method} found none of the tokens")
        return Verification(0, float("nan"), None, run.method, run.asker.sent, stopped)
    place = int(np.nanargmax(np.abs(off)))
    return Verification(found, float(abs(off[place])), int(run.wanted[place]), run.method, run.asker.sent, stopped)
