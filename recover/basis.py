"""A basis of a model's logits: all rows of logprobs of a model lie in one space of few dimensions.

Logits are W h, where W is the output matrix, (V, d), and h a hidden state. Logprobs are W h - c, where c is the
log of the normalizing sum. They are in the span of W's columns and of a column of ones, which has d + 1
dimensions (Finlayson, Ren & Swayamdipta 2024, "Logits of API-Protected LLMs Leak Proprietary Information";
Carlini et al. 2024, "Stealing Part of a Production Language Model"). A basis is computed from the output matrix
or from complete rows of logprobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.errors import Word
from ..common.extras import install_command
from ..common.text import count_noun
from ..engine.model import Model
from ..models.gguf import check_gguf
from .errors import RecoverError, require_at_least
from .files import pack_bytes, read_npz, write_npz
from .numerics import Float64s

# Columns smaller than 1e-7 of the largest column are treated as dependent, because float32 has no more digits
_MIN_EIGENVALUE_RATIO = 1e-7**2
# a tenth of the rows is held out to test a basis, but at least and at most this many
_MIN_HELD_OUT_ROWS, _MAX_HELD_OUT_ROWS = 2, 16
_MAX_RESIDUAL_NATS = 0.01  # a basis is accepted if it reproduces the held-out rows with at most this error


@dataclass(frozen=True)
class Basis:
    """Columns that span all rows of logprobs of a model: a column of ones, and those of the output matrix.

    Args:
        matrix: float32 (V, r), r = d + 1.
        determining_tokens: int32; tokens whose logprobs determine all other logprobs well, the best tokens
            first.
        source: the origin of the basis, for messages.
        token_bytes: the bytes of each token by id; empty if unknown.
    """

    matrix: NDArray[np.float32]
    determining_tokens: NDArray[np.int32]
    source: str
    token_bytes: tuple[bytes, ...] = ()

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return int(self.matrix.shape[0])

    @property
    def rank(self) -> int:
        """Number of dimensions, which is also the minimum number of logprobs that determine a row."""
        return int(self.matrix.shape[1])

    def solve(self, ids: NDArray[np.intp], logprobs: Float64s) -> Float64s:
        """Return the row that fits some logprobs best (least squares), float64 (V,).

        Raises ``RecoverError`` for fewer logprobs than dimensions.

        Args:
            ids: ids of tokens whose logprob is known, int (n,).
            logprobs: logprobs of these tokens, float64 (n,).
        """
        if len(ids) < self.rank:
            raise RecoverError(
                f"{count_noun(len(ids), 'logprob')}: too few for a basis of {self.rank:,} dimensions"
            )
        # The columns are independent, so QR works; it is ten times faster than the singular values of lstsq.
        factor, triangle = np.linalg.qr(self.matrix[ids].astype(np.float64))
        weights = np.linalg.solve(triangle, factor.T @ logprobs)
        return np.concatenate([block @ weights for block in _float64_blocks(self.matrix)])

    def save(self, path: Path) -> None:
        """Write the basis atomically as an ``.npz``. Raises ``RecoverError``."""
        arrays = {
            "matrix": self.matrix,
            "order": self.determining_tokens,
            "source": np.array(self.source),
            **pack_bytes(self.token_bytes),
        }
        write_npz(path, arrays, np.savez)

    @classmethod
    def load(cls, path: Path) -> Basis:
        """Read a basis that `save` wrote. Raises ``RecoverError``."""
        damage = "not a basis; create one with gen recover-basis"
        names = ("matrix", "order", "source", "bytes", "offsets")
        matrix, determining_tokens, source, all_bytes, byte_ends = read_npz(path, names, damage)
        data = all_bytes.tobytes()
        token_bytes = tuple(data[start:end] for start, end in pairwise(byte_ends.ravel().tolist()))
        is_valid = (
            matrix.ndim == 2
            and matrix.dtype == np.float32
            and bool(np.isfinite(matrix).all())
            and determining_tokens.ndim == 1
            and determining_tokens.dtype.kind == "i"
            and bool(((determining_tokens >= 0) & (determining_tokens < len(matrix))).all())
            and len(np.unique(determining_tokens)) == len(determining_tokens) >= matrix.shape[1]
            and byte_ends.dtype.kind == "i"
            and len(token_bytes) in (0, len(matrix))
        )
        if not is_valid:
            raise RecoverError(f"{path}: {damage}")
        return cls(matrix, determining_tokens, str(source), token_bytes)

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.float32], source: str, token_bytes: Sequence[bytes] = ()) -> Basis:
        """Return the basis of a model's output matrix. Raises ``RecoverError``.

        Args:
            matrix: the output matrix, float32 (V, d).
            source: the origin of the matrix, for messages.
            token_bytes: the bytes of each token by id; empty if unknown.
        """
        if matrix.ndim != 2 or not np.isfinite(matrix).all():
            raise RecoverError(f"{source}: the output matrix does not consist of finite numbers")
        return cls._of_columns(matrix, source, token_bytes)

    @classmethod
    def of_rows(cls, rows: Sequence[Float64s], source: str, token_bytes: Sequence[bytes] = ()) -> Basis:
        """Return the basis of complete rows of logprobs, for more prompts than the model has dimensions.

        The singular values show the number of dimensions: after the last dimension they drop to the size
        of rounding errors. Some rows are held out first, and a basis of the other rows must reproduce
        them. Raises ``RecoverError`` if it does not, because then there are too few rows.

        Args:
            rows: logprobs, float64 (V,) each.
            source: the origin of the rows, for messages.
            token_bytes: the bytes of each token by id; empty if unknown.
        """
        centered_rows = np.stack([row - row.mean() for row in rows])
        if not np.isfinite(centered_rows).all():
            raise RecoverError(f"{source}: logprobs are missing; all rows must be complete")
        held_out_count = min(max(_MIN_HELD_OUT_ROWS, len(rows) // 10), _MAX_HELD_OUT_ROWS)
        columns = _row_space(centered_rows[:-held_out_count])
        if columns is None or _max_residual_nats(centered_rows[-held_out_count:], columns) > _MAX_RESIDUAL_NATS:
            raise RecoverError(
                f"{source}: {len(rows):,} rows are too few to predict {held_out_count} held-out rows; give more "
                "rows than the model has dimensions"
            )
        all_columns = _row_space(centered_rows)
        return cls._of_columns(
            (columns if all_columns is None else all_columns).astype(np.float32), source, token_bytes
        )

    @classmethod
    def _of_columns(cls, columns: NDArray[np.float32], source: str, token_bytes: Sequence[bytes]) -> Basis:
        """Prepend a column of ones, and remove columns that depend on others."""
        matrix = np.column_stack([np.ones(len(columns), dtype=np.float32), columns])
        gram_matrix = np.zeros((matrix.shape[1],) * 2)
        for block in _float64_blocks(matrix):
            gram_matrix += block.T @ block
        eigenvalues, eigenvectors = np.linalg.eigh(gram_matrix)
        is_kept = eigenvalues > eigenvalues[-1] * _MIN_EIGENVALUE_RATIO
        whitening = eigenvectors[:, is_kept] / np.sqrt(eigenvalues[is_kept])
        if not is_kept.all():
            matrix = np.concatenate([(block @ whitening).astype(np.float32) for block in _float64_blocks(matrix)])
            whitening = np.eye(int(is_kept.sum()))
        return cls(matrix, _choose_determining_tokens(matrix, whitening), source, tuple(token_bytes))


_MIN_GAP_RATIO = 3.0  # the singular values after the last dimension are smaller by at least this factor
# Squaring halves the number of digits, so eigenvalues below this fraction of the largest are rounding errors
_MIN_SQUARED_RATIO = 1e-15


def _row_space(rows: Float64s) -> Float64s | None:
    """Return orthonormal columns, (V, r), that span the rows except for rounding errors."""
    # Return None if no gap in the singular values shows r.
    if len(rows) < 2:
        return None
    eigenvalues, eigenvectors = np.linalg.eigh(rows @ rows.T)
    singular_values = np.sqrt(np.maximum(eigenvalues[::-1], eigenvalues[-1] * _MIN_SQUARED_RATIO))
    if not singular_values[0]:
        return None
    rank = int(np.argmax(singular_values[:-1] / singular_values[1:])) + 1
    if singular_values[rank - 1] / singular_values[rank] < _MIN_GAP_RATIO:
        return None
    top_vectors = eigenvectors[:, ::-1][:, :rank] / singular_values[:rank]
    return np.asarray(rows.T @ top_vectors, dtype=np.float64)


def _max_residual_nats(rows: Float64s, columns: Float64s) -> float:
    """Return the largest element, in nats, of the part of the rows that the orthonormal columns do not span."""
    return float(np.abs(rows - (rows @ columns) @ columns.T).max())


_BLOCK_ROWS = 8192  # Rows that are converted to float64 together. A block of 577 columns has 38 MB.


def _float64_blocks(matrix: NDArray[np.float32]) -> Iterable[Float64s]:
    """Yield the matrix in float64, a block of rows at a time."""
    for start in range(0, len(matrix), _BLOCK_ROWS):
        yield matrix[start : start + _BLOCK_ROWS].astype(np.float64)


# Above this rank, tokens are drawn by leverage alone: choosing them one after the other would take hours
_MAX_PIVOTED_RANK = 1500
# tokens drawn by leverage for each dimension; the pivots are chosen among these tokens
_CANDIDATES_PER_DIMENSION = 4


def _choose_determining_tokens(matrix: NDArray[np.float32], whitening: Float64s) -> NDArray[np.int32]:
    """Return tokens whose rows, float32 (V, r), span the space well, for an overdetermined system, best first."""
    # Candidates are drawn with probabilities proportional to their leverages, the squared lengths of whitened
    # rows. The next token is always the candidate whose row is farthest from the span of the rows before it
    # (Gram-Schmidt with pivots). The remaining candidates follow. ``whitening``: float64 (r, r), makes the columns
    # orthonormal.
    vocab_size, rank = matrix.shape
    whitened_rows = matrix @ whitening.astype(np.float32)
    leverages = np.einsum("ij,ij->i", whitened_rows, whitened_rows, dtype=np.float64)
    generator = np.random.default_rng(0)
    drawn_count = min(vocab_size, _CANDIDATES_PER_DIMENSION * rank)
    drawn_tokens = generator.choice(vocab_size, drawn_count, replace=False, p=leverages / leverages.sum())
    pivots = [] if rank > _MAX_PIVOTED_RANK else _choose_pivot_rows(whitened_rows[drawn_tokens].astype(np.float64))
    return np.concatenate([drawn_tokens[pivots], np.delete(drawn_tokens, pivots)]).astype(np.int32)


def _choose_pivot_rows(rows: Float64s) -> list[int]:
    """Return indices of rows, each the farthest from the span of those before it."""
    # There are as many indices as the rows have columns.
    pivot_count = min(rows.shape)
    chosen_rows: list[int] = []
    span_directions = np.zeros((pivot_count, rows.shape[1]))
    squared_lengths = np.einsum("ij,ij->i", rows, rows)
    for pivot_number in range(pivot_count):
        row_index = int(squared_lengths.argmax())
        direction = (
            rows[row_index] - (span_directions[:pivot_number] @ rows[row_index]) @ span_directions[:pivot_number]
        )
        direction /= np.linalg.norm(direction)
        squared_lengths -= (rows @ direction) ** 2
        squared_lengths[row_index] = -np.inf
        span_directions[pivot_number] = direction
        chosen_rows.append(row_index)
    return chosen_rows


def output_matrix(path: Path) -> NDArray[np.float32]:
    """Return a GGUF file's output matrix, float32 (V, d).

    This is ``output.weight``, or the embedding if the model shares it. Needs the package gguf, which
    supports all quantization types. Raises ``RecoverError``.
    """
    try:
        from gguf import GGUFReader, dequantize  # noqa: PLC0415 - an optional package that only this function needs
    except ImportError:
        raise RecoverError(
            f"reading a GGUF's output matrix needs the extra basis: {install_command('basis')}",
            advice=("or create the basis from rows of logprobs, with ", Word.BASIS_FROM_ROWS),
        ) from None
    check_gguf(path)
    try:
        tensors = {tensor.name: tensor for tensor in GGUFReader(os.fspath(path)).tensors}
    except (ValueError, LookupError, ArithmeticError, TypeError) as error:  # such as a string that is not UTF-8
        raise RecoverError(f"{path}: the package gguf cannot read the file: {error}") from None
    tensor = tensors.get("output.weight") or tensors.get("token_embd.weight")
    if tensor is None:
        raise RecoverError(f"{path}: the file has neither output.weight nor token_embd.weight")
    try:
        return np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    except NotImplementedError:
        raise RecoverError(
            f"{path}: {tensor.name} has the type {tensor.tensor_type.name}, which the package gguf cannot read"
        ) from None


_EXTRA_ROWS = 64  # Rows beyond the number of dimensions. They show this number, and test the basis.


def basis_from_rows(
    model: Model, row_count: int | None = None, progress: Callable[[int, int], None] | None = None
) -> Basis:
    """Return a basis computed from the model's logit rows for texts of random tokens.

    Raises ``RecoverError``, ``ModelError``.

    Args:
        model: the model that computes the rows.
        row_count: number of rows; None: 64 more than the model has dimensions.
        progress: called with the number of computed rows and the number of all rows; None: not called.
    """
    vocabulary = model.vocabulary
    if row_count is None:
        row_count = _embedding_length(model) + _EXTRA_ROWS
    require_at_least(2, row_count=row_count)
    generator = np.random.default_rng(0)
    text_tokens = [
        token for token, data in enumerate(vocabulary.pieces) if data and not vocabulary.is_control(token)
    ]
    rows: list[Float64s] = []
    while len(rows) < row_count:
        drawn_tokens = generator.choice(text_tokens, min(model.context.length, row_count - len(rows))).tolist()
        for logits in model.context.read_each(drawn_tokens):
            rows.append(logits.astype(np.float64))
            if progress is not None:
                progress(len(rows), row_count)
    return Basis.of_rows(rows, f"{row_count} rows of {model.name}", vocabulary.pieces)


def _embedding_length(model: Model) -> int:
    name = f"{model.metadata.get('general.architecture', '')}.embedding_length"
    try:
        return int(model.metadata[name])
    except (KeyError, ValueError):
        raise RecoverError(f"{model.path}: the file does not contain {name}; give the number of rows") from None
