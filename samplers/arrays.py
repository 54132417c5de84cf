"""The arrays that a row of candidates is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Positions = NDArray[np.intp]

LOWEST, HIGHEST = np.finfo(np.float32).min, np.finfo(np.float32).max
"""The ends of what float32 can hold."""


def held_finite(logits: NDArray[np.floating], old: Floats) -> Floats:
    """New logits as float32: what overflowed is held finite, and what was -inf before stays so."""
    finite = np.minimum(np.maximum(logits, LOWEST), HIGHEST).astype(np.float32, copy=False)
    held: Floats = np.where(old == -np.inf, old, finite)
    return held


def describe(value: object) -> str:
    """What a value is, for a message: the dtype and shape of an array, else the type's name."""
    if isinstance(value, np.ndarray):
        masked = "masked " if isinstance(value, np.ma.MaskedArray) else ""
        return f"{masked}{value.dtype} of shape {value.shape}"
    return type(value).__name__
