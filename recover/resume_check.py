"""Is an endpoint still what it was when a checkpoint was written? Answers to one question tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from math import inf

from .endpoints.base import EndpointAnswer
from .errors import RecoverError
from .query_journal import QueryJournal

TURNS = 4
"""Answers without a bias that a journal may hold, as `probe` asks for them."""
_LOOKS = (1, 2)
"""How many are asked for, and then, if they differ, at once: a server may compute them together."""
_ROUNDING, _SPREAD = 20, 10
_SAME = 1e-5
"""Closer than this, nats, answers are alike whatever precision is declared: float32 sums may move by as much."""


def confirm(
    journal: QueryJournal, keys: Iterable[str], again: Callable[[int], Sequence[EndpointAnswer]], precision: float
) -> None:
    """Compare a journal's answers without a bias, ``keys``, with new ones, which ``again`` asks for, many at once.

    Raises ``RecoverError`` where they differ by more than ``precision`` and the spread of both explain.
    """
    before = [answer for key in keys if (answer := journal.get(key)) is not None]
    now: list[EndpointAnswer] = []
    off: float | None = None
    for count in _LOOKS if before else ():
        now += again(count)
        off = apart(before, now, precision)
        if off is None:
            return
    if off is not None:
        raise RecoverError(
            f"{journal.path}: the endpoint answers otherwise than when this checkpoint was written, by {off:.1g} "
            f"nats: is it another model? Delete the checkpoint, or give another --checkpoint"
        )


def apart(before: Sequence[EndpointAnswer], now: Sequence[EndpointAnswer], precision: float) -> float | None:
    """By how many nats answers of two times differ at least, where their rounding and spread do not explain it.

    None: they are alike. inf: they show other tokens.
    """
    spread = max((_difference(*pair) for same in (before, now) for pair in combinations(same, 2)), default=0.0)
    least = min(_difference(*pair) for pair in product(before, now))
    return least if least > max(_SAME, _ROUNDING * precision, _SPREAD * spread) else None


def _difference(one: EndpointAnswer, other: EndpointAnswer) -> float:
    """The largest one of the tokens that both show; inf if they show other tokens."""
    shown = max(len(one.logprobs), len(other.logprobs))
    if not shown:
        return 0.0 if one.token == other.token else inf
    both = one.logprobs.keys() & other.logprobs.keys()
    if 2 * len(both) < shown:
        return inf
    return max(abs(one.logprobs[token] - other.logprobs[token]) for token in both)
