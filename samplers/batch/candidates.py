"""The highest logits of each row, in order, from one pass over a batch; and how many of them top-p keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import MIN_FLOAT32, Floats, exact_weights
from .arguments import Ints, Mask
from .logits import BLOCK_COUNT
from .penalties import PenalizedLogits, RowSelection

_SIGN_BIT, _VALUE_BITS, _ID_BITS = np.uint32(1 << 31), np.uint32((1 << 31) - 1), np.uint64((1 << 32) - 1)


class TopCandidates(NamedTuple):
    """The highest candidates of some rows, from high to low; of equal logits the lower id comes first."""

    logits: Floats
    """(R, n), after the temperature; -inf where a row has no more candidates."""
    keys: NDArray[np.uint64]
    """What they were sorted by, (R, n); the lower half is the token."""

    def of(self, rows: Ints) -> TopCandidates:
        """The candidates of some of the rows."""
        return TopCandidates(self.logits[rows], self.keys[rows])

    def tokens(self, positions: Ints) -> Ints:
        """The token at one position of each row, (R,)."""
        tokens: Ints = (self.keys[np.arange(positions.size), positions] & _ID_BITS).astype(np.int64)
        return tokens


_MAX_SEARCHED_COUNT = BLOCK_COUNT // 8
"""For more candidates than this, looking at every logit of the row is faster than searching blocks."""
_MAX_BLOCKS_PER_ROW = BLOCK_COUNT // 4
"""The same where more blocks than this would have to be searched."""


def find_top_candidates(selection: RowSelection, counts: Ints) -> Iterator[tuple[Ints, TopCandidates]]:
    """Find the highest candidates of each row: at least ``counts``, (R,), of them, or all with a finite logit.

    Yields positions of rows and their candidates. A row whose highest scaled logit is beyond float32 is either not
    yielded, or its first candidate is not finite.
    """
    remaining = np.arange(counts.size)
    short = (counts <= _MAX_SEARCHED_COUNT).nonzero()[0]
    if short.size and selection.table.width >= 2 * BLOCK_COUNT:
        candidates, is_found = _search_blocks(selection.of(short), counts[short])
        if is_found.any():
            yield short[is_found], candidates.of(is_found.nonzero()[0])
        remaining = np.setdiff1d(remaining, short[is_found])
    for positions, scaled, _ in selection.of(remaining).scaled_rows():
        last = selection.table.width - int(counts[remaining[positions]].max())
        bound = np.maximum(np.partition(scaled, last, axis=1)[:, last], MIN_FLOAT32)
        yield remaining[positions], _candidates_where(scaled, scaled >= bound[:, None])


def _search_blocks(selection: RowSelection, counts: Ints) -> tuple[TopCandidates, Mask]:
    """Search the highest candidates in a few blocks; return them, and for which rows they were found.

    Formula: the maxima of g groups of blocks are logits of g different tokens, so at least k tokens reach the k-th
    highest of these. Only blocks whose maximum reaches it are searched. Penalties are laid over: a group whose
    highest token has a penalty does not count, and the tokens with penalties are added one by one.
    """
    table, height = selection.table, counts.size
    maxima = table.maxima if height == table.height else table.maxima[selection.rows]
    highest = maxima / selection.temperature[:, None]
    bounds = _lower_bounds(highest, selection.penalized, counts)
    hits = (highest >= bounds[:, None]).reshape(-1).nonzero()[0]
    row = hits // BLOCK_COUNT
    is_found = np.bincount(row, minlength=height) <= _MAX_BLOCKS_PER_ROW
    if not is_found.all():
        hits, row = hits[is_found[row]], row[is_found[row]]
    depth = -(-table.width // BLOCK_COUNT)
    ids = (hits % BLOCK_COUNT)[:, None] + np.arange(depth) * BLOCK_COUNT
    is_token = ids < table.width
    cells = (selection.rows[row] * table.width)[:, None] + np.where(is_token, ids, 0)
    logits = table.take(cells) / selection.temperature[row, None]
    near = (is_token & (logits >= bounds[row, None])).reshape(-1).nonzero()[0]
    row, ids, logits = row[near // depth], ids.reshape(-1)[near], logits.reshape(-1)[near]
    return sort_candidates(height, *_with_penalties(row, ids, logits, selection, bounds)), is_found


_GROUPS_PER_CANDIDATE, _MIN_GROUPED_CANDIDATES = 8, 64
"""More groups give a closer bound: so many for each candidate, and for at least so many candidates."""


def _lower_bounds(highest: Floats, penalized: PenalizedLogits, counts: Ints) -> Floats:
    """A logit of each row, scaled, that at least ``counts`` candidates reach; from block maxima, (R,)."""
    groups = (
        1 << (_GROUPS_PER_CANDIDATE * max(int(counts.max(initial=1)), _MIN_GROUPED_CANDIDATES) - 1).bit_length()
    )
    group_maxima = highest.reshape(counts.size, -1, groups).max(axis=1)
    group = penalized.ids % groups
    # If the highest token of a group has a penalty, nothing is known of the group's other tokens.
    is_unknown = penalized.old >= group_maxima[penalized.rows, group]
    group_maxima[penalized.rows[is_unknown], group[is_unknown]] = -np.inf
    group_maxima.sort(axis=1)
    return np.maximum(group_maxima[np.arange(counts.size), groups - counts], MIN_FLOAT32)


def _with_penalties(
    rows: Ints, ids: Ints, logits: Floats, selection: RowSelection, bounds: Floats
) -> tuple[Ints, Ints, Floats]:
    """Replace the logits that penalties change; an entry below its row's bound is left out.

    Args:
        rows: the row of each entry, (n,).
        ids: the token of each entry, (n,).
        logits: the scaled logit of each entry, without penalties, (n,).
        selection: the rows with their penalties.
        bounds: the scaled logit that an entry of each row must reach, (R,).

    Returns rows, ids and logits of the new entries.
    """
    penalized, width = selection.penalized, selection.table.width
    if not penalized.rows.size:
        return rows, ids, logits
    bound = bounds[penalized.rows]
    was_above, is_above = penalized.old >= bound, penalized.new >= bound
    kept = ~np.isin(rows * width + ids, (penalized.rows * width + penalized.ids)[was_above])
    return (
        np.concatenate([rows[kept], penalized.rows[is_above]]),
        np.concatenate([ids[kept], penalized.ids[is_above]]),
        np.concatenate([logits[kept], penalized.new[is_above]]),
    )


def _candidates_where(scaled: Floats, mask: Mask) -> TopCandidates:
    """The candidates of whole rows, (R, V), that a mask selects."""
    cells = mask.reshape(-1).nonzero()[0]
    rows, ids = np.divmod(cells, scaled.shape[1])
    return sort_candidates(len(scaled), rows, ids, scaled.reshape(-1)[cells])


def sort_candidates(height: int, rows: Ints, ids: Ints, logits: Floats) -> TopCandidates:
    """Sort candidates, one entry each, by one sort of integers that hold logit and id.

    Args:
        height: the number of rows.
        rows: the row of each entry, (n,).
        ids: the token of each entry, (n,).
        logits: the logit of each entry, (n,).
    """
    bits = (logits + np.float32(0)).view(np.uint32)  # + 0 makes -0 and 0 equal
    entries = _descending_bits(bits).astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64)
    sizes = np.bincount(rows, minlength=height)
    ends = np.add.accumulate(sizes)
    lowest_bits = _descending_bits(np.array([-np.inf], np.float32).view(np.uint32))
    padding = lowest_bits.astype(np.uint64) << np.uint64(32) | _ID_BITS
    keys = np.full((height, int(sizes.max(initial=1))), padding, np.uint64)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, entries = rows[order], entries[order]
    keys[rows, np.arange(rows.size) - (ends - sizes)[rows]] = entries
    keys.sort(axis=1)
    return TopCandidates(_descending_bits((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32), keys)


def _descending_bits(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Turn the bits of a float32 into an integer that falls as the float rises. It is its own inverse."""
    return np.where(bits & _SIGN_BIT, bits, ~bits & _VALUE_BITS)


