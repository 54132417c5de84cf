"""SynthID-Text against loops over single tokens, and against values that transformers computed."""

import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build
from logitsmith.samplers.mersenne_twister import random_bits
from logitsmith.samplers.watermark import GValues, context_hash, extend_hash, ngram_hashes

from .rows import NEG, make_row, row, rows, run, softmax, within
from .test_mersenne_twister import mt19937

KEYS = [654, 400, 836, 123, 340, 443, 597, 160, 57]
FACTOR = 6364136223846793005


def hash_of(tokens, value=1):
    """The hash of transformers' `accumulate_hash`, in unbounded integers."""
    for token in tokens:
        value = (value + token) * FACTOR + 1
    return value % 2**64


def signed(value):
    return value - 2**64 if value >= 2**63 else value


class Reference:
    """The logits processor, a token at a time."""

    def __init__(self, keys, ngram_len=5, history=1024, size=2**16, seed=0, skips=False):
        self.keys, self.length, self.history, self.skips = keys, ngram_len, history, skips
        self.table = [word & 1 for word in islice(mt19937(seed % 2**32), size)]

    def bit(self, ngram, key):
        return self.table[signed(hash_of([*ngram, key])) % len(self.table)]

    def contexts(self, output):
        """The context before each token of the output, and before the next one."""
        padded = [0] * (self.length - 1) + output
        return [tuple(padded[start : start + self.length - 1]) for start in range(len(output) + 1)]

    def is_marked(self, output):
        contexts = self.contexts(output)
        first = self.length - 1 if self.skips else 0
        earlier = contexts[first:-1]
        return len(output) >= first and contexts[-1] not in earlier[max(len(earlier) - self.history, 0) :]

    def probs(self, logits, output):
        probs = softmax(logits)
        if not self.is_marked(output):
            return probs
        context = self.contexts(output)[-1]
        for key in self.keys:
            bits = [self.bit((*context, token), key) for token in range(len(probs))]
            mass = math.fsum(bit * p for bit, p in zip(bits, probs, strict=True))
            probs = [p * (1 + bit - mass) for bit, p in zip(bits, probs, strict=True)]
        return probs


def step(reference):
    return {
        "synthid": {
            "keys": reference.keys,
            "ngram_len": reference.length,
            "context_history_size": reference.history,
            "sampling_table_size": len(reference.table),
            "skip_first_ngram_calls": reference.skips,
        }
    }


def probs_of(candidates, size):
    probs = np.zeros(size)
    probs[candidates.ids] = softmax(candidates.logits)
    return probs


# From torch 2.14.1: torch.randint(0, 2, (40,), generator=torch.Generator().manual_seed(seed))
TORCH_BITS = {
    0: "0110111111100100000101100111101010110110",
    1: "1100111110010110010001001000100011111000",
    2**31: "0011110100010101001011011100100001010000",
    2**32 + 5: "1011000100101000101111010111100010011011",
    2**64 - 1: "1001000010110110110110011110001001000110",
}


@pytest.mark.parametrize(("seed", "bits"), TORCH_BITS.items())
def test_the_table_has_torchs_bits(seed, bits):
    assert "".join(map(str, random_bits(seed, 40))) == bits
    assert random_bits(seed, 2000).tolist() == [word & 1 for word in islice(mt19937(seed % 2**32), 2000)]


CONTEXTS = [[0, 0, 0, 0], [1, 2, 3, 4], [49_151, 7, 200_000, 0]]
HASHES = [-4106384379532733411, 8268566681299659399, -4500242128368663553]
# fmt: off
SCORES = (
   (1, [-4.163762, -0.096106, -7.326694, -6.042892, -3.234143, -3.424422, -6.822273, -43.856083]),
   (3, [-0.057129, -3.150467, -6.352482, -7.273768, -8.320415, -4.635351, -8.068622, -46.206318]),
   (2, [-1.533582, -4.642651, -3.387575, -4.294764, -0.365161, -3.696308, -4.794363, -45.298019]),
   (0, [-4.131162, -1.975444, -0.230023, -4.341102, -3.531507, -9.614586, -4.782939, -46.615364]),
   (5, [-0.092079, -8.455951, -2.450379, -9.931787, -7.99707, -8.864922, -6.941212, -48.392235]),
   (1, [-1.51512, -4.446962, -1.028069, -1.20961, -3.212032, -3.074183, -3.649995, -45.419533]),
   (3, [-2.612174, -0.254567, -2.618417, -3.382234, -3.155295, -7.365738, -6.704535, -44.089172]),
   (2, [-0.016575, -6.937645, -7.927262, -8.477124, -4.212307, -14.205285, -9.355228, -55.963482]),
   (0, [-2.81879, -1.082942, -1.864111, -1.462006, -1.805512, -3.176675, -4.732462, -45.069016]),
   (4, [2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -40.0]),
)
# fmt: on
"""Each token of a text, and the scores before it. The last context is a repeated one."""


