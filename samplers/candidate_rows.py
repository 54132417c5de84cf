"""The arrays of the tokens still in play, and how rows leave them."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .array_types import (
    Floats,
    Ids,
    LeadingRows,
    Positions,
    clamp_to_finite,
    describe,
    describe_not_finite,
    every_id,
)
from .errors import SamplingError
from .masked_rows import NO_IDS, MaskedRows
from .sort_kernels import column_maxima, highest_of

_FLOAT32 = np.dtype(np.float32)
_SHORT_ROW = 1 << 11
"""In a row of fewer logits, no maxima of columns are computed."""
_FEW_DROPPED = 16
"""Up to this many rows are dropped by copying the slices between them; for more, indexing is faster."""

# Calls here and in `candidates` go to ufuncs and methods, not to NumPy's Python wrappers: between two tokens
# llama.cpp empties the processor's caches, so each wrapper would cost some microseconds.


class CandidateRows:
    """The ids and logits of `Candidates`: arrays of one length, which shrink.

    What was computed from them is kept beside them, so that `_forget` clears it all when they change.
    """

    __slots__ = (
        "_exp",
        "_ids",
        "_logits",
        "_masked",
        "_max",
        "_maxima",
        "_pending",
        "_sums",
        "_total",
        "allowed",
        "is_ordered",
        "leading",
        "masked_count",
        "vocabulary",
    )

    def __init__(
        self,
        logits: Floats,
        ids: Ids | None = None,
        vocabulary: int | None = None,
        *,
        expects_top: bool = False,
    ) -> None:
        """Start with all tokens, or with some.

        Args:
            logits: float32 (V,), in nats up to a constant; a masked entry counts as -inf.
            ids: int32 (V,); None: 0..V-1.
            vocabulary: the number of ids there are; None: V.
            expects_top: `top` or `top_positions` will be called, and takes less time if this is known now.
        """
        if not isinstance(logits, np.ndarray) or logits.dtype != _FLOAT32 or logits.ndim != 1:
            raise SamplingError(f"logits: expected float32 of shape (V,), got {describe(logits)}")
        if logits.size == 0:
            raise SamplingError("logits: the row is empty")
        # The first comparison keeps numpy.ma, which takes 8 ms to import, out of other runs.
        if type(logits) is not np.ndarray and isinstance(logits, np.ma.MaskedArray):
            logits = logits.filled(-np.inf)
        self._ids: NDArray[np.integer] | None = ids
        self._logits = logits
        self.vocabulary = logits.size if vocabulary is None else vocabulary
        self.is_ordered = False
        self.allowed: NDArray[np.bool_] | None = None
        self.masked_count = 0
        self._masked: MaskedRows | None = None
        self._exp: Floats | None = None
        self._sums: list[float] | None = None
        self._total: np.float32 | None = None
        self._maxima: Floats | None = None
        self._pending: tuple[Floats, Positions] | None = None
        self.leading: LeadingRows | None = None
        if expects_top and logits.size >= _SHORT_ROW:
            self._maxima = column_maxima(logits)
            highest = highest_of(logits, self._maxima)
        else:
            highest = np.maximum.reduce(logits)
        self._max: np.float32 | None = highest
        if not isfinite(highest):
            raise SamplingError(f"logits: {describe_not_finite(highest)}")

    def __len__(self) -> int:
        return self._logits.size

    @property
    def llama_cpp_count(self) -> int:
        """How many rows llama.cpp would hold at this step of the chain: these, and the masked ones."""
        return self._logits.size + self.masked_count

    @property
    def is_whole(self) -> bool:
        """True while row i is token i: nothing was dropped or moved yet."""
        return self._ids is None

    @property
    def ids(self) -> Ids:
        """Token ids, int32 (n,), in the current order."""
        if self._ids is None:
            return every_id(len(self))
        ids: Ids = self._ids.astype(np.int32, copy=False)  # positions of the whole row are wider
        self._ids = ids
        return ids

    @property
    def logits(self) -> Floats:
        """Logits, float32 (n,), in the current order. Read-only: change them through `replace`."""
        return self._logits

    @property
    def max(self) -> np.float32:
        """The highest logit."""
        if self._max is None:
            highest: np.float32 = self._logits[0] if self.is_ordered else np.maximum.reduce(self._logits)
            self._max = highest
        return self._max

    def replace(self, logits: Floats, *, monotone: bool = False, highest: np.float32 | None = None) -> None:
        """Put new logits, float32 (n,), in place of the old.

        ``monotone``: True if the order of the rows still holds. ``highest``: the highest new logit, if known.
        """
        self._ids, self._logits = self._ids, logits  # the first look drops what is pending
        self.is_ordered = self.is_ordered and monotone
        self._forget()
        self._max = highest

    def change(self, positions: Positions, logits: Floats) -> None:
        """Put new logits, float32 (m,), at ``positions``. An overflow is clamped to float32; -inf stays -inf."""
        old = self._logits[positions]
        row = self._logits.copy()
        row[positions] = clamp_to_finite(logits, old)
        self.replace(row)

    def take(self, positions: Positions, *, is_ordered: bool = False) -> None:
        """Keep the rows at ``positions``, in that order; ``is_ordered``: True if it goes from high to low."""
        self._ids = positions if self._ids is None else self._ids[positions]
        self._logits = self._logits[positions]
        self.is_ordered = is_ordered
        self._forget()

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep the rows where ``mask``, bool (n,), is true, in their order; ``ValueError`` for another shape."""
        if mask.shape != self._logits.shape:
            raise ValueError(f"a mask of shape {mask.shape} for {self._logits.size} rows")
        dropped = mask.size - int(np.count_nonzero(mask))
        if dropped > _FEW_DROPPED:
            self.take(mask.nonzero()[0], is_ordered=self.is_ordered)
        elif dropped:
            self.drop((~mask).nonzero()[0])

    def drop(self, positions: Positions) -> None:
        """Drop the rows at these few positions, which ascend; others must remain."""
        if not positions.size:
            return
        if self._ids is None and np.maximum.reduce(self._logits[positions]) < self.max:
            # To copy the others would take longer than all else that a usual chain does. See `__getattr__`.
            self._pending = self._logits, positions
            del self._logits, self._ids
            self._exp = self._sums = self._total = None
        else:
            self._drop_now(positions)

    def __getattr__(self, name: str) -> Any:
        """Drop the pending rows once somebody looks at the arrays, which are unset as long as rows are pending."""
        if name not in ("_logits", "_ids") or self._pending is None:
            raise AttributeError(name)
        (self._logits, positions), highest = self._pending, self._max
        self._ids, self._pending = None, None
        self._drop_now(positions)
        self._max = highest
        return getattr(self, name)

    def _drop_now(self, positions: Positions) -> None:
        ends = [*positions.tolist(), self._logits.size]
        kept = [slice(start, end) for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)]
        self._ids = np.concatenate([self.ids[rows] for rows in kept])
        self._logits = np.concatenate([self._logits[rows] for rows in kept])
        self._forget()

    def mask_except(self, kept: NDArray[np.bool_]) -> None:
        """As `keep`, but the other rows are masked: llama.cpp sets them to -inf instead of dropping them."""
        ids, count = self._ids, self._logits.size
        self.keep(kept)
        self._add_masked(ids, count)

    def mask_except_best(self) -> None:
        """Keep the highest row, of equal ones the first; the others are masked as by `mask_except`."""
        ids, count = self._ids, self._logits.size
        self.take(np.array([self.best()]), is_ordered=True)
        self._add_masked(ids, count)

    def _add_masked(self, before: NDArray[np.integer] | None, count: int) -> None:
        """Count the rows that are missing now as masked; there were ``count`` with the ids ``before``."""
        masked = count - self._logits.size
        if masked:
            earlier = self._masked if self.masked_count else None
            self._masked = MaskedRows(before, self.ids, earlier, self.masked_count)
            self.masked_count += masked

    def masked_ids(self) -> NDArray[np.intp]:
        """The ids of the masked rows, ascending."""
        if self._masked is None:
            return np.arange(0)
        return self._masked.ids(self.masked_count, self.vocabulary)

    def set_masked(self, ids: Ids) -> None:
        """Let these be the masked rows."""
        self._masked = MaskedRows(ids, NO_IDS)
        self.masked_count = ids.size

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` rows, in their order; masked rows come last."""
        if count < self._logits.size:
            self._ids = self.ids[:count] if self._ids is None else self._ids[:count]
            self._logits = self._logits[:count]
            if self.is_ordered:  # the highest logit stays, so the weights still hold
                if self._exp is not None:
                    self._exp = self._exp[:count]
                if self._sums is not None:
                    self._sums = self._sums[:count]
                self._total = None
            else:
                self._forget()
            self.masked_count = 0
        elif self.masked_count:
            self.masked_count = min(self.masked_count, count - self._logits.size)

    def drop_first(self, count: int) -> None:
        """Drop the first ``count`` rows."""
        self._ids = self.ids[count:]
        self._logits = self._logits[count:]
        self._forget()

    def only(self, token: int, logit: float) -> None:
        """Replace all rows by this one. The token may have been dropped before."""
        self._ids = np.array([token], dtype=np.int32)
        self._logits = np.array([logit], dtype=np.float32)
        self.is_ordered = True
        self.masked_count = 0
        self._forget()

    def best(self) -> int:
        """Position of the highest row; of equal ones the first."""
        return 0 if self.is_ordered else int(self._logits.argmax())

    def _forget(self) -> None:
        """Clear what was computed from the old logits."""
        self._max = None
        self._exp = None
        self._sums = None
        self._total = None
        self._maxima = None
