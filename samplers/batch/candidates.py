"""The highest logits of each row, sorted, from one pass over a batch; and the number of them that top-p keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..kernels import MIN_FLOAT32, Floats, exact_weights
from .arguments import Ints, Mask
from .logits import BLOCK_COUNT
from .penalties import BatchRowSelection, PenalizedLogits

_SIGN_BIT = np.uint32(1 << 31)  # the sign of a float32
_VALUE_BITS = np.uint32((1 << 31) - 1)  # the bits of a float32 without its sign
# A sort key has the bits of a logit in its upper half, and the token id in its lower half.
_UPPER_HALF = np.uint64(32)
_ID_BITS = np.uint64((1 << 32) - 1)


class TopCandidates(NamedTuple):
    """The highest candidates of some rows, from high to low. Of equal logits the lower token id comes first."""

    logits: Floats  # the logits after the temperature, (R, n); -inf where a row has fewer than n candidates
    keys: NDArray[np.uint64]  # the sort keys, (R, n)

    def select_rows(self, rows: Ints) -> TopCandidates:
        """Return the candidates of some of the rows."""
        return TopCandidates(self.logits[rows], self.keys[rows])

    def tokens(self, positions: Ints) -> Ints:
        """Return the token of each row at the row's position in ``positions``, (R,)."""
        keys = self.keys[np.arange(positions.size), positions]
        tokens: Ints = (keys & _ID_BITS).astype(np.int64)
        return tokens


class _Entries(NamedTuple):
    """Some candidates of some rows, in any order."""

    rows: Ints  # the row of each candidate, (n,)
    ids: Ints  # the token of each candidate, (n,)
    logits: Floats  # the logits after the temperature, (n,)


# For more candidates than this, reading every logit of the row is faster than searching blocks.
_MAX_SEARCHED_COUNT = BLOCK_COUNT // 8
# If a row has more blocks to search than this, reading every logit of the row is faster.
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
        max_count = int(counts[remaining_positions[positions]].max())
        bound = np.maximum(_nth_highest(scaled_logits, max_count), MIN_FLOAT32)
        yield remaining_positions[positions], _sort_selected(scaled_logits, scaled_logits >= bound[:, None])


def _nth_highest(values: Floats, count: int) -> Floats:
    """Return the ``count``-th highest value of each row, (R,)."""
    position = values.shape[1] - count
    return np.partition(values, position, axis=1)[:, position]


def _search_blocks(selection: BatchRowSelection, counts: Ints) -> tuple[TopCandidates, Mask]:
    """Search few blocks for the highest candidates; return them, and for each row whether they were found."""
    # Only blocks are searched whose maximum reaches a bound. The maxima do not include penalties, so that the
    # tokens with penalties are added afterwards.
    table = selection.table
    height = counts.size
    maxima = table.maxima if height == table.height else table.maxima[selection.rows]
    scaled_maxima = maxima / selection.temperature[:, None]
    bounds = _lower_bounds(scaled_maxima, selection.penalized, counts)
    searched_cells = (scaled_maxima >= bounds[:, None]).reshape(-1).nonzero()[0]
    rows, blocks = np.divmod(searched_cells, BLOCK_COUNT)
    is_found = np.bincount(rows, minlength=height) <= _MAX_BLOCKS_PER_ROW
    if not is_found.all():
        is_searched = is_found[rows]
        rows, blocks = rows[is_searched], blocks[is_searched]
    entries = _replace_penalized(_read_blocks(selection, rows, blocks, bounds), selection, bounds)
    return _sort_candidates(height, entries), is_found


