"""Top-p: how many of the highest candidates of each row are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .data import Floats, Ints
from .draw import weigh
from .heads import Heads, reaching

# Tokens of a row that are looked at for an estimate.
_PROBE = 4096


def reaching_p(logits: Floats, top_k: Ints, top_p: Floats) -> Ints:
    """How many of the ``top_k`` highest candidates of each row reach p, (R,); all of them where p is 1.

    ``logits``, (R, n): heads, from high to low.
    """
    if (top_p >= 1).all():
        return top_k
    weights = weigh(logits)
    weights[np.arange(weights.shape[1]) >= top_k[:, None]] = 0
    below = _crossing(weights, np.add.accumulate(weights, axis=1)[:, -1], top_p)
    return np.where(top_p < 1, np.minimum(below + 1, top_k), top_k)


def nucleus(quotients: Floats, highest: Floats, top_p: Floats) -> Iterator[tuple[Ints, Heads, Ints]]:
    """The candidates of whole rows, (R, V), that reach p: places of rows, their heads, how many of these are kept.

    Comes in two parts at most: a row of which too little was ordered is ordered as a whole, and kept as a whole
    if it does not reach p even then, by rounding.
    """
    weights = quotients - highest[:, None]
    np.exp(weights, out=weights, dtype=np.float64, casting="same_kind")
    # In float32 from the first token to the last, as llama.cpp has it: NumPy adds up pairwise, but what it
    # subtracts it takes away one after the other.
    total = -np.subtract.reduce(weights, axis=1, initial=np.float32(0))
    found = reaching(quotients, weights >= _enough(weights, total, top_p)[:, None])
    below = _crossing(weigh(found.logits), total, top_p)
    reached = below < np.isfinite(found.logits).sum(axis=1)
    sure, again = reached.nonzero()[0], (~reached).nonzero()[0]
    yield sure, found.of(sure), below[sure] + 1
    if again.size:
        found = reaching(quotients[again], np.ones((again.size, quotients.shape[1]), np.bool_))
        below = _crossing(weigh(found.logits), total[again], top_p[again])
        yield again, found, np.minimum(below + 1, quotients.shape[1])


def _crossing(weights: Floats, total: Floats, top_p: Floats) -> Ints:
    """How many of the highest candidates have, together, less than the mass p; (R,).

    Formula: the first n whose float32 sum of w / total is below p. One more reaches it and is kept as well.
    """
    mass = np.add.accumulate(weights / total[:, None], axis=1)
    places: Ints = np.count_nonzero(mass < top_p[:, None], axis=1)
    return places


def _enough(weights: Floats, total: Floats, top_p: Floats) -> Floats:
    """A weight, (R,), from which on the mass p of whole rows, (R, V), should lie; an estimate.

    Every so many tokens one is looked at; half of the mass 1 - p that may lie below is left to errors.
    """
    stride = max(weights.shape[1] // _PROBE, 1)
    probe = np.sort(weights[:, ::stride], axis=1)
    mass = np.add.accumulate(probe, axis=1) * np.float32(stride)
    below = np.count_nonzero(mass <= ((1 - top_p) / 2 * total)[:, None], axis=1)
    floor: Floats = probe[np.arange(total.size), np.maximum(below - 1, 0)]
    return floor
