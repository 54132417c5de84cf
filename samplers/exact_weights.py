"""The exact weights of a softmax, and which of them count in llama.cpp's sum."""

from __future__ import annotations

import numpy as np

from .array_types import Floats

_NEGLIGIBLE = np.float32(-16.7)
"""Its weight is less than 2^-24. Added to a float32 sum of 1 or more, such a weight is rounded away."""
_MOST_THAT_COUNT = 2
"""If more than one of so many rows counts, to find these rows takes longer than to sum all (measured)."""


def exact_weights(offsets: Floats) -> Floats:
    """Return exp(offset), float32, correctly rounded. C's expf differs in about 1 of 2,000 values.

    ``offsets``: differences from the highest logit, float32 of any shape.
    """
    return np.exp(offsets, dtype=np.float64).astype(np.float32)


def offsets_that_count(logits: Floats, highest: np.float32, *, is_ordered: bool) -> Floats | None:
    """Return differences from the highest logit: of those rows that change the float32 sum of all weights.

    The weights are summed from first to last row. Up to the highest row all count; then the sum is at least 1.
    None: most rows count.

    Args:
        logits: float32 (n,).
        highest: the highest of them.
        is_ordered: they go from high to low.
    """
    offsets: Floats = logits - highest
    if is_ordered:
        return offsets[: offsets.size - int(offsets[::-1].searchsorted(_NEGLIGIBLE))]
    first = int(offsets.argmax())
    if _MOST_THAT_COUNT * first > offsets.size:
        return None
    counts = offsets > _NEGLIGIBLE
    if _MOST_THAT_COUNT * int(np.count_nonzero(counts)) > offsets.size:
        return None
    counts[:first] = True
    return offsets[counts.nonzero()[0]]
