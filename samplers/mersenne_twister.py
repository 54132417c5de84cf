"""The random numbers of llama.cpp: MT19937, drawn as libstdc++ draws them; and random bits, drawn as in torch."""

from __future__ import annotations

import math
from operator import index
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.seeds import UINT32_MAX, generator_seed

if TYPE_CHECKING:
    from .candidates import Candidates

_NUMBERS_PER_BATCH = 64  # number of random numbers that are generated in one call
# The greatest numbers below 1 replace random numbers that round to 1.
_BELOW_ONE = math.nextafter(1.0, 0.0)
_FLOAT_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
_STATE_WORDS = 624  # number of words in the state of a generator
# The factor of the sequence that fills the state from a seed (Matsumoto & Nishimura 2002)
_SEED_FACTOR = 1_812_433_253


class MersenneTwister:
    """The random numbers of ``std::uniform_real_distribution<double>(0, 1)`` with a ``std::mt19937`` generator."""

    # Formula: two 32-bit words w0, w1 give one number u = (w0 + 2^32 w1) / 2^64, in [0, 1). Equals llama.cpp built
    # with libstdc++: the same seed gives the same numbers.

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.restart()

    def restart(self) -> None:
        self._word_generator: Random | None = None
        self._ready_numbers: list[float] = []
        self._ready_floats: list[np.float32] = []

    def uniform(self) -> float:
        """Return the next number, a float64 in [0, 1)."""
        if not self._ready_numbers:
            numbers = next_numbers(self._seeded_word_generator(), _NUMBERS_PER_BATCH)
            self._ready_numbers = numbers[::-1].tolist()
        return self._ready_numbers.pop()

    def _seeded_word_generator(self) -> Random:
        """Return the generator of 32-bit words."""
        # It is seeded when it is first used, because seeding takes 0.1 ms, and chains restart often.
        if self._word_generator is None:
            self._word_generator = seeded_generator(self._seed)
        return self._word_generator

    def peek(self) -> float:
        """Return the number that the next call of `uniform` will return."""
        number = self.uniform()
        self._ready_numbers.append(number)
        return number

    def uniform_float(self) -> np.float32:
        """Return the next float32 in [0, 1), as ``uniform_real_distribution<float>`` does from a 32-bit word."""
        # Between two restarts, call either this method or `uniform`. Both generate numbers in advance.
        if not self._ready_floats:
            words = _next_words(self._seeded_word_generator(), _NUMBERS_PER_BATCH)
            numbers = np.minimum(words.astype(np.float32) / np.float32(2.0**32), _FLOAT_BELOW_ONE)
            self._ready_floats = list(numbers[::-1])
        return self._ready_floats.pop()

    def discrete(self, candidates: Candidates) -> int:
        """Return the position of a candidate, drawn with the probabilities of llama.cpp's softmax."""
        # If llama.cpp would have a single row, no random number is used. Masked rows, which llama.cpp keeps at
        # -inf, count as rows. Equals libstdc++'s ``std::discrete_distribution``, except for the last bits of a
        # float64.
        if candidates.llama_cpp_count == 1:
            return 0
        return candidates.pick_position(self.uniform())


def next_numbers(generator: Random, count: int) -> NDArray[np.float64]:
    """Return the next uniform random numbers, float64 (count,), in [0, 1), each from two words of 32 bits."""
    integers = np.frombuffer(generator.randbytes(8 * count), "<u8")
    # The conversion of 64 bits rounds once, to nearest, like the sum of the two words in std::generate_canonical.
    return np.minimum(integers.astype(np.float64) / 2.0**64, _BELOW_ONE)


def random_bits(seed: int, count: int) -> NDArray[np.uint8]:
    """Return the lowest bits of the first ``count`` 32-bit words, each 0 or 1, uint8 (count,)."""
    # Equals torch's ``randint(0, 2, (count,))`` on a CPU, with a generator of that seed. Only the lowest 32 bits
    # of ``seed`` count, as in torch.
    words = _next_words(seeded_generator(generator_seed(seed)), count)
    return (words & 1).astype(np.uint8)


def _next_words(generator: Random, count: int) -> NDArray[np.uint32]:
    """Return the next 32-bit words of a generator, uint32 (count,)."""
    return np.frombuffer(generator.randbytes(4 * count), "<u4")


def seeded_generator(seed: int) -> Random:
    """Return a Python MT19937 generator in the state of ``std::mt19937(seed)``."""
    # Python would fill the state differently from the same seed. ``numpy.random`` fills it as C++ does, but takes
    # 9 ms to import.
    word = index(seed)
    state = [word]
    for number in range(1, _STATE_WORDS):
        word = (_SEED_FACTOR * (word ^ (word >> 30)) + number) & UINT32_MAX
        state.append(word)
    generator = Random(0)  # noqa: S311 - not used for cryptography
    generator.setstate((Random.VERSION, (*state, _STATE_WORDS), None))
    return generator
