"""What a recovery will cost, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from .basis.basis import Basis
from .endpoints.base import Endpoint
from .errors import RecoverError
from .methods.bisection import calls as bisection_calls
from .methods.by_basis import asked, check_basis
from .recovery import NO_BASIS, check, check_size, takes_basis, token_ids
from .run import LOOK
from .settings import RecoverySettings

_PROBE = 3
"""Calls that `probe` makes on an endpoint without surprises; one more where it has to find out about forcing."""
_PROBE_OF_NONE = 2
"""The same where no logprobs are shown."""
_SINGLE = 1.5
"""Calls a token of `single`, as measured: most take one, the first ones three."""
_WIDTH = 16.0


@dataclass(frozen=True)
class CallEstimate:
    """Calls of a method; ``about``: more or fewer, as the answers turn out."""

    method: str
    calls: int
    about: bool

    def billed(self, prompt_tokens: int) -> int:
        """Tokens that are billed: each call reads the prompt and writes one."""
        return self.calls * (prompt_tokens + 1)


def estimate_calls(  # noqa: PLR0913 - as `recover`, which it is asked before
    endpoint: Endpoint,
    prompt: str,
    method: str = "auto",
    n: int | None = None,
    tokens: Sequence[int] | None = None,
    *,
    settings: RecoverySettings | None = None,
) -> list[CallEstimate]:
    """What `recover` will take with the same arguments; of ``auto``: all that it may take, in its order.

    No completion is asked for; an endpoint may ask its server for the size of the vocabulary. Raises
    ``RecoverError`` for what `recover` would refuse too, as far as it can be known by then.
    """
    settings = settings or RecoverySettings()
    settings.check()
    ids = None if tokens is None else token_ids(tokens)
    check(prompt, method, n, ids)
    size = endpoint.vocab_size
    check_size(size, n, ids)
    count = None if ids is None else len(set(ids))
    if settings.basis is None and method == "basis":
        raise RecoverError(NO_BASIS)
    asked_for = _Plan(endpoint.limits.window, size, n, count, settings)
    found = [one for one in asked_for.estimates(method == "basis") if method in ("auto", one.method)]
    if not found:
        raise RecoverError(f"{method} does not work with a window of {endpoint.limits.window}")
    turns = settings.repeats or 1
    return [replace(one, calls=one.calls + one.calls // (turns * LOOK)) for one in found]


@dataclass(frozen=True)
class _Plan:
    """``count``: how many tokens were named; None: all, or the ``n`` likeliest."""

    window: int
    size: int
    n: int | None
    count: int | None
    settings: RecoverySettings

    def estimates(self, basis: bool) -> Iterator[CallEstimate]:
        """One for each method that the window allows; with a basis where it is named, or worth it."""
        window, turns = self.window, self.settings.repeats or 1
        beside = max(1, window - 1)
        named = self.count is not None  # how many of them the window shows is not known
        beyond = self._beyond()
        probing = _PROBE + max(0, turns - 2) if window else _PROBE_OF_NONE
        if self.n is not None and window:
            yield CallEstimate("top_n", probing + turns * ceil(max(0, self.n - window) / beside), False)
        if (given := self.settings.basis) is not None and (basis or self._takes(given)):
            check_basis(given, self.size)
            each = {0: self._halvings(), 1: _SINGLE}.get(window, 1 / beside)
            yield CallEstimate("basis", probing + turns * ceil(asked(given) * each), window < 2)
        if window > 1:
            yield CallEstimate("parallel", probing + turns * ceil(beyond / beside), named)
        if window:
            yield CallEstimate("single", probing + turns * ceil(_SINGLE * beyond), True)
            yield CallEstimate("forced", probing + 1 + turns * beyond, named)
        ranked = beyond if self.n is None else min(self.n, beyond)
        ranking = 0 if self.n is None else ranked
        yield CallEstimate("bisection", probing + ranking + ranked * self._halvings(), True)

    def _beyond(self) -> int:
        """How many tokens are asked for that the window without a bias does not show."""
        if self.count is not None:
            return self.count
        if self.n is not None and self.n <= self.window:
            return 0
        return max(0, self.size - self.window)

    def _takes(self, basis: Basis) -> bool:
        """With ``n`` it comes behind `top_n`, so that one of another model is not refused, but left out."""
        fits = self.n is None or basis.vocab_size == self.size
        return fits and takes_basis(basis, self.count)

    def _halvings(self) -> int:
        return bisection_calls(_WIDTH, self.settings.eps)
