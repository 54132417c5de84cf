"""The token counts of requests, which are kept from step to step: a step counts only its new tokens."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .counts import NO_COUNTS, TokenCounts, count_tokens
from .sampling_data import Ids, Ints, Mask, is_token

_MAX_ADDED_TOKENS = 8
"""A row with more new tokens is counted again from the start, which is then faster."""
_MAX_REQUESTS = 1024
"""More requests than this are not kept while no step says which ones have ended."""
_GROWTH_COLUMNS = 256
"""Columns by which a table of texts grows, so that most steps need no new table."""
_PADDING_ID = -1
"""Stands behind the end of a text in a table of texts; no token has this id."""


class _TextChange(NamedTuple):
    """How the texts of a batch differ from those of the step before."""

    rows: Ints
    """The row of each new token, (n,)."""
    ids: Ints
    """The new tokens, (n,)."""
    must_recount: Mask
    """Which rows must be counted again from the start, (B,)."""


class RequestTokenCache:
    """Token counts by request, which outlive a step.

    The counted texts are kept as well, and compared with the new ones entry by entry. A token in the place of
    padding is added. A row of which a token changed or vanished is counted again. So the cache always gives what a
    fresh count would give.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget(0)

    def _forget(self, width: int) -> None:
        self._width = width
        # A row a request; the requests of the last step come first.
        self._requests = np.empty(0, np.int64)
        self._texts = [np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)]
        self._counts = NO_COUNTS

    @property
    def requests(self) -> list[int]:
        """The ids of the requests that are kept."""
        ids: list[int] = self._requests.tolist()
        return ids

    def step(
        self, requests: Ids, texts: tuple[Ids | None, Ids | None], width: int, is_prefill: bool
    ) -> TokenCounts:
        """Count the tokens of a batch, and keep the counts.

        Args:
            requests: the request of each row, (B,).
            texts: `all_input_ids`, (B, L), and `output_ids`, (B, L').
            width: the size of the vocabulary.
            is_prefill: the first token of these requests: all tokens are counted, and other requests are kept. A
                later step forgets the requests that it does not name.
        """
        no_tokens = np.empty((requests.size, 0), np.int64)
        pair = [no_tokens if ids is None else ids.astype(np.int64, copy=False) for ids in texts]
        with self._lock:
            if width != self._width:
                self._forget(width)
            try:
                self._arrange(requests, is_prefill)
                self._count(pair)
            except BaseException:  # Ctrl-C too: texts must not stay without their counts
                self._forget(width)
                raise
            holds_no_others = self._requests.size == requests.size
            return self._counts if holds_no_others else self._counts.of(np.arange(requests.size))

    def _arrange(self, requests: Ids, is_prefill: bool) -> None:
        """Move the rows of these requests to the front, add rows for new ones, forget those that ended."""
        old = self._requests
        if not is_prefill and np.array_equal(old, requests):
            return
        order = np.argsort(old)
        at = np.append(order, -1)[np.searchsorted(old, requests, sorter=order)]
        is_known = (np.append(old, 0)[at] == requests) & (at >= 0) & (not is_prefill)
        others = np.isin(old, requests, invert=True).nonzero()[0][: _MAX_REQUESTS if is_prefill else 0]
        rows = np.append(np.where(is_known, at, -1), others)
        self._requests = np.append(requests, old[others])
        self._texts = [self._rows(table, rows) for table in self._texts]
        self._counts = self._counts.of(rows)

    def _rows(self, table: NDArray[np.int64], rows: Ints) -> NDArray[np.int64]:
        """Return some rows of a table of texts, with as many columns as they need; row -1 is empty."""
        copied: NDArray[np.int64] = table[rows[rows >= 0]]
        used = np.flatnonzero(is_token(copied, self._width).any(axis=0))
        width = int(used[-1]) + 1 if used.size else 0
        result = np.full((rows.size, width), _PADDING_ID, np.int64)
        result[rows >= 0] = copied[:, :width]
        return result

    def _count(self, pair: list[NDArray[np.int64]]) -> None:
        """Update the counts of the first rows to these texts."""
        changes = [self._compare(kind, ids) for kind, ids in enumerate(pair)]
        must_recount = changes[0].must_recount | changes[1].must_recount
        if must_recount.any():
            self._recount(must_recount, pair)
        for kind, (rows, ids, _) in enumerate(changes):
            new = ~must_recount[rows]
            if new.any():
                self._counts = self._counts.add(rows[new], ids[new], kind, self._width)

    def _compare(self, kind: int, ids: Ids) -> _TextChange:
        """Store the texts of one kind, and return what changed in them."""
        height, size = ids.shape
        if size > self._texts[kind].shape[1]:
            added = size + _GROWTH_COLUMNS - self._texts[kind].shape[1]
            self._texts[kind] = np.pad(self._texts[kind], ((0, 0), (0, added)), constant_values=_PADDING_ID)
        table, beyond = self._texts[kind][:height, :size], self._texts[kind][:height, size:]
        must_recount = is_token(beyond, self._width).any(axis=1)
        beyond[must_recount] = _PADDING_ID
        changed = (table != ids).reshape(-1).nonzero()[0]
        rows, columns = changed // max(size, 1), changed % max(size, 1)
        is_gone, new = is_token(table[rows, columns], self._width), ids[rows, columns]
        table[rows, columns] = new
        is_new = is_token(new, self._width)
        must_recount |= np.bincount(rows[is_gone], minlength=height) > 0
        must_recount |= np.bincount(rows[is_new], minlength=height) > _MAX_ADDED_TOKENS
        return _TextChange(rows[is_new], new[is_new], must_recount)

    def _recount(self, must_recount: Mask, pair: list[NDArray[np.int64]]) -> None:
        """Count some rows again from the start."""
        recounted_rows = must_recount.nonzero()[0]
        counted = count_tokens(pair[0][recounted_rows], pair[1][recounted_rows], self._width)
        fresh = counted._replace(rows=recounted_rows[counted.rows])
        others = np.ones(self._requests.size - must_recount.size, np.bool_)
        is_kept = np.append(~must_recount, others)[self._counts.rows]
        columns: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(self._counts, fresh, strict=True)
        merged = [np.concatenate([old[is_kept], new]) for old, new in columns]
        order = np.argsort(merged[0], kind="stable")
        self._counts = TokenCounts(*(column[order] for column in merged))
