"""The tokens that a chain may still choose: arrays of token ids and logits, from which the steps drop rows.

`CandidateRows` has the arrays and the methods that drop rows. `Candidates` adds sorting and probabilities.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp, isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    describe_nonfinite,
    exact_weights,
    highest_of,
    highest_rows,
    highest_with_values,
    offsets_affecting_sum,
    position_of_share,
    sequential_sum,
)

# This module calls NumPy's ufuncs and array methods, not the functions of NumPy that are written in Python.
# Between two tokens llama.cpp fills the processor's caches, so that each such function would cost microseconds.

_FLOAT32 = np.dtype(np.float32)
_MIN_LOGITS_FOR_COLUMN_MAXIMA = 1 << 11  # fewer logits are searched without column maxima
# Up to this many rows are dropped by copying the slices between them. For more rows, indexing is faster.
_MAX_SLICED_DROPS = 16


class CandidateRows:
    """The token ids and logits of `Candidates`, in two arrays of one length.

    Maximum, weights and sums are cached. `_clear_cache` deletes them when the logits change.
    """

    __slots__ = (
        "_column_maxima",
        "_ids",
        "_logits",
        "_masked_rows",
        "_max_logit",
        "_running_sums",
        "_weight_total",
        "_weights",
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
    ) -> None:
        """Start with all tokens of the vocabulary, or with those in ``ids``.

        Args:
            logits: float32 (n,), in nats up to a constant. A masked entry of a masked array counts as -inf.
            ids: the token id of each logit, int32 (n,); None if logit i belongs to token i.
            vocab_size: number of token ids that exist; None for n.
            expects_top: whether `keep_top_rows` or `top_positions` will be called, which then takes less time.
        """
        if not isinstance(logits, np.ndarray) or logits.dtype != _FLOAT32 or logits.ndim != 1:
            raise SamplingError(f"logits: expected float32 of shape (V,), got {describe(logits)}")
        if logits.size == 0:
            raise SamplingError("logits: the row is empty")
        # `np.ma` is imported at its first use, in 8 ms. A plain array avoids this.
        is_plain_array = type(logits) is np.ndarray
        if not is_plain_array and isinstance(logits, np.ma.MaskedArray):
            logits = logits.filled(-np.inf)
        self._ids: NDArray[np.integer] | None = ids
        self._logits = logits
        self.vocab_size = logits.size if vocab_size is None else vocab_size
        self.is_ordered = False
        self.grammar_mask: NDArray[np.bool_] | None = None
        self.masked_count = 0
        self._masked_rows: _MaskedRows | None = None
        self._weights: Floats | None = None
        self._running_sums: list[float] | None = None
        self._weight_total: np.float32 | None = None
        # The maxima of the columns if the logits are arranged as a table; see `column_maxima`.
        self._column_maxima: Floats | None = None
        self.top_rows: TopRows | None = None
        if expects_top and logits.size >= _MIN_LOGITS_FOR_COLUMN_MAXIMA:
            self._column_maxima = column_maxima(logits)
            max_logit = highest_of(logits, self._column_maxima)
        else:
            max_logit = np.maximum.reduce(logits)
        self._max_logit: np.float32 | None = max_logit
        if not isfinite(max_logit):
            raise SamplingError(f"logits: {describe_nonfinite(max_logit)}")

    def __len__(self) -> int:
        return self._logits.size

    @property
    def llama_cpp_count(self) -> int:
        """Number of rows that llama.cpp would have after the same steps: these rows and the masked ones."""
        return self._logits.size + self.masked_count

    @property
    def is_full_vocabulary(self) -> bool:
        """True while row i is token i, because no step has dropped or moved a row yet."""
        return self._ids is None

    @property
    def ids(self) -> Ids:
        """Token ids, int32 (n,), in the current order."""
        if self._ids is None:
            return all_ids(len(self))
        ids: Ids = self._ids.astype(np.int32, copy=False)  # positions in the vocabulary are 64-bit integers
        self._ids = ids
        return ids

    @property
    def logits(self) -> Floats:
        """Logits, float32 (n,), in the current order. They must not be written to; `set_logits` replaces them."""
        return self._logits

    @property
    def max(self) -> np.float32:
        """The highest logit."""
        if self._max_logit is None:
            max_logit: np.float32 = self._logits[0] if self.is_ordered else np.maximum.reduce(self._logits)
            self._max_logit = max_logit
        return self._max_logit

    def set_logits(self, logits: Floats, *, monotone: bool = False, highest: np.float32 | None = None) -> None:
        """Replace all logits.

        Args:
            logits: the new logits in the current order, float32 (n,).
            monotone: whether a row with a higher old logit also has a higher or equal new logit, so that sorted
                rows stay sorted.
            highest: the highest new logit; None if it is not known.
        """
        self._logits = logits
        self.is_ordered = self.is_ordered and monotone
        self._clear_cache()
        self._max_logit = highest

    def set_logits_at(self, positions: Positions, logits: Floats) -> None:
        """Replace the logits of the rows at ``positions``.

        Args:
            positions: positions of the changed rows, (m,).
            logits: the new logits of these rows, (m,). An overflow is clamped to the
                nearest finite float32. A row whose old logit is -inf keeps -inf.
        """
        old_logits = self._logits[positions]
        new_row = self._logits.copy()
        new_row[positions] = clamp_to_finite(logits, old_logits)
        self.set_logits(new_row)

    def select_rows(self, positions: Positions, *, is_ordered: bool = False) -> None:
        """Keep the rows at ``positions``, in the order of ``positions``, and drop all others.

        Args:
            positions: positions of the rows to keep.
            is_ordered: whether these rows are sorted from high to low.
        """
        self._ids = positions if self._ids is None else self._ids[positions]
        self._logits = self._logits[positions]
        self.is_ordered = is_ordered
        self._clear_cache()

    def filter_rows(self, mask: NDArray[np.bool_]) -> None:
        """Keep the rows for which ``mask``, bool (n,), is true, in the current order.

        Raises ``ValueError`` if the shape of the mask is not (n,).
        """
        if mask.shape != self._logits.shape:
            raise ValueError(f"mask: shape {mask.shape} is not {self._logits.shape}, the shape of the logits")
        dropped_count = mask.size - int(np.count_nonzero(mask))
        if dropped_count > _MAX_SLICED_DROPS:
            self.select_rows(mask.nonzero()[0], is_ordered=self.is_ordered)
        elif dropped_count:
            self.drop((~mask).nonzero()[0])

    def drop(self, positions: Positions) -> None:
        """Drop the rows at a few ascending ``positions``. At least one other row must remain."""
        if not positions.size:
            return
        kept_slices = []
        start = 0
        for dropped in positions.tolist():
            kept_slices.append(slice(start, dropped))
            start = dropped + 1
        kept_slices.append(slice(start, self._logits.size))
        self._ids = np.concatenate([self.ids[rows] for rows in kept_slices])
        self._logits = np.concatenate([self._logits[rows] for rows in kept_slices])
        self._clear_cache()

    def mask_except(self, kept: NDArray[np.bool_]) -> None:
        """Keep the rows where ``kept``, bool (n,), is true, and mask all other rows.

        A masked row is dropped here. llama.cpp keeps the row, with a logit of -inf. So a masked row has no
        probability, but `llama_cpp_count` includes it.
        """
        ids_before = self._ids
        count_before = self._logits.size
        self.filter_rows(kept)
        self._add_masked(ids_before, count_before)

    def mask_except_best(self) -> None:
        """Keep the highest row (of equal rows the first), and mask all other rows as `mask_except` does."""
        ids_before = self._ids
        count_before = self._logits.size
        self.select_rows(np.array([self.top_position()]), is_ordered=True)
        self._add_masked(ids_before, count_before)

    def _add_masked(self, ids_before: NDArray[np.integer] | None, count_before: int) -> None:
        """Count the rows that were just dropped as masked rows."""
        # ``ids_before``: token ids before the drop; None if row i was token i
        dropped_count = count_before - self._logits.size
        if dropped_count:
            earlier_rows = self._masked_rows if self.masked_count else None
            self._masked_rows = _MaskedRows(ids_before, self.ids, earlier_rows, self.masked_count)
            self.masked_count += dropped_count

    def masked_ids(self) -> NDArray[np.intp]:
        """Return the token ids of the masked rows, ascending."""
        if self._masked_rows is None:
            return np.arange(0)
        return self._masked_rows.ids(self.masked_count, self.vocab_size)

    def set_masked(self, ids: Ids) -> None:
        """Replace the masked rows by rows with these token ids."""
        self._masked_rows = _MaskedRows(ids, _NO_IDS)
        self.masked_count = ids.size

    def truncate(self, count: int) -> None:
        """Keep the first ``count`` rows, of which masked rows are the last."""
        if count < self._logits.size:
            ids = self.ids if self._ids is None else self._ids
            self._ids = ids[:count]
            self._logits = self._logits[:count]
            if self.is_ordered:  # the highest logit stays, so the cached weights stay valid
                if self._weights is not None:
                    self._weights = self._weights[:count]
                if self._running_sums is not None:
                    self._running_sums = self._running_sums[:count]
                self._weight_total = None
            else:
                self._clear_cache()
            self.masked_count = 0
        elif self.masked_count:
            self.masked_count = min(self.masked_count, count - self._logits.size)

    def drop_first(self, count: int) -> None:
        """Drop the first ``count`` rows."""
        self._ids = self.ids[count:]
        self._logits = self._logits[count:]
        self._clear_cache()

    def replace_with_single_row(self, token: int, logit: float) -> None:
        """Replace all rows by one row. Its token may be one that was dropped before."""
        self._ids = np.array([token], dtype=np.int32)
        self._logits = np.array([logit], dtype=np.float32)
        self.is_ordered = True
        self.masked_count = 0
        self._clear_cache()

    def top_position(self) -> int:
        """Return the position of the highest row; of equal rows the first."""
        return 0 if self.is_ordered else int(self._logits.argmax())

    def _clear_cache(self) -> None:
        """Delete the cached values that were computed from the old logits."""
        self._max_logit = None
        self._weights = None
        self._running_sums = None
        self._weight_total = None
        self._column_maxima = None


_NO_IDS: Ids = np.empty(0, dtype=np.int32)


class _MaskedRows(NamedTuple):
    """The rows that a step masked, and the rows that earlier steps masked."""

    # Only references to arrays are stored. The token ids are computed by `ids`, which is seldom called.

    ids_before: NDArray[np.integer] | None  # the token ids before the masking step; None for the entire vocabulary
    ids_after: Ids  # the token ids after the masking step
    earlier_rows: _MaskedRows | None = None  # the rows that earlier steps masked; None if there are none
    earlier_count: int = 0  # number of rows in ``earlier_rows`` that llama.cpp still has at the masking step

    def ids(self, count: int, vocab_size: int) -> NDArray[np.intp]:
        """Return the token ids of the first ``count`` masked rows, ascending."""
        # If llama.cpp erases some masked rows, its unstable sort decides which. Here the rows with the lowest ids
        # stay.
        if self.ids_before is None:
            is_masked = np.ones(vocab_size, dtype=np.bool_)
        else:
            is_masked = np.zeros(vocab_size, dtype=np.bool_)
            is_masked[self.ids_before] = True
        is_masked[self.ids_after] = False
        if self.earlier_rows is not None:
            is_masked[self.earlier_rows.ids(self.earlier_count, vocab_size)] = True
        return is_masked.nonzero()[0][:count]


# Greatest relative error of NumPy's float32 exp: 4 units in the last place. A draw from a long row first uses
# these inexact exponentials, which take half the time of exact ones. They nearly always suffice to identify the
# drawn token.
_FLOAT32_EXP_ERROR = 2.0**-21
# Greatest relative error of a float32 probability. Its weight and the quotient are each rounded.
_PROBABILITY_ERROR = 2.0**-23
# The sum of float32 probabilities stays below this, however much their total was rounded.
_MAX_PROBABILITY_SUM = 2


class Candidates(CandidateRows):
    """The tokens that a chain may still choose, with their logits: at first the entire vocabulary.

    A *row* is one token with its logit. Rows are dropped, never set to -inf. The model's array of logits is never
    written to.

    Attributes:
        vocab_size: number of token ids that exist, dropped ones included.
        is_ordered: whether the rows are known to be sorted from high to low.
        grammar_mask: which tokens the grammar allows, bool (V,); None without a grammar.
        masked_count: number of rows that were dropped here, but that llama.cpp would keep with a logit of -inf.
            They have no probability. Samplers that count rows count masked rows too, as llama.cpp's samplers do.
        top_rows: positions and logits of the highest rows of the model, from high to low; None if not known.
            `keep_top_rows` finds them if the row has at least 2,048 logits, no step has changed it, and
            ``expects_top`` was set.

    Raises ``SamplingError`` for a wrong shape or dtype, an empty row, NaN, +inf, or a row of -inf only.
    """

    __slots__ = ()

    def snapshot(self) -> Candidates:
        """Return a copy that later steps do not change. The arrays are shared, since no step writes to them."""
        candidates_copy = object.__new__(Candidates)
        for name in CandidateRows.__slots__:
            setattr(candidates_copy, name, getattr(self, name))
        return candidates_copy

    def weights(self) -> Floats:
        """Return exp(logit - max), float32 (n,), correctly rounded; see `exact_weights`."""
        if self._weights is None:
            self._weights = exact_weights(self._logits - self.max)
        return self._weights

    def probs(self) -> Floats:
        """Return the probabilities, float32 (n,), in the current order. The total is summed in float64."""
        with np.errstate(over="ignore"):  # the difference of two finite logits may exceed float32
            weights = self.weights()
        return weights / np.float32(np.add.reduce(weights, dtype=np.float64))

    def llama_cpp_probs(self) -> Floats:
        """Return the probabilities as llama.cpp computes them, float32 (n,).

        The total is summed in float32 from the first row to the last. In a long row the rounding errors add up, so
        that the probabilities do not sum to 1. Samplers need them where a threshold on the cumulative probability
        must cut at the same row as in llama.cpp.
        """
        probs: Floats = np.divide(self.weights(), self._llama_cpp_total())
        return probs

    def llama_cpp_probs_at(self, rows: Positions | slice) -> Floats:
        """Return `llama_cpp_probs` of the rows at ``rows``, float32 (m,). For a long row this takes less time."""
        total = self._llama_cpp_total()
        weights = exact_weights(self._logits[rows] - self.max) if self._weights is None else self._weights[rows]
        probs: Floats = np.divide(weights, total)
        return probs

    def llama_cpp_probs_down_to(self, min_prob: float) -> Floats:
        """Return `llama_cpp_probs` of the first m rows, float32 (m,), which include all rows with ``min_prob``.

        If the rows are not sorted, these are all rows.
        """
        if self.is_ordered and min_prob * self._logits.size > _MAX_PROBABILITY_SUM:
            max_count = int(_MAX_PROBABILITY_SUM / min_prob) + 1
            return self.llama_cpp_probs_at(slice(max_count))
        return self.llama_cpp_probs()

    def llama_cpp_highest_prob(self) -> np.float32:
        """Return the highest of `llama_cpp_probs`."""
        return np.float32(1) / self._llama_cpp_total()

    def _llama_cpp_total(self) -> np.float32:
        """Return the sum of the weights in float32, added from the first row to the last."""
        if self._weight_total is None:
            self._weight_total = sequential_sum(self._weights_affecting_total())
        return self._weight_total

    def _weights_affecting_total(self) -> Floats:
        """Return the weights without which the total would differ. In a long row these are few."""
        if self._weights is None and self._logits.size > LONG_ROW:
            offsets = offsets_affecting_sum(self._logits, self.max, is_ordered=self.is_ordered)
            if offsets is not None:
                return exact_weights(offsets)
        return self.weights()

    def sort_descending(self) -> None:
        """Sort the rows from high to low. Rows with equal logits keep their order."""
        if not self.is_ordered:
            self.select_rows(descending(self._logits), is_ordered=True)

    def top_positions(self, count: int) -> Positions:
        """Return positions of the ``count`` highest rows, from high to low.

        Of equal logits the earlier row comes first.
        """
        count = min(count, self._logits.size)
        if count < 1:
            return np.arange(0)
        if self.is_ordered:
            return np.arange(count)
        return highest_rows(self._logits, count, self._column_maxima)

    def keep_top_rows(self, count: int) -> None:
        """Keep the ``count`` highest rows, at least one, sorted from high to low.

        Of equal logits the earlier row is kept. Masked rows follow after all others.
        """
        count = max(count, 1)
        if self.is_ordered:
            self.truncate(count)
            return
        kept_count = min(count, self._logits.size)
        positions, self._logits = highest_with_values(self._logits, kept_count, self._column_maxima)
        if self._column_maxima is not None:  # no step has changed the rows since the model
            self.top_rows = positions, self._logits
        self._ids = positions if self._ids is None else self._ids[positions]
        self.is_ordered = True
        self._clear_cache()
        if self.masked_count:
            self.masked_count = min(self.masked_count, count - kept_count)

    def positions_where(self, table: NDArray[np.generic]) -> Positions:
        """Return positions of the rows whose token has a nonzero entry in ``table``, (V,)."""
        entries = table if self._ids is None else table[self._ids]
        return (entries != 0).nonzero()[0]  # `nonzero` is much faster for booleans than for numbers

    def tokens(self, positions: Positions) -> NDArray[np.integer]:
        """Return the token ids of the rows at ``positions``."""
        return positions if self._ids is None else self._ids[positions]

    def positions_of(self, tokens: Positions) -> tuple[Positions, Positions]:
        """Find the rows of some distinct tokens.

        Returns the positions of those rows, (m,), and for each row the index of its token in ``tokens``, (m,).
        Tokens that are not among the candidates are skipped.
        """
        if self._ids is None:
            return tokens, np.arange(tokens.size)
        # For each token of the vocabulary, its index in ``tokens``, counted from 1; 0 for all other tokens.
        numbers = np.zeros(self.vocab_size, dtype=np.int32)
        numbers[tokens] = np.arange(1, tokens.size + 1)
        numbers_of_rows = numbers[self._ids]
        positions = (numbers_of_rows != 0).nonzero()[0]
        return positions, numbers_of_rows[positions] - 1

    def mask_of(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return for each row whether its token is one of ``tokens``, bool (n,)."""
        table = np.zeros(self.vocab_size, dtype=np.bool_)
        table[np.asarray(tokens, dtype=np.intp)] = True
        return table if self._ids is None else table[self._ids]

    def certain_position(self, share: float) -> int | None:
        """Return the position of the first row at which the cumulative probability reaches ``share``, 0..1.

        Returns None if there are more than 64 rows, or if the position depends on rounding errors.
        """
        if self._logits.size > FEW_ROWS:
            return None
        if self._running_sums is None:
            self._running_sums = running_sums(self._logits, self.max)
        return certain_position(self._running_sums, share)

    def pick(self, u: float) -> int:
        """Return the token id that the random number ``u``, in [0, 1), selects.

        Formula: the first row whose running sum of weights, in float64 and in the current order, reaches u times
        the total. Equals llama.cpp's ``dist``.
        """
        position = self.certain_position(u)
        if position is None:
            position = self._certain_long_row_position(u, _FLOAT32_EXP_ERROR)
        if position is None:
            position = position_of_share(self.weights(), u)
        return position if self._ids is None else int(self._ids[position])

    def pick_position(self, u: float) -> int:
        """Return the position of the row that ``u``, in [0, 1), selects by `llama_cpp_probs`.

        Formula: the first row whose running sum of these probabilities, in float64, reaches u times their total.
        """
        position = self._certain_long_row_position(u, _FLOAT32_EXP_ERROR + _PROBABILITY_ERROR)
        if position is None:
            position = position_of_share(self.llama_cpp_probs(), u)
        return position

    def _certain_long_row_position(self, u: float, error: float) -> int | None:
        """Return the position that ``u`` selects from a long row, computed with fast, inexact weights."""
        # Returns None if rounding errors could change the position, if the row is short, or if the exact weights
        # are already known. ``error``: greatest relative error of a fast weight. An error that is the same factor
        # for all weights does not count.
        if self._weights is not None or self._logits.size <= LONG_ROW:
            return None
        fast_weights = np.exp(self._logits - self.max)
        return certain_position_of_share(fast_weights, u, error)


