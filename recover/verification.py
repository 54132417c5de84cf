"""Verification: query some recovered tokens again, one token per call, and compare the logprobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

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
from .unbiased_response import DriftMonitor, measure_unbiased_response


@dataclass(frozen=True)
class Verification:
    """The difference between recovered logprobs and a second measurement.

    Args:
        compared_token_count: number of compared tokens.
        max_difference_nats: the largest difference, nats; NaN if no token was compared.
        worst_token: the id of the token with the largest difference; None if no token was compared.
        method: the method of the second measurement, ``single`` or ``forced``.
        total_calls: number of calls of the verification.
        stop_reason: ``max_calls`` or ``interrupted`` if the verification ended early; None otherwise.
    """

    compared_token_count: int
    max_difference_nats: float
    worst_token: int | None
    method: str
    total_calls: int
    stop_reason: str | None = None


def verify(
    endpoint: Endpoint,
    prompt: str,
    recovery: Recovery,
    token_count: int = 20,
    settings: RecoverySettings | None = None,
) -> Verification:
    """Recover random tokens of a result again, and compare the logprobs.

    The method is `forced` if the result was recovered by it, and `single` otherwise.

    The responses of the probe are not used for the comparison. Raises ``RecoverError`` if neither method
    works: an endpoint that shows no logprobs offers no second way to measure.

    Args:
        endpoint: the endpoint to query.
        prompt: the text before the token.
        recovery: the result to verify.
        token_count: number of tokens to compare.
        settings: as for `recover`; ``max_calls`` limits the recovery and the verification together.
    """
    if token_count < 1:
        raise RecoverError(f"token_count: {token_count} is not ≥ 1")
    if not recovery.is_normalized:
        raise RecoverError(
            "verify: the logprobs are relative to the most likely token, and a single call cannot verify that"
        )
    recovered_ids = np.flatnonzero(~np.isnan(recovery.logprobs))
    if not len(recovered_ids):
        raise RecoverError("verify: the recovery contains no token")
    method = "forced" if recovery.method == "forced" else "single"
    verification_settings = replace(
        settings or RecoverySettings(), checkpoint=None, resume=False, basis=None, progress=None
    )
    if verification_settings.max_calls is not None:
        verification_settings = replace(
            verification_settings, max_calls=verification_settings.max_calls - recovery.new_calls
        )
        if (verification_settings.max_calls or 0) < 1:
            return Verification(0, float("nan"), None, method, 0, "max_calls")
    verification_settings.check()
    tokens = np.sort(
        np.random.default_rng().choice(recovered_ids, min(token_count, len(recovered_ids)), replace=False)
    )
    session = open_session(endpoint, prompt, verification_settings)
    estimates = LogprobEstimates(len(recovery.logprobs), endpoint.unnameable_ids)
    stop_reason = None
    try:
        _recover_again(session, estimates, tokens, method, verification_settings)
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
    """Recover the tokens, and add their logprobs to the estimates."""
    unbiased_response = measure_unbiased_response(session, settings.calls_per_query)
    estimates.apply_unbiased_limits(unbiased_response)
    profile = probe(session, unbiased_response, tokens)
    estimates.mark_unnameable(profile.unnameable_ids)
    check_method(profile, method)
    task = RecoveryTask(
        session=session,
        settings=settings,
        tokens=tokens,
        unbiased_response=unbiased_response,
        profile=profile,
        bias_range=BiasRange(profile),
        estimates=estimates,
        drift_monitor=DriftMonitor(session, unbiased_response, profile.relative_error),
        notes=[],
    )
    (forced if method == "forced" else single)(task, [int(token) for token in tokens])


def _with_differences(
    tokens: NDArray[np.intp], differences: Float64s, without_differences: Verification
) -> Verification:
    """Return the verification with its largest difference; NaN marks a token that was not recovered again."""
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
