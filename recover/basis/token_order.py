"""Which tokens determine a row best: an order in which their logprobs should be asked for."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ..numerics import Float64s

_BLOCK_ROWS = 8192
"""Rows in float64 at once: a block of 577 columns has 38 MB."""
_LARGEST_PIVOTED_RANK = 1500
"""Above this rank tokens are drawn by leverage alone: choosing them one after the other would take hours."""
_CANDIDATES_PER_DIMENSION = 4
"""Tokens drawn by leverage for each dimension, among which the pivots are chosen."""


def float64_blocks(matrix: NDArray[np.float32]) -> Iterable[Float64s]:
    """Yield the matrix in float64, some rows at a time."""
    for start in range(0, len(matrix), _BLOCK_ROWS):
        yield matrix[start : start + _BLOCK_ROWS].astype(np.float64)


def order_tokens(matrix: NDArray[np.float32], whitening: Float64s) -> NDArray[np.int32]:
    """Return tokens whose rows span the space well, enough for an over-determined system, the best first.

    Candidates are drawn with probabilities proportional to their leverages, the squared lengths of whitened rows.
    Then the one comes next that is farthest outside of the span of those before (Gram-Schmidt with pivots). The
    other candidates follow.

    Args:
        matrix: float32 (V, r).
        whitening: float64 (r, r), makes the columns orthonormal.
    """
    size, rank = matrix.shape
    whitened = matrix @ whitening.astype(np.float32)
    leverage = np.einsum("ij,ij->i", whitened, whitened, dtype=np.float64)
    random = np.random.default_rng(0)
    count = min(size, _CANDIDATES_PER_DIMENSION * rank)
    drawn = random.choice(size, count, replace=False, p=leverage / leverage.sum())
    first = [] if rank > _LARGEST_PIVOTED_RANK else _pivots(whitened[drawn].astype(np.float64))
    return np.concatenate([drawn[first], np.delete(drawn, first)]).astype(np.int32)


def _pivots(rows: Float64s) -> list[int]:
    """Return indices of as many rows as columns, each the farthest outside of the span of those before."""
    count = min(rows.shape)
    chosen: list[int] = []
    span = np.zeros((count, rows.shape[1]))
    sizes = np.einsum("ij,ij->i", rows, rows)
    for number in range(count):
        index = int(sizes.argmax())
        direction = rows[index] - (span[:number] @ rows[index]) @ span[:number]
        direction /= np.linalg.norm(direction)
        sizes -= (rows @ direction) ** 2
        sizes[index] = -np.inf
        span[number] = direction
        chosen.append(index)
    return chosen
