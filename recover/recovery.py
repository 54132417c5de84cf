"""`recover`: measure the endpoint, choose a method, run it, and assemble the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .basis import Basis
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.bisection import bisection, ranking
from .methods.by_basis import by_basis
from .methods.forced import forced
from .methods.parallel import parallel
from .methods.single import single
from .methods.top_n import top_n
from .probe import EndpointProfile
from .request import RecoveryRequest, RecoverySettings
from .results import Recovery, assemble_recovery
from .session import QuerySession, RecoveryStoppedError
from .task import PointwiseMethod, RecoveryTask

_POINTWISE_METHODS: Mapping[str, PointwiseMethod] = {
    "single": single,
    "parallel": parallel,
    "forced": forced,
    "bisection": bisection,
}


def recover(  # noqa: PLR0913 - each is set by name
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    top_count: int | None = None,
    tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> Recovery:
    """Recover logprobs of the token after a prompt, in nats.

    Raises ``RecoverError``, and ``KeyboardInterrupt`` if the run is interrupted before the first query.

    Args:
        endpoint: the endpoint to query.
        prompt: the text before the token.
        method: ``single``, ``parallel``, ``top_n`` (needs ``top_count``), ``bisection``, ``forced``,
            ``basis`` (needs ``settings.basis``), or ``auto``: the cheapest method that works on this
            endpoint, determined with a few calls.
        top_count: number of most likely tokens to recover; None: all tokens, or those of ``tokens``.
        tokens: token ids to recover; None: all tokens, or the ``top_count`` most likely ones.
        settings: the settings of the recovery; None: the defaults.
    """
    settings = settings or RecoverySettings()
    settings.check()
    request = RecoveryRequest.checked(prompt, method, top_count, tokens)
    try:
        with closing(open_session(endpoint, prompt, settings)) as session:
            vocab_size = session.vocab_size()
            request.check_size(vocab_size)
            task = RecoveryTask(session, request, settings, vocab_size)
            session.open_journal()
            try:
                _carry_out(task, request)
            except RecoveryStoppedError as stop:
                task.stop_reason = stop.reason
    except RecoveryStoppedError:
        raise KeyboardInterrupt from None  # no query was sent, so there is no result to return
    return assemble_recovery(task)


def open_session(endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> QuerySession:
    """Return a query session of an endpoint. Raises ``RecoverError`` if the object is not an `Endpoint`."""
    if not isinstance(endpoint, Endpoint):
        raise RecoverError(f"endpoint: {type(endpoint).__name__} is not a subclass of logitsmith.recover.Endpoint")
    return QuerySession(endpoint, prompt, settings)


def _carry_out(task: RecoveryTask, request: RecoveryRequest) -> None:
    """Measure the endpoint and run the method. Raises ``RecoverError``, ``RecoveryStoppedError``."""
    unbiased_response = task.measure_unbiased_response()
    for token, logprob in unbiased_response.logprobs.items():
        task.estimates.set(token, logprob, unbiased_response.errors[token])
    profile = task.probe_biases()
    if task.method == "auto":
        task.method = _cheapest_method(profile, request, task.settings.basis)
    if _is_already_answered(task):
        task.notes.append(
            f"the response without a bias already shows everything requested; {task.method} was not needed"
        )
        return
    check_method(profile, task.method)
    _run_method(task)


def _cheapest_method(profile: EndpointProfile, request: RecoveryRequest, basis: Basis | None) -> str:
    if request.top_count is not None and profile.can_shift_logprobs and profile.are_biases_additive:
        return "top_n"
    return "basis" if is_basis_cheaper(basis, request) else profile.pointwise_method


def is_basis_cheaper(basis: Basis | None, request: RecoveryRequest) -> bool:
    """Return whether ``auto`` uses the basis, which queries at least as many tokens as it has dimensions."""
    return basis is not None and (request.ids is None or len(request.ids) > basis.rank)


def _is_already_answered(task: RecoveryTask) -> bool:
    """Return whether the unbiased response already shows all requested logprobs."""
    if task.method == "basis":
        return False
    if task.top_count is not None:
        return task.top_count <= len(task.unbiased_response.logprobs)
    return not task.estimates.unknown_among(task.tokens)


def check_method(profile: EndpointProfile, method: str) -> None:
    """Raise ``RecoverError`` for a method that would give wrong numbers on this endpoint."""
    findings = "; ".join(profile.findings)
    if not (profile.can_shift_logprobs or profile.can_force_token):
        raise RecoverError(f"nothing can be recovered from this endpoint: {findings}")
    are_biases_additive = profile.can_shift_logprobs and profile.are_biases_additive
    can_work = {
        "single": profile.can_shift_logprobs,
        "top_n": are_biases_additive,
        "parallel": are_biases_additive and profile.shown_logprob_count > 1,
        "forced": profile.reports_chosen_logprob,
        "bisection": not profile.bias_range.step_nats,
    }.get(method, True)
    if not can_work:
        raise RecoverError(
            f"{method} does not work on this endpoint ({findings}); {profile.pointwise_method} or auto may work"
        )


def _run_method(task: RecoveryTask) -> None:
    if task.method == "top_n" and task.top_count is not None:
        top_n(task, task.top_count)
    elif task.method == "basis":
        by_basis(task, task.settings.required_basis(), _POINTWISE_METHODS[task.profile.pointwise_method])
    elif task.method == "bisection" and task.top_count is not None:
        bisection(task, ranking(task, task.top_count))
    else:
        _POINTWISE_METHODS[task.method](task, task.tokens.tolist())