def _read_blocks(selection: BatchRowSelection, rows: Ints, blocks: Ints, bounds: Floats) -> _Entries:
    """Return the candidates of some blocks that reach the bound of their row. Each block is one of ``rows``."""
    # Block j has the tokens j, j + BLOCK_COUNT, … Some blocks have one token less than the others.
    width = selection.table.width
    max_block_size = math.ceil(width / BLOCK_COUNT)
    ids = blocks[:, None] + np.arange(max_block_size) * BLOCK_COUNT
    is_token = ids < width
    cells = (selection.rows[rows] * width)[:, None] + np.where(is_token, ids, 0)
    logits = selection.table.logits_at(cells) / selection.temperature[rows, None]
    reaches_bound = is_token & (logits >= bounds[rows, None])
    positions = reaches_bound.reshape(-1).nonzero()[0]
    return _Entries(
        rows=rows[positions // max_block_size],
        ids=ids.reshape(-1)[positions],
        logits=logits.reshape(-1)[positions],
    )


# Number of groups of blocks for each candidate to find. More groups give a closer bound.
_GROUPS_PER_CANDIDATE = 8
_MIN_GROUP_COUNT = 512


def _lower_bounds(block_maxima: Floats, penalized: PenalizedLogits, counts: Ints) -> Floats:
    """Return for each row a scaled logit that at least ``counts`` candidates reach, (R,)."""
    # ``block_maxima``: the scaled maxima of the blocks, (R, BLOCK_COUNT). Blocks are put in groups. The maxima of
    # the groups are logits of different tokens, so at least k tokens reach the k-th highest of these maxima.
    needed_groups = max(_GROUPS_PER_CANDIDATE * int(counts.max(initial=1)), _MIN_GROUP_COUNT)
    group_count = 1 << (needed_groups - 1).bit_length()  # the next power of two
    group_maxima = block_maxima.reshape(counts.size, -1, group_count).max(axis=1)
    # If the highest token of a group has a penalty, the logits of the group's other tokens are unknown. Such a
    # group is ignored.
    groups = penalized.ids % group_count
    is_unknown = penalized.old_logits >= group_maxima[penalized.rows, groups]
    group_maxima[penalized.rows[is_unknown], groups[is_unknown]] = -np.inf
    group_maxima.sort(axis=1)
    bounds = group_maxima[np.arange(counts.size), group_count - counts]
    return np.maximum(bounds, MIN_FLOAT32)


def _replace_penalized(entries: _Entries, selection: BatchRowSelection, bounds: Floats) -> _Entries:
    """Replace the logits that penalties change, and drop entries below the bound of their row, (R,)."""
    penalized = selection.penalized
    if not penalized.rows.size:
        return entries
    width = selection.table.width
    cells = entries.rows * width + entries.ids
    penalized_cells = penalized.rows * width + penalized.ids
    bound = bounds[penalized.rows]
    was_above = penalized.old_logits >= bound  # only such cells can be among the entries
    is_above = penalized.new_logits >= bound
    is_unpenalized = ~np.isin(cells, penalized_cells[was_above])
    return _Entries(
        rows=np.concatenate([entries.rows[is_unpenalized], penalized.rows[is_above]]),
        ids=np.concatenate([entries.ids[is_unpenalized], penalized.ids[is_above]]),
        logits=np.concatenate([entries.logits[is_unpenalized], penalized.new_logits[is_above]]),
    )


def _sort_selected(scaled: Floats, mask: Mask) -> TopCandidates:
    """Return the candidates that a mask selects from all tokens of some rows, (R, V)."""
    cells = mask.reshape(-1).nonzero()[0]
    rows, ids = np.divmod(cells, scaled.shape[1])
    return _sort_candidates(len(scaled), _Entries(rows, ids, scaled.reshape(-1)[cells]))


def _sort_candidates(height: int, entries: _Entries) -> TopCandidates:
    """Sort the candidates of each of ``height`` rows, by one sort of integers that combine logit and token id."""
    rows = entries.rows
    entry_keys = _sort_keys(entries.logits, entries.ids)
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        rows, entry_keys = rows[order], entry_keys[order]
    row_sizes = np.bincount(rows, minlength=height)
    row_starts = np.add.accumulate(row_sizes) - row_sizes
    columns = np.arange(rows.size) - row_starts[rows]
    padding = _sort_keys(np.array([-np.inf], np.float32), _ID_BITS)
    keys = np.full((height, int(row_sizes.max(initial=1))), padding, np.uint64)
    keys[rows, columns] = entry_keys
    keys.sort(axis=1)
    logit_bits = _descending_bits((keys >> _UPPER_HALF).astype(np.uint32))
    return TopCandidates(logit_bits.view(np.float32), keys)


def _sort_keys(logits: Floats, ids: Ints | np.uint64) -> NDArray[np.uint64]:
    """Return integers that sort by falling logits, and then by rising token ids."""
    logit_bits = (logits + np.float32(0)).view(np.uint32)  # + 0 makes -0 and 0 equal
    return _descending_bits(logit_bits).astype(np.uint64) << _UPPER_HALF | ids.astype(np.uint64)


def _descending_bits(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Convert the bits of a float32 to an integer that falls as the float rises. Converts such an integer back."""
    return np.where(bits & _SIGN_BIT, bits, ~bits & _VALUE_BITS)


def count_reaching_p(logits: Floats, top_k: Ints, top_p: Floats) -> Ints:
    """Return the number of candidates of each row that top-k and then top-p keep, (R,)."""
    # ``logits``: the highest candidates of each row, from high to low, (R, n). A ``top_p`` of 1 keeps all
    # ``top_k``.
    if (top_p >= 1).all():
        return top_k
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= top_k[:, None]] = 0
    # `np.add.accumulate` adds from the first candidate to the last, as llama.cpp does. `np.add.reduce` does not.
    total = np.add.accumulate(weights, axis=1)[:, -1]
    below_p_count = _count_below_p(weights, total, top_p)
    return np.where(top_p < 1, np.minimum(below_p_count + 1, top_k), top_k)


def select_nucleus(scaled_logits: Floats, highest: Floats, top_p: Floats) -> Iterator[Nucleus]:
    """Find the candidates that top-p keeps from all tokens of each row, (R, V)."""
    # Yields at most twice. First the candidates above an estimated weight are sorted, which suffice for most rows.
    # In the remaining rows, all tokens are sorted.
    weights = scaled_logits - highest[:, None]
    np.exp(weights, out=weights, dtype=np.float64, casting="same_kind")
    # llama.cpp sums in float32 from the first token to the last. `np.add.reduce` sums pairwise, but
    # `np.subtract.reduce` goes from the first to the last.
    total = -np.subtract.reduce(weights, axis=1, initial=np.float32(0))
    floor = _estimate_floor(weights, total, top_p)
    candidates = _sort_selected(scaled_logits, weights >= floor[:, None])
    below_p_count = _count_below_p(softmax_weights(candidates.logits), total, top_p)
    reaches_p = below_p_count < np.isfinite(candidates.logits).sum(axis=1)
    finished_rows = reaches_p.nonzero()[0]
    yield Nucleus(finished_rows, candidates.select_rows(finished_rows), below_p_count[finished_rows] + 1)
    remaining_rows = (~reaches_p).nonzero()[0]
    if remaining_rows.size:
        logits = scaled_logits[remaining_rows]
        candidates = _sort_selected(logits, np.ones(logits.shape, np.bool_))
        below_p_count = _count_below_p(
            softmax_weights(candidates.logits), total[remaining_rows], top_p[remaining_rows]
        )
        # Rounding may keep the mass of all tokens below p. Then all tokens are kept.
        yield Nucleus(remaining_rows, candidates, np.minimum(below_p_count + 1, logits.shape[1]))


class Nucleus(NamedTuple):
    """The candidates of some rows that top-p keeps."""

    rows: Ints  # positions of the rows among the searched rows, (r,)
    candidates: TopCandidates  # the kept candidates, from high to low, and perhaps more candidates after them
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
    # Only every n-th token is used. Weights with a mass of 1 - p are not kept. The estimate may be wrong, so that
    # it counts on half of this mass only.
    stride = max(weights.shape[1] // _SAMPLED_TOKENS, 1)
    sampled = np.sort(weights[:, ::stride], axis=1)
    mass = np.add.accumulate(sampled, axis=1) * np.float32(stride)
    max_dropped_mass = (1 - top_p) / 2 * total
    dropped_count = np.count_nonzero(mass <= max_dropped_mass[:, None], axis=1)
    floor: Floats = sampled[np.arange(total.size), np.maximum(dropped_count - 1, 0)]
    return floor


def softmax_weights(logits: Floats) -> Floats:
    """Return exp(logit - highest), correctly rounded, for ``logits``, (R, n), sorted from high to low."""
    return exact_weights(logits - logits[:, :1])
