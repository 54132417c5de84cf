"""The random numbers of llama.cpp: MT19937, drawn as libstdc++ draws them."""

from __future__ import annotations

import math
from operator import index
from random import Random
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..common.machine import SEED_MAX

if TYPE_CHECKING:
    from .candidates import Candidates

_BATCH_SIZE = 64
"""How many numbers are generated at a time."""
_BELOW_ONE = math.nextafter(1.0, 0.0)
"""The largest float64 below 1: a number that rounds to 1 becomes this."""
_FLOAT_BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))
_STATE_WORDS = 624
_SEED_FACTOR = 1_812_433_253
"""Of the sequence that fills the state from a seed (Matsumoto & Nishimura 2002)."""


class MersenneTwister:
    """A ``std::mt19937`` that is drawn through ``std::uniform_real_distribution<double>(0, 1)``.

    Formula: two 32-bit words w0, w1 give one number u = (w0 + 2^32 w1) / 2^64, in [0, 1). Equals llama.cpp built
    with libstdc++: the same seed gives the same numbers.
    """

    def __init__(self, seed: int) -> None:
        """Begin the sequence of ``seed``, 0..2^32-1."""
        self._seed = seed
        self.restart()

    def restart(self) -> None:
        """Go back to the first number of the sequence."""
        self._words: Random | None = None
        self._ready: list[float] = []
        self._ready_floats: list[np.float32] = []

    def uniform(self) -> float:
        """Return the next number, a float64 in [0, 1)."""
        if not self._ready:
            self._ready = next_numbers(self._generator(), _BATCH_SIZE)[::-1].tolist()
        return self._ready.pop()

    def _generator(self) -> Random:
        """The generator of the words. It is seeded here: that takes 0.1 ms, and chains restart often."""
        if self._words is None:
            self._words = seeded_generator(self._seed)
        return self._words

    def peek(self) -> float:
        """Return the number that `uniform` gives next. It is not taken."""
        number = self.uniform()
        self._ready.append(number)
        return number

    def uniform_float(self) -> np.float32:
        """Return the next number of one 32-bit word, in [0, 1): ``uniform_real_distribution<float>``.

        Use either this or `uniform` between two restarts, not both: each generates numbers ahead.
        """
        if not self._ready_floats:
            words = np.frombuffer(self._generator().randbytes(4 * _BATCH_SIZE), "<u4").astype(np.float32)
            self._ready_floats = list(np.minimum(words / np.float32(2.0**32), _FLOAT_BELOW_ONE)[::-1])
        return self._ready_floats.pop()

    def discrete(self, candidates: Candidates) -> int:
        """Return the position of a candidate, drawn with the probabilities of llama.cpp's softmax.

        A single row takes no random number; rows that llama.cpp still holds at -inf count. Equals libstdc++'s
        ``std::discrete_distribution``, except for the last bits of a float64.
        """
        return candidates.pick_position(self.uniform()) if candidates.llama_cpp_count > 1 else 0


def next_numbers(generator: Random, count: int) -> NDArray[np.float64]:
    """Return the next numbers of a generator, float64 (count,), in [0, 1). Each takes two words."""
    words = np.frombuffer(generator.randbytes(8 * count), "<u8")
    # The conversion from 64 bits rounds once and to nearest, like the sum in generate_canonical.
    return np.minimum(words.astype(np.float64) / 2.0**64, _BELOW_ONE)


def seeded_generator(seed: int) -> Random:
    """Return Python's MT19937 in the state of ``std::mt19937(seed)``; Python's own seeds begin elsewhere.

    ``numpy.random`` has it, too, but takes 9 ms to import.
    """
    word = index(seed)
    state = [word]
    for number in range(1, _STATE_WORDS):
        word = (_SEED_FACTOR * (word ^ (word >> 30)) + number) & SEED_MAX
        state.append(word)
    generator = Random(0)  # noqa: S311 - its numbers are no secret
    generator.setstate((Random.VERSION, (*state, _STATE_WORDS), None))
    return generator
