"""The draw: which of the candidates that are left the seed's next number takes."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from ..candidates import Candidates
from ..sums import BLOCK, LONG
from .data import Doubles, Floats, Ints, Mask

# What a comparison of sums of weights in single precision may be off, as a part of the total. NumPy's exp is good
# to 3 units in the last place, and its sum of 512 to 21; this allows for 32 on either side.
_ERROR = 64 * 2.0**-24
# Numbers of a sequence that are made at a time.
_PAGE = 256
_BELOW_ONE = math.nextafter(1.0, 0.0)


def numbers(seeds: Ints, places: Ints) -> Doubles:
    """Number ``places[i]`` of the sequence of ``seeds[i]``, 0..2^32-1, or of none where that is -1: float64 (n,).

    In [0, 1). Source: MT19937 as libstdc++ draws it; number n is the n-th that `MersenneTwister.uniform` returns.
    """
    pairs = zip(seeds.tolist(), places.tolist(), strict=True)
    drawn = [_page(seed, place // _PAGE)[place % _PAGE] if seed >= 0 else 0.0 for seed, place in pairs]
    u: Doubles = np.array(drawn, np.float64)
    none = seeds < 0
    if none.any():
        u[none] = np.random.default_rng().random(np.count_nonzero(none))
    return u


@lru_cache(maxsize=4096)
def _page(seed: int, number: int) -> list[float]:
    """Some numbers of a sequence that follow each other; it is drawn from its start, once in so many tokens."""
    words = np.random.RandomState(seed)
    if number:  # no bytes at all would take a word, too
        words.bytes(8 * _PAGE * number)
    page = np.frombuffer(words.bytes(8 * _PAGE), dtype="<u8").astype(np.float64) / 2.0**64
    return np.minimum(page, _BELOW_ONE).tolist()


def weigh(logits: Floats) -> Floats:
    """exp(logit - highest), each correctly rounded, of heads (R, n) from high to low; 0 for -inf."""
    return np.exp(logits - logits[:, :1], dtype=np.float64).astype(np.float32)


def draw(logits: Floats, kept: Ints, u: Doubles) -> tuple[Ints, Doubles]:
    """The place in its head, (R, n), of the token that each row draws, and the probability that it had.

    ``kept``, (R,): how many candidates there are to draw from; ``u``, (R,): the number. Equals `Candidates.pick`.
    """
    weights = weigh(logits)
    weights[np.arange(weights.shape[1]) >= kept[:, None]] = 0
    sums = np.add.accumulate(weights, axis=1, dtype=np.float64)
    places = _reached(sums, sums[:, -1] * u)
    for row in (kept > LONG).nonzero()[0]:
        left = np.full(kept[row], -np.inf, np.float32)
        left[: logits.shape[1]] = logits[row, : kept[row]]
        places[row] = Candidates(left).pick(float(u[row]))
    probs: Doubles = weights[np.arange(places.size), places] / sums[:, -1]
    return places, probs


def draw_whole(quotients: Floats, highest: Floats, u: Doubles) -> tuple[Ints, Doubles]:
    """The token that each of some whole rows, (R, V), draws, and its probability; the quotients are written over.

    The first token whose running sum of weights, in float64, reaches u times their total, by `Candidates.pick`.
    First all of this is done with weights in single precision, twice as fast; only where the place lies so near to
    the border of a token that these could not tell on which side, they are computed as they should be.
    """
    gaps = np.subtract(quotients, highest[:, None], out=quotients)
    tokens, probs, sure = _pick(np.exp(gaps), u, np.float32)
    unsure = (~sure).nonzero()[0]
    if unsure.size:
        exact = np.exp(gaps[unsure], dtype=np.float64).astype(np.float32)
        tokens[unsure], probs[unsure], _ = _pick(exact, u[unsure], np.float64)
    return tokens, probs


def _pick(weights: Floats, u: Doubles, dtype: type[np.floating]) -> tuple[Ints, Doubles, Mask]:
    """The token at the place ``u`` of each row, its probability, and whether weights a little off give it too.

    ``dtype`` is that of the sums of blocks.
    """
    every, width = np.arange(u.size), weights.shape[1]
    size = BLOCK if width > LONG else width
    ends = np.add.accumulate(
        np.add.reduceat(weights, np.arange(0, width, size), axis=1, dtype=dtype), axis=1, dtype=np.float64
    )
    total = ends[:, -1]
    block = _reached(ends, total * u)
    ids = (block * size)[:, None] + np.arange(size)
    inside = np.where(ids < width, np.take_along_axis(weights, np.minimum(ids, width - 1), axis=1), 0)
    sums = np.add.accumulate(inside, axis=1, dtype=np.float64)
    if size == width:
        total = sums[:, -1]
    target = total * u - np.where(block > 0, ends[every, block - 1], 0.0)
    place = _reached(sums, target)
    before = np.where(place > 0, sums[every, place - 1], 0.0)
    sure = np.minimum(target - before, sums[every, place] - target) > _ERROR * total
    return block * size + place, inside[every, place] / total, sure


def _reached(sums: Doubles, target: Doubles) -> Ints:
    """The first place of each row whose running sum reaches the target, or the end of all weight."""
    places: Ints = np.count_nonzero(sums < np.minimum(target, sums[:, -1])[:, None], axis=1)
    return places