def count_reaching_p(logits: Floats, top_k: Ints, top_p: Floats) -> Ints:
    """Return how many of the ``top_k`` highest candidates of each row reach the mass p, (R,).

    All of them do if p is 1. ``logits``, (R, n): candidates from high to low.
    """
    if (top_p >= 1).all():
        return top_k
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= top_k[:, None]] = 0
    below = _count_below_p(weights, np.add.accumulate(weights, axis=1)[:, -1], top_p)
    return np.where(top_p < 1, np.minimum(below + 1, top_k), top_k)


def select_nucleus(scaled: Floats, highest: Floats, top_p: Floats) -> Iterator[Nucleus]:
    """Find the candidates of whole rows, (R, V), that reach the mass p; ``highest`` and ``top_p``: (R,).

    Yields at most twice. The second time is for rows of which too few candidates were sorted the first time: they
    are sorted whole. If their mass is below p even then, by rounding, all of their candidates are kept.
    """
    weights = scaled - highest[:, None]
    np.exp(weights, out=weights, dtype=np.float64, casting="same_kind")
    # llama.cpp sums in float32 from the first token to the last. NumPy adds pairwise, but subtracts one by one.
    total = -np.subtract.reduce(weights, axis=1, initial=np.float32(0))
    candidates = _candidates_where(scaled, weights >= _estimate_floor(weights, total, top_p)[:, None])
    below = _count_below_p(softmax_weights(candidates.logits), total, top_p)
    reaches_p = below < np.isfinite(candidates.logits).sum(axis=1)
    done, again = reaches_p.nonzero()[0], (~reaches_p).nonzero()[0]
    yield Nucleus(done, candidates.of(done), below[done] + 1)
    if again.size:
        candidates = _candidates_where(scaled[again], np.ones((again.size, scaled.shape[1]), np.bool_))
        below = _count_below_p(softmax_weights(candidates.logits), total[again], top_p[again])
        yield Nucleus(again, candidates, np.minimum(below + 1, scaled.shape[1]))


