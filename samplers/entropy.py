"""Logarithms and entropies of a distribution, in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .array_types import HIGHEST, Floats
from .sequential_sums import sequential_sum


@np.errstate(divide="ignore")
def logarithms(probs: Floats) -> Floats:
    """Return ln p, float32 (n,), each correctly rounded; -inf for 0."""
    return np.log(probs, dtype=np.float64).astype(np.float32)


def llama_cpp_entropy(probs: Floats, logs: Floats) -> np.float32:
    """Return -sum p ln p as llama.cpp computes it: in float32, from the first row to the last; 0 ln 0 is 0.

    ``probs`` and ``logs``: float32 (n,), the latter from `logarithms`.
    """
    return sequential_sum(probs * np.minimum(-logs, HIGHEST))  # 0 times a finite number, not 0 times inf


def entropy_terms(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return -p ln p, float64 (n,); 0 for 0."""
    wide = probs.astype(np.float64)
    return -wide * np.log(wide, out=np.zeros_like(wide), where=wide > 0)
