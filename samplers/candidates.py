"""The tokens that are still in play: arrays of ids and logits, which shrink from step to step of a chain.

`CandidateRows` are the arrays and the ways in which rows leave them, `Candidates` adds order and probabilities.
For a few rows a share of the mass is found in Python's own floats, because a NumPy call would cost more than its
arithmetic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp, isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..common.renamed import supports_old_names, warn_of_old_name
from .errors import SamplingError
from .kernels import (
    LONG_ROW,
    Floats,
    Ids,
    Positions,
    TopRows,
    all_ids,
    certain_position_of_share,
    clamp_to_finite,
    column_maxima,
    descending,
    describe,
    describe_not_finite,
    exact_weights,
    highest_of,
    highest_rows,
    highest_with_values,
    offsets_affecting_sum,
    position_of_share,
    sequential_sum,
)

# Calls here go to ufuncs and methods, not to NumPy's Python wrappers: between two tokens llama.cpp empties the
# processor's caches, so each wrapper would cost some microseconds.

_FLOAT32 = np.dtype(np.float32)
_SHORT_ROW = 1 << 11
"""In a row of fewer logits, no maxima of columns are computed."""
_FEW_DROPPED = 16
"""Up to this many rows are dropped by copying the slices between them; for more, indexing is faster."""


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
        "_pending_drops",
        "_sums",
        "_total",
        "grammar_mask",
        "is_ordered",
        "masked_count",
        "top_rows",
        "vocab_size",
    )

    def __init__(
        self,
        logits: Floats,
        ids: Ids | None = None,
        vocab_size: int | None = None,
        *,
        expects_top: bool = False,
        vocabulary: int | None = None,
    ) -> None:
        """Start with all tokens, or with some.

        Args:
            logits: float32 (V,), in nats up to a constant; a masked entry counts as -inf.
            ids: int32 (V,); None: 0..V-1.
            vocab_size: number of token ids that exist; None: V.
            expects_top: whether `keep_top_rows` or `top_positions` will be called, which then takes less time.
            vocabulary: the old name of ``vocab_size``.
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
        if vocabulary is not None:
            warn_of_old_name("Candidates", "vocabulary", "vocab_size")
            vocab_size = vocabulary
        self.vocab_size = logits.size if vocab_size is None else vocab_size
        self.is_ordered = False
        self.grammar_mask: NDArray[np.bool_] | None = None
        self.masked_count = 0
        self._masked: _MaskedRows | None = None
        self._exp: Floats | None = None
        self._sums: list[float] | None = None
        self._total: np.float32 | None = None
        self._maxima: Floats | None = None
        self._pending_drops: tuple[Floats, Positions] | None = None
        self.top_rows: TopRows | None = None
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
    def is_full_vocabulary(self) -> bool:
        """True while row i is token i: nothing was dropped or moved yet."""
        return self._ids is None

    @property
    def ids(self) -> Ids:
        """Token ids, int32 (n,), in the current order."""
        if self._ids is None:
            return all_ids(len(self))
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

    def set_logits(self, logits: Floats, *, monotone: bool = False, highest: np.float32 | None = None) -> None:
        """Put new logits, float32 (n,), in place of the old.

        ``monotone``: True if the order of the rows still holds. ``highest``: the highest new logit, if known.
        """
        self._ids, self._logits = self._ids, logits  # the first look drops what is pending
        self.is_ordered = self.is_ordered and monotone
        self._forget()
        self._max = highest

    def set_logits_at(self, positions: Positions, logits: Floats) -> None:
        """Put new logits, float32 (m,), at ``positions``. An overflow is clamped to float32; -inf stays -inf."""
        old = self._logits[positions]
        row = self._logits.copy()
        row[positions] = clamp_to_finite(logits, old)
        self.set_logits(row)

    def select_rows(self, positions: Positions, *, is_ordered: bool = False) -> None:
        """Keep the rows at ``positions``, in that order; ``is_ordered``: True if it goes from high to low."""
        self._ids = positions if self._ids is None else self._ids[positions]
        self._logits = self._logits[positions]
        self.is_ordered = is_ordered
        self._forget()

    def filter_rows(self, mask: NDArray[np.bool_]) -> None:
        """Keep the rows where ``mask``, bool (n,), is true, in their order; ``ValueError`` for another shape."""
        if mask.shape != self._logits.shape:
            raise ValueError(f"a mask of shape {mask.shape} for {self._logits.size} rows")
        dropped = mask.size - int(np.count_nonzero(mask))
        if dropped > _FEW_DROPPED:
            self.select_rows(mask.nonzero()[0], is_ordered=self.is_ordered)
        elif dropped:
            self.drop((~mask).nonzero()[0])

    def drop(self, positions: Positions) -> None:
        """Drop the rows at these few positions, which ascend; others must remain."""
        if not positions.size:
            return
        if self._ids is None and np.maximum.reduce(self._logits[positions]) < self.max:
            # To copy the others would take longer than all else that a usual chain does. See `__getattr__`.
            self._pending_drops = self._logits, positions
            del self._logits, self._ids
            self._exp = self._sums = self._total = None
        else:
            self._drop_now(positions)

    def __getattr__(self, name: str) -> Any:
        """Drop the pending rows once somebody looks at the arrays, which are unset as long as rows are pending."""
        if name not in ("_logits", "_ids") or self._pending_drops is None:
            raise AttributeError(name)
        (self._logits, positions), highest = self._pending_drops, self._max
        self._ids, self._pending_drops = None, None
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
        self.filter_rows(kept)
        self._add_masked(ids, count)

    def mask_except_best(self) -> None:
        """Keep the highest row, of equal ones the first; the others are masked as by `mask_except`."""
        ids, count = self._ids, self._logits.size
        self.select_rows(np.array([self.top_position()]), is_ordered=True)
        self._add_masked(ids, count)

    def _add_masked(self, before: NDArray[np.integer] | None, count: int) -> None:
        """Count the rows that are missing now as masked; there were ``count`` with the ids ``before``."""
        masked = count - self._logits.size
        if masked:
            earlier = self._masked if self.masked_count else None
            self._masked = _MaskedRows(before, self.ids, earlier, self.masked_count)
            self.masked_count += masked

    def masked_ids(self) -> NDArray[np.intp]:
        """The ids of the masked rows, ascending."""
        if self._masked is None:
            return np.arange(0)
        return self._masked.ids(self.masked_count, self.vocab_size)

    def set_masked(self, ids: Ids) -> None:
        """Let these be the masked rows."""
        self._masked = _MaskedRows(ids, _NO_IDS)
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

    def replace_with_single_row(self, token: int, logit: float) -> None:
        """Replace all rows by this one. The token may have been dropped before."""
        self._ids = np.array([token], dtype=np.int32)
        self._logits = np.array([logit], dtype=np.float32)
        self.is_ordered = True
        self.masked_count = 0
        self._forget()

    def top_position(self) -> int:
        """Position of the highest row; of equal ones the first."""
        return 0 if self.is_ordered else int(self._logits.argmax())

    def _forget(self) -> None:
        """Clear what was computed from the old logits."""
        self._max = None
        self._exp = None
        self._sums = None
        self._total = None
        self._maxima = None


