"""Repetition, frequency and presence penalties: the few logits of a batch that they change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..arrays import held_finite
from ..errors import SamplingError
from .counts import Counts, entries_of
from .data import Floats, Ints
from .param import Plan
from .tensors import Table, check

# Logits that are worked on at a time where whole rows are: what the processor's cache holds.
_CELLS = 1 << 20


class Touched(NamedTuple):
    """The logits that penalties change, one entry a row and a token; rows ascend."""

    rows: Ints
    ids: Ints
    old: Floats
    new: Floats

    def of(self, rows: Ints) -> Touched:
        """Those of some rows, numbered by their place among these."""
        places, row = entries_of(self.rows, rows)
        return Touched(row, self.ids[places], self.old[places], self.new[places])


NOTHING = Touched(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32))
"""No penalty, or no token yet."""


def penalise(table: Table, counts: Counts, plan: Plan) -> Touched:
    """Lower the logits of the tokens so far.

    Formula, float32: a token of `all_input_ids`: logit <= 0: logit * repetition, else logit / repetition; then one
    that stands ``count`` times in `output_ids`: minus count * frequency + presence. What overflows is held finite.
    Equals the sampler `penalties` with ``scope: output`` and ``last_n: -1``.
    Raises ``SamplingError`` with the row where no number is left.
    """
    rows, ids = counts.rows, counts.ids
    old = table.take(rows * table.width + ids)
    repeat = np.where(counts.seen, plan.repetition_penalty[rows], np.float32(1))
    made = counts.made.astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        new = np.where(old <= 0, old * repeat, old / repeat)
        new -= made * plan.frequency_penalty[rows] + (made > 0) * plan.presence_penalty[rows]
    lost = np.isnan(new).nonzero()[0]
    if lost.size:
        check(old[lost], rows[lost])
        raise SamplingError(f"penalties: row {rows[lost[0]]}: left no finite logit")
    return Touched(rows, ids, old, held_finite(new, old))


class Part(NamedTuple):
    """Some rows of a batch, ascending, and what is done to their logits."""

    table: Table
    rows: Ints
    temperature: Floats
    touched: Touched
    """Of these rows, numbered by their place among them, and after the temperature."""

    @classmethod
    def make(cls, table: Table, rows: Ints, temperature: Floats, touched: Touched) -> Part:
        """Lay the temperature, (R,), over the penalties of the whole batch."""
        own = touched if rows.size == table.height else touched.of(rows)
        divisor = temperature[own.rows]
        return cls(table, rows, temperature, own._replace(old=own.old / divisor, new=own.new / divisor))

    def of(self, places: Ints) -> Part:
        """Some of these rows, ascending."""
        if places.size == self.rows.size:
            return self
        return Part(self.table, self.rows[places], self.temperature[places], self.touched.of(places))

    def quotients(self) -> Iterator[tuple[Ints, Floats, Floats]]:
        """Whole rows, a few at a time: which of these, (r,), logit / temperature, (r, V), and the highest, (r,).

        A row whose highest quotient is beyond float32 is left out.
        """
        step = max(_CELLS // self.table.width, 1)
        for start in range(0, self.rows.size, step):
            places = np.arange(start, min(start + step, self.rows.size))
            some = self.of(places)
            logits, highest = self.table.whole(some.rows)
            quotients, highest = logits / some.temperature[:, None], highest / some.temperature
            if some.touched.rows.size:
                quotients[some.touched.rows, some.touched.ids] = some.touched.new
                highest = quotients.max(axis=1)
            finite = np.isfinite(highest)
            if finite.all():
                yield places, quotients, highest
            elif finite.any():
                yield places[finite], quotients[finite], highest[finite]
