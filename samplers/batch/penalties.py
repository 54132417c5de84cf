"""Repetition, frequency and presence penalties: the few logits of a batch that they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..array_types import clamp_to_finite
from ..errors import SamplingError
from .counts import TokenCounts, entries_of_rows
from .logit_table import LogitTable, check_finite
from .sampling_data import Floats, Ints
from .sampling_param import RowPlan

_LOGITS_AT_ONCE = 1 << 20
"""Of whole rows, so many logits are computed at a time: 4 MB, which stay in the processor's cache."""


class PenalisedLogits(NamedTuple):
    """The logits that penalties change, one entry a row and a token; rows ascend."""

    rows: Ints
    ids: Ints
    old: Floats
    new: Floats

    def of(self, rows: Ints) -> PenalisedLogits:
        """The entries of some rows, numbered by their position in ``rows``."""
        entries, row = entries_of_rows(self.rows, rows)
        return PenalisedLogits(row, self.ids[entries], self.old[entries], self.new[entries])


NO_PENALTIES = PenalisedLogits(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
)
"""No row has a penalty, or no row has a token yet."""


def compute_penalties(table: LogitTable, counts: TokenCounts, plan: RowPlan) -> PenalisedLogits:
    """Compute the logits that penalties change.

    Formula, float32: for a token of `all_input_ids`, logit * repetition if logit <= 0, else logit / repetition;
    then, for a token that occurs ``count`` times in `output_ids`, minus count * frequency + presence. What
    overflows is held finite. Equals the sampler `penalties` with ``scope: output`` and ``last_n: -1``. Raises
    ``SamplingError`` with the row where no number is left.
    """
    rows, ids = counts.rows, counts.ids
    old = table.take(rows * table.width + ids)
    repetition = np.where(counts.in_input, plan.repetition_penalty[rows], np.float32(1))
    count = counts.output_count.astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        new = np.where(old <= 0, old * repetition, old / repetition)
        new -= count * plan.frequency_penalty[rows] + (count > 0) * plan.presence_penalty[rows]
    nan = np.isnan(new).nonzero()[0]
    if nan.size:
        check_finite(old[nan], rows[nan])
        raise SamplingError(f"penalties: row {rows[nan[0]]}: left no finite logit")
    return PenalisedLogits(rows, ids, old, clamp_to_finite(new, old))


class ScaledRows(NamedTuple):
    """Whole rows, divided by their temperatures."""

    positions: Ints
    """Their positions in a selection, (r,)."""
    logits: Floats
    """logit / temperature, (r, V)."""
    highest: Floats
    """The highest of each row, (r,)."""


class RowSelection(NamedTuple):
    """Some rows of a batch, ascending, with the temperature and the penalties of each."""

    table: LogitTable
    rows: Ints
    temperature: Floats
    penalised: PenalisedLogits
    """Numbered by the position of the row in this selection; after the temperature."""

    @classmethod
    def create(
        cls, table: LogitTable, rows: Ints, temperature: Floats, penalised: PenalisedLogits
    ) -> RowSelection:
        """Select rows of the table.

        Args:
            table: the whole batch.
            rows: the rows, ascending, (R,).
            temperature: that of each row, (R,).
            penalised: the penalties of the whole batch, before the temperature.
        """
        own = penalised if rows.size == table.height else penalised.of(rows)
        divisor = temperature[own.rows]
        return cls(table, rows, temperature, own._replace(old=own.old / divisor, new=own.new / divisor))

    def of(self, positions: Ints) -> RowSelection:
        """Some of these rows, by their positions, ascending."""
        if positions.size == self.rows.size:
            return self
        return RowSelection(
            self.table, self.rows[positions], self.temperature[positions], self.penalised.of(positions)
        )

    def scaled_rows(self) -> Iterator[ScaledRows]:
        """Yield whole rows, a few at a time. A row whose highest scaled logit is beyond float32 is left out."""
        step = max(_LOGITS_AT_ONCE // self.table.width, 1)
        for start in range(0, self.rows.size, step):
            positions = np.arange(start, min(start + step, self.rows.size))
            selection = self.of(positions)
            logits, highest = self.table.take_rows(selection.rows)
            scaled, highest = logits / selection.temperature[:, None], highest / selection.temperature
            if selection.penalised.rows.size:
                scaled[selection.penalised.rows, selection.penalised.ids] = selection.penalised.new
                highest = scaled.max(axis=1)
            is_finite = np.isfinite(highest)
            if is_finite.all():
                yield ScaledRows(positions, scaled, highest)
            elif is_finite.any():
                yield ScaledRows(positions[is_finite], scaled[is_finite], highest[is_finite])