# Up to this many rows, running sums are computed with Python's floats. Calls of NumPy would take longer, above all
# after a decode, which has filled the processor's caches.
FEW_ROWS = 64


def running_sums(logits: Floats, highest: np.float32) -> list[float]:
    """Return the running sums of exp(logit - highest), in float64, for at most 64 ``logits``, float32 (n,)."""
    max_logit = float(highest)
    return list(accumulate([exp(logit - max_logit) for logit in logits.tolist()]))


# A running sum over n rows differs from the running sum of exact float32 weights by less than (n + 8) 2^-21 of the
# total. The errors, as parts of the total:
#
# - below (4 n + 2) 2^-24: the rounding of the n weights, of their total, of the quotients and of the running sum
# - below 4 · 2^-24: the rounding of the differences from the highest logit
#
# Their sum is below (4 n + 6) 2^-24, which is less than half of the bound.
_ERROR_PER_ROW = 2.0**-21
_SPARE_ROWS = 8


def certain_position(sums: list[float], share: float) -> int | None:
    """Return the first position whose running sum reaches ``share`` of the last sum; None if rounding decides."""
    total = sums[-1]
    target = total * share
    position = bisect_left(sums, target)
    margin = total * ((len(sums) + _SPARE_ROWS) * _ERROR_PER_ROW)
    is_below_upper_sum = sums[position] - target > margin
    is_above_lower_sum = position == 0 or target - sums[position - 1] > margin
    return position if is_below_upper_sum and is_above_lower_sum else None
