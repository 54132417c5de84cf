"""The draw: which of the remaining candidates the next number of a row's seed selects."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..candidates import Candidates
from ..exact_weights import exact_weights
from ..mersenne_twister import next_numbers, seeded_generator
from ..sequential_sums import BLOCK_ROWS, LONG_ROW
from .sampling_data import Doubles, Floats, Ints, Mask
from .top_candidates import softmax_weights

_MAX_RELATIVE_ERROR = 64 * 2.0**-24
"""By how much a sum of single-precision weights may be wrong, as a fraction of the total.

NumPy's exp is good to 3 units in the last place, and its sum of 512 of them to 21; this allows 32 on either side.
"""
_PAGE_SIZE = 256
"""Numbers of a sequence that are generated at a time."""


def uniform_numbers(seeds: Ints, positions: Ints) -> Doubles:
    """Return number ``positions[i]`` of the sequence of ``seeds[i]``, each in [0, 1): float64 (n,).

    A seed is 0..2^32-1; for -1 the number comes from fresh randomness. Source: MT19937 as libstdc++ draws it;
    number n is the n-th that `MersenneTwister.uniform` returns.
    """
    pairs = zip(seeds.tolist(), positions.tolist(), strict=True)
    u: Doubles = np.array([_number_at(seed, at) if seed >= 0 else 0.0 for seed, at in pairs], np.float64)
    is_unseeded = seeds < 0
    if is_unseeded.any():
        u[is_unseeded] = np.random.default_rng().random(np.count_nonzero(is_unseeded))
    return u


def _number_at(seed: int, position: int) -> float:
    return _number_page(seed, position // _PAGE_SIZE)[position % _PAGE_SIZE]


@lru_cache(maxsize=4096)
def _number_page(seed: int, page: int) -> list[float]:
    """A page of consecutive numbers. The sequence is generated from its start, once a page."""
    generator = seeded_generator(seed)
    next_numbers(generator, _PAGE_SIZE * page)
    return next_numbers(generator, _PAGE_SIZE).tolist()


def draw_from_candidates(logits: Floats, kept: Ints, u: Doubles) -> tuple[Ints, Doubles]:
    """Draw a candidate of each row. Equals `Candidates.pick`.

    Args:
        logits: candidates from high to low, (R, n).
        kept: how many of them the row draws from, (R,).
        u: the uniform number of the row, (R,).

    Returns the position of the drawn candidate in its row, (R,), and its probability, (R,).
    """
    weights = softmax_weights(logits)
    weights[np.arange(weights.shape[1]) >= kept[:, None]] = 0
    sums = np.add.accumulate(weights, axis=1, dtype=np.float64)
    positions = _first_reaching(sums, sums[:, -1] * u)
    for row in (kept > LONG_ROW).nonzero()[0]:
        row_logits = np.full(kept[row], -np.inf, np.float32)
        row_logits[: logits.shape[1]] = logits[row, : kept[row]]
        positions[row] = Candidates(row_logits).pick(float(u[row]))
    probs: Doubles = weights[np.arange(positions.size), positions] / sums[:, -1]
    return positions, probs


def draw_from_rows(scaled: Floats, highest: Floats, u: Doubles) -> tuple[Ints, Doubles]:
    """Draw a token of each whole row, (R, V), which is overwritten; return tokens, (R,), and probabilities, (R,).

    A row draws the first token whose running sum of weights, in float64, reaches u times their total, as
    `Candidates.pick` does. Weights in single precision are tried first, which is twice as fast. Where u falls so
    near the border of a token that they cannot tell its side, the exact weights decide.
    """
    gaps = np.subtract(scaled, highest[:, None], out=scaled)
    tokens, probs, is_certain = _locate(np.exp(gaps), u, np.float32)
    uncertain = (~is_certain).nonzero()[0]
    if uncertain.size:
        exact = exact_weights(gaps[uncertain])
        tokens[uncertain], probs[uncertain], _ = _locate(exact, u[uncertain], np.float64)
    return tokens, probs


class _LocatedTokens(NamedTuple):
    """The drawn token of each row, (R,)."""

    tokens: Ints
    probs: Doubles
    is_certain: Mask
    """True if weights with a small error give the same token as exact ones."""


def _locate(weights: Floats, u: Doubles, dtype: type[np.floating]) -> _LocatedTokens:
    """Find the token at ``u`` of each row. ``dtype``: that of the sums of blocks."""
    every, width = np.arange(u.size), weights.shape[1]
    size = BLOCK_ROWS if width > LONG_ROW else width
    ends = np.add.accumulate(
        np.add.reduceat(weights, np.arange(0, width, size), axis=1, dtype=dtype), axis=1, dtype=np.float64
    )
    total = ends[:, -1]
    block = _first_reaching(ends, total * u)
    ids = (block * size)[:, None] + np.arange(size)
    in_block = np.where(ids < width, np.take_along_axis(weights, np.minimum(ids, width - 1), axis=1), 0)
    sums = np.add.accumulate(in_block, axis=1, dtype=np.float64)
    if size == width:
        total = sums[:, -1]
    target = total * u - np.where(block > 0, ends[every, block - 1], 0.0)
    position = _first_reaching(sums, target)
    sum_before = np.where(position > 0, sums[every, position - 1], 0.0)
    is_certain = np.minimum(target - sum_before, sums[every, position] - target) > _MAX_RELATIVE_ERROR * total
    return _LocatedTokens(block * size + position, in_block[every, position] / total, is_certain)


def _first_reaching(sums: Doubles, target: Doubles) -> Ints:
    """The first position of each row whose running sum reaches the target, or the total."""
    positions: Ints = np.count_nonzero(sums < np.minimum(target, sums[:, -1])[:, None], axis=1)
    return positions