class Nucleus(NamedTuple):
    """The candidates of some rows that reach the mass p."""

    rows: Ints
    """Positions of the rows, (r,)."""
    candidates: TopCandidates
    """Their highest candidates, from high to low."""
    kept: Ints
    """How many of these are kept, (r,)."""


def _count_below_p(weights: Floats, total: Floats, top_p: Floats) -> Ints:
    """How many of the highest candidates have a mass below p together, (R,).

    Formula: the largest n for which the float32 sum of w / total over the first n is below p. The next candidate
    reaches p and is kept as well.
    """
    mass = np.add.accumulate(weights / total[:, None], axis=1)
    counts: Ints = np.count_nonzero(mass < top_p[:, None], axis=1)
    return counts


_SAMPLED_TOKENS = 4096
"""Tokens of a row from which the floor of its nucleus is estimated."""


def _estimate_floor(weights: Floats, total: Floats, top_p: Floats) -> Floats:
    """Estimate the lowest weight of the nucleus of whole rows, (R, V): float32 (R,).

    Every n-th token is looked at. Of the mass 1 - p that may lie below the floor, half is left as a margin.
    """
    stride = max(weights.shape[1] // _SAMPLED_TOKENS, 1)
    sampled = np.sort(weights[:, ::stride], axis=1)
    mass = np.add.accumulate(sampled, axis=1) * np.float32(stride)
    below = np.count_nonzero(mass <= ((1 - top_p) / 2 * total)[:, None], axis=1)
    floor: Floats = sampled[np.arange(total.size), np.maximum(below - 1, 0)]
    return floor


def softmax_weights(logits: Floats) -> Floats:
    """Return exp(logit - highest), each correctly rounded; 0 for -inf. ``logits``, (R, n), go from high to low."""
    return exact_weights(logits - logits[:, :1])
