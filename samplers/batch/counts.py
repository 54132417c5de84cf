"""How often each token occurs in the texts of a batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .sampling_data import Ids, Ints, Mask, is_token


class TokenCounts(NamedTuple):
    """The distinct tokens of some rows, one entry each. Rows ascend, and within a row ids ascend."""

    rows: Ints
    ids: Ints
    in_input: Mask
    """Whether the token occurs in the row's `all_input_ids`."""
    output_count: NDArray[np.int32]
    """How often it occurs in the row's `output_ids`."""

    def of(self, rows: Ints) -> TokenCounts:
        """The entries of these rows, numbered by their position in ``rows``; a row that is absent has none."""
        entries, row = entries_of_rows(self.rows, rows)
        return TokenCounts(row, self.ids[entries], self.in_input[entries], self.output_count[entries])

    def add(self, rows: Ints, ids: Ints, kind: int, width: int) -> TokenCounts:
        """Count more tokens.

        Args:
            rows: the row of each token, (n,).
            ids: the tokens, (n,), of a vocabulary of ``width``.
            kind: 0 for tokens of `all_input_ids`, 1 for tokens of `output_ids`.
            width: the size of the vocabulary.
        """
        keys: Ints = self.rows * width + self.ids
        added: Ints = rows * width + ids
        new_keys, repeats = np.unique(added, return_counts=True)
        at: Ints = np.searchsorted(keys, new_keys)
        is_missing = np.append(keys, -1)[at] != new_keys
        insert_at, missing = at[is_missing], new_keys[is_missing]
        in_input = np.insert(self.in_input, insert_at, False)
        output_count: NDArray[np.int32] = np.insert(self.output_count, insert_at, 0)
        at += np.add.accumulate(is_missing) - is_missing  # each insertion moves the later entries by one
        if kind == 0:
            in_input[at] = True
        else:
            output_count[at] += repeats.astype(np.int32)
        all_rows = np.insert(self.rows, insert_at, missing // width)
        all_ids = np.insert(self.ids, insert_at, missing % width)
        return TokenCounts(all_rows, all_ids, in_input, output_count)


NO_COUNTS = TokenCounts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int32))
"""No token in any row."""


def entries_of_rows(entry_rows: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions of the entries of some rows, and for each entry its row's position in ``rows``.

    ``entry_rows``, ascending, (n,): the row of each entry.
    """
    first, last = np.searchsorted(entry_rows, rows), np.searchsorted(entry_rows, rows, "right")
    row = np.repeat(np.arange(rows.size), last - first)
    ends = np.add.accumulate(last - first)
    return np.arange(row.size) + (last - ends)[row], row


def count_tokens(all_input: Ids | None, output: Ids | None, width: int) -> TokenCounts:
    """Count the tokens of each row, by one sort.

    ``all_input``, (B, L), and ``output``, (B, L'): padded token ids, or None; ``width``: the size of the
    vocabulary.
    """
    height = len(all_input if all_input is not None else output if output is not None else ())
    dtype = np.int32 if width < 2**30 else np.int64
    keys = [
        # Sorted, the two kinds of one token stand side by side: 2 i for `all_input`, 2 i + 1 for `output`.
        np.where(is_token(ids, width), 2 * ids.astype(np.int64) + kind, 2 * width).astype(dtype)
        for kind, ids in enumerate((all_input, output))
        if ids is not None
    ]
    table = np.concatenate([*keys, np.full((height, 1), 2 * width, dtype)], axis=1)
    table.sort(axis=1)
    return _count_runs(table, width)


def _count_runs(table: NDArray[np.integer], width: int) -> TokenCounts:
    """Count the runs of equal tokens in sorted keys; each row ends with padding."""
    ids = table >> 1
    is_first = np.ones(table.shape, np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=is_first[:, 1:])
    starts = is_first.reshape(-1).nonzero()[0]
    sizes = np.diff(starts, append=table.size)
    output_count = np.add.reduceat(table.reshape(-1) & 1, starts) if starts.size else starts
    run_ids = ids.reshape(-1)[starts]
    is_real = run_ids < width
    starts, sizes, output_count, run_ids = starts[is_real], sizes[is_real], output_count[is_real], run_ids[is_real]
    return TokenCounts(
        rows=starts // table.shape[1],
        ids=run_ids.astype(np.int64),
        in_input=sizes > output_count,
        output_count=output_count.astype(np.int32),
    )
