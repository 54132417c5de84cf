"""The number of calls that a recovery takes, and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from .base_window import QUESTIONS_PER_CHECK
from .basis import Basis
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.bisection import calls_per_token
from .methods.by_basis import check_basis, count_asked
from .recovery import is_basis_worth_it
from .request import NO_BASIS, RecoveryRequest, RecoverySettings

_PROBE_CALLS = 3
"""Calls of the probe on an endpoint that adds biases as asked; one more where choices must be tried."""
_PROBE_CALLS_WITHOUT_LOGPROBS = 2
"""Calls of the probe on an endpoint that shows only the chosen token."""
_SINGLE_CALLS_PER_TOKEN = 1.5
"""Measured: most tokens take one call, the first ones three."""
_BISECTION_WIDTH_NATS = 16.0
"""The interval that bisection begins with for most tokens."""


@dataclass(frozen=True)
class CallEstimate:
    """The number of calls of a method; ``about``: answers may make it more or fewer."""

    method: str
    calls: int
    about: bool

    def billed(self, prompt_tokens: int) -> int:
        """Return the number of billed tokens: each call reads the prompt and writes one token."""
        return self.calls * (prompt_tokens + 1)


def estimate_calls(  # noqa: PLR0913 - the arguments of `recover`
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    n: int | None = None,
    tokens: Sequence[int] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> list[CallEstimate]:
    """Return the calls that `recover` will take with the same arguments.

    No completion is asked for; an endpoint may ask its server for the size of the vocabulary. Raises
    ``RecoverError`` for what `recover` would refuse, as far as that is known now.

    Args:
        endpoint: what would be asked.
        prompt: the text before the token.
        method: as for `recover`; for ``auto`` all methods that it may take are returned, in its order.
        n: number of likeliest tokens.
        tokens: named tokens.
        settings: how the recovery would be run.
    """
    settings = settings or RecoverySettings()
    settings.check()
    request = RecoveryRequest.checked(prompt, method, n, tokens)
    size = endpoint.vocab_size
    request.check_size(size)
    if settings.basis is None and method == "basis":
        raise RecoverError(NO_BASIS)
    estimator = _CallEstimator(endpoint.limits.window, size, request, settings)
    estimates = [one for one in estimator.estimates(method == "basis") if method in ("auto", one.method)]
    if not estimates:
        raise RecoverError(f"{method} does not work with a window of {endpoint.limits.window}")
    repeats = settings.repeats or 1
    return [replace(one, calls=one.calls + one.calls // (repeats * QUESTIONS_PER_CHECK)) for one in estimates]


@dataclass(frozen=True)
class _CallEstimator:
    """Args: the declared window, the size of the vocabulary, the request and the settings."""

    window: int
    vocab_size: int
    request: RecoveryRequest
    settings: RecoverySettings

    def estimates(self, includes_basis: bool) -> Iterator[CallEstimate]:
        """Yield one estimate per method that the window allows; the basis if it is named or worth it."""
        window, n, repeats = self.window, self.request.n, self.settings.repeats or 1
        per_call = max(1, window - 1)
        is_named = self.request.count is not None  # how many of them the window shows is not known
        hidden = self._count_hidden()
        probe = _PROBE_CALLS + max(0, repeats - 2) if window else _PROBE_CALLS_WITHOUT_LOGPROBS
        if n is not None and window:
            yield CallEstimate("top_n", probe + repeats * ceil(max(0, n - window) / per_call), False)
        if (basis := self.settings.basis) is not None and (includes_basis or self._uses(basis)):
            check_basis(basis, self.vocab_size)
            per_token = {0: self._bisection_calls(), 1: _SINGLE_CALLS_PER_TOKEN}.get(window, 1 / per_call)
            yield CallEstimate("basis", probe + repeats * ceil(count_asked(basis) * per_token), window < 2)
        if window > 1:
            yield CallEstimate("parallel", probe + repeats * ceil(hidden / per_call), is_named)
        if window:
            yield CallEstimate("single", probe + repeats * ceil(_SINGLE_CALLS_PER_TOKEN * hidden), True)
            yield CallEstimate("forced", probe + 1 + repeats * hidden, is_named)
        bisected = hidden if n is None else min(n, hidden)
        ranking = 0 if n is None else bisected
        yield CallEstimate("bisection", probe + ranking + bisected * self._bisection_calls(), True)

    def _count_hidden(self) -> int:
        """Return how many requested tokens the window without a bias does not show."""
        if self.request.count is not None:
            return self.request.count
        if self.request.n is not None and self.request.n <= self.window:
            return 0
        return max(0, self.vocab_size - self.window)

    def _uses(self, basis: Basis) -> bool:
        """True if ``auto`` may use the basis. With ``n`` one of another model is not refused, but not used."""
        fits = self.request.n is None or basis.vocab_size == self.vocab_size
        return fits and is_basis_worth_it(basis, self.request.count)

    def _bisection_calls(self) -> int:
        return calls_per_token(_BISECTION_WIDTH_NATS, self.settings.eps)
