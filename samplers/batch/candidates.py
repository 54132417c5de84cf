"""The highest logits of each row, sorted, from one pass over a batch; and the number of them that top-p keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import MIN_FLOAT32, Floats, exact_weights
from .arguments import Ints, Mask
from .logits import BLOCK_COUNT
from .penalties import BatchRowSelection, PenalizedLogits

_SIGN_BIT, _VALUE_BITS, _ID_BITS = np.uint32(1 << 31), np.uint32((1 << 31) - 1), np.uint64((1 << 32) - 1)


class TopCandidates(NamedTuple):
    """The highest candidates of some rows, from high to low. Of equal logits the lower token id comes first."""

    logits: Floats  # the logits after the temperature, (R, n); -inf where a row has fewer than n candidates
    keys: NDArray[np.uint64]  # The sort keys, (R, n). The lower half of a key is the token id.

    def select_rows(self, rows: Ints) -> TopCandidates:
        """Return the candidates of some of the rows."""
        return TopCandidates(self.logits[rows], self.keys[rows])

    def tokens(self, positions: Ints) -> Ints:
        tokens: Ints = (self.keys[np.arange(positions.size), positions] & _ID_BITS).astype(np.int64)
        return tokens


# for more candidates than this, reading every logit of the row is faster than searching blocks
_MAX_SEARCHED_COUNT = BLOCK_COUNT // 8
# With more blocks to search than this, reading every logit of the row is faster
_MAX_BLOCKS_PER_ROW = BLOCK_COUNT // 4


def find_top_candidates(selection: BatchRowSelection, counts: Ints) -> Iterator[tuple[Ints, TopCandidates]]:
    """Yield positions of rows in the selection, and at least ``counts`` highest candidates of these rows."""
    # A row with fewer finite logits yields all of them. If the highest scaled logit of a row exceeds float32, the
    # row is not yielded, or its first candidate is not finite.
    remaining_positions = np.arange(counts.size)
    short_positions = (counts <= _MAX_SEARCHED_COUNT).nonzero()[0]
    if short_positions.size and selection.table.width >= 2 * BLOCK_COUNT:
        candidates, is_found = _search_blocks(selection.select_rows(short_positions), counts[short_positions])
        if is_found.any():
            yield short_positions[is_found], candidates.select_rows(is_found.nonzero()[0])
        remaining_positions = np.setdiff1d(remaining_positions, short_positions[is_found])
    for positions, scaled_logits, _ in selection.select_rows(remaining_positions).scaled_rows():
        last = selection.table.width - int(counts[remaining_positions[positions]].max())
        bound = np.maximum(np.partition(scaled_logits, last, axis=1)[:, last], MIN_FLOAT32)
        yield remaining_positions[positions], _sort_selected(scaled_logits, scaled_logits >= bound[:, None])


def _search_blocks(selection: BatchRowSelection, counts: Ints) -> tuple[TopCandidates, Mask]:
    """Search few blocks for the highest candidates; return them, and for each row whether they were found."""
    # The maxima of g groups of blocks are logits of g different tokens, so at least k tokens reach the k-th
    # highest of these maxima. Only blocks whose maximum reaches this bound are searched. Maxima do not include
    # penalties: a group whose highest token has a penalty is ignored, and the tokens with penalties are added
    # afterwards.
    table, height = selection.table, counts.size
    maxima = table.maxima if height == table.height else table.maxima[selection.rows]
    scaled_maxima = maxima / selection.temperature[:, None]
    bounds = _lower_bounds(scaled_maxima, selection.penalized, counts)
    block_hits = (scaled_maxima >= bounds[:, None]).reshape(-1).nonzero()[0]
    entry_rows = block_hits // BLOCK_COUNT
    is_found = np.bincount(entry_rows, minlength=height) <= _MAX_BLOCKS_PER_ROW
    if not is_found.all():
        block_hits, entry_rows = block_hits[is_found[entry_rows]], entry_rows[is_found[entry_rows]]
    depth = -(-table.width // BLOCK_COUNT)
    ids = (block_hits % BLOCK_COUNT)[:, None] + np.arange(depth) * BLOCK_COUNT
    is_token = ids < table.width
    cells = (selection.rows[entry_rows] * table.width)[:, None] + np.where(is_token, ids, 0)
    logits = table.logits_at(cells) / selection.temperature[entry_rows, None]
    entry_positions = (is_token & (logits >= bounds[entry_rows, None])).reshape(-1).nonzero()[0]
    entry_rows, ids, logits = (
        entry_rows[entry_positions // depth],
        ids.reshape(-1)[entry_positions],
        logits.reshape(-1)[entry_positions],
    )
    return sort_candidates(height, *_replace_penalized(entry_rows, ids, logits, selection, bounds)), is_found


# Number of groups for each candidate to find, and the least number of candidates assumed for it. More groups give
# a closer bound.
_GROUPS_PER_CANDIDATE, _MIN_GROUPED_CANDIDATES = 8, 64


def _lower_bounds(highest: Floats, penalized: PenalizedLogits, counts: Ints) -> Floats:
    """Return for each row a scaled logit that at least ``counts`` candidates reach, (R,)."""
    # ``highest``: the scaled maxima of the blocks, (R, BLOCK_COUNT).
    group_count = (
        1 << (_GROUPS_PER_CANDIDATE * max(int(counts.max(initial=1)), _MIN_GROUPED_CANDIDATES) - 1).bit_length()
    )
    group_maxima = highest.reshape(counts.size, -1, group_count).max(axis=1)
    penalized_groups = penalized.ids % group_count
    # If the highest token of a group has a penalty, the logits of the group's other tokens are unknown.
    is_unknown = penalized.old_logits >= group_maxima[penalized.rows, penalized_groups]
    group_maxima[penalized.rows[is_unknown], penalized_groups[is_unknown]] = -np.inf
    group_maxima.sort(axis=1)
    return np.maximum(group_maxima[np.arange(counts.size), group_count - counts], MIN_FLOAT32)


def _replace_penalized(
    rows: Ints, ids: Ints, logits: Floats, selection: BatchRowSelection, bounds: Floats
) -> tuple[Ints, Ints, Floats]:
    """Replace the logits that penalties change, and drop entries below the bound of their row, (R,)."""
    # Takes and returns rows, ids and scaled logits of the entries, each (n,).
    penalized, width = selection.penalized, selection.table.width
    if not penalized.rows.size:
        return rows, ids, logits
    bound = bounds[penalized.rows]
    was_above, is_above = penalized.old_logits >= bound, penalized.new_logits >= bound
    is_unpenalized = ~np.isin(rows * width + ids, (penalized.rows * width + penalized.ids)[was_above])
    return (
        np.concatenate([rows[is_unpenalized], penalized.rows[is_above]]),
        np.concatenate([ids[is_unpenalized], penalized.ids[is_above]]),
        np.concatenate([logits[is_unpenalized], penalized.new_logits[is_above]]),
    )


def _sort_selected(scaled: Floats, mask: Mask) -> TopCandidates:
    """Return the candidates that a mask selects from all tokens of some rows, (R, V)."""
    cells = mask.reshape(-1).nonzero()[0]
    rows, ids = np.divmod(cells, scaled.shape[1])
    return sort_candidates(len(scaled), rows, ids, scaled.reshape(-1)[cells])


def sort_candidates(height: int, rows: Ints, ids: Ints, logits: Floats) -> TopCandidates:
    """Sort the candidates of some rows, by one sort of integers that combine logit and token id."""
    logit_bits = (logits + np.float32(0)).view(np.uint32)  # + 0 makes -0 and 0 equal
    entries = _descending_bits(logit_bits).astype(np.uint64) << np.uint64(32) | ids.astype(np.uint64)
    row_sizes = np.bincount(rows, minlength=height)
    row_ends = np.add.accumulate(row_sizes)
    lowest_bits = _descending_bits(np.array([-np.inf], np.float32).view(np.uint32))
    padding = lowest_bits.astype(np.uint64) << np.uint64(32) | _ID_BITS
    keys = np.full((height, int(row_sizes.max(initial=1))), padding, np.uint64)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, entries = rows[order], entries[order]
    keys[rows, np.arange(rows.size) - (row_ends - row_sizes)[rows]] = entries
    keys.sort(axis=1)
    return TopCandidates(_descending_bits((keys >> np.uint64(32)).astype(np.uint32)).view(np.float32), keys)


def _descending_bits(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Convert the bits of a float32 to an integer that falls as the float rises, or back."""
    return np.where(bits & _SIGN_BIT, bits, ~bits & _VALUE_BITS)


