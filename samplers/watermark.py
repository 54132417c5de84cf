"""The g values of SynthID-Text watermarks: a hash of each n-gram of tokens, and a table of random zeros and ones.

Equals transformers 5.24 on a CPU, bit for bit (``SynthIDTextWatermarkLogitsProcessor``). Hashes are integers of 64
bits with wraparound: signed ones in arrays, because transformers takes signed remainders, and unsigned ones in
Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .mersenne_twister import random_bits

Hashes = NDArray[np.int64]
ZerosAndOnes = NDArray[np.uint8]

# The factor of the hash's linear congruential generator (Knuth's MMIX, musl). The increment is 1.
_MULTIPLIER = 6_364_136_223_846_793_005
_START = 1  # the hash of no tokens
_MASK = (1 << 64) - 1


def context_hash(tokens: Sequence[int]) -> int:
    """Return the hash of the tokens before a position, an integer from 0 to 2^64 - 1."""
    # Formula: h_0 = 1, h_i = (h_(i-1) + token_i) * 6364136223846793005 + 1, modulo 2^64.
    value = _START
    for token in tokens:
        value = ((value + token) * _MULTIPLIER + 1) & _MASK
    return value


def extend_hash(context: int, tokens: NDArray[np.integer]) -> Hashes:
    """Return the hashes, (n,), of one context followed by each of ``tokens``, (n,)."""
    return _step(tokens.astype(np.int64) + _signed(context))


def ngram_hashes(tokens: NDArray[np.int64], length: int) -> Hashes:
    """Return the hashes of all n-grams of a text, (T,), from the first to the last: (T - n + 1,)."""
    count = tokens.size - length + 1
    hashes: Hashes = np.full(count, _START, dtype=np.int64)
    for offset in range(length):
        hashes = _step(hashes + tokens[offset : offset + count])
    return hashes


def _step(sums: Hashes) -> Hashes:
    """Return the hashes after a token whose id was added to the hashes before. The product wraps around."""
    return sums * np.int64(_MULTIPLIER) + np.int64(1)


def _signed(value: int) -> np.int64:
    """Return the signed 64-bit integer with the lowest 64 bits of ``value``."""
    low_bits = value & _MASK
    is_negative = low_bits >> 63
    return np.int64(low_bits - (1 << 64) if is_negative else low_bits)


class GValues:
    """The g values of n-grams: 0 or 1 for each n-gram and each key."""

    # Formula: g_k = table[((h + key_k) * 6364136223846793005 + 1) mod size] for an n-gram with the hash h. The
    # table has the numbers of torch's ``randint`` on a CPU. On a GPU, torch and so transformers has another table.

    def __init__(self, keys: Sequence[int], table_size: int, table_seed: int) -> None:
        # Only the lowest 32 bits of the seed count, as in torch.
        self.table = _sampling_table(table_size, table_seed)  # random zeros and ones, uint8 (size,), read-only
        self.depth = len(keys)  # number of keys
        # (h + key) * factor + 1 equals h * factor + (key * factor + 1). The second summand is a constant.
        self._key_offsets = [_signed(key * _MULTIPLIER + 1) for key in keys]

    def of_hashes(self, hashes: Hashes) -> Iterator[ZerosAndOnes]:
        """Yield the g values of n-grams with ``hashes``, (n,), for one key after the other, each uint8 (n,)."""
        products = hashes * np.int64(_MULTIPLIER)
        for offset in self._key_offsets:
            yield self._look_up(products + offset)

    def of_remainders(self) -> Iterator[ZerosAndOnes]:
        """Yield the g values, uint8 (size,), by key, of n-grams with all possible remainders."""
        # Entry i of each array belongs to an n-gram whose product ``h * factor`` has the remainder i. If the size
        # of the table is a power of two, these are the g values of n-grams with uniform hashes. For another size,
        # this is true for each key alone, but the wraparound at 2^64 mixes the combinations of keys.
        remainders = np.arange(self.table.size, dtype=np.int64)
        for offset in self._key_offsets:
            yield self._look_up(remainders + int(offset) % self.table.size)

    def _look_up(self, keyed_hashes: Hashes) -> ZerosAndOnes:
        size = self.table.size
        is_power_of_two = size & (size - 1) == 0
        if is_power_of_two:
            return self.table.take(keyed_hashes & (size - 1))  # the remainder in a fifth of the time
        return self.table.take(keyed_hashes % size)


@lru_cache(maxsize=4)
def _sampling_table(size: int, seed: int) -> ZerosAndOnes:
    table = random_bits(seed, size)
    table.flags.writeable = False
    return table
