"""The tokens of requests, counted once and then kept: a step adds only what is new."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .counts import NONE, Counts, count
from .data import Ids, Ints, Mask, tokens

# A row with more new tokens than this is counted afresh.
_FEW = 8
# Requests beyond which the oldest are forgotten, if no step says which have ended.
_MOST = 1024
# Columns by which a table of texts grows.
_MORE = 256
_PADDING = -1


class RequestCache:
    """Counts of tokens by request, which outlive a step.

    The texts that were counted are kept beside, and compared with those that come, place by place: where padding
    has become a token, it is counted; where a token has changed or gone, its row is counted afresh. So what comes
    from the cache equals what is counted anew.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._forget(0)

    def _forget(self, width: int) -> None:
        self._width = width
        # A row a request, those of the last step first.
        self._requests = np.empty(0, np.int64)
        self._texts = [np.empty((0, 0), np.int64), np.empty((0, 0), np.int64)]
        self._counts = NONE

    @property
    def requests(self) -> list[int]:
        """The requests that are kept."""
        kept: list[int] = self._requests.tolist()
        return kept

    def step(self, requests: Ints, texts: tuple[Ids | None, Ids | None], width: int, is_prefill: bool) -> Counts:
        """Count the tokens of a batch, whose rows are these requests, and keep the counts.

        ``texts``: `all_input_ids`, (B, L), and `output_ids`, (B, L'), tokens of a vocabulary of ``width``. At a
        first token (``is_prefill``) all of it is counted, and other requests are kept; a later step forgets those
        that it does not name.
        """
        none = np.empty((requests.size, 0), np.int64)
        pair = [none if ids is None else ids.astype(np.int64, copy=False) for ids in texts]
        with self._lock:
            if width != self._width:
                self._forget(width)
            try:
                self._arrange(requests, is_prefill)
                self._count(pair)
            except BaseException:  # also Ctrl-C: texts without their counts must not stay
                self._forget(width)
                raise
            alone = self._requests.size == requests.size
            return self._counts if alone else self._counts.of(np.arange(requests.size))

    def _arrange(self, requests: Ints, is_prefill: bool) -> None:
        """Put the rows of these requests first, empty ones where they begin, and forget what has ended."""
        old = self._requests
        if not is_prefill and np.array_equal(old, requests):
            return
        order = np.argsort(old)
        at = np.append(order, -1)[np.searchsorted(old, requests, sorter=order)]
        goes_on = (np.append(old, 0)[at] == requests) & (at >= 0) & (not is_prefill)
        others = np.isin(old, requests, invert=True).nonzero()[0][: _MOST if is_prefill else 0]
        rows = np.append(np.where(goes_on, at, -1), others)
        self._requests = np.append(requests, old[others])
        self._texts = [self._rows(table, rows) for table in self._texts]
        self._counts = self._counts.of(rows)

    def _rows(self, table: NDArray[np.int64], rows: Ints) -> NDArray[np.int64]:
        """Some rows of a table of texts, and no more columns than they need; -1: a row of padding only."""
        known: NDArray[np.int64] = table[rows[rows >= 0]]
        used = tokens(known, self._width).any(axis=0).nonzero()[0]
        width = int(used[-1]) + 1 if used.size else 0
        found = np.full((rows.size, width), _PADDING, np.int64)
        found[rows >= 0] = known[:, :width]
        return found

    def _count(self, pair: list[NDArray[np.int64]]) -> None:
        """Bring the counts of the first rows up to these texts."""
        changes = [self._compare(kind, ids) for kind, ids in enumerate(pair)]
        anew = changes[0][2] | changes[1][2]
        if anew.any():
            self._recount(anew, pair)
        for kind, (rows, ids, _) in enumerate(changes):
            new = ~anew[rows]
            if new.any():
                self._counts = self._counts.add(rows[new], ids[new], kind, self._width)

    def _compare(self, kind: int, ids: Ids) -> tuple[Ints, Ints, Mask]:
        """Take over a text. Returns rows and ids, (n,), of new tokens, and which rows are to be counted afresh."""
        height, size = ids.shape
        if size > self._texts[kind].shape[1]:
            more = size + _MORE - self._texts[kind].shape[1]
            self._texts[kind] = np.pad(self._texts[kind], ((0, 0), (0, more)), constant_values=_PADDING)
        table, beyond = self._texts[kind][:height, :size], self._texts[kind][:height, size:]
        anew = tokens(beyond, self._width).any(axis=1)
        beyond[anew] = _PADDING
        places = (table != ids).reshape(-1).nonzero()[0]
        rows, columns = places // max(size, 1), places % max(size, 1)
        gone, new = tokens(table[rows, columns], self._width), ids[rows, columns]
        table[rows, columns] = new
        came = tokens(new, self._width)
        anew |= np.bincount(rows[gone], minlength=height) > 0
        anew |= np.bincount(rows[came], minlength=height) > _FEW
        return rows[came], new[came], anew

    def _recount(self, anew: Mask, pair: list[NDArray[np.int64]]) -> None:
        which = anew.nonzero()[0]
        counted = count(pair[0][which], pair[1][which], self._width)
        kept = np.append(~anew, np.ones(self._requests.size - anew.size, np.bool_))[self._counts.rows]
        fresh = counted._replace(rows=which[counted.rows])
        pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]] = zip(self._counts, fresh, strict=True)
        both = [np.concatenate([old[kept], new]) for old, new in pairs]
        order = np.argsort(both[0], kind="stable")
        self._counts = Counts(*(column[order] for column in both))
