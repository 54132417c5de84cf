"""The directions in which whole rows differ, and whether other rows lie in them too."""

from __future__ import annotations

import numpy as np

from ..numerics import Float64s

_LARGEST_GAP = 3.0
_SQUARED = 1e-15


def directions(rows: Float64s) -> Float64s | None:
    """Orthonormal columns, (V, r), that span the rows but for what rounding left; None where nothing is left."""
    if len(rows) < 2:
        return None
    values, vectors = np.linalg.eigh(rows @ rows.T)
    # Squares have half the digits: what is below these is no size.
    sizes = np.sqrt(np.maximum(values[::-1], values[-1] * _SQUARED))
    if not sizes[0]:
        return None
    rank = int(np.argmax(sizes[:-1] / sizes[1:])) + 1
    if sizes[rank - 1] / sizes[rank] < _LARGEST_GAP:
        return None
    top = vectors[:, ::-1][:, :rank] / sizes[:rank]
    return np.asarray(rows.T @ top, dtype=np.float64)


def missed(rows: Float64s, columns: Float64s) -> float:
    """The largest part of these rows, nats, that no mix of the orthonormal columns gives."""
    return float(np.abs(rows - (rows @ columns) @ columns.T).max())
