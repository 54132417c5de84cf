"""The array types of a row of candidates, and the checks on their values."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ids = NDArray[np.int32]
Positions = NDArray[np.intp]
LeadingRows = tuple[Positions, Floats]
"""Positions and logits of the highest rows, from high to low."""

LOWEST, HIGHEST = np.finfo(np.float32).min, np.finfo(np.float32).max
"""The least and the greatest finite float32."""


@lru_cache(maxsize=8)
def every_id(size: int) -> Ids:
    """The ids 0..size-1, int32 (size,), read-only. The same array each time."""
    ids: Ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


@lru_cache
def as_float32(parameter: float) -> np.float32:
    """A parameter as float32. It is asked for at each token, and a look-up takes a third of a conversion."""
    return np.float32(parameter)


def clamp_to_finite(logits: NDArray[np.floating], old: Floats) -> Floats:
    """New logits as float32: an overflow becomes the nearest finite float32; where ``old`` is -inf, -inf stays."""
    every = np.logical_and.reduce
    if logits.dtype == np.float32 and every(np.isfinite(logits)) and every(np.isfinite(old)):
        return logits  # as nearly always
    finite = np.minimum(np.maximum(logits, LOWEST), HIGHEST).astype(np.float32, copy=False)
    clamped: Floats = np.where(old == -np.inf, old, finite)
    return clamped


def describe(value: object) -> str:
    """A value in words, for a message: dtype and shape of an array, else the name of the type."""
    if isinstance(value, np.ndarray):
        masked = "masked " if isinstance(value, np.ma.MaskedArray) else ""
        return f"{masked}{value.dtype} of shape {value.shape}"
    return type(value).__name__


def describe_not_finite(highest: np.float32) -> str:
    """What is wrong with a row whose highest logit is not finite."""
    if np.isnan(highest):
        return "there is a NaN in the row"
    return "there is a +inf in the row" if highest > 0 else "every entry of the row is -inf"
