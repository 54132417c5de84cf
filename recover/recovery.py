"""`recover`: measure the endpoint, choose a method, run it, and assemble the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from .probe import BiasRange, EndpointProfile, probe
from .request import NO_BASIS, RecoveryRequest, RecoverySettings
from .results import Recovery, RunRecord, assemble_recovery
from .session import QuerySession, RecoveryStoppedError
from .task import LogprobEstimates, PointwiseMethod, RecoveryTask
from .unbiased_response import DriftMonitor, UnbiasedResponse, measure_unbiased_response

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
    session = open_session(endpoint, prompt, settings)
    try:
        vocab_size = session.vocab_size()
        request.check_size(vocab_size)
        run = _RecoveryRun(session, request, settings, vocab_size)
        session.open_journal()
        stop_reason = run.carry_out()
    except RecoveryStoppedError:
        raise KeyboardInterrupt from None  # no query was sent, so there is no result to return
    finally:
        session.close()
    return run.result(stop_reason)


def open_session(endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> QuerySession:
    """Return a query session of an endpoint. Raises ``RecoverError`` if the object is not an `Endpoint`."""
    if not isinstance(endpoint, Endpoint):
        raise RecoverError(f"endpoint: {type(endpoint).__name__} is not a subclass of logitsmith.recover.Endpoint")
    return QuerySession(endpoint, prompt, settings)


class _RecoveryRun:
    """One recovery, from the first query to the result."""

    def __init__(
        self, session: QuerySession, request: RecoveryRequest, settings: RecoverySettings, vocab_size: int
    ) -> None:
        self._session = session
        self._request = request
        self._settings = settings
        self._tokens = request.tokens(vocab_size)
        self._estimates = LogprobEstimates(vocab_size, session.endpoint.unnameable_ids)
        self._notes: list[str] = []
        self._method = request.method
        self._drift_monitor: DriftMonitor | None = None

    def carry_out(self) -> str | None:
        """Measure the endpoint and run the method; return ``max_calls`` or ``interrupted`` if it ended early."""
        try:
            unbiased_response = measure_unbiased_response(self._session, self._settings.calls_per_query)
            self._estimates.apply_unbiased_limits(unbiased_response)
            self._estimates.add_unbiased_response(unbiased_response)
            self._notes.extend(unbiased_response.notes)
            profile = probe(self._session, unbiased_response, self._tokens)
            self._estimates.mark_unnameable(profile.unnameable_ids)
            self._notes.extend(profile.findings)
            self._method = self._choose_method(profile)
            if self._is_already_answered(unbiased_response):
                self._notes.append(
                    f"the response without a bias already shows everything requested; {self._method} was not "
                    "needed"
                )
                return None
            check_method(profile, self._method)
            self._run_method(self._make_task(unbiased_response, profile))
        except RecoveryStoppedError as stop:
            return stop.reason
        return None

    def result(self, stop_reason: str | None) -> Recovery:
        """Return the result. ``stop_reason`` is the value that `carry_out` returned."""
        record = RunRecord(
            tokens=self._tokens,
            top_count=self._request.top_count,
            method=self._method,
            notes=tuple(self._notes),
            max_drift_nats=0.0 if self._drift_monitor is None else self._drift_monitor.max_change_nats,
            stop_reason=stop_reason,
            basis=self._settings.basis,
        )
        return assemble_recovery(self._session, self._estimates, record)

    def _choose_method(self, profile: EndpointProfile) -> str:
        """Return the requested method; for ``auto``, return the cheapest method that works."""
        if self._method != "auto":
            return self._method
        if self._request.top_count is not None and profile.can_shift_logprobs and profile.are_biases_additive:
            return "top_n"
        if is_basis_cheaper(self._settings.basis, self._request.requested_id_count):
            return "basis"
        return profile.pointwise_method

    def _is_already_answered(self, unbiased_response: UnbiasedResponse) -> bool:
        """Return whether the unbiased response already shows all requested logprobs."""
        top_count = self._request.top_count
        if self._method == "basis":
            return False
        if top_count is not None:
            return top_count <= len(unbiased_response.logprobs)
        return not self._estimates.unknown_among(self._tokens)

    def _make_task(self, unbiased_response: UnbiasedResponse, profile: EndpointProfile) -> RecoveryTask:
        self._drift_monitor = DriftMonitor(self._session, unbiased_response, profile.relative_error)
        return RecoveryTask(
            session=self._session,
            settings=self._settings,
            tokens=self._tokens,
            unbiased_response=unbiased_response,
            profile=profile,
            bias_range=BiasRange(profile),
            estimates=self._estimates,
            drift_monitor=self._drift_monitor,
            notes=self._notes,
        )

    def _run_method(self, task: RecoveryTask) -> None:
        top_count = self._request.top_count
        if self._method == "top_n":
            top_n(task, top_count or 0)
        elif self._method == "basis":
            if self._settings.basis is None:
                raise RecoverError(NO_BASIS)
            by_basis(task, self._settings.basis, _POINTWISE_METHODS[task.profile.pointwise_method])
        else:
            is_ranked = top_count is not None and self._method == "bisection"
            tokens = (
                ranking(task, top_count)
                if is_ranked and top_count is not None
                else [int(token) for token in self._tokens]
            )
            _POINTWISE_METHODS[self._method](task, tokens)


def is_basis_cheaper(basis: Basis | None, requested_id_count: int | None) -> bool:
    """Return whether ``auto`` uses the basis, which queries at least as many tokens as it has dimensions."""
    return basis is not None and (requested_id_count is None or requested_id_count > basis.rank)


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
        "bisection": not profile.bias_step_nats,
    }.get(method, True)
    if not can_work:
        raise RecoverError(
            f"{method} does not work on this endpoint ({findings}); {profile.pointwise_method} or auto may work"
        )
