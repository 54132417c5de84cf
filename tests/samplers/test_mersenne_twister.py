import math
from itertools import islice

import numpy as np
import pytest
from logitsmith.common.seeds import UINT32_MAX as LAST_SEED
from logitsmith.samplers import build
from logitsmith.samplers.mersenne_twister import MersenneTwister

from ..oracle.native import NativeSampler
from .rows import make_row, row

SEEDS = [0, 1, 42, 5489, 2**31, 2**32 - 2]


def mt19937(seed):
    """The 32-bit words of std::mt19937, from Matsumoto & Nishimura 1998 and their init_genrand of 2002."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
    while True:
        for i in range(624):
            y = state[i] & 0x80000000 | state[(i + 1) % 624] & 0x7FFFFFFF
            state[i] = state[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
            x = state[i]
            x ^= x >> 11
            x ^= x << 7 & 0x9D2C5680
            x ^= x << 15 & 0xEFC60000
            yield x ^ x >> 18


def test_the_ten_thousandth_word_of_the_default_seed():
    # C++ standard, [rand.predef]: word 10000 of a default-constructed std::mt19937 is 4123659995. A number
    # holds two words, the second one on top.
    random = MersenneTwister(5489)
    number = [random.uniform() for _ in range(5000)][-1]
    assert math.floor(number * 2**32) == 4123659995


def test_the_generator_of_this_test_is_a_mersenne_twister():
    assert next(islice(mt19937(5489), 9999, None)) == 4123659995


@pytest.mark.parametrize("seed", [*SEEDS, LAST_SEED])
def test_two_words_make_a_number(seed):
    words = mt19937(seed)
    random = MersenneTwister(seed)
    for low, high in islice(zip(words, words, strict=False), 1000):
        # generate_canonical in double: w0 + w1 * 2^32, rounded once, over 2^64.
        assert random.uniform() == (float(low) + float(high) * 2.0**32) / 2.0**64


@pytest.mark.parametrize("seed", [*SEEDS, LAST_SEED])
def test_one_word_makes_a_float(seed):
    random = MersenneTwister(seed)
    for _ in range(2):
        for word in islice(mt19937(seed), 1000):
            number = random.uniform_float()
            assert type(number) is np.float32
            assert number == min(np.float32(word) / np.float32(2**32), np.nextafter(np.float32(1), np.float32(0)))
        random.restart()


def test_a_number_that_rounds_to_one_stays_below(monkeypatch):
    class AllOnes:
        def randbytes(self, count):
            return b"\xff" * count

    random = MersenneTwister(1)
    monkeypatch.setattr(random, "_word_generator", AllOnes())
    assert random.uniform() == math.nextafter(1.0, 0.0)
    assert random.uniform_float() == np.nextafter(np.float32(1), np.float32(0))


def test_restart():
    random = MersenneTwister(3)
    first = [random.uniform() for _ in range(700)]
    random.restart()
    assert [random.uniform() for _ in range(700)] == first


def test_numpys_global_generator_is_left_alone():
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    MersenneTwister(7).uniform()
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize("size", [2, 64, 3000])
@pytest.mark.parametrize("seed", SEEDS)
def test_draws_the_tokens_of_llama_cpp(seed, size):
    table = [make_row("normal", size, number) for number in range(7)]
    ours = build(["dist"], seed=seed)
    with NativeSampler("dist", vocabulary=size, seed=seed) as native:
        for number in range(700):  # more than one refill of the 624 words
            logits = table[number % 7]
            assert ours.sample(logits) == native.apply(logits).token


def test_the_last_seed_is_a_seed_where_llama_cpp_takes_it_for_random():
    logits = row(*[0.0] * 1000)

    def tokens_of_llama_cpp():
        with NativeSampler("dist", vocabulary=1000, seed=LAST_SEED) as native:
            return [native.apply(logits).token for _ in range(50)]

    assert tokens_of_llama_cpp() != tokens_of_llama_cpp()
    first, second = build(["dist"], seed=LAST_SEED), build(["dist"], seed=LAST_SEED)
    assert [first.sample(logits) for _ in range(50)] == [second.sample(logits) for _ in range(50)]
