"""Asks for some recovered tokens once more, each by itself, and compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..common.renamed import supports_old_names
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.forced import forced
from .methods.single import single
from .numerics import Float64s
from .probe import BiasRange, probe
from .recovery import check_method, open_session
from .request import RecoverySettings
from .results import Recovery
from .session import QuerySession, RecoveryStoppedError
from .task import LogprobEstimates, RecoveryTask
from .unbiased_window import DriftMonitor, measure_unbiased_window


@supports_old_names
@dataclass(frozen=True)
class Verification:
    """How far repeated answers are from recovered logprobs.

    Args:
        compared_token_count: number of compared tokens.
        max_difference_nats: the largest difference, nats; NaN if none was compared.
        worst_token: the token that has it; None if none was compared.
        method: how the tokens were asked for.
        total_calls: calls.
        stop_reason: why it ended early, if it did: ``max_calls`` or ``is_interrupted``.
    """

    compared_token_count: int
    max_difference_nats: float
    worst_token: int | None
    method: str
    total_calls: int
    stop_reason: str | None = None


@supports_old_names
def verify(
    endpoint: Endpoint,
    prompt: str,
    recovery: Recovery,
    token_count: int = 20,
    settings: RecoverySettings | None = None,
) -> Verification:
    """Ask for ``token_count`` random recovered tokens again, by `single` (by `forced` if that was the method).

    What the probe sees does not count as an answer. Raises ``RecoverError`` if neither method works: an endpoint
    that only names tokens has no second way to ask.

    Args:
        endpoint: what is asked.
        prompt: the text before the token.
        recovery: what is verified.
        token_count: number of tokens.
        settings: as for `recover`; ``max_calls`` limits the recovery and the verification together.
    """
    if token_count < 1:
        raise RecoverError(f"verify: {token_count} is not ≥ 1")
    if not recovery.is_normalized:
        raise RecoverError(
            "verify: what was recovered is relative to the likeliest token; no single call tells that"
        )
    recovered = np.flatnonzero(~np.isnan(recovery.logprobs))
    if not len(recovered):
        raise RecoverError("verify: nothing was recovered")
    method = "forced" if recovery.method == "forced" else "single"
    own_settings = replace(
        settings or RecoverySettings(), checkpoint=None, resume=False, basis=None, progress=None
    )
    if own_settings.max_calls is not None:
        own_settings = replace(own_settings, max_calls=own_settings.max_calls - recovery.new_calls)
        if (own_settings.max_calls or 0) < 1:
            return Verification(0, float("nan"), None, method, 0, "max_calls")
    own_settings.check()
    tokens = np.sort(np.random.default_rng().choice(recovered, min(token_count, len(recovered)), replace=False))
    session = open_session(endpoint, prompt, own_settings)
    estimates = LogprobEstimates(len(recovery.logprobs), endpoint.unnameable_ids)
    stop_reason = None
    try:
        _recover_again(session, estimates, tokens, method, own_settings)
    except RecoveryStoppedError as stop:
        stop_reason = stop.reason
    differences = np.abs(estimates.logprobs[tokens] - recovery.logprobs[tokens])
    return _with_differences(
        tokens, differences, Verification(0, float("nan"), None, method, session.new_call_count, stop_reason)
    )


def _recover_again(
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
    unbiased_window = measure_unbiased_window(session, settings.calls_per_query)
    estimates.apply_unbiased_limits(unbiased_window)
    profile = probe(session, unbiased_window, tokens)
    estimates.mark_unnameable(profile.unnameable_ids)
    check_method(profile, method)
    task = RecoveryTask(
        session=session,
        settings=settings,
        tokens=tokens,
        unbiased_window=unbiased_window,
        profile=profile,
        bias_range=BiasRange(profile),
        estimates=estimates,
        drift_monitor=DriftMonitor(session, unbiased_window, profile.relative_error),
        notes=[],
    )
    (forced if method == "forced" else single)(task, [int(token) for token in tokens])


def _with_differences(
    tokens: NDArray[np.intp], differences: Float64s, without_differences: Verification
) -> Verification:
    """Return the largest of the differences, NaN where a token was not found. Raises ``RecoverError``."""
    token_count = int((~np.isnan(differences)).sum())
    if not token_count:
        if without_differences.stop_reason is None:
            raise RecoverError(f"verify: {without_differences.method} found none of the tokens")
        return without_differences
    index = int(np.nanargmax(differences))
    return replace(
        without_differences,
        compared_token_count=token_count,
        max_difference_nats=float(differences[index]),
        worst_token=int(tokens[index]),
    )
