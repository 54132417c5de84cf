"""The highest logits of each row, in order, from one pass over a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .data import Floats, Ints, Mask
from .penalties import Part, Touched
from .tensors import BLOCKS

LOWEST = np.finfo(np.float32).min
"""A bound that every finite logit reaches."""

# A head that is longer than this is found by a look at every logit of its row.
_LONGEST = BLOCKS // 8
# So is one for which more blocks than this would have to be looked into.
_MOST = BLOCKS // 4
# Groups of tokens for each candidate that is wanted, and for how many at least; the more, the nearer the bound.
_GROUPS, _FEWEST = 8, 64
_SIGN, _REST, _ID = np.uint32(1 << 31), np.uint32((1 << 31) - 1), np.uint64((1 << 32) - 1)


class Heads(NamedTuple):
    """The highest candidates of some rows, from high to low; of equal logits the lower id stands first."""

    logits: Floats
    """(R, n), after the temperature; -inf where there is no more."""
    keys: NDArray[np.uint64]
    """What they were sorted by; the token is in the lower half."""

    def of(self, rows: Ints) -> Heads:
        """Those of some rows."""
        return Heads(self.logits[rows], self.keys[rows])

    def tokens(self, places: Ints) -> Ints:
        """The token at one place of each row."""
        tokens: Ints = (self.keys[np.arange(places.size), places] & _ID).astype(np.int64)
        return tokens


def ordered(height: int, rows: Ints, ids: Ints, logits: Floats) -> Heads:
    """Sort the candidates of some rows, an entry each, by one sort of a number that holds logit and id."""
    bits = (logits + np.float32(0)).view(np.uint32)  # + 0 makes -0 and 0 the same
    entries = _turned(bits).astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64)
    sizes = np.bincount(rows, minlength=height)
    ends = np.add.accumulate(sizes)
    nothing = _turned(np.array([-np.inf], np.float32).view(np.uint32)).astype(np.uint64) << np.uint64(32) | _ID
    keys = np.full((height, int(sizes.max(initial=1))), nothing, np.uint64)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, entries = rows[order], entries[order]
    keys[rows, np.arange(rows.size) - (ends - sizes)[rows]] = entries
    keys.sort(axis=1)
    return Heads(_turned((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32), keys)


def _turned(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The bits of a float32 as a number that is the smaller the higher the float is; twice changes nothing."""
    return np.where(bits & _SIGN, bits, ~bits & _REST)


def heads(part: Part, counts: Ints) -> Iterator[tuple[Ints, Heads]]:
    """The highest candidates of each row, at least ``counts`` of them, (R,), or all whose quotient is finite.

    Comes in parts: the places of rows, and their heads. A row whose highest quotient is beyond float32 either has
    no part, or a head that does not begin with a finite number.
    """
    slow = np.arange(counts.size)
    short = (counts <= _LONGEST).nonzero()[0]
    if short.size and part.table.width >= 2 * BLOCKS:
        found, sure = _by_blocks(part.of(short), counts[short])
        if sure.any():
            yield short[sure], found.of(sure.nonzero()[0])
        slow = np.setdiff1d(slow, short[sure])
    for places, quotients, _ in part.of(slow).quotients():
        last = part.table.width - int(counts[slow[places]].max())
        bound = np.maximum(np.partition(quotients, last, axis=1)[:, last], LOWEST)
        yield slow[places], reaching(quotients, quotients >= bound[:, None])


def reaching(quotients: Floats, mask: Mask) -> Heads:
    """The candidates of whole rows, (R, V), that a mask says."""
    places = mask.reshape(-1).nonzero()[0]
    rows, ids = np.divmod(places, quotients.shape[1])
    return ordered(len(quotients), rows, ids, quotients.reshape(-1)[places])


def _by_blocks(part: Part, counts: Ints) -> tuple[Heads, Mask]:
    """Heads by a look into few blocks, and of which rows they are right.

    Formula: of the maxima of g groups of blocks, the k-th highest is a quotient that at least k tokens reach. Only
    blocks whose maximum reaches it are looked into. Penalties are laid over: a group whose highest token they
    change does not count, and the tokens that they change are looked at one by one.
    """
    table, height = part.table, counts.size
    maxima = table.maxima if height == table.height else table.maxima[part.rows]
    highest = maxima / part.temperature[:, None]
    floor = _floor(highest, part.touched, counts)
    hits = (highest >= floor[:, None]).reshape(-1).nonzero()[0]
    row = hits // BLOCKS
    few = np.bincount(row, minlength=height) <= _MOST
    if not few.all():
        hits, row = hits[few[row]], row[few[row]]
    depth = -(-table.width // BLOCKS)
    ids = (hits % BLOCKS)[:, None] + np.arange(depth) * BLOCKS
    inside = ids < table.width
    places = (part.rows[row] * table.width)[:, None] + np.where(inside, ids, 0)
    logits = table.take(places) / part.temperature[row, None]
    near = (inside & (logits >= floor[row, None])).reshape(-1).nonzero()[0]
    row, ids, logits = row[near // depth], ids.reshape(-1)[near], logits.reshape(-1)[near]
    return ordered(height, *_overlaid(row, ids, logits, part, floor)), few


def _floor(highest: Floats, touched: Touched, counts: Ints) -> Floats:
    """A quotient that at least ``counts`` candidates of a row reach, by the maxima of its blocks."""
    groups = 1 << (_GROUPS * max(int(counts.max(initial=1)), _FEWEST) - 1).bit_length()
    tops = highest.reshape(counts.size, -1, groups).max(axis=1)
    group = touched.ids % groups
    # Where a changed token is the highest of its group, nothing is known of the others.
    spoilt = touched.old >= tops[touched.rows, group]
    tops[touched.rows[spoilt], group[spoilt]] = -np.inf
    tops.sort(axis=1)
    return np.maximum(tops[np.arange(counts.size), groups - counts], LOWEST)


def _overlaid(rows: Ints, ids: Ints, logits: Floats, part: Part, floor: Floats) -> tuple[Ints, Ints, Floats]:
    """Put the changed quotients in the place of the old ones; below the floor nothing counts."""
    touched, width = part.touched, part.table.width
    if not touched.rows.size:
        return rows, ids, logits
    bound = floor[touched.rows]
    stale, fresh = touched.old >= bound, touched.new >= bound
    kept = ~np.isin(rows * width + ids, (touched.rows * width + touched.ids)[stale])
    return (
        np.concatenate([rows[kept], touched.rows[fresh]]),
        np.concatenate([ids[kept], touched.ids[fresh]]),
        np.concatenate([logits[kept], touched.new[fresh]]),
    )
