"""How often each token occurs in the texts of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .data import Ids, Ints, Mask, tokens


class Counts(NamedTuple):
    """The distinct tokens of some rows, an entry each; rows ascend, and within a row ids do."""

    rows: Ints
    ids: Ints
    seen: Mask
    """Does the token occur in the row's `all_input_ids`?"""
    made: NDArray[np.int32]
    """How often it occurs in the row's `output_ids`."""

    def of(self, rows: Ints) -> Counts:
        """Those of these rows, numbered by their place among them; a row that is not there has none."""
        places, row = entries_of(self.rows, rows)
        return Counts(row, self.ids[places], self.seen[places], self.made[places])

    def add(self, rows: Ints, ids: Ints, kind: int, width: int) -> Counts:
        """Count more tokens, (n,), of a vocabulary of ``width``; ``kind``: 0 for `all_input_ids`, 1 for output."""
        keys: Ints = self.rows * width + self.ids
        more: Ints = rows * width + ids
        new, times = np.unique(more, return_counts=True)
        at = np.searchsorted(keys, new)
        lacking = np.append(keys, -1)[at] != new
        where, missing = at[lacking], new[lacking]
        seen, made = np.insert(self.seen, where, False), np.insert(self.made, where, 0)
        at += np.add.accumulate(lacking) - lacking  # each entry put in moves the later ones on
        if kind == 0:
            seen[at] = True
        else:
            made[at] += times.astype(np.int32)
        rows, ids = np.insert(self.rows, where, missing // width), np.insert(self.ids, where, missing % width)
        return Counts(rows, ids, seen, made)


NONE = Counts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int32))
"""No token in any row."""


def entries_of(entries: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """The places of some rows among the rows of entries, which ascend, and which of ``rows`` each belongs to."""
    first, last = np.searchsorted(entries, rows), np.searchsorted(entries, rows, "right")
    row = np.repeat(np.arange(rows.size), last - first)
    ends = np.add.accumulate(last - first)
    return np.arange(row.size) + (last - ends)[row], row


def count(everything: Ids | None, output: Ids | None, width: int) -> Counts:
    """Count the tokens of each row, by one sort. ``everything``, (B, L), and ``output``, (B, L'), or None."""
    height = len(everything if everything is not None else output if output is not None else ())
    dtype = np.int32 if width < 2**30 else np.int64
    keys = [
        # A token's two kinds of entries lie side by side: 2 i for `everything`, 2 i + 1 for `output`.
        np.where(tokens(ids, width), 2 * ids.astype(np.int64) + kind, 2 * width).astype(dtype)
        for kind, ids in enumerate((everything, output))
        if ids is not None
    ]
    table = np.concatenate([*keys, np.full((height, 1), 2 * width, dtype)], axis=1)
    table.sort(axis=1)
    return _runs(table, width)


def _runs(table: NDArray[np.integer], width: int) -> Counts:
    """Read the sorted keys, each row of which ends with padding."""
    ids = table >> 1
    first = np.ones(table.shape, np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=first[:, 1:])
    starts = first.reshape(-1).nonzero()[0]
    sizes = np.diff(starts, append=table.size)
    made = np.add.reduceat(table.reshape(-1) & 1, starts) if starts.size else starts
    found = ids.reshape(-1)[starts]
    real = found < width
    starts, sizes, made, found = starts[real], sizes[real], made[real], found[real]
    return Counts(starts // table.shape[1], found.astype(np.int64), sizes > made, made.astype(np.int32))
