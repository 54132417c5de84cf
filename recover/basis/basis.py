"""A basis of a model's logits: all rows of logprobs lie in a space of few dimensions, which is the same each time.

Logits are W h, with W the output matrix, (V, d), and h a hidden state; logprobs are W h - c, with c the log of the
sum. They lie in the span of W's columns and of a column of ones, of d + 1 dimensions (Finlayson, Ren & Swayamdipta
2024, "Logits of API-Protected LLMs Leak Proprietary Information"; Carlini et al. 2024, "Stealing Part of a
Production Language Model").
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ..errors import RecoverError
from ..file_writing import write_whole
from ..numerics import Float64s
from .row_space import directions, missed

_BLOCK = 8192
_PIVOTED = 1500
"""Above this rank tokens are drawn by leverage alone: choosing them one after the other would take hours."""
_CANDIDATES = 4
_FLAT = 1e-7
_LEAST_HELD, _MOST_HELD = 2, 16
_MISSED = 0.01
"""A basis is believed where rows that were left out are off by no more, nats."""


@dataclass(frozen=True)
class Basis:
    """Columns that span all rows of logprobs of a model: one of ones, and those of its output matrix.

    ``matrix``: float32 (V, r), r = d + 1; ``order``: int32, tokens whose logprobs tell most of the rest, the best
    first; ``source``: what it was made of; ``pieces``: the tokens' bytes, where known.
    """

    matrix: NDArray[np.float32]
    order: NDArray[np.int32]
    source: str
    pieces: tuple[bytes, ...] = ()

    @property
    def vocab_size(self) -> int:
        """How many tokens."""
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        """How many dimensions, and so how many logprobs are needed at least."""
        return int(self.matrix.shape[1])

    def solve(self, ids: NDArray[np.intp], logprobs: Float64s) -> Float64s:
        """The whole row, float64 (V,), that fits the known ``logprobs`` of ``ids`` best (least squares).

        Raises ``RecoverError`` for fewer of them than dimensions.
        """
        if len(ids) < self.rank:
            raise RecoverError(f"{len(ids):,} logprobs are too few for a basis of {self.rank:,} dimensions")
        # By QR, which is ten times faster than lstsq's singular values; the columns are independent.
        factor, triangle = np.linalg.qr(self.matrix[ids].astype(np.float64))
        weights = np.linalg.solve(triangle, factor.T @ logprobs)
        return np.concatenate([block @ weights for block in _blocks(self.matrix)])

    def save(self, path: Path) -> None:
        """Write it as an ``.npz``, whole or not at all. Raises ``RecoverError``."""
        flat = np.frombuffer(b"".join(self.pieces), dtype=np.uint8)
        ends = np.cumsum([0, *map(len, self.pieces)])
        source = np.array(self.source)

        def write(file: IO[bytes]) -> None:
            np.savez(file, matrix=self.matrix, order=self.order, source=source, bytes=flat, offsets=ends)

        write_whole(path, write)

    @classmethod
    def load(cls, path: Path) -> Basis:
        """Read what `save` wrote. Raises ``RecoverError``."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
                flat, ends = data["bytes"].tobytes(), data["offsets"].tolist()
                pieces = tuple(flat[a:b] for a, b in pairwise(ends))
                return cls(data["matrix"], data["order"], str(data["source"]), pieces)._checked()
        except OSError as error:
            raise RecoverError(f"{path}: {error.strerror or 'not a basis'}") from None
        except (
            ValueError,
            KeyError,
            IndexError,
            EOFError,
            AttributeError,
            TypeError,
            MemoryError,
            zipfile.BadZipFile,
        ):
            raise RecoverError(f"{path}: not a basis; make one with gen recover-basis") from None

    def _checked(self) -> Basis:
        """Itself. Raises ``ValueError`` for arrays that are none of a basis."""
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
        """Out of a model's output matrix, (V, d). Raises ``RecoverError``."""
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise RecoverError(f"{source}: the output matrix is no matrix of finite numbers")
        return cls._of_columns(matrix, source, pieces)

    @classmethod
    def of_rows(cls, rows: Sequence[Float64s], source: str, pieces: Sequence[bytes] = ()) -> Basis:
        """Out of whole rows of logprobs, (V,) each, of a few more prompts than the model has dimensions.

        How many dimensions there are shows in the singular values: behind the last of them they fall to what
        rounding leaves. Some rows are left out at first; the others must give them again. Raises ``RecoverError``
        where they do not, since then there were too few rows.
        """
        stacked = np.stack([row - row.mean() for row in rows])
        if not np.isfinite(stacked).all():
            raise RecoverError(f"{source}: a row lacks logprobs; all rows must be whole")
        held = min(max(_LEAST_HELD, len(rows) // 10), _MOST_HELD)
        columns = directions(stacked[:-held])
        if columns is None or missed(stacked[-held:], columns) > _MISSED:
            raise RecoverError(
                f"{source}: {len(rows):,} rows are too few: they do not tell what {held} more of them are; "
                f"a few more than the model has dimensions are needed"
            )
        whole = directions(stacked)
        return cls._of_columns((columns if whole is None else whole).astype(np.float32), source, pieces)

    @classmethod
    def _of_columns(cls, columns: NDArray[np.float32], source: str, pieces: Sequence[bytes]) -> Basis:
        """Put a column of ones in front, and drop what of the columns depends on others."""
        matrix = np.column_stack([np.ones(len(columns), dtype=np.float32), columns])
        gram = np.zeros((matrix.shape[1],) * 2)
        for block in _blocks(matrix):
            gram += block.T @ block
        values, vectors = np.linalg.eigh(gram)
        kept = values > values[-1] * _FLAT**2
        turn = vectors[:, kept] / np.sqrt(values[kept])
        if not kept.all():
            matrix = np.concatenate([(block @ turn).astype(np.float32) for block in _blocks(matrix)])
            turn = np.eye(int(kept.sum()))
        return cls(matrix, _order(matrix, turn), source, tuple(pieces))


def _blocks(matrix: NDArray[np.float32]) -> Iterable[Float64s]:
    """The matrix in float64, some rows at a time."""
    for start in range(0, len(matrix), _BLOCK):
        yield matrix[start : start + _BLOCK].astype(np.float64)


def _order(matrix: NDArray[np.float32], turn: Float64s) -> NDArray[np.int32]:
    """Tokens whose rows span the space well: enough for an over-determined system, the best first.

    ``turn`` makes the columns orthonormal. Candidates are drawn with probabilities as their leverages, the squared
    lengths of turned rows. Of these that one comes next that has most left outside of the span of those before
    (Gram-Schmidt with pivots). The other candidates follow.
    """
    size, rank = matrix.shape
    turned = matrix @ turn.astype(np.float32)
    leverage = np.einsum("ij,ij->i", turned, turned, dtype=np.float64)
    random = np.random.default_rng(0)
    count = min(size, _CANDIDATES * rank)
    drawn = random.choice(size, count, replace=False, p=leverage / leverage.sum())
    chosen = [] if rank > _PIVOTED else _pivots(turned[drawn].astype(np.float64))
    return np.concatenate([drawn[chosen], np.delete(drawn, chosen)]).astype(np.int32)


def _pivots(rows: Float64s) -> list[int]:
    """Places of as many rows as there are columns, each the farthest outside of the span of those before."""
    count = min(rows.shape)
    chosen: list[int] = []
    span = np.zeros((count, rows.shape[1]))
    sizes = np.einsum("ij,ij->i", rows, rows)
    for number in range(count):
        place = int(sizes.argmax())
        direction = rows[place] - (span[:number] @ rows[place]) @ span[:number]
        direction /= np.linalg.norm(direction)
        sizes -= (rows @ direction) ** 2
        sizes[place] = -np.inf
        span[number] = direction
        chosen.append(place)
    return chosen
