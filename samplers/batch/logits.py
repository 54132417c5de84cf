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

    # The array API standard has no partition and no scatter, and does not define the order of a sum. So only
    # `maxima`, the single pass over all logits, runs on the device. Everything that decides about tokens is
    # computed in NumPy from the few logits that `logits_at` copies, so that the result is the same on each device.
    # Entire rows are copied only if they have no small top_k, and only a few rows at a time.

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
        # A float64 beyond float32 becomes +inf, which is rejected later with the number of the row.
        with np.errstate(over="ignore"):
            self._logits = xp.astype(logits, xp.float32, copy=False)
        self._to_tensor = to_tensor
        self.height = int(logits.shape[0])  # number of rows, B
        self.width = int(logits.shape[1])  # size of the vocabulary, V

    @cached_property
    def maxima(self) -> Floats:
        """The highest logit of each block, float32 (B, BLOCK_COUNT)."""
        # Block j has the tokens j, j + BLOCK_COUNT, …
        depth = self.width // BLOCK_COUNT  # number of tokens in each block; the first blocks may have one more
        blocked_width = depth * BLOCK_COUNT
        with np.errstate(invalid="ignore"):
            blocks = self._xp.reshape(self._logits[:, :blocked_width], (self.height, depth, BLOCK_COUNT))
            highest = _to_numpy(self._xp.max(blocks, axis=1))
            if blocked_width < self.width:
                highest = np.array(highest)  # an array from another library may be read-only
                last_logits = _to_numpy(self._logits[:, blocked_width:])
                first_blocks = highest[:, : last_logits.shape[1]]
                np.maximum(first_blocks, last_logits, out=first_blocks)
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
        are_consecutive = rows.size and rows.size == rows[-1] - rows[0] + 1
        if are_consecutive:  # a slice is not copied
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
        else:  # the standard does not define which position argmax returns for a row with NaN
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
    if not wrong_rows.size:
        return
    value = highest[wrong_rows[0]]
    if np.isnan(value):
        problem = "there is a NaN"
    elif value > 0:
        problem = "there is a +inf"
    else:
        problem = "every entry is -inf"
    raise SamplingError(f"logits: row {rows[wrong_rows[0]]}: {problem}")


def _to_numpy(tensor: Any) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    try:
        return np.from_dlpack(tensor)
    except (AttributeError, BufferError, RuntimeError, TypeError):  # the tensor is on another device
        return np.asarray(to_device(tensor, "cpu"))
