"""The tokens still in play: arrays that shrink from step to step of a chain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .array_types import Floats, Positions
from .candidate_rows import CandidateRows
from .exact_weights import exact_weights, offsets_that_count
from .few_rows import FEW_ROWS, certain_position, running_sums
from .sequential_sums import LONG_ROW, certain_position_of_share, position_of_share, sequential_sum
from .sort_kernels import descending, highest_rows, highest_with_values

_FLOAT32_EXP_ERROR = 2.0**-21
"""Relative error of NumPy's float32 exp, at most: 4 units in the last place.

A draw from a long row is tried with it first, in half the time. It nearly always suffices.
"""
_PROBABILITY_ERROR = 2.0**-23
"""Relative error of a float32 probability, at most: its exact weight is rounded, and so is the quotient."""


class Candidates(CandidateRows):
    """A set of tokens with their logits, as arrays of one length; it starts as the whole vocabulary.

    Sorting and masking are done here and in the kernels of `sort_kernels`, `sequential_sums`, `few_rows` and
    `exact_weights` only. Rows are dropped, never set to -inf. The array of logits that came in is never written
    to.

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
                offsets = offsets_that_count(self._logits, self.max, is_ordered=self.is_ordered)
            self._total = sequential_sum(self.weights() if offsets is None else exact_weights(offsets))
        return self._total

    def order(self) -> None:
        """Sort from high to low; equal logits keep their order."""
        if not self.is_ordered:
            self.take(descending(self._logits), is_ordered=True)

    def top_positions(self, count: int) -> Positions:
        """Positions of the ``count`` highest rows, from high to low; of equal logits the earlier first."""
        count = min(count, self._logits.size)
        if count < 1:
            return np.arange(0)
        return np.arange(count) if self.is_ordered else highest_rows(self._logits, count, self._maxima)

    def top(self, count: int) -> None:
        """Keep the ``count`` highest rows, at least one, from high to low; of equal logits the earlier ones.

        Masked rows come last.
        """
        count = max(count, 1)
        if self.is_ordered:
            self.truncate(count)
            return
        if self._pending is not None:
            kept = self._top_of_pending(count, *self._pending)
        else:
            kept = min(count, self._logits.size)
            positions, self._logits = highest_with_values(self._logits, kept, self._maxima)
            if self._maxima is not None:  # so the rows are those that came in
                self.leading = positions, self._logits
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
        self._ids, self._logits, self._pending = positions[left], logits[left], None
        return kept

    def where(self, table: NDArray[np.generic]) -> Positions:
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
        table = np.zeros(self.vocabulary, dtype=np.int32)
        table[tokens] = np.arange(1, tokens.size + 1)
        entries = table[self._ids]
        positions = (entries != 0).nonzero()[0]
        return positions, entries[positions] - 1

    def mask_of(self, tokens: Sequence[int] | NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which rows hold one of these tokens, bool (n,)."""
        table = np.zeros(self.vocabulary, dtype=np.bool_)
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
