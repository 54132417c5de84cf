"""The space that whole rows span, and how well other rows lie in it."""

from __future__ import annotations

import numpy as np

from ..numerics import Float64s

_LEAST_GAP = 3.0
"""The singular values behind the last dimension are at least so many times smaller."""
_LEAST_SQUARED_RATIO = 1e-15
"""Squares have half the digits: an eigenvalue below this part of the largest is rounding."""


def row_space(rows: Float64s) -> Float64s | None:
    """Return orthonormal columns, (V, r), that span the rows except for rounding; None if no gap shows r."""
    if len(rows) < 2:
        return None
    values, vectors = np.linalg.eigh(rows @ rows.T)
    sizes = np.sqrt(np.maximum(values[::-1], values[-1] * _LEAST_SQUARED_RATIO))
    if not sizes[0]:
        return None
    rank = int(np.argmax(sizes[:-1] / sizes[1:])) + 1
    if sizes[rank - 1] / sizes[rank] < _LEAST_GAP:
        return None
    top = vectors[:, ::-1][:, :rank] / sizes[:rank]
    return np.asarray(rows.T @ top, dtype=np.float64)


def largest_residual(rows: Float64s, columns: Float64s) -> float:
    """Return the largest element, nats, of what the orthonormal columns do not span of these rows."""
    return float(np.abs(rows - (rows @ columns) @ columns.T).max())
