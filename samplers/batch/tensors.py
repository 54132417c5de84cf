"""Tensors of any library that the Python array API standard covers, as the batch sampler reads them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray

from ..arrays import describe
from ..errors import SamplingError
from .data import Floats, Ints, ToTensor

BLOCKS = 4096
"""Blocks into which a vocabulary is cut to find its highest logits; a power of two."""


class Table:
    """A batch of logits, (B, V), that stays where it lies: what is read of it is small, and comes as NumPy.

    The standard knows neither a partition nor a scatter, and leaves the order of a sum open. So the one pass over
    everything, `maxima`, runs where the tensor lies; what decides, bit for bit, is done in NumPy on the few
    numbers that `take` fetches. Only without a short top_k whole rows are fetched, a few at a time.

    Parameters: ``logits``, real floats (B, V); other than float32 is converted. ``to_tensor`` makes the tensors
    that it is indexed with; None: the standard's `asarray`.
    Raises ``SamplingError`` on what is no tensor, a wrong shape or dtype, and where `to_tensor` fails.
    """

    def __init__(self, logits: Any, to_tensor: ToTensor | None) -> None:
        try:
            self._xp = xp = array_namespace(logits)
        except TypeError:
            raise SamplingError(f"logits: expected a tensor of shape (B, V), got {describe(logits)}") from None
        if len(logits.shape) != 2 or not logits.shape[1] or not xp.isdtype(logits.dtype, "real floating"):
            raise SamplingError(f"logits: expected floats of shape (B, V), got {logits.dtype} of {logits.shape}")
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes +inf, which is refused with its row
            self._logits = xp.astype(logits, xp.float32, copy=False)
        self._to_tensor = to_tensor
        self.height, self.width = int(logits.shape[0]), int(logits.shape[1])

    @cached_property
    def maxima(self) -> Floats:
        """The highest logit of each block, float32 (B, BLOCKS); block j is the tokens j, j + BLOCKS, …"""
        whole = self.width // BLOCKS * BLOCKS
        shape = (self.height, whole // BLOCKS, BLOCKS)
        with np.errstate(invalid="ignore"):
            highest = _to_numpy(self._xp.max(self._xp.reshape(self._logits[:, :whole], shape), axis=1))
            if whole < self.width:
                highest = np.array(highest)  # another library's need not be writable
                rest = highest[:, : self.width - whole]
                np.maximum(rest, _to_numpy(self._logits[:, whole:]), out=rest)
        check(highest.max(axis=1), np.arange(self.height))
        return highest

    @cached_property
    def _flat(self) -> Any:
        return self._xp.reshape(self._logits, (-1,))

    def take(self, places: Ints) -> Floats:
        """The logits at these places of the flattened table, in the shape of ``places``."""
        found = self._xp.take(self._flat, self._index(places.reshape(-1)), axis=0)
        return _to_numpy(found).reshape(places.shape)

    def whole(self, rows: Ints) -> tuple[Floats, Floats]:
        """Some rows, ascending: float32 (R, V), to be read; and the highest logit of each, (R,)."""
        if rows.size and rows.size == rows[-1] - rows[0] + 1:  # rows that lie together are not copied
            found = _to_numpy(self._logits[int(rows[0]) : int(rows[-1]) + 1, :])
        else:
            found = _to_numpy(self._xp.take(self._logits, self._index(rows), axis=0))
        highest = found.max(axis=1)
        check(highest, rows)
        return found, highest

    def best(self) -> tuple[Ints, Floats]:
        """The token with the highest logit of each row, the first of equal ones, and that logit."""
        tokens = _to_numpy(self._xp.argmax(self._logits, axis=1)).astype(np.int64)
        if isinstance(self._logits, np.ndarray):
            highest = self.take(np.arange(self.height) * self.width + tokens)
        else:  # NumPy finds a NaN to be the highest, the standard does not say
            highest = _to_numpy(self._xp.max(self._logits, axis=1))
        check(highest, np.arange(self.height))
        return tokens, highest

    def _index(self, places: Ints) -> Any:
        if isinstance(self._logits, np.ndarray):
            return places
        if self._to_tensor is None:
            return self._xp.asarray(places, device=device(self._logits))
        try:
            made = self._to_tensor(places)
            array_namespace(made, self._logits)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise SamplingError(f"to_tensor: made no tensor of the logits' kind: {why}") from error
        return made


def check(highest: Floats, rows: Ints) -> None:
    """Raise ``SamplingError`` with the row if the highest logit of one, as it came, is not finite."""
    wrong = (~np.isfinite(highest)).nonzero()[0]
    if wrong.size:
        value = highest[wrong[0]]
        what = "there is a NaN" if np.isnan(value) else "there is a +inf" if value > 0 else "every entry is -inf"
        raise SamplingError(f"logits: row {rows[wrong[0]]}: {what}")


def _to_numpy(tensor: Any) -> NDArray[Any]:
    if isinstance(tensor, np.ndarray):
        return tensor
    try:
        return np.from_dlpack(tensor)
    except (AttributeError, BufferError, RuntimeError, TypeError):  # it lies on another device
        return np.asarray(to_device(tensor, "cpu"))
