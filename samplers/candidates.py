"""The tokens still in play: arrays that shrink as the chain works on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ids, Positions, describe, held_finite
from .errors import SamplingError
from .ranking import descending, highest_rows
from .sums import LONG, first_reaching, in_order, surely_reaching

_FLOAT32 = np.dtype(np.float32)
# Up to so many rows are dropped by copying what stands between them.
_FEW = 16
# A draw from a long row is first tried with NumPy's float32 exp, which is wrong by 4 units of the last place or
# less: nearly always that settles it, in half the time.
_EXP_ERROR = 2.0**-21


# Calls here go to ufuncs and methods, past NumPy's Python wrappers: between two tokens llama.cpp empties the
# processor's caches, so that every layer that is not run is some microseconds saved.


@lru_cache(maxsize=8)
def _every_id(size: int) -> Ids:
    ids: Ids = np.arange(size, dtype=np.int32)
    ids.flags.writeable = False
    return ids


class Candidates:
    """A set of tokens with their logits, as a struct of arrays; it starts as the whole vocabulary.

    Sorting and masking tricks are here, and in the kernels of `ranking` and `sums`, only. Rows are only dropped,
    never set to -inf. The array that came in is never written to.

    Parameters: ``logits``, float32 (V,), in nats up to a constant; ``ids``, int32 (V,), default 0..V-1;
    ``vocabulary``, the number of ids there are, default V. ``allowed`` is the grammar's mask, if there was one.
    Raises ``SamplingError`` on a wrong shape or dtype, an empty row, NaN, +inf, or a row of -inf only.
    """

    __slots__ = ("_exp", "_ids", "_logits", "_max", "allowed", "ordered", "vocabulary")

    def __init__(self, logits: Floats, ids: Ids | None = None, vocabulary: int | None = None) -> None:
        if not isinstance(logits, np.ndarray) or logits.dtype != _FLOAT32 or logits.ndim != 1:
            raise SamplingError(f"logits: expected float32 of shape (V,), got {describe(logits)}")
        if logits.size == 0:
            raise SamplingError("logits: the row is empty")
        self._ids = ids
        self._logits = logits
        self.vocabulary = logits.size if vocabulary is None else vocabulary
        self.ordered = False
        self.allowed: NDArray[np.bool_] | None = None
        self._max: np.float32 | None = None
        self._exp: Floats | None = None
        if not isfinite(self.max):
            raise SamplingError(f"logits: {_complaint(self.max)}")

    def __len__(self) -> int:
        return self._logits.size

    @property
    def whole(self) -> bool:
        """True while row i is token i, that is, before anything was dropped or moved."""
        return self._ids is None

    @property
    def ids(self) -> Ids:
        """Token ids, int32 (n,), in the current order."""
        return _every_id(len(self)) if self._ids is None else self._ids

    @property
    def logits(self) -> Floats:
        """Logits, float32 (n,), in the current order. Read only: change them through `replace`."""
        return self._logits

    @property
    def max(self) -> np.float32:
        """The highest logit."""
        if self._max is None:
            highest: np.float32 = self._logits[0] if self.ordered else np.maximum.reduce(self._logits)
            self._max = highest
        return self._max

    def weights(self) -> Floats:
        """exp(logit - max), float32 (n,), each correctly rounded; a libm's expf is so but for 1 in 2,000 or so."""
        if self._exp is None:
            self._exp = np.exp(self._logits - self.max, dtype=np.float64).astype(np.float32)
        return self._exp

    def probs(self) -> Floats:
        """Softmax, float32 (n,), in the current order; summed in float64, so that they sum to 1."""
        with np.errstate(over="ignore"):  # two finite logits may lie further apart than float32 reaches
            weights = self.weights()
        return weights / np.float32(np.add.reduce(weights, dtype=np.float64))

    def rough_probs(self) -> Floats:
        """Softmax as llama.cpp's truncating steps have it: summed in float32 from the first row to the last.

        A threshold on cumulative probability must fall on the same row as llama.cpp's, rounding and all; on a
        long row these do not sum to 1.
        """
        weights = self.weights()
        return weights / np.float32(in_order(weights))

    def replace(self, logits: Floats, *, monotone: bool = False, highest: np.float32 | None = None) -> None:
        """Put new logits, float32 (n,), in place of the old.

        ``monotone`` says that the order still holds; ``highest`` is the highest of them, where it is known.
        """
        self._logits = logits
        self.ordered = self.ordered and monotone
        self._forget()
        self._max = highest

    def change(self, positions: Positions, logits: Floats) -> None:
        """Put new logits, float32 (m,), at ``positions``; what overflowed is held finite, -inf stays -inf."""
        old = self._logits[positions]
        row = self._logits.copy()
        row[positions] = held_finite(logits, old)
        self.replace(row)

    def take(self, positions: Positions, *, ordered: bool = False) -> None:
        """Keep the rows at ``positions``, in that order; ``ordered`` says that this is from high to low."""
        self._ids = positions.astype(np.int32) if self._ids is None else self._ids[positions]
        self._logits = self._logits[positions]
        self.ordered = ordered
        self._forget()

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep the rows where ``mask``, bool (n,), is true, in their order; ``ValueError`` for another shape."""
        if mask.shape != self._logits.shape:
            raise ValueError(f"a mask of shape {mask.shape} for {self._logits.size} rows")
        dropped = mask.size - int(np.count_nonzero(mask))
        if dropped > _FEW:
            self.take(mask.nonzero()[0], ordered=self.ordered)
        elif dropped:
            self._drop((~mask).nonzero()[0])

    def _drop(self, positions: Positions) -> None:
        """Drop the rows at these few positions, which are in order."""
        ends = [*positions.tolist(), self._logits.size]
        between = [slice(start, end) for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)]
        self._ids = np.concatenate([self.ids[rows] for rows in between])
        self._logits = np.concatenate([self._logits[rows] for rows in between])
        self._forget()

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` rows, in their order."""
        if count < self._logits.size:
            weights = self._exp[:count] if self._exp is not None and self.ordered else None
            self._ids = self.ids[:count]
            self._logits = self._logits[:count]
            self._forget()
            self._exp = weights  # ordered: the highest row is still there, so these still hold

    def drop_first(self, count: int) -> None:
        """Drop the first ``count`` rows."""
        self._ids = self.ids[count:]
        self._logits = self._logits[count:]
        self._forget()

    def only(self, token: int, logit: float) -> None:
        """Leave one row, which may be one that was dropped before."""
        self._ids = np.array([token], dtype=np.int32)
        self._logits = np.array([logit], dtype=np.float32)
        self.ordered = True
        self._forget()

    def order(self) -> None:
        """Sort from high to low; equal logits keep their order."""
        if not self.ordered:
            self.take(descending(self._logits), ordered=True)

    def leading(self, count: int) -> Positions:
        """Positions of the ``count`` highest rows, high to low, ties in order, without a full sort."""
        count = min(count, self._logits.size)
        if count < 1:
            return np.arange(0)
        return np.arange(count) if self.ordered else highest_rows(self._logits, count)

    def top(self, count: int) -> None:
        """Keep the ``count`` highest rows, from high to low, at least one; of equal logits the earlier ones."""
        count = max(count, 1)
        if self.ordered:
            self.truncate(count)
        else:
            self.take(self.leading(count), ordered=True)

    def best(self) -> int:
        """Position of the first of the highest rows."""
        return 0 if self.ordered else int(self._logits.argmax())

    def where(self, table: NDArray[np.generic]) -> Positions:
        """Positions of the rows whose token has a nonzero entry in ``table``, (vocabulary,)."""
        entries = table if self._ids is None else table[self._ids]
        return (entries != 0).nonzero()[0]  # a row of booleans is searched much faster than one of numbers

    def tokens(self, positions: Positions) -> NDArray[np.integer]:
        """Token ids of the rows at ``positions``."""
        return positions if self._ids is None else self._ids[positions]

    def find(self, tokens: Positions) -> tuple[Positions, Positions]:
        """Positions of the rows of these tokens, no two alike, and which of the tokens each row has."""
        if self._ids is None:
            return tokens, np.arange(tokens.size)
        table = np.zeros(self.vocabulary, dtype=np.int32)
        table[tokens] = np.arange(1, tokens.size + 1)
        entries = table[self._ids]
        positions = (entries != 0).nonzero()[0]
        return positions, entries[positions] - 1

    def among(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which rows are one of these tokens, ids of the vocabulary: bool (n,)."""
        table = np.zeros(self.vocabulary, dtype=np.bool_)
        table[np.asarray(tokens, dtype=np.intp)] = True
        return table if self._ids is None else table[self._ids]

    def pick(self, u: float) -> int:
        """Token id at the place ``u``, in [0, 1), of the cumulative distribution in the current order.

        The first row whose running sum of weights, in float64, reaches u times their total: llama.cpp's rule.
        """
        position = None
        if self._exp is None and self._logits.size > LONG:
            rough = np.exp(self._logits - self.max)
            position = surely_reaching(rough, u, _EXP_ERROR)
        if position is None:
            position = first_reaching(self.weights(), u)
        return position if self._ids is None else int(self._ids[position])

    def _forget(self) -> None:
        self._max = None
        self._exp = None


def _complaint(highest: np.float32) -> str:
    if np.isnan(highest):
        return "there is a NaN in the row"
    return "there is a +inf in the row" if highest > 0 else "every entry of the row is -inf"