_NO_IDS: Ids = np.empty(0, dtype=np.int32)


class _MaskedRows(NamedTuple):
    """Which rows are masked. Only references are kept; the ids are computed when `ids` is called."""

    before: NDArray[np.integer] | None
    """The ids before the step that masked them; None: all."""
    kept: Ids
    """The ids after that step."""
    earlier: _MaskedRows | None = None
    """The rows that had been masked before that step."""
    earlier_count: int = 0
    """How many of these were still held."""

    def ids(self, count: int, vocabulary: int) -> NDArray[np.intp]:
        """Return the ids of the first ``count`` masked rows, ascending, for a ``vocabulary`` of this size.

        Where llama.cpp erased some of them, it is its unstable sort that decides which; here the lowest ids stay.
        """
        is_masked = np.zeros(vocabulary, dtype=np.bool_)
        if self.before is None:
            is_masked[:] = True
        else:
            is_masked[self.before] = True
        is_masked[self.kept] = False
        if self.earlier is not None:
            is_masked[self.earlier.ids(self.earlier_count, vocabulary)] = True
        return is_masked.nonzero()[0][:count]


_FLOAT32_EXP_ERROR = 2.0**-21
"""Relative error of NumPy's float32 exp, at most: 4 units in the last place.

A draw from a long row is tried with it first, in half the time. It nearly always suffices.
"""
_PROBABILITY_ERROR = 2.0**-23
"""Relative error of a float32 probability, at most: its exact weight is rounded, and so is the quotient."""


