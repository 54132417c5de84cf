"""Logarithms and entropies of a distribution, in nats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .array_types import HIGHEST, Floats
from .sequential_sums import sequential_sum


@np.errstate(divide="ignore")
def logarithms(probs: Floats) -> Floats:
    """ln p, float32 (n,), each correctly rounded; that of 0 is -inf."""
    return np.log(probs, dtype=np.float64).astype(np.float32)


def llama_cpp_entropy(probs: Floats, logs: Floats) -> np.float32:
    """-sum p ln p as llama.cpp has it: float32, summed from the first row to the last; 0 ln 0 is 0.

    ``logs``: what `logarithms` makes of ``probs``.
    """
    return sequential_sum(probs * np.minimum(-logs, HIGHEST))  # 0 times what is finite


def entropy_terms(probs: NDArray[np.floating]) -> NDArray[np.float64]:
    """-p ln p, float64 (n,); that of 0 is 0."""
    wide = probs.astype(np.float64)
    return -wide * np.log(wide, out=np.zeros_like(wide), where=wide > 0)
