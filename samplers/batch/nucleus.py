"""Top-p: how many of the highest candidates of each row are kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .sampling_data import Floats, Ints
from .top_candidates import TopCandidates, candidates_where, softmax_weights

_SAMPLED_TOKENS = 4096
"""Tokens of a row from which the floor of its nucleus is estimated."""


def count_reaching_p(logits: Floats, top_k: Ints, top_p: Floats) -> Ints:
    """Return how many of the ``top_k`` highest candidates of each row reach the mass p, (R,).

    All of them do if p is 1. ``logits``, (R, n): candidates from high to low.
    """
    if (top_p >= 1).all():
        return top_k
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= top_k[:, None]] = 0
    below = _count_below_p(weights, np.add.accumulate(weights, axis=1)[:, -1], top_p)
    return np.where(top_p < 1, np.minimum(below + 1, top_k), top_k)


class Nucleus(NamedTuple):
    """The candidates of some rows that reach the mass p."""

    rows: Ints
    """Positions of the rows, (r,)."""
    candidates: TopCandidates
    """Their highest candidates, from high to low."""
    kept: Ints
    """How many of these are kept, (r,)."""


def select_nucleus(scaled: Floats, highest: Floats, top_p: Floats) -> Iterator[Nucleus]:
    """Find the candidates of whole rows, (R, V), that reach the mass p; ``highest`` and ``top_p``: (R,).

    Yields at most twice. The second time is for rows of which too few candidates were sorted the first time: they
    are sorted whole. If their mass is below p even then, by rounding, all of their candidates are kept.
    """
    weights = scaled - highest[:, None]
    np.exp(weights, out=weights, dtype=np.float64, casting="same_kind")
    # llama.cpp sums in float32 from the first token to the last. NumPy adds pairwise, but subtracts one by one.
    total = -np.subtract.reduce(weights, axis=1, initial=np.float32(0))
    candidates = candidates_where(scaled, weights >= _estimate_floor(weights, total, top_p)[:, None])
    below = _count_below_p(softmax_weights(candidates.logits), total, top_p)
    reaches_p = below < np.isfinite(candidates.logits).sum(axis=1)
    done, again = reaches_p.nonzero()[0], (~reaches_p).nonzero()[0]
    yield Nucleus(done, candidates.of(done), below[done] + 1)
    if again.size:
        candidates = candidates_where(scaled[again], np.ones((again.size, scaled.shape[1]), np.bool_))
        below = _count_below_p(softmax_weights(candidates.logits), total[again], top_p[again])
        yield Nucleus(again, candidates, np.minimum(below + 1, scaled.shape[1]))


def _count_below_p(weights: Floats, total: Floats, top_p: Floats) -> Ints:
    """How many of the highest candidates have a mass below p together, (R,).

    Formula: the largest n for which the float32 sum of w / total over the first n is below p. The next candidate
    reaches p and is kept as well.
    """
    mass = np.add.accumulate(weights / total[:, None], axis=1)
    counts: Ints = np.count_nonzero(mass < top_p[:, None], axis=1)
    return counts


def _estimate_floor(weights: Floats, total: Floats, top_p: Floats) -> Floats:
    """Estimate the lowest weight of the nucleus of whole rows, (R, V): float32 (R,).

    Every n-th token is looked at. Of the mass 1 - p that may lie below the floor, half is left as a margin.
    """
    stride = max(weights.shape[1] // _SAMPLED_TOKENS, 1)
    sampled = np.sort(weights[:, ::stride], axis=1)
    mass = np.add.accumulate(sampled, axis=1) * np.float32(stride)
    below = np.count_nonzero(mass <= ((1 - top_p) / 2 * total)[:, None], axis=1)
    floor: Floats = sampled[np.arange(total.size), np.maximum(below - 1, 0)]
    return floor