def count_reaching_p(logits: Floats, top_k: Ints, top_p: Floats) -> Ints:
    """Return the number of candidates of each row that top-k and then top-p keep, (R,)."""
    # ``logits``: the highest candidates of each row, from high to low, (R, n). A ``top_p`` of 1 keeps all
    # ``top_k``.
    if (top_p >= 1).all():
        return top_k
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= top_k[:, None]] = 0
    below_p_count = _count_below_p(weights, np.add.accumulate(weights, axis=1)[:, -1], top_p)
    return np.where(top_p < 1, np.minimum(below_p_count + 1, top_k), top_k)


def select_nucleus(scaled_logits: Floats, highest: Floats, top_p: Floats) -> Iterator[Nucleus]:
    """Find the candidates that top-p keeps from all tokens of each row, (R, V)."""
    # Yields at most twice: first the rows for which enough candidates were sorted, then the other rows, of which
    # all tokens are sorted. If rounding keeps the mass of such a row below p, all of its tokens are kept.
    weights = scaled_logits - highest[:, None]
    np.exp(weights, out=weights, dtype=np.float64, casting="same_kind")
    # llama.cpp sums in float32 from the first token to the last. `np.add.reduce` sums
    # pairwise, but `np.subtract.reduce` goes from the first to the last.
    total = -np.subtract.reduce(weights, axis=1, initial=np.float32(0))
    candidates = _sort_selected(scaled_logits, weights >= _estimate_floor(weights, total, top_p)[:, None])
    below_p_count = _count_below_p(softmax_weights(candidates.logits), total, top_p)
    reaches_p = below_p_count < np.isfinite(candidates.logits).sum(axis=1)
    finished_rows, unfinished_rows = reaches_p.nonzero()[0], (~reaches_p).nonzero()[0]
    yield Nucleus(finished_rows, candidates.select_rows(finished_rows), below_p_count[finished_rows] + 1)
    if unfinished_rows.size:
        candidates = _sort_selected(
            scaled_logits[unfinished_rows], np.ones((unfinished_rows.size, scaled_logits.shape[1]), np.bool_)
        )
        below_p_count = _count_below_p(
            softmax_weights(candidates.logits), total[unfinished_rows], top_p[unfinished_rows]
        )
        yield Nucleus(unfinished_rows, candidates, np.minimum(below_p_count + 1, scaled_logits.shape[1]))