@supports_old_names
class Candidates(CandidateRows):
    """A set of tokens with their logits, as arrays of one length; it starts as the whole vocabulary.

    Sorting and masking are done in this module and in `kernels` only. Rows are dropped, never set to -inf. The
    array of logits that came in is never written to.

    Attributes:
        vocabulary: number of token ids there are.
        is_ordered: True if the logits are known to go from high to low.
        allowed: the grammar's mask, bool (V,); None without one.
        masked_count: number of rows that were dropped here and that llama.cpp would still hold, at -inf. They have
            no probability, but a sampler of llama.cpp that counts its rows counts these too.
        leading: positions and logits of the highest rows that came in, from high to low; None: they are not known.
            `top` finds them in a row of 2,048 or more that nothing changed before, if ``expects_top`` was set.

    Raises ``SamplingError`` for a wrong shape or dtype, an empty row, NaN, +inf, or a row of -inf only.
    """

    __slots__ = ()

    def snapshot(self) -> Candidates:
        """Return candidates that stay as these are now. The arrays are shared: no step writes to them."""
        same = object.__new__(Candidates)
        for name in CandidateRows.__slots__:
            setattr(same, name, getattr(self, name))
        return same

    def weights(self) -> Floats:
        """exp(logit - max), float32 (n,), correctly rounded; see `exact_weights`."""
        if self._exp is None:
            self._exp = exact_weights(self._logits - self.max)
        return self._exp

    def probs(self) -> Floats:
        """Softmax, float32 (n,), in the current order. It sums to 1: the total is computed in float64."""
        with np.errstate(over="ignore"):  # two finite logits may lie further apart than float32 reaches
            weights = self.weights()
        return weights / np.float32(np.add.reduce(weights, dtype=np.float64))

    def llama_cpp_probs(self) -> Floats:
        """Softmax as llama.cpp computes it, float32 (n,): the total is summed in float32 from first to last row.

        A threshold on cumulative probability must fall on the same row as in llama.cpp. In a long row the
        rounding adds up, so these do not sum to 1.
        """
        probs: Floats = np.divide(self.weights(), self._llama_cpp_total())
        return probs

    def llama_cpp_probs_at(self, rows: Positions | slice) -> Floats:
        """`llama_cpp_probs` of some rows, float32 (m,). In a long row this takes less time."""
        total = self._llama_cpp_total()
        weights = exact_weights(self._logits[rows] - self.max) if self._exp is None else self._exp[rows]
        probs: Floats = np.divide(weights, total)
        return probs

    def llama_cpp_probs_down_to(self, least: float) -> Floats:
        """`llama_cpp_probs` of the first rows, float32 (m,): at least of every row that reaches ``least``.

        Of candidates in any order these are all rows.
        """
        # The probabilities sum to 1, and to less than 2 however the total was rounded.
        if self.is_ordered and least * self._logits.size > 2:
            return self.llama_cpp_probs_at(slice(int(2 / least) + 1))
        return self.llama_cpp_probs()

    def llama_cpp_highest_prob(self) -> np.float32:
        """The highest of `llama_cpp_probs`."""
        return np.float32(1) / self._llama_cpp_total()

    def _llama_cpp_total(self) -> np.float32:
        """The weights' sum in float32, from first to last row."""
        if self._total is None:
            offsets = None
            if self._exp is None and self._logits.size > LONG_ROW:
                offsets = offsets_affecting_sum(self._logits, self.max, is_ordered=self.is_ordered)
            self._total = sequential_sum(self.weights() if offsets is None else exact_weights(offsets))
        return self._total

    def sort_descending(self) -> None:
        """Sort from high to low; equal logits keep their order."""
        if not self.is_ordered:
            self.select_rows(descending(self._logits), is_ordered=True)

    def top_positions(self, count: int) -> Positions:
        """Positions of the ``count`` highest rows, from high to low; of equal logits the earlier first."""
        count = min(count, self._logits.size)
        if count < 1:
            return np.arange(0)
        return np.arange(count) if self.is_ordered else highest_rows(self._logits, count, self._maxima)

    def keep_top_rows(self, count: int) -> None:
        """Keep the ``count`` highest rows, at least one, from high to low; of equal logits the earlier ones.

        Masked rows come last.
        """
        count = max(count, 1)
        if self.is_ordered:
            self.truncate(count)
            return
        if self._pending_drops is not None:
            kept = self._top_of_pending(count, *self._pending_drops)
        else:
            kept = min(count, self._logits.size)
            positions, self._logits = highest_with_values(self._logits, kept, self._maxima)
            if self._maxima is not None:  # so the rows are those that came in
                self.top_rows = positions, self._logits
            self._ids = positions if self._ids is None else self._ids[positions]
        self.is_ordered = True
        self._forget()
        if self.masked_count:
            self.masked_count = min(self.masked_count, count - kept)

    def _top_of_pending(self, count: int, row: Floats, dropped: Positions) -> int:
        """Keep the ``count`` highest of a whole row without the dropped ones; return how many these are."""
        kept = min(count, row.size - dropped.size)
        positions, logits = highest_with_values(row, kept + dropped.size, self._maxima)
        left = np.logical_and.reduce(positions[:, None] != dropped, axis=1).nonzero()[0][:kept]
        self._ids, self._logits, self._pending_drops = positions[left], logits[left], None
        return kept

    def positions_where(self, table: NDArray[np.generic]) -> Positions:
        """Positions of the rows whose token has a nonzero entry in ``table``, (vocabulary,)."""
        entries = table if self._ids is None else table[self._ids]
        return (entries != 0).nonzero()[0]  # a row of booleans is searched much faster than one of numbers

    def tokens(self, positions: Positions) -> NDArray[np.integer]:
        """Token ids of the rows at ``positions``."""
        return positions if self._ids is None else self._ids[positions]

    def positions_of(self, tokens: Positions) -> tuple[Positions, Positions]:
        """Positions of the rows of these distinct tokens, and the index in ``tokens`` of each row's token."""
        if self._ids is None:
            return tokens, np.arange(tokens.size)
        table = np.zeros(self.vocab_size, dtype=np.int32)
        table[tokens] = np.arange(1, tokens.size + 1)
        entries = table[self._ids]
        positions = (entries != 0).nonzero()[0]
        return positions, entries[positions] - 1

    def mask_of(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which rows hold one of these tokens, bool (n,)."""
        table = np.zeros(self.vocab_size, dtype=np.bool_)
        table[np.asarray(tokens, dtype=np.intp)] = True
        return table if self._ids is None else table[self._ids]

    def certain_position(self, share: float) -> int | None:
        """Position of the first of a few rows at which the mass reaches ``share``, 0..1, of the whole.

        None if there are more rows, or if it depends on how the sums are rounded.
        """
        if self._logits.size > FEW_ROWS:
            return None
        if self._sums is None:
            self._sums = running_sums(self._logits, self.max)
        return certain_position(self._sums, share)

    def pick(self, u: float) -> int:
        """Token id at ``u``, in [0, 1), of the cumulative distribution in the current order.

        Formula: the first row whose running sum of weights, in float64, reaches u times their total. Equals
        llama.cpp's ``dist``.
        """
        position = self.certain_position(u)
        if position is None:
            position = self._certain_long_row_position(u, _FLOAT32_EXP_ERROR)
        if position is None:
            position = position_of_share(self.weights(), u)
        return position if self._ids is None else int(self._ids[position])

    def pick_position(self, u: float) -> int:
        """Position at ``u``, in [0, 1), of the cumulative distribution of `llama_cpp_probs`.

        Formula: the first row whose running sum of these, in float64, reaches u times their total.
        """
        position = self._certain_long_row_position(u, _FLOAT32_EXP_ERROR + _PROBABILITY_ERROR)
        return position_of_share(self.llama_cpp_probs(), u) if position is None else position

    def _certain_long_row_position(self, u: float, error: float) -> int | None:
        """The position at ``u`` of a long row whose exact weights are not known; None if it is not certain.

        ``error``: by what fraction a fast weight differs at most from what is summed, apart from a common factor.
        """
        if self._exp is not None or self._logits.size <= LONG_ROW:
            return None
        return certain_position_of_share(np.exp(self._logits - self.max), u, error)


FEW_ROWS = 64
"""Up to this many rows are counted as few."""
_VERY_FEW = 16
"""Up to this many, Python's exponentials are faster than NumPy's (measured)."""


def running_sums(logits: Floats, highest: np.float32) -> list[float]:
    """Return the running sums of exp(logit - highest), in float64. ``logits``: float32 (n,), a few."""
    if logits.size > _VERY_FEW:
        return list(accumulate(np.exp(logits - highest).tolist()))
    top = float(highest)
    return list(accumulate([exp(logit - top) for logit in logits.tolist()]))


_ERROR_PER_ROW = 2.0**-21
_SPARE_ROWS = 8
"""A running sum over n rows differs from that of exact float32 weights by less than (n + 8) 2^-21 of the total.

Each of n weights, their float32 total, its quotients and their running sum are off by 2^-24 of the total at most,
so that the error is below (4 n + 2) 2^-24, in any order of rounding. NumPy's exponentials add 16 2^-24 at most.
The differences from the highest logit are rounded, too, which adds less than 4 2^-24. All this together is below
(4 n + 22) 2^-24, less than half of the bound.
"""


def certain_position(sums: list[float], share: float) -> int | None:
    """Return the first position whose running sum reaches ``share`` of the last; None if rounding decides."""
    total = sums[-1]
    target = total * share
    position = bisect_left(sums, target)
    margin = total * ((len(sums) + _SPARE_ROWS) * _ERROR_PER_ROW)
    if sums[position] - target > margin and (position == 0 or target - sums[position - 1] > margin):
        return position
    return None
