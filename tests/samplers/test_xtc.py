import math
from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import build

from ..oracle.native import NativeChain
from .rows import LARGEST, NEG, FakeVocabulary, make_row, row, rows, run, table
from .test_mersenne_twister import mt19937

LN2 = math.log(2)
# Probabilities 1/4, 1/8, 1/2 and 1/8; sorted ids are 2 0 1 3. Of four tokens 2 is the newline, 3 the end.
HALVES = row(-LN2, -2 * LN2, 0, -2 * LN2)
SEEDS = st.integers(0, 2**32 - 2)

# All with probability 1.
WORKED = {
    "one is likely": (0.3, 1, False, HALVES, [2, 0, 1, 3]),
    "two are likely": (0.2, 1, False, HALVES, [0, 1, 3]),
    "all are likely": (0.1, 1, False, HALVES, [3]),
    "exactly at the threshold": (0.25, 1, False, HALVES, [0, 1, 3]),
    "just above it": (0.2500001, 1, False, HALVES, [2, 0, 1, 3]),
    "exactly a half": (0.5, 1, False, row(1, 1), [1]),
    "of equal ones the last stays": (0.1, 1, False, row(7, 7, 7, 7), [3]),
    "just enough stay": (0.2, 3, False, HALVES, [0, 1, 3]),
    "zero: all are likely": (0.0, 1, False, row(3, -90, -200, 1), [2]),
    "too few would stay": (0.2, 4, False, HALVES, [2, 0, 1, 3]),
    "one candidate": (0.1, 1, False, row(5), [0]),
    "-inf stays": (0.1, 1, False, row(NEG, 1, NEG, 1), [3, 0, 2]),
    "newline is spared": (0.1, 1, True, HALVES, [2, 3]),
    "the end is spared": (0.1, 1, True, row(0, 0, -9, 2), [3, 1, 2]),
    "nothing to spare": (0.2, 1, True, row(0, 0, -9, -9), [1, 2, 3]),
    "newline cancels": (0.1, 1, "cancel", HALVES, [2, 0, 1, 3]),
    "the end cancels": (0.1, 1, "cancel", row(0, 0, -9, 2), [3, 0, 1, 2]),
    "nothing cancels": (0.2, 1, "cancel", row(0, 0, -9, -9), [1, 2, 3]),
    "the last of the likely need not be spared": (0.2, 1, "cancel", row(1, -9, 1, -9), [2, 1, 3]),
}