class Nucleus(NamedTuple):
    """The candidates of some rows that top-p keeps."""

    rows: Ints  # Positions of the rows among the searched rows, (r,)
    # The highest candidates of these rows, from high to low. Others may follow after the kept ones.
    candidates: TopCandidates
    kept_counts: Ints  # number of candidates that are kept in each row, (r,)


def _count_below_p(weights: Floats, total: Floats, top_p: Floats) -> Ints:
    """Return the number of highest candidates whose total probability is below p, (R,)."""
    # Formula: the greatest n for which the float32 sum of w / total over the first n is below p. The next
    # candidate reaches p and is kept as well.
    mass = np.add.accumulate(weights / total[:, None], axis=1)
    counts: Ints = np.count_nonzero(mass < top_p[:, None], axis=1)
    return counts


_SAMPLED_TOKENS = 4096  # number of tokens of a row from which the lowest weight of its nucleus is estimated


def _estimate_floor(weights: Floats, total: Floats, top_p: Floats) -> Floats:
    """Estimate the lowest weight that top-p keeps in each row, float32 (R,), from all weights, (R, V)."""
    # Every n-th token is used. The mass of lower weights may be 1 - p; the estimate leaves half of this as a
    # margin.
    stride = max(weights.shape[1] // _SAMPLED_TOKENS, 1)
    sampled = np.sort(weights[:, ::stride], axis=1)
    mass = np.add.accumulate(sampled, axis=1) * np.float32(stride)
    below_count = np.count_nonzero(mass <= ((1 - top_p) / 2 * total)[:, None], axis=1)
    floor: Floats = sampled[np.arange(total.size), np.maximum(below_count - 1, 0)]
    return floor


def softmax_weights(logits: Floats) -> Floats:
    """Return exp(logit - highest), correctly rounded, for ``logits``, (R, n), sorted from high to low."""
    return exact_weights(logits - logits[:, :1])
