"""A second opinion: some tokens asked for once more, each by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .endpoint import Endpoint
from .errors import RecoverError
from .recovery import recover
from .settings import Recovery, Settings


@dataclass(frozen=True)
class Verification:
    """``tokens`` compared, the ``largest`` difference in nats and the ``token`` that has it, ``method``, calls."""

    tokens: int
    largest: float
    token: int
    method: str
    queries: int


def verify(
    endpoint: Endpoint, prompt: str, recovery: Recovery, count: int = 20, settings: Settings | None = None
) -> Verification:
    """Ask for ``count`` random tokens again, by `single` (by `forced` where that was the method).

    Raises ``RecoverError`` where neither works: an endpoint that only names tokens has no other way to tell.
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
    chosen = np.random.default_rng().choice(known, min(count, len(known)), replace=False).tolist()
    plain = replace(
        settings or Settings(), checkpoint=None, resume=False, basis=None, progress=None, max_calls=None
    )
    method = "forced" if recovery.method == "forced" else "single"
    again = recover(endpoint, prompt, method, tokens=chosen, settings=plain)
    differences = np.abs(again.logprobs[chosen] - recovery.logprobs[chosen])
    if np.isnan(differences).all():
        raise RecoverError(f"verify: {method} found none of the tokens")
    place = int(np.nanargmax(differences))
    found = int((~np.isnan(differences)).sum())
    return Verification(found, float(differences[place]), chosen[place], method, again.queries)
