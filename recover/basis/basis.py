"""A basis of a model's logits: all its rows of logprobs lie in one space of few dimensions.

Logits are W h, with W the output matrix, (V, d), and h a hidden state; logprobs are W h - c, with c the log of the
sum. They lie in the span of W's columns and of a column of ones, of d + 1 dimensions (Finlayson, Ren & Swayamdipta
2024, "Logits of API-Protected LLMs Leak Proprietary Information"; Carlini et al. 2024, "Stealing Part of a
Production Language Model").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ...common.files import file_problem
from ...common.text import count_noun
from ..errors import RecoverError
from ..file_writing import write_file
from ..npz_reading import DAMAGED_NPZ_ERRORS, open_npz
from ..numerics import Float64s
from .row_space import largest_residual, row_space
from .token_order import float64_blocks, order_tokens

_LEAST_EIGENVALUE_RATIO = 1e-7**2
"""Columns whose size is below 1e-7 of the largest depend on others: float32 has no more digits."""
_LEAST_HELD_OUT, _MOST_HELD_OUT = 2, 16
"""Rows that are left out to test a basis: a tenth, within these limits."""
_LARGEST_RESIDUAL_NATS = 0.01
"""A basis is accepted if it reproduces the rows that were left out to this difference."""


@dataclass(frozen=True)
class Basis:
    """Columns that span all rows of logprobs of a model: one of ones, and those of its output matrix.

    Args:
        matrix: float32 (V, r), r = d + 1.
        order: int32, tokens whose logprobs determine most of the others, the best first.
        source: what it was made from, for messages.
        pieces: the tokens' bytes; empty if unknown.
    """

    matrix: NDArray[np.float32]
    order: NDArray[np.int32]
    source: str
    pieces: tuple[bytes, ...] = ()

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        """Number of dimensions, which is the least number of logprobs that determine a row."""
        return int(self.matrix.shape[1])

    def solve(self, ids: NDArray[np.intp], logprobs: Float64s) -> Float64s:
        """Return the whole row, float64 (V,), that fits the ``logprobs`` of ``ids`` best (least squares).

        Raises ``RecoverError`` for fewer logprobs than dimensions.
        """
        if len(ids) < self.rank:
            raise RecoverError(
                f"{count_noun(len(ids), 'logprob')}: too few for a basis of {self.rank:,} dimensions"
            )
        # QR is ten times faster than lstsq's singular values; the columns are independent.
        factor, triangle = np.linalg.qr(self.matrix[ids].astype(np.float64))
        weights = np.linalg.solve(triangle, factor.T @ logprobs)
        return np.concatenate([block @ weights for block in float64_blocks(self.matrix)])

    def save(self, path: Path) -> None:
        """Write it as an ``.npz``, whole or not at all. Raises ``RecoverError``."""
        flat = np.frombuffer(b"".join(self.pieces), dtype=np.uint8)
        ends = np.cumsum([0, *map(len, self.pieces)])
        source = np.array(self.source)

        def write(file: IO[bytes]) -> None:
            np.savez(file, matrix=self.matrix, order=self.order, source=source, bytes=flat, offsets=ends)

        write_file(path, write)

    @classmethod
    def load(cls, path: Path) -> Basis:
        """Read what `save` wrote. Raises ``RecoverError``."""
        try:
            with open_npz(path) as data:
                flat, ends = data["bytes"].tobytes(), data["offsets"].tolist()
                pieces = tuple(flat[a:b] for a, b in pairwise(ends))
                return cls(data["matrix"], data["order"], str(data["source"]), pieces)._checked()
        except OSError as error:
            problem = file_problem(error, path) if error.strerror else "not a basis"
            raise RecoverError(f"{path}: {problem}") from None
        except DAMAGED_NPZ_ERRORS:
            raise RecoverError(f"{path}: not a basis; make one with gen recover-basis") from None

    def _checked(self) -> Basis:
        """Return the basis itself. Raises ``ValueError`` for arrays that are not a basis."""
        matrix, order = self.matrix, self.order
        if matrix.ndim != 2 or matrix.dtype != np.float32 or not np.isfinite(matrix).all():
            raise ValueError("the matrix is none of finite numbers")
        inside = order.dtype.kind == "i" and bool(((order >= 0) & (order < len(matrix))).all())
        if order.ndim != 1 or not inside or len(set(order.tolist())) != len(order) or len(order) < self.rank:
            raise ValueError("the order is none of tokens")
        if self.pieces and len(self.pieces) != len(matrix):
            raise ValueError("there are bytes of other tokens")
        return self

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.float32], source: str, pieces: Sequence[bytes] = ()) -> Basis:
        """Return the basis of a model's output matrix, (V, d). Raises ``RecoverError``."""
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise RecoverError(f"{source}: the output matrix is no matrix of finite numbers")
        return cls._of_columns(matrix, source, pieces)

    @classmethod
    def of_rows(cls, rows: Sequence[Float64s], source: str, pieces: Sequence[bytes] = ()) -> Basis:
        """Return the basis of whole rows of logprobs, (V,) each, of more prompts than dimensions.

        The singular values show the number of dimensions: behind it they fall to the size of rounding errors. Some
        rows are left out at first, and the others must reproduce them. Raises ``RecoverError`` if they do not,
        since then there are too few rows.
        """
        stacked = np.stack([row - row.mean() for row in rows])
        if not np.isfinite(stacked).all():
            raise RecoverError(f"{source}: a row lacks logprobs; all rows must be whole")
        held_out = min(max(_LEAST_HELD_OUT, len(rows) // 10), _MOST_HELD_OUT)
        columns = row_space(stacked[:-held_out])
        if columns is None or largest_residual(stacked[-held_out:], columns) > _LARGEST_RESIDUAL_NATS:
            raise RecoverError(
                f"{source}: {len(rows):,} rows are too few: they do not tell what {held_out} more of them are; "
                f"a few more than the model has dimensions are needed"
            )
        all_columns = row_space(stacked)
        return cls._of_columns(
            (columns if all_columns is None else all_columns).astype(np.float32), source, pieces
        )

    @classmethod
    def _of_columns(cls, columns: NDArray[np.float32], source: str, pieces: Sequence[bytes]) -> Basis:
        """Put a column of ones in front, and remove what depends on other columns."""
        matrix = np.column_stack([np.ones(len(columns), dtype=np.float32), columns])
        gram = np.zeros((matrix.shape[1],) * 2)
        for block in float64_blocks(matrix):
            gram += block.T @ block
        values, vectors = np.linalg.eigh(gram)
        kept = values > values[-1] * _LEAST_EIGENVALUE_RATIO
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        if not kept.all():
            matrix = np.concatenate([(block @ whitening).astype(np.float32) for block in float64_blocks(matrix)])
            whitening = np.eye(int(kept.sum()))
        return cls(matrix, order_tokens(matrix, whitening), source, tuple(pieces))
