"""Verification: query some recovered tokens again, one token per call, and compare the logprobs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .endpoints.base import Endpoint
from .errors import RecoverError, require_at_least
from .methods.forced import forced
from .methods.single import single
from .recovery import check_method, open_session
from .request import RecoveryRequest, RecoverySettings
from .results import Recovery
from .session import RecoveryStoppedError
from .task import RecoveryTask


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
    require_at_least(1, token_count=token_count)
    if not recovery.is_normalized:
        raise RecoverError(
            "verify: the logprobs are relative to the most likely token, and a single call cannot verify that"
        )
    if not len(recovery.ids):
        raise RecoverError("verify: the recovery contains no token")
    method = "forced" if recovery.method == "forced" else "single"
    settings = replace(settings or RecoverySettings(), checkpoint=None, resume=False, basis=None, progress=None)
    if settings.max_calls is not None:
        left_calls = settings.max_calls - recovery.new_calls
        if left_calls < 1:
            return Verification(0, float("nan"), None, method, 0, "max_calls")
        settings = replace(settings, max_calls=left_calls)
    settings.check()
    random = np.random.default_rng()
    tokens = random.choice(recovery.ids, min(token_count, len(recovery.ids)), replace=False).tolist()
    request = RecoveryRequest(method, ids=tuple(sorted(tokens)))
    session = open_session(endpoint, prompt, settings)
    task = RecoveryTask(session, request, settings, len(recovery.logprobs))
    try:
        task.measure_unbiased_response()
        check_method(task.probe_biases(), method)
        (forced if method == "forced" else single)(task, task.tokens.tolist())
    except RecoveryStoppedError as stop:
        task.stop_reason = stop.reason
    differences = np.abs(task.estimates.logprobs - recovery.logprobs)
    compared_count = int((~np.isnan(differences)).sum())
    if not compared_count and task.stop_reason is None:
        raise RecoverError(f"verify: {method} found none of the tokens")
    worst_token = int(np.nanargmax(differences)) if compared_count else None
    return Verification(
        compared_count,
        float("nan") if worst_token is None else float(differences[worst_token]),
        worst_token,
        method,
        session.new_call_count,
        task.stop_reason,
    )
