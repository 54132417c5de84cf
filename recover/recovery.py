"""`recover`: measure the endpoint, choose a method, run it, and assemble the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base_window import BaseWindow, DriftMonitor, measure_base_window
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
from .session import QuerySession, StopAskingError
from .task import LogprobEstimates, PointwiseMethod, RecoveryTask

_POINTWISE: Mapping[str, PointwiseMethod] = {
    "single": single,
    "parallel": parallel,
    "forced": forced,
    "bisection": bisection,
}


def recover(  # noqa: PLR0913 - each is set by name
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    n: int | None = None,
    tokens: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> Recovery:
    """Recover logprobs of the token after a prompt, in nats: of all tokens, of the likeliest, or of named ones.

    Raises ``RecoverError``, and ``KeyboardInterrupt`` if it is interrupted before anything was asked.

    Args:
        endpoint: what is asked.
        prompt: the text before the token.
        method: ``single``, ``parallel``, ``top_n`` (needs ``n``), ``bisection``, ``forced``, ``basis`` (needs
            ``settings.basis``), or ``auto``: the cheapest that works on this endpoint, as a few calls find out.
        n: recover this number of likeliest tokens.
        tokens: recover these ids.
        settings: how the recovery is run.
    """
    settings = settings or RecoverySettings()
    settings.check()
    request = RecoveryRequest.checked(prompt, method, n, tokens)
    session = open_session(endpoint, prompt, settings)
    try:
        size = session.vocab_size()
        request.check_size(size)
        run = _RecoveryRun(session, request, settings, size)
        session.open_journal()
        stopped = run.carry_out()
    except StopAskingError:
        raise KeyboardInterrupt from None  # before there was anything to keep
    finally:
        session.close()
    return run.result(stopped)


def open_session(endpoint: Endpoint, prompt: str, settings: RecoverySettings) -> QuerySession:
    """Return a session with an endpoint. Raises ``RecoverError`` for what is not an `Endpoint`."""
    if not isinstance(endpoint, Endpoint):
        raise RecoverError(f"endpoint: {type(endpoint).__name__} is not a subclass of logitsmith.recover.Endpoint")
    return QuerySession(endpoint, prompt, settings)


class _RecoveryRun:
    """One recovery from the first question to the result."""

    def __init__(
        self, session: QuerySession, request: RecoveryRequest, settings: RecoverySettings, vocab_size: int
    ) -> None:
        self._session = session
        self._request = request
        self._settings = settings
        self._tokens = request.tokens(vocab_size)
        self._estimates = LogprobEstimates(vocab_size, session.endpoint.collisions)
        self._notes: list[str] = []
        self._method = request.method
        self._drift: DriftMonitor | None = None

    def carry_out(self) -> str | None:
        """Measure the endpoint and run the method. Returns why it ended early, None if it did not."""
        try:
            base = measure_base_window(self._session, self._settings.repeats)
            self._estimates.limit_by(base)
            self._estimates.add_base(base)
            self._notes.extend(base.notes)
            profile = probe(self._session, base, self._tokens)
            self._estimates.exclude(profile.unnameable)
            self._notes.extend(profile.findings)
            self._method = self._chosen_method(profile)
            if self._is_answered(base):
                self._notes.append(
                    f"the first window already shows all that was asked for; {self._method} had nothing to do"
                )
                return None
            check_method(profile, self._method)
            self._run_method(self._task(base, profile))
        except StopAskingError as stop:
            return stop.reason
        return None

    def result(self, stopped: str | None) -> Recovery:
        """Return what was found. ``stopped``: why it ended early."""
        record = RunRecord(
            tokens=self._tokens,
            n=self._request.n,
            method=self._method,
            notes=tuple(self._notes),
            drift=0.0 if self._drift is None else self._drift.largest,
            stopped=stopped,
            basis=self._settings.basis,
        )
        return assemble_recovery(self._session, self._estimates, record)

    def _chosen_method(self, profile: EndpointProfile) -> str:
        """Return the named method, else the cheapest that works."""
        if self._method != "auto":
            return self._method
        if self._request.n is not None and profile.shifts_logprobs and profile.adds_together:
            return "top_n"
        if is_basis_worth_it(self._settings.basis, self._request.count):
            return "basis"
        return profile.pointwise_method

    def _is_answered(self, base: BaseWindow) -> bool:
        """True if the window without a bias already shows what was asked for."""
        n = self._request.n
        if self._method == "basis":
            return False
        if n is not None:
            return n <= len(base.logprobs)
        return not self._estimates.unknown(self._tokens)

    def _task(self, base: BaseWindow, profile: EndpointProfile) -> RecoveryTask:
        self._drift = DriftMonitor(self._session, base, profile.precision)
        return RecoveryTask(
            session=self._session,
            settings=self._settings,
            tokens=self._tokens,
            base=base,
            profile=profile,
            bias_range=BiasRange(profile),
            estimates=self._estimates,
            drift=self._drift,
            notes=self._notes,
        )

    def _run_method(self, task: RecoveryTask) -> None:
        n = self._request.n
        if self._method == "top_n":
            top_n(task, n or 0)
        elif self._method == "basis":
            if self._settings.basis is None:
                raise RecoverError(NO_BASIS)
            by_basis(task, self._settings.basis, _POINTWISE[task.profile.pointwise_method])
        else:
            is_ranked = n is not None and self._method == "bisection"
            tokens = ranking(task, n) if is_ranked and n is not None else [int(token) for token in self._tokens]
            _POINTWISE[self._method](task, tokens)


def is_basis_worth_it(basis: Basis | None, count: int | None) -> bool:
    """True if ``auto`` takes the basis for so many named tokens (None: all): it asks for at least its rank."""
    return basis is not None and (count is None or count > basis.rank)


def check_method(profile: EndpointProfile, method: str) -> None:
    """Raise ``RecoverError`` for a method that would give wrong numbers on this endpoint."""
    findings = "; ".join(profile.findings)
    if not (profile.shifts_logprobs or profile.chooses_token):
        raise RecoverError(f"nothing can be recovered from this endpoint: {findings}")
    adds_together = profile.shifts_logprobs and profile.adds_together
    works = {
        "single": profile.shifts_logprobs,
        "top_n": adds_together,
        "parallel": adds_together and profile.window > 1,
        "forced": profile.names_chosen_logprob,
        "bisection": not profile.bias_step,
    }.get(method, True)
    if not works:
        raise RecoverError(
            f"{method} does not work on this endpoint ({findings}); {profile.pointwise_method} or auto may"
        )
