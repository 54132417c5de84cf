"""Before a checkpoint is continued: does the endpoint still answer as it did when the checkpoint was written?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, product
from math import inf
from pathlib import Path

from .endpoints.base import EndpointAnswer
from .errors import RecoverError

STORED_REPETITIONS = 4
"""Answers without a bias that a journal holds at most: the probe repeats its first question that often."""
_NEW_ANSWERS = (1, 2)
"""Answers asked for, and then, if the first differs, at once: a server may compute questions together."""
_ROUNDING_FACTOR = 20
"""Rounding explains differences of up to so many times the declared precision."""
_SPREAD_FACTOR = 10
"""Noise explains differences of up to so many times the spread within the old or the new answers."""
_EQUAL_NATS = 1e-5
"""Smaller differences mean nothing, whatever precision is declared: float32 sums may differ by as much."""


def answers_changed(
    stored: Sequence[EndpointAnswer], ask_again: Callable[[int], Sequence[EndpointAnswer]], precision: float
) -> float | None:
    """Compare stored answers to the question without a bias with new ones.

    Returns the difference in nats (inf: other tokens) that precision and noise do not explain; None if they do.

    Args:
        stored: the journal's answers.
        ask_again: asks for so many new answers, all at once.
        precision: relative error of an answered probability.
    """
    new: list[EndpointAnswer] = []
    change: float | None = None
    for count in _NEW_ANSWERS if stored else ():
        new += ask_again(count)
        change = unexplained_difference(stored, new, precision)
        if change is None:
            return None
    return change


def refuse_change(path: Path, change: float | None) -> None:
    """Raise ``RecoverError`` if the answers changed (see `answers_changed`)."""
    if change is not None:
        raise RecoverError(
            f"{path}: the endpoint answers otherwise than when this checkpoint was written, by {change:.1g} "
            f"nats: is it another model?",
            advice="delete the checkpoint, or give another checkpoint=…",
        )


def unexplained_difference(
    old: Sequence[EndpointAnswer], new: Sequence[EndpointAnswer], precision: float
) -> float | None:
    """Return the smallest difference of old and new answers, nats, if rounding and spread do not explain it.

    None: the answers agree. inf: they show other tokens.
    """
    spread = max((_difference(*pair) for same in (old, new) for pair in combinations(same, 2)), default=0.0)
    least = min(_difference(*pair) for pair in product(old, new))
    explained = max(_EQUAL_NATS, _ROUNDING_FACTOR * precision, _SPREAD_FACTOR * spread)
    return least if least > explained else None


def _difference(one: EndpointAnswer, other: EndpointAnswer) -> float:
    """Return the largest difference of a logprob that both show; inf if they show other tokens."""
    shown = max(len(one.logprobs), len(other.logprobs))
    if not shown:
        return 0.0 if one.token == other.token else inf
    common = one.logprobs.keys() & other.logprobs.keys()
    if 2 * len(common) < shown:
        return inf
    return max(abs(one.logprobs[token] - other.logprobs[token]) for token in common)