@pytest.mark.parametrize(("threshold", "min_keep", "special", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(threshold, min_keep, special, logits, ids):
    params = {"probability": 1.0, "threshold": threshold, "min_keep": min_keep, "keep_special": special}
    assert table(run({"xtc": params}, logits)) == [(i, float(logits[i])) for i in ids]


def test_a_vocabulary_without_a_newline():
    vocabulary = FakeVocabulary(4)
    vocabulary.newline = None
    chain = build([{"xtc": {"probability": 1.0, "keep_special": True}}], vocab=vocabulary)
    assert chain.apply(HALVES).ids.tolist() == [3]


def chances(seed):
    """The numbers u of the formula, each made of one word of 32 bits."""
    return (np.float32(word) / np.float32(2**32) for word in mt19937(seed))


def by_hand(logits, chance, p):
    values = logits.tolist()
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    total = math.fsum(math.exp(value - values[order[0]]) for value in values)
    probs = [math.exp(values[i] - values[order[0]]) / total for i in order]
    # float32 decides whether these are equal.
    assume(all(abs(prob - p["threshold"]) > 1e-5 * p["threshold"] for prob in probs))
    likely = sum(prob >= p["threshold"] for prob in probs)
    if chance > np.float32(p["probability"]):
        return list(range(len(values)))
    if likely < 2 or len(values) - likely + 1 < p["min_keep"]:
        return order
    dropped, kept = order[: likely - 1], order[likely - 1 :]
    special = [i for i in dropped if i in (10 % len(values), len(values) - 1)]
    if p["keep_special"] == "cancel" and special:
        return order
    return [i for i in dropped if i in special] + kept if p["keep_special"] else kept


SETTINGS = st.fixed_dictionaries(
    {
        "probability": st.sampled_from([0.5, 1.0]) | st.floats(0.01, 1),
        "threshold": st.sampled_from([1e-3, 0.1, 0.5]) | st.floats(1e-6, 0.5) | st.floats(1e-6, 0.01),
        "min_keep": st.sampled_from([1, 1, 5]),
    }
)


@given(rows(300).filter(lambda logits: logits.size > 1), SETTINGS, st.sampled_from([False, True, "cancel"]), SEEDS)
def test_brute_force(logits, params, special, seed):
    params = params | {"keep_special": special}
    chain = build([{"xtc": params}], seed=seed, vocab=FakeVocabulary(logits.size))
    for chance in islice(chances(seed), 4):
        assert chain.apply(logits).ids.tolist() == by_hand(logits, chance, params)
        chain.accept(0)


def too_near(logits, threshold):
    """Does the last bit of an expf decide which tokens are likely? llama.cpp's may round it otherwise."""
    weights = np.exp(np.float64(logits) - np.float64(logits.max()))
    probs = weights / np.add.accumulate(weights.astype(np.float32))[-1]
    return bool((np.abs(probs - threshold) < 2e-6 * threshold).any())


def same(left, theirs, logits):
    """As `agree`; but what is cut is the head of the row, so the highest one left may be chosen among equals."""
    np.testing.assert_array_equal(left.logits, theirs.logits)
    chosen = np.count_nonzero(logits == left.max) > np.count_nonzero(left.logits == left.max)
    sure = left.logits < left.max if chosen else left.logits <= left.max
    assert sorted(left.ids[sure].tolist()) == sorted(theirs.ids[sure].tolist())
    weights = left.weights()
    np.testing.assert_allclose(weights / weights.sum(dtype=np.float64), theirs.p, atol=1e-5, rtol=0)


def follow(params, table_of_rows, seed):
    """Compare with llama.cpp at every row, one after the other, so that the random numbers are followed."""
    ours = build([{"xtc": params}], seed=seed)
    acted = 0
    steps = [{"xtc": params}, {"dist": {}}]
    with NativeChain(steps, vocabulary=table_of_rows[0].size, seed=seed) as native:
        for logits in table_of_rows:
            left = ours.apply(logits)
            same(left, native.apply(logits), logits)
            acted += len(left) < logits.size
            ours.accept(0)
            native.accept(0)
    return acted


@given(rows(LARGEST), SETTINGS, SEEDS)
def test_equals_llama_cpp(logits, params, seed):
    logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))  # its bucket sort: see test_top_k.py
    assume(not too_near(logits, params["threshold"]))
    follow(params, [logits] * 5, seed)


@pytest.mark.parametrize("seed", [0, 1, 4294967294])
def test_follows_the_random_numbers_of_llama_cpp(seed):
    one, many = row(3), make_row("peaked", 500, 4)
    rounds = [many, one, many, many, one, one, *[many] * 300]
    acted = follow({"probability": 0.3, "threshold": 0.001}, rounds, seed)
    assert 50 < acted < 150


def test_to_apply_twice_is_to_roll_once_where_llama_cpp_rolls_again():
    params, logits = {"probability": 0.5, "threshold": 0.1}, HALVES
    chain = build([{"xtc": params}], seed=3)
    rolls = []
    for _ in range(40):
        sizes = {len(chain.apply(logits)) for _ in range(3)}
        assert len(sizes) == 1
        rolls.append(sizes.pop())
        chain.accept(0)
    assert set(rolls) == {1, 4}
    with NativeChain([{"xtc": params}], vocabulary=4, seed=3) as native:
        assert [len(native.apply(logits).ids) for _ in range(40)] == rolls  # not one token accepted


def test_a_threshold_of_0_leaves_a_token_that_can_be_drawn():
    params, logits = {"probability": 1.0, "threshold": 0.0}, row(3, 2, NEG)
    assert build([{"xtc": params}]).apply(logits).max > NEG
    with NativeChain([{"xtc": params}], vocabulary=3) as native:
        assert native.apply(logits).logits.tolist() == [NEG]
