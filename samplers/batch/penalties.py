"""Repetition, frequency and presence penalties: the few logits of a batch that they change.

Penalties need the counts of the tokens in each text. The counts of a request are kept between steps, so that a
step counts only new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from threading import Lock
from typing import NamedTuple

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
        selected = _entries_of_rows(self.rows, rows)
        return PenalizedLogits(
            rows=selected.new_rows,
            ids=self.ids[selected.entries],
            old_logits=self.old_logits[selected.entries],
            new_logits=self.new_logits[selected.entries],
        )


NO_PENALTIES = PenalizedLogits(
    rows=np.empty(0, np.int64),
    ids=np.empty(0, np.int64),
    old_logits=np.empty(0, np.float32),
    new_logits=np.empty(0, np.float32),
)


def compute_penalties(table: LogitTable, counts: TokenCounts, plan: RowPlan) -> PenalizedLogits:
    """Compute the logits that penalties change."""
    # Formula, float32: for a token of `all_input_ids`, logit * repetition if logit <= 0, else logit / repetition;
    # then, for a token that occurs ``count`` times in `output_ids`, minus count * frequency + presence. An
    # overflow is clamped to a finite number. Equals the sampler `penalties` with ``scope: output`` and ``last_n:
    # -1``. Raises ``SamplingError`` with the number of the row if a result is NaN.
    rows = counts.rows
    old_logits = table.logits_at(rows * table.width + counts.ids)
    repetition = np.where(counts.in_input, plan.repetition_penalty[rows], np.float32(1))
    output_count = counts.output_count.astype(np.float32)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        new_logits = np.where(old_logits <= 0, old_logits * repetition, old_logits / repetition)
        new_logits -= (
            output_count * plan.frequency_penalty[rows] + (output_count > 0) * plan.presence_penalty[rows]
        )
    nan_entries = np.isnan(new_logits).nonzero()[0]
    if nan_entries.size:
        # If the model's logit was wrong already, the message says so.
        check_finite(old_logits[nan_entries], rows[nan_entries])
        raise SamplingError(f"penalties: row {rows[nan_entries[0]]}: left no finite logit")
    return PenalizedLogits(rows, counts.ids, old_logits, clamp_to_finite(new_logits, old_logits))


# If entire rows are needed, so many logits are processed together: 4 MB, which fit into the cache
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
        """Select rows of the table, ascending, (R,). ``penalized`` has the logits without the temperature."""
        selected = penalized if rows.size == table.height else penalized.select_rows(rows)
        temperature_of_entry = temperature[selected.rows]
        scaled = selected._replace(
            old_logits=selected.old_logits / temperature_of_entry,
            new_logits=selected.new_logits / temperature_of_entry,
        )
        return cls(table, rows, temperature, scaled)

    def select_rows(self, positions: Ints) -> BatchRowSelection:
        """Return a selection of the rows at some ascending positions in this selection."""
        if positions.size == self.rows.size:
            return self
        return BatchRowSelection(
            table=self.table,
            rows=self.rows[positions],
            temperature=self.temperature[positions],
            penalized=self.penalized.select_rows(positions),
        )

    def scaled_rows(self) -> Iterator[ScaledRows]:
        """Yield the rows with all tokens, a few rows at a time."""
        # Skips a row if its highest scaled logit exceeds float32.
        rows_per_chunk = max(_LOGITS_PER_CHUNK // self.table.width, 1)
        for start in range(0, self.rows.size, rows_per_chunk):
            positions = np.arange(start, min(start + rows_per_chunk, self.rows.size))
            chunk = self.select_rows(positions)
            logits, highest_logits = self.table.rows_at(chunk.rows)
            scaled = logits / chunk.temperature[:, None]
            highest = highest_logits / chunk.temperature
            if chunk.penalized.rows.size:
                scaled[chunk.penalized.rows, chunk.penalized.ids] = chunk.penalized.new_logits
                highest = scaled.max(axis=1)
            is_finite = np.isfinite(highest)
            if is_finite.all():
                yield ScaledRows(positions, scaled, highest)
            elif is_finite.any():
                yield ScaledRows(positions[is_finite], scaled[is_finite], highest[is_finite])


class ScaledRows(NamedTuple):
    """Some rows with all tokens, divided by their temperatures."""

    positions: Ints  # the positions of the rows in their `BatchRowSelection`, (r,)
    logits: Floats  # logit / temperature, (r, V)
    highest: Floats  # the highest of these logits in each row, (r,)


class TextKind(IntEnum):
    """The two texts of a request whose tokens are counted. The value is the index of the text in a pair."""

    INPUT = 0  # `all_input_ids`
    OUTPUT = 1  # `output_ids`


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
        selected = _entries_of_rows(self.rows, rows)
        return TokenCounts(
            rows=selected.new_rows,
            ids=self.ids[selected.entries],
            in_input=self.in_input[selected.entries],
            output_count=self.output_count[selected.entries],
        )

    def add(self, rows: Ints, ids: Ints, kind: TextKind, width: int) -> TokenCounts:
        """Return counts with more tokens of one kind of text: ``ids``, (n,), with the row of each, (n,)."""
        keys: Ints = self.rows * width + self.ids
        keys_of_tokens: Ints = rows * width + ids
        added_keys, repeats = np.unique(keys_of_tokens, return_counts=True)
        positions: Ints = np.searchsorted(keys, added_keys)
        is_new_entry = np.append(keys, -1)[positions] != added_keys
        new_keys = added_keys[is_new_entry]
        insert_at = positions[is_new_entry]
        all_rows = np.insert(self.rows, insert_at, new_keys // width)
        all_ids = np.insert(self.ids, insert_at, new_keys % width)
        in_input = np.insert(self.in_input, insert_at, False)
        output_count: NDArray[np.int32] = np.insert(self.output_count, insert_at, 0)
        inserted_before = np.add.accumulate(is_new_entry) - is_new_entry
        new_positions = positions + inserted_before
        if kind is TextKind.INPUT:
            in_input[new_positions] = True
        else:
            output_count[new_positions] += repeats.astype(np.int32)
        return TokenCounts(all_rows, all_ids, in_input, output_count)


NO_COUNTS = TokenCounts(
    rows=np.empty(0, np.int64),
    ids=np.empty(0, np.int64),
    in_input=np.empty(0, np.bool_),
    output_count=np.empty(0, np.int32),
)


def count_tokens(all_input: Ids | None, output: Ids | None, width: int) -> TokenCounts:
    """Count the tokens of each row, by one sort, from padded token ids, (B, L) and (B, L')."""
    # Token i has the key 2 i in `all_input` and 2 i + 1 in `output`. So sorting places both next to each other.
    padding_key = 2 * width
    dtype = np.int32 if padding_key < 2**31 else np.int64
    key_tables = []
    for kind, ids in ((TextKind.INPUT, all_input), (TextKind.OUTPUT, output)):
        if ids is not None:
            keys = np.where(is_token(ids, width), 2 * ids.astype(np.int64) + kind, padding_key)
            key_tables.append(keys.astype(dtype))
    height = len(key_tables[0]) if key_tables else 0
    key_tables.append(np.full((height, 1), padding_key, dtype))
    sorted_keys = np.concatenate(key_tables, axis=1)
    sorted_keys.sort(axis=1)
    return _count_runs(sorted_keys, width)


def _count_runs(sorted_keys: NDArray[np.integer], width: int) -> TokenCounts:
    """Count the runs of equal tokens in the rows of a table of keys, each of which ends with padding."""
    ids = sorted_keys >> 1
    is_in_output = sorted_keys & 1
    is_run_start = np.ones(sorted_keys.shape, np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=is_run_start[:, 1:])
    run_starts = is_run_start.reshape(-1).nonzero()[0]
    if not run_starts.size:  # `reduceat` needs at least one run
        return NO_COUNTS
    run_sizes = np.diff(run_starts, append=sorted_keys.size)
    output_count = np.add.reduceat(is_in_output.reshape(-1), run_starts)
    run_ids = ids.reshape(-1)[run_starts]
    is_token_run = run_ids < width
    return TokenCounts(
        rows=(run_starts // sorted_keys.shape[1])[is_token_run],
        ids=run_ids[is_token_run].astype(np.int64),
        in_input=(run_sizes > output_count)[is_token_run],
        output_count=output_count[is_token_run].astype(np.int32),
    )


class _SelectedEntries(NamedTuple):
    """The entries of some rows."""

    entries: Ints  # the positions of the entries, (n,)
    new_rows: Ints  # for each entry, the position of its row among the selected rows, (n,)


def _entries_of_rows(entry_rows: Ints, rows: Ints) -> _SelectedEntries:
    """Return the entries of ``rows``, given the ascending rows of all entries."""
    starts = np.searchsorted(entry_rows, rows)
    ends = np.searchsorted(entry_rows, rows, "right")
    counts = ends - starts
    new_rows = np.repeat(np.arange(rows.size), counts)
    # An entry is moved by the same distance as all entries of its row.
    new_ends = np.add.accumulate(counts)
    distances = ends - new_ends
    return _SelectedEntries(np.arange(new_rows.size) + distances[new_rows], new_rows)


_MAX_ADDED_TOKENS = 8  # a row with more new tokens than this is counted again from the start, which is faster
# Greatest number of requests that are kept although a step with ``is_prefill`` does not name them. Some may have
# ended.
_MAX_ABSENT_REQUESTS = 1024
_GROWTH_COLUMNS = 256  # number of columns by which a table of texts grows, so that most steps do not copy it
_PADDING_ID = -1  # The entry after the end of a text in a table of texts. No token has this id.


class TokenCountCache:
    """Token counts by request, which are kept between steps."""

    # The counted texts are kept, too. A step compares them with the new texts entry by entry. A token in place of
    # padding is added to the counts. If another token changed or vanished, the row is counted again. So the counts
    # are always the same as those of a new count.

    def __init__(self) -> None:
        self._lock = Lock()
        self._clear(0)

    def _clear(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        # One row per request. The requests of the last step come first.
        self._request_ids = np.empty(0, np.int64)
        self._texts = [np.empty((0, 0), np.int64) for _ in TextKind]
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
            if self._request_ids.size == requests.size:
                return self._counts
            return self._counts.select_rows(np.arange(requests.size))

    def _arrange_rows(self, requests: Ids, is_prefill: bool) -> None:
        """Move the rows of these requests to the front, add new requests, and delete ended requests."""
        old_requests = self._request_ids
        if not is_prefill and np.array_equal(old_requests, requests):
            return
        if is_prefill:  # the requests are new, even if earlier ones had the same ids
            old_rows = np.full(requests.size, -1)
            absent_rows = np.isin(old_requests, requests, invert=True).nonzero()[0][:_MAX_ABSENT_REQUESTS]
        else:
            old_rows = _positions_of(requests, old_requests)
            absent_rows = np.empty(0, np.intp)
        rows = np.append(old_rows, absent_rows)
        self._request_ids = np.append(requests, old_requests[absent_rows])
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
        changes = {kind: self._store_and_compare(kind, text_pair[kind]) for kind in TextKind}
        must_recount = changes[TextKind.INPUT].must_recount | changes[TextKind.OUTPUT].must_recount
        if must_recount.any():
            self._recount(must_recount, text_pair)
        for kind, change in changes.items():
            is_added = ~must_recount[change.rows]
            if is_added.any():
                rows, ids = change.rows[is_added], change.ids[is_added]
                self._counts = self._counts.add(rows, ids, kind, self._vocab_size)

    def _store_and_compare(self, kind: TextKind, new_texts: Ints) -> _TextChange:
        """Store the texts of one kind, and return the changes."""
        height, text_length = new_texts.shape
        self._widen_texts(kind, text_length)
        old_texts = self._texts[kind][:height, :text_length]
        columns_after = self._texts[kind][:height, text_length:]
        is_shorter = is_token(columns_after, self._vocab_size).any(axis=1)
        columns_after[is_shorter] = _PADDING_ID
        # NumPy's `nonzero` is slow for two dimensions.
        changed_cells = (old_texts != new_texts).reshape(-1).nonzero()[0]
        rows, columns = np.divmod(changed_cells, max(text_length, 1))
        old_ids = old_texts[rows, columns]
        new_ids = new_texts[rows, columns]
        old_texts[rows, columns] = new_ids
        was_token = is_token(old_ids, self._vocab_size)
        is_new_token = is_token(new_ids, self._vocab_size)
        has_lost_tokens = np.bincount(rows[was_token], minlength=height) > 0
        has_many_new_tokens = np.bincount(rows[is_new_token], minlength=height) > _MAX_ADDED_TOKENS
        return _TextChange(
            rows=rows[is_new_token],
            ids=new_ids[is_new_token],
            must_recount=is_shorter | has_lost_tokens | has_many_new_tokens,
        )

    def _widen_texts(self, kind: TextKind, text_length: int) -> None:
        """Add columns to a table of texts if the new texts are longer."""
        table = self._texts[kind]
        if text_length > table.shape[1]:
            added_columns = text_length + _GROWTH_COLUMNS - table.shape[1]
            self._texts[kind] = np.pad(table, ((0, 0), (0, added_columns)), constant_values=_PADDING_ID)

    def _recount(self, must_recount: Mask, text_pair: list[NDArray[np.int64]]) -> None:
        """Count some rows again from the start."""
        recounted_rows = must_recount.nonzero()[0]
        all_input = text_pair[TextKind.INPUT][recounted_rows]
        output = text_pair[TextKind.OUTPUT][recounted_rows]
        counts_of_rows = count_tokens(all_input, output, self._vocab_size)
        new = counts_of_rows._replace(rows=recounted_rows[counts_of_rows.rows])
        old = self._counts
        absent_rows_stay = np.ones(self._request_ids.size - must_recount.size, np.bool_)
        stays = np.append(~must_recount, absent_rows_stay)[old.rows]
        rows = np.concatenate([old.rows[stays], new.rows])
        order = np.argsort(rows, kind="stable")
        self._counts = TokenCounts(
            rows=rows[order],
            ids=np.concatenate([old.ids[stays], new.ids])[order],
            in_input=np.concatenate([old.in_input[stays], new.in_input])[order],
            output_count=np.concatenate([old.output_count[stays], new.output_count])[order],
        )


def _positions_of(values: Ids, table: Ints) -> Ints:
    """Return the position of each value in a table of distinct values; -1 for a value that is not in it."""
    order = np.argsort(table)
    positions: Ints = np.append(order, -1)[np.searchsorted(table, values, sorter=order)]
    # A value that is not in the table gets the position of the next higher value, or -1.
    is_in_table = np.append(table, 0)[positions] == values
    return np.where(is_in_table, positions, -1)


class _TextChange(NamedTuple):
    """The changes of the texts of a batch since the step before."""

    rows: Ints  # the row of each new token, (n,)
    ids: Ints  # the new tokens, (n,)
    must_recount: Mask  # for each row, whether it must be counted again from the start, (B,)
