"""The logits of a batch as a table, with the highest logit of each block of tokens."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray

from ..errors import SamplingError
from ..kernels import Floats, describe
from .arguments import Ints, ToTensor

# Number of blocks into which a vocabulary is cut to find its highest logits; a power of two. More blocks give a
# closer bound, but take more time to search.
BLOCK_COUNT = 4096


class LogitTable:
    """A batch of logits, (B, V), that stays on its device. Few of its logits are copied into NumPy arrays."""

    # The array API standard has neither a partition nor a scatter, and does not define the order of a sum. So only
    # `maxima`, the single pass over all logits, runs on the device. Everything that decides about tokens is
    # computed in NumPy, bit for bit, from the few logits that `logits_at` copies. Entire rows are copied, a few at
    # a time, only for rows without a small top_k.

    def __init__(self, logits: Any, to_tensor: ToTensor | None) -> None:
        # A masked entry counts as -inf. Raises ``SamplingError`` for an object that is not a tensor of real floats
        # (B, V).
        try:
            self._xp = xp = array_namespace(logits)
        except TypeError:
            raise SamplingError(f"logits: expected a tensor of shape (B, V), got {describe(logits)}") from None
        if len(logits.shape) != 2 or not logits.shape[1] or not xp.isdtype(logits.dtype, "real floating"):
            raise SamplingError(f"logits: expected floats of shape (B, V), got {logits.dtype} of {logits.shape}")
        if isinstance(logits, np.ma.MaskedArray):
            logits = logits.filled(-np.inf)
        with np.errstate(
            over="ignore"
        ):  # a float64 beyond float32 becomes +inf, which is rejected later with the number of the row
            self._logits = xp.astype(logits, xp.float32, copy=False)
        self._to_tensor = to_tensor
        self.height = int(logits.shape[0])  # number of rows, B
        self.width = int(logits.shape[1])  # size of the vocabulary, V

    @cached_property
    def maxima(self) -> Floats:
        """The highest logit of each block, float32 (B, BLOCK_COUNT)."""
        # Block j has the tokens j, j + BLOCK_COUNT, …
        blocked_width = self.width // BLOCK_COUNT * BLOCK_COUNT
        shape = (self.height, blocked_width // BLOCK_COUNT, BLOCK_COUNT)
        with np.errstate(invalid="ignore"):
            highest = _to_numpy(self._xp.max(self._xp.reshape(self._logits[:, :blocked_width], shape), axis=1))
            if blocked_width < self.width:
                highest = np.array(highest)  # an array from another library may be read-only
                first_blocks = highest[:, : self.width - blocked_width]
                np.maximum(first_blocks, _to_numpy(self._logits[:, blocked_width:]), out=first_blocks)
        check_finite(highest.max(axis=1), np.arange(self.height))
        return highest

    @cached_property
    def _flat(self) -> Any:
        return self._xp.reshape(self._logits, (-1,))

    def logits_at(self, cells: Ints) -> Floats:
        """Return the logits at positions of the flattened table, in the shape of ``cells``."""
        logits = self._xp.take(self._flat, self._index(cells.reshape(-1)), axis=0)
        return _to_numpy(logits).reshape(cells.shape)

    def rows_at(self, rows: Ints) -> tuple[Floats, Floats]:
        """Return some ascending rows, read-only float32 (R, V), and the highest logit of each, (R,)."""
        if rows.size and rows.size == rows[-1] - rows[0] + 1:  # consecutive rows are not copied
            logits = _to_numpy(self._logits[int(rows[0]) : int(rows[-1]) + 1, :])
        else:
            logits = _to_numpy(self._xp.take(self._logits, self._index(rows), axis=0))
        highest = logits.max(axis=1)
        check_finite(highest, rows)
        return logits, highest

    def top_tokens(self) -> tuple[Ints, Floats]:
        """Return the token with the highest logit of each row (of equal logits the first), and that logit."""
        tokens = _to_numpy(self._xp.argmax(self._logits, axis=1)).astype(np.int64)
        if isinstance(self._logits, np.ndarray):
            highest = self.logits_at(np.arange(self.height) * self.width + tokens)
        else:  # the standard does not define argmax of a row with NaN, so the maximum is computed, too
            highest = _to_numpy(self._xp.max(self._logits, axis=1))
        check_finite(highest, np.arange(self.height))
        return tokens, highest

    def _index(self, positions: Ints) -> Any:
        if isinstance(self._logits, np.ndarray):
            return positions
        if self._to_tensor is None:
            return self._xp.asarray(positions, device=device(self._logits))
        try:
            tensor = self._to_tensor(positions)
            array_namespace(tensor, self._logits)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise SamplingError(f"to_tensor: made no tensor of the logits' library: {reason}") from error
        return tensor


def check_finite(highest: Floats, rows: Ints) -> None:
    """Raise ``SamplingError`` if the highest logit of a row, (R,), is not finite."""
    wrong_rows = (~np.isfinite(highest)).nonzero()[0]
    if wrong_rows.size:
        value = highest[wrong_rows[0]]
        problem = (
            "there is a NaN" if np.isnan(value) else "there is a +inf" if value > 0 else "every entry is -inf"
        )
        raise SamplingError(f"logits: row {rows[wrong_rows[0]]}: {problem}")


def _to_numpy(tensor: Any) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    try:
        return np.from_dlpack(tensor)
    except (AttributeError, BufferError, RuntimeError, TypeError):  # the tensor is on another device
        return np.asarray(to_device(tensor, "cpu"))
