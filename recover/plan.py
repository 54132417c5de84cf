"""What a recovery will cost, before anything is asked."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from .endpoint import Limits
from .methods.bisection import calls as bisection_calls
from .methods.by_basis import asked
from .settings import Settings

_PROBE = 3
"""Calls that `probe` makes on an endpoint without surprises; one more where it has to find out about forcing."""
_SINGLE = 1.5
"""Calls a token of `single`, as measured: most take one, the first ones three."""
_WIDTH = 16.0


@dataclass(frozen=True)
class Estimate:
    """Calls of a method; ``about``: more or fewer, as the answers turn out."""

    method: str
    calls: int
    about: bool

    def billed(self, prompt_tokens: int) -> int:
        """Tokens that are billed: each call reads the prompt and writes one."""
        return self.calls * (prompt_tokens + 1)


def plan(method: str, limits: Limits, tokens: int, n: int | None, settings: Settings) -> list[Estimate]:
    """The calls of a method for this many ``tokens``; of ``auto``: of all it may take, in the order of preference.

    With ``n``, ``tokens`` is the size of the vocabulary: methods that cannot rank tokens need all of it.
    """
    turns = settings.repeats or 1
    window = limits.window
    beside = max(1, window - 1)
    probing = _PROBE + max(0, turns - 2)
    beyond = max(0, tokens - window)
    found = []
    if n is not None and window:
        found.append(Estimate("top_n", probing + turns * ceil(max(0, n - window) / beside), False))
    if settings.basis is not None and n is None:
        each = ceil(asked(settings.basis) / beside)
        found.append(Estimate("basis", probing + turns * each, window < 2))
    if window > 1:
        found.append(Estimate("parallel", probing + turns * ceil(beyond / beside), False))
    if window:
        found.append(Estimate("single", probing + turns * ceil(_SINGLE * tokens), True))
        found.append(Estimate("forced", probing + 1 + turns * beyond, False))
    ranking, ranked = (0, tokens) if n is None else (n, n)
    found.append(Estimate("bisection", 2 + ranking + ranked * bisection_calls(_WIDTH, settings.eps), True))
    return [one for one in found if method in ("auto", one.method)]
