"""Repetition, frequency and presence penalties: the few logits of a batch that they change.

Penalties need the counts of the tokens in each text. The counts of a request are kept between steps, so that a
step counts only new tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import SamplingError
from ..kernels import Floats, clamp_to_finite
from .arguments import Ids, Ints, Mask, RowPlan, is_token
from .logits import LogitTable, check_finite


class PenalizedLogits(NamedTuple):
    """The logits that penalties change. Each entry is a row and a token; entries are sorted by row."""

    rows: Ints  # the row of each entry, (n,)
    ids: Ints  # the token of each entry, (n,)
    old_logits: Floats  # the logit without penalties, (n,)
    new_logits: Floats  # the logit with penalties, (n,)

    def select_rows(self, rows: Ints) -> PenalizedLogits:
        """Return the entries of some rows. In the result, a row is numbered by its position in ``rows``."""
        entries, row = _entries_of_rows(self.rows, rows)
        return PenalizedLogits(row, self.ids[entries], self.old_logits[entries], self.new_logits[entries])


NO_PENALTIES = PenalizedLogits(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float32)
)


def compute_penalties(table: LogitTable, counts: TokenCounts, plan: RowPlan) -> PenalizedLogits:
    """Compute the logits that penalties change."""
    # Formula, float32: for a token of `all_input_ids`, logit * repetition if logit <= 0, else logit / repetition;
    # then, for a token that occurs ``count`` times in `output_ids`, minus count * frequency + presence. An
    # overflow is clamped to a finite number. Equals the sampler `penalties` with ``scope: output`` and ``last_n:
    # -1``. Raises ``SamplingError`` with the number of the row if a result is NaN.
    rows, ids = counts.rows, counts.ids
    old_logits = table.logits_at(rows * table.width + ids)
    repetition = np.where(counts.in_input, plan.repetition_penalty[rows], np.float32(1))
    count = counts.output_count.astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        new_logits = np.where(old_logits <= 0, old_logits * repetition, old_logits / repetition)
        new_logits -= count * plan.frequency_penalty[rows] + (count > 0) * plan.presence_penalty[rows]
    nan_entries = np.isnan(new_logits).nonzero()[0]
    if nan_entries.size:
        check_finite(old_logits[nan_entries], rows[nan_entries])
        raise SamplingError(f"penalties: row {rows[nan_entries[0]]}: left no finite logit")
    return PenalizedLogits(rows, ids, old_logits, clamp_to_finite(new_logits, old_logits))


# number of logits that are processed together if entire rows are needed: 4 MB, which fit into the cache
_LOGITS_PER_CHUNK = 1 << 20


class BatchRowSelection(NamedTuple):
    """Some rows of a batch, with the temperature and the penalties of each."""

    table: LogitTable  # the logits of the entire batch
    rows: Ints  # the numbers of the selected rows in the batch, ascending, (R,)
    temperature: Floats  # the temperature of each selected row, (R,)
    # The logits that penalties change, divided by the temperature. Rows are numbered by their position in
    # ``rows``.
    penalized: PenalizedLogits

    @classmethod
    def create(
        cls, table: LogitTable, rows: Ints, temperature: Floats, penalized: PenalizedLogits
    ) -> BatchRowSelection:
        """Select rows of the table, ascending, (R,); ``penalized`` is not divided by the temperature yet."""
        selected = penalized if rows.size == table.height else penalized.select_rows(rows)
        divisor = temperature[selected.rows]
        scaled = selected._replace(
            old_logits=selected.old_logits / divisor, new_logits=selected.new_logits / divisor
        )
        return cls(table, rows, temperature, scaled)

    def select_rows(self, positions: Ints) -> BatchRowSelection:
        """Return a selection of the rows at some ascending positions in this selection."""
        if positions.size == self.rows.size:
            return self
        return BatchRowSelection(
            self.table, self.rows[positions], self.temperature[positions], self.penalized.select_rows(positions)
        )

    def scaled_rows(self) -> Iterator[ScaledRows]:
        """Yield the rows with all tokens, a few at a time."""
        # Skips a row if its highest scaled logit exceeds float32.
        step = max(_LOGITS_PER_CHUNK // self.table.width, 1)
        for start in range(0, self.rows.size, step):
            positions = np.arange(start, min(start + step, self.rows.size))
            selection = self.select_rows(positions)
            logits, highest = self.table.rows_at(selection.rows)
            scaled, highest = logits / selection.temperature[:, None], highest / selection.temperature
            if selection.penalized.rows.size:
                scaled[selection.penalized.rows, selection.penalized.ids] = selection.penalized.new_logits
                highest = scaled.max(axis=1)
            is_finite = np.isfinite(highest)
            if is_finite.all():
                yield ScaledRows(positions, scaled, highest)
            elif is_finite.any():
                yield ScaledRows(positions[is_finite], scaled[is_finite], highest[is_finite])


class ScaledRows(NamedTuple):
    """Some rows with all tokens, divided by their temperatures."""

    positions: Ints
    logits: Floats  # logit / temperature, (r, V)
    highest: Floats  # the highest of these logits in each row, (r,)


class TokenCounts(NamedTuple):
    """The distinct tokens of some rows."""

    # Each entry is a row and a token, sorted by row, and within a row by token id.

    rows: Ints  # the row of each entry, (n,)
    ids: Ints  # the token of each entry, (n,)
    in_input: Mask  # True if the token occurs in the row's `all_input_ids`, (n,)
    output_count: NDArray[np.int32]  # number of occurrences of the token in the row's `output_ids`, (n,)

    def select_rows(self, rows: Ints) -> TokenCounts:
        """Return the entries of some rows. In the result, a row is numbered by its position in ``rows``."""
        # Negative numbers in ``rows`` select no entries.
        entries, row = _entries_of_rows(self.rows, rows)
        return TokenCounts(row, self.ids[entries], self.in_input[entries], self.output_count[entries])

    def add(self, rows: Ints, ids: Ints, kind: int, width: int) -> TokenCounts:
        """Return counts with more tokens, (n,), each with its row: kind 0 is `all_input_ids`, 1 `output_ids`."""
        keys: Ints = self.rows * width + self.ids
        added_keys: Ints = rows * width + ids
        new_keys, repeats = np.unique(added_keys, return_counts=True)
        entry_positions: Ints = np.searchsorted(keys, new_keys)
        is_missing = np.append(keys, -1)[entry_positions] != new_keys
        insert_at, missing_keys = entry_positions[is_missing], new_keys[is_missing]
        in_input = np.insert(self.in_input, insert_at, False)
        output_count: NDArray[np.int32] = np.insert(self.output_count, insert_at, 0)
        entry_positions += np.add.accumulate(is_missing) - is_missing  # an insertion moves each later entry by one
        if kind == 0:
            in_input[entry_positions] = True
        else:
            output_count[entry_positions] += repeats.astype(np.int32)
        all_rows = np.insert(self.rows, insert_at, missing_keys // width)
        all_ids = np.insert(self.ids, insert_at, missing_keys % width)
        return TokenCounts(all_rows, all_ids, in_input, output_count)


NO_COUNTS = TokenCounts(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_), np.empty(0, np.int32))


def count_tokens(all_input: Ids | None, output: Ids | None, width: int) -> TokenCounts:
    """Count the tokens of each row, by one sort, from padded token ids, (B, L) and (B, L')."""
    height = len(all_input if all_input is not None else output if output is not None else ())
    dtype = np.int32 if width < 2**30 else np.int64
    keys = [
        # Token i becomes 2 i in `all_input` and 2 i + 1 in `output`, so that sorting places both next to each
        # other.
        np.where(is_token(ids, width), 2 * ids.astype(np.int64) + kind, 2 * width).astype(dtype)
        for kind, ids in enumerate((all_input, output))
        if ids is not None
    ]
    table = np.concatenate([*keys, np.full((height, 1), 2 * width, dtype)], axis=1)
    table.sort(axis=1)
    return _count_runs(table, width)


def _count_runs(table: NDArray[np.integer], width: int) -> TokenCounts:
    """Count the runs of equal tokens in a table of sorted keys, whose rows end with padding."""
    ids = table >> 1
    is_first = np.ones(table.shape, np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=is_first[:, 1:])
    run_starts = is_first.reshape(-1).nonzero()[0]
    run_sizes = np.diff(run_starts, append=table.size)
    output_count = np.add.reduceat(table.reshape(-1) & 1, run_starts) if run_starts.size else run_starts
    run_ids = ids.reshape(-1)[run_starts]
    is_real = run_ids < width
    run_starts, run_sizes, output_count, run_ids = (
        run_starts[is_real],
        run_sizes[is_real],
        output_count[is_real],
        run_ids[is_real],
    )
    return TokenCounts(
        rows=run_starts // table.shape[1],
        ids=run_ids.astype(np.int64),
        in_input=run_sizes > output_count,
        output_count=output_count.astype(np.int32),
    )


def _entries_of_rows(entry_rows: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the positions of the entries of ``rows``, and for each the position of its row in ``rows``."""
    first_entries, end_entries = np.searchsorted(entry_rows, rows), np.searchsorted(entry_rows, rows, "right")
    positions_in_rows = np.repeat(np.arange(rows.size), end_entries - first_entries)
    run_ends = np.add.accumulate(end_entries - first_entries)
    return np.arange(positions_in_rows.size) + (end_entries - run_ends)[positions_in_rows], positions_in_rows


_MAX_ADDED_TOKENS = 8  # a row with more new tokens than this is counted again from the start, which is faster
# greatest number of kept requests that are absent from a step with ``is_prefill``, and may have ended
_MAX_ABSENT_REQUESTS = 1024
_GROWTH_COLUMNS = 256  # number of columns by which a table of texts grows, so that most steps do not copy it
_PADDING_ID = -1  # The entry after the end of a text in a table of texts. No token has this id.


class TokenCountCache:
    """Token counts by request, which are kept between steps."""

    # The counted texts are kept, too, and are compared with the new texts entry by entry. A token that replaces
    # padding is added to the counts. If another token changed or vanished, the row is counted again. So the counts
    # are always the same as those of a new count.

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(0)

    def _clear(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        # One row per request. The rows of the last step come first.
        self._request_ids = np.empty(0, np.int64)
        self._texts = [np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)]
        self._counts = NO_COUNTS

    @property
    def requests(self) -> list[int]:
        ids: list[int] = self._request_ids.tolist()
        return ids

    def step(
        self, requests: Ids, texts: tuple[Ids | None, Ids | None], vocab_size: int, is_prefill: bool
    ) -> TokenCounts:
        """Count the tokens of a batch, and keep the counts."""
        # ``requests``: (B,). ``texts``: `all_input_ids`, (B, L), and `output_ids`, (B, L'). With ``is_prefill``,
        # this is the first token of these requests: all tokens are counted, and the counts of other requests are
        # kept. A later step deletes the counts of requests that it does not name.
        no_tokens = np.empty((requests.size, 0), np.int64)
        text_pair = [no_tokens if ids is None else ids.astype(np.int64, copy=False) for ids in texts]
        with self._lock:
            if vocab_size != self._vocab_size:
                self._clear(vocab_size)
            try:
                self._arrange_rows(requests, is_prefill)
                self._update_counts(text_pair)
            except BaseException:  # also after Ctrl-C, texts and counts must match
                self._clear(vocab_size)
                raise
            has_no_other_requests = self._request_ids.size == requests.size
            return self._counts if has_no_other_requests else self._counts.select_rows(np.arange(requests.size))

    def _arrange_rows(self, requests: Ids, is_prefill: bool) -> None:
        """Move the rows of these requests to the front, add new requests, and delete ended requests."""
        old_requests = self._request_ids
        if not is_prefill and np.array_equal(old_requests, requests):
            return
        order = np.argsort(old_requests)
        old_rows = np.append(order, -1)[np.searchsorted(old_requests, requests, sorter=order)]
        is_known = (np.append(old_requests, 0)[old_rows] == requests) & (old_rows >= 0) & (not is_prefill)
        other_rows = np.isin(old_requests, requests, invert=True).nonzero()[0][
            : _MAX_ABSENT_REQUESTS if is_prefill else 0
        ]
        rows = np.append(np.where(is_known, old_rows, -1), other_rows)
        self._request_ids = np.append(requests, old_requests[other_rows])
        self._texts = [self._copy_rows(table, rows) for table in self._texts]
        self._counts = self._counts.select_rows(rows)

    def _copy_rows(self, table: NDArray[np.int64], rows: Ints) -> NDArray[np.int64]:
        """Return some rows of a table of texts, with as many columns as they need. Row -1 becomes an empty row."""
        copied_rows: NDArray[np.int64] = table[rows[rows >= 0]]
        used_columns = np.flatnonzero(is_token(copied_rows, self._vocab_size).any(axis=0))
        width = int(used_columns[-1]) + 1 if used_columns.size else 0
        result = np.full((rows.size, width), _PADDING_ID, np.int64)
        result[rows >= 0] = copied_rows[:, :width]
        return result

    def _update_counts(self, text_pair: list[NDArray[np.int64]]) -> None:
        """Update the counts of the first rows to the new texts of both kinds."""
        changes = [self._store_and_compare(kind, ids) for kind, ids in enumerate(text_pair)]
        must_recount = changes[0].must_recount | changes[1].must_recount
        if must_recount.any():
            self._recount(must_recount, text_pair)
        for kind, (rows, ids, _) in enumerate(changes):
            is_counted = ~must_recount[rows]
            if is_counted.any():
                self._counts = self._counts.add(rows[is_counted], ids[is_counted], kind, self._vocab_size)

    def _store_and_compare(self, kind: int, ids: Ids) -> _TextChange:
        """Store the texts of one kind, and return the changes."""
        height, text_length = ids.shape
        if text_length > self._texts[kind].shape[1]:
            added_columns = text_length + _GROWTH_COLUMNS - self._texts[kind].shape[1]
            self._texts[kind] = np.pad(
                self._texts[kind], ((0, 0), (0, added_columns)), constant_values=_PADDING_ID
            )
        table, columns_after = self._texts[kind][:height, :text_length], self._texts[kind][:height, text_length:]
        must_recount = is_token(columns_after, self._vocab_size).any(axis=1)
        columns_after[must_recount] = _PADDING_ID
        changed_positions = (table != ids).reshape(-1).nonzero()[0]
        rows, columns = changed_positions // max(text_length, 1), changed_positions % max(text_length, 1)
        was_token, new_ids = is_token(table[rows, columns], self._vocab_size), ids[rows, columns]
        table[rows, columns] = new_ids
        is_token_now = is_token(new_ids, self._vocab_size)
        must_recount |= np.bincount(rows[was_token], minlength=height) > 0
        must_recount |= np.bincount(rows[is_token_now], minlength=height) > _MAX_ADDED_TOKENS
        return _TextChange(rows[is_token_now], new_ids[is_token_now], must_recount)

    def _recount(self, must_recount: Mask, text_pair: list[NDArray[np.int64]]) -> None:
        """Count some rows again from the start."""
        recounted_rows = must_recount.nonzero()[0]
        counts_of_rows = count_tokens(text_pair[0][recounted_rows], text_pair[1][recounted_rows], self._vocab_size)
        new_counts = counts_of_rows._replace(rows=recounted_rows[counts_of_rows.rows])
        keeps_other_rows = np.ones(self._request_ids.size - must_recount.size, np.bool_)
        is_kept = np.append(~must_recount, keeps_other_rows)[self._counts.rows]
        columns: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(self._counts, new_counts, strict=True)
        merged_columns = [np.concatenate([old[is_kept], new]) for old, new in columns]
        order = np.argsort(merged_columns[0], kind="stable")
        self._counts = TokenCounts(*(column[order] for column in merged_columns))


class _TextChange(NamedTuple):
    """The changes of the texts of a batch since the step before."""

    rows: Ints  # the row of each new token, (n,)
    ids: Ints  # the new tokens, (n,)
    must_recount: Mask  # for each row, whether it must be counted again from the start, (B,)