def test_values_of_transformers():
    """Recorded from SynthIDTextWatermarkLogitsProcessor of transformers 5.24 on a CPU."""
    logits = row(2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0, -40.0)
    assert [context_hash(tokens) for tokens in CONTEXTS] == [value % 2**64 for value in HASHES]
    chain = build([{"synthid": {"keys": KEYS}}])
    for token, expected in SCORES:
        candidates = chain.apply(logits)
        np.testing.assert_allclose(candidates.logits, expected, atol=2e-6)
        chain.accept(token)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6),
    st.integers(2, 6),
    st.sampled_from([1, 7, 1000, 2**16]),
    st.lists(st.integers(0, 200_000), min_size=6, max_size=30),
)
def test_hashes_and_bits_by_brute_force(keys, length, size, tokens):
    reference = Reference(keys, length, size=size)
    hashes = ngram_hashes(np.array(tokens), length)
    ngrams = [tokens[start : start + length] for start in range(len(tokens) - length + 1)]
    assert hashes.tolist() == [signed(hash_of(ngram)) for ngram in ngrams]
    bits = GValues(keys, size, 0)
    assert [each.tolist() for each in bits.of_hashes(hashes)] == [
        [reference.bit(ngram, key) for ngram in ngrams] for key in keys
    ]
    assert extend_hash(context_hash(ngrams[0][:-1]), np.array([ngrams[0][-1]])).tolist() == hashes[:1].tolist()


@pytest.mark.parametrize("size", [1, 16, 2**16])
def test_bits_of_all_remainders(size):
    """Uniform hashes give the bits that the remainders give."""
    bits = GValues(KEYS, size, 3)
    ordered = {
        tuple(column) for column in np.stack(list(bits.of_hashes(np.arange(size, dtype=np.int64)))).T.tolist()
    }
    assert {tuple(column) for column in np.stack(list(bits.of_remainders())).T.tolist()} == ordered
    for key_bits in bits.of_remainders():
        assert key_bits.mean() == bits.table.mean()


OUTPUTS = st.integers(1, 4).flatmap(lambda last: st.lists(st.integers(0, last), max_size=30))


@given(rows(40), OUTPUTS, st.integers(2, 4), st.sampled_from([0, 1, 3, 1024]), st.booleans())
@example(make_row("normal", 20_000, 1), [5, 19_999, 7], 3, 1024, False)
def test_brute_force(logits, output, length, history, skips):
    reference = Reference(KEYS[:4], length, history, skips=skips)
    output = within(output, logits)
    left = run(step(reference), logits, [3, 1, 4], output)
    expected = reference.probs(logits, output)
    np.testing.assert_allclose(probs_of(left, logits.size), np.maximum(expected, 0), atol=2e-6)


def test_a_context_of_hash_zero_counts_as_repeated_until_the_history_is_full():
    """The history of transformers begins with zeros."""
    logits = make_row("normal", 50, 1)
    token = (-pow(FACTOR, -1, 2**64) - 1) % 2**64
    assert hash_of([token]) == 0
    params = {"keys": KEYS, "ngram_len": 2, "context_history_size": 3}
    marked = []
    for before in ([], [1], [1, 2], [1, 2, 3]):
        left = run({"synthid": params}, logits, [], [*before, token])
        marked.append(left.logits is not logits)
    assert marked == [False, False, True, True]


def test_a_huge_history_takes_no_memory():
    left = run({"synthid": {"keys": KEYS, "context_history_size": 10**15}}, make_row("normal", 50, 1), [], [1, 2])
    assert len(left) == 50


def test_the_mean_over_keys_is_the_distribution():
    logits = row(1, 0.5, 0, -1, -3)
    chooser = np.random.default_rng(1)
    runs = [probs_of(run({"synthid": chooser.integers(0, 2**40, 4).tolist()}, logits), 5) for _ in range(4000)]
    np.testing.assert_allclose(np.mean(runs, axis=0), softmax(logits), atol=0.015)


def test_a_token_whose_probability_becomes_zero_is_dropped():
    key = next(key for key in range(100) if Reference([key]).bit((0, 0, 0, 0, 0), key))
    assert Reference([key]).bit((0, 0, 0, 0, 0), key) == 1
    zero = next(token for token in range(1, 100) if not Reference([key]).bit((0, 0, 0, 0, token), key))
    logits = np.full(zero + 1, NEG, np.float32)
    logits[0], logits[zero] = 60, 0
    left = run({"synthid": key}, logits)
    assert left.ids.tolist() == [0]
    assert left.logits.tolist() == [0.0]
