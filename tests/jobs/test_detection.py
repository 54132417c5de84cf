"""The score and the p value of a watermark, against values of transformers, loops, and exact distributions."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.jobs.detection import (
    UnmarkedDistribution,
    WatermarkDetector,
    layer_weights,
    new_context_mask,
)
from logitsmith.samplers import build
from logitsmith.samplers.mersenne_twister import random_bits
from logitsmith.samplers.methods.synthid import Synthid
from logitsmith.samplers.watermark import GValues, ngram_hashes

from ..samplers.rows import make_row
from ..samplers.test_synthid import KEYS, Reference

# Recorded from SynthIDTextWatermarkLogitsProcessor of transformers 5.24 on a CPU.
TEXT = [1, 3, 2, 0, 5, 1, 3, 2, 0, 4, 2, 9, 1, 3, 2, 0, 5, 7]
G_VALUES = (
    "100000110 100000001 110111000 011101010 001010001 000001111 001010110 "
    "010101011 101110000 011000010 010100001 011101001 100000110 000101001"
)
NEW_CONTEXTS = [1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0]
BEFORE_TOKEN_9 = 7
"""Number of n-grams that end before token 9."""


def detector(keys=KEYS, **params):
    return WatermarkDetector(Synthid(keys=keys, **params))


def g_values(synthid, tokens):
    """The g values of all n-grams of a text, uint8 (T - n + 1, keys), T >= n."""
    hashes = ngram_hashes(np.array(tokens, dtype=np.int64), synthid.ngram_len)
    found = GValues(synthid.keys, synthid.sampling_table_size, synthid.sampling_table_seed)
    return np.stack(list(found.of_hashes(hashes)), axis=1)


def test_g_values_and_masks_of_transformers():
    found = detector()
    bits = [[int(bit) for bit in ngram] for ngram in G_VALUES.split()]
    assert g_values(found.watermark, TEXT).tolist() == bits
    counted = [ngram for ngram, is_new in zip(bits, NEW_CONTEXTS, strict=True) if is_new]
    score = found.score(TEXT)
    assert (score.token_count, score.counted_count) == (18, 11)
    assert score.mean == pytest.approx(np.mean(counted))
    weights = np.linspace(10, 1, 9)
    assert score.weighted_mean == pytest.approx(np.mean(counted @ weights) / weights.sum())
    assert found.score(TEXT, {9, 77}).counted_count == sum(NEW_CONTEXTS[:BEFORE_TOKEN_9])


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(2, 4),
    st.integers(0, 12),
    st.sampled_from([1, 10, 2**16]),
)
def test_the_score_by_brute_force(text, length, history, size):
    found = detector(KEYS[:4], ngram_len=length, context_history_size=history, sampling_table_size=size)
    reference = Reference(KEYS[:4], length, size=size)
    counted, contexts, ngrams = [], [], set()
    for place in range(length - 1, len(text)):
        context, ngram = tuple(text[place - length + 1 : place]), tuple(text[place - length + 1 : place + 1])
        if context not in contexts[max(len(contexts) - history, 0) :] and ngram not in ngrams:
            counted.append([reference.bit(ngram, key) for key in KEYS[:4]])
            ngrams.add(ngram)
        contexts.append(context)
    score = found.score(text)
    assert score.counted_count == len(counted)
    if not counted:
        assert (score.mean, score.weighted_mean, score.z, score.p_value) == (None, None, None, None)
        return
    assert score.mean == pytest.approx(np.mean(counted))
    assert score.weighted_mean == pytest.approx(np.mean(np.array(counted) @ [10, 7, 4, 1]) / 22)
    assert score.expected_mean == np.mean(reference.table)
    assert 0 <= score.p_value <= 1


def test_a_context_of_hash_zero_counts_as_repeated_at_the_beginning():
    """The history of transformers begins with zeros."""
    assert new_context_mask(np.array([5, 0, 0, 7, 0]), 2).tolist() == [True, False, False, True, False]
    assert new_context_mask(np.array([5, 6, 7, 0]), 2).tolist() == [True, True, True, True]
    assert new_context_mask(np.array([5, 5, 0]), 0).tolist() == [True, True, True]


def exact_tail(sums, count):
    """The probability of each sum of ``count`` tokens or a greater one, by convolution."""
    shares = np.bincount(sums) / sums.size
    total = np.ones(1)
    for _ in range(count):
        total = np.convolve(total, shares)
    return np.cumsum(total[::-1])[::-1]


@pytest.mark.parametrize("count", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("depth", [1, 3, 9])
def test_p_values_are_those_of_the_exact_distribution(depth, count):
    weights = layer_weights(depth)
    assert np.array(weights) / weights[0] == pytest.approx(np.linspace(10, 1, depth)[: len(weights)] / 10)
    span = math.gcd(*weights)
    sums = np.array([np.dot(weights, bits) for bits in product((0, 1), repeat=depth)])
    distribution = UnmarkedDistribution(sums)
    tail = exact_tail(sums // span, count)
    # Few tokens have few sums, with gaps between them, which the formula smooths.
    factor = 2 if count < 20 else 1.1 if count < 100 else 1.001
    possible_totals = np.nonzero((tail - np.append(tail[1:], 0) > 1e-14) & (tail > 1e-10))[0]
    for total in possible_totals.tolist():
        assert tail[total] / factor < distribution.tail_probability(total * span, count) < tail[total] * factor
    assert distribution.tail_probability(0, count) == 1.0
    highest = count * sum(weights)
    assert distribution.tail_probability(highest, count) == pytest.approx(0.5 ** (depth * count))


def test_a_p_value_far_from_the_mean():
    """The exact one of 1000 fair bits; a normal distribution would have 9e-237."""
    distribution = UnmarkedDistribution(np.array([0, 1]))
    exact = sum(math.comb(1000, k) for k in range(1000, 1001)) / 2**1000
    assert distribution.tail_probability(1000, 1000) == pytest.approx(exact)
    exact = sum(math.comb(1000, k) for k in range(950, 1001)) / 2**1000
    assert distribution.tail_probability(950, 1000) == pytest.approx(exact, rel=1e-3)


KEY_SETS = {
    "nine": KEYS,
    "thirty": list(range(1000, 4000, 100)),
    "consecutive": list(range(30)),
    "one": [5],
    "equal": [7] * 5,
    "negative": [-1, -(2**63), 2**63 - 1],
}


@pytest.mark.parametrize("size", [pytest.param(2**16, marks=pytest.mark.slow), 50_000, 64])
@pytest.mark.parametrize("keys", KEY_SETS.values(), ids=KEY_SETS)
def test_p_values_of_random_tokens_are_uniform(keys, size):
    found = detector(keys, sampling_table_size=size)
    chooser = np.random.default_rng(len(keys) + size)
    texts = [chooser.integers(0, 50_000, 54).tolist() for _ in range(1500)]
    p_values = np.array([found.score(text).p_value for text in texts])
    for level in (0.5, 0.1, 0.05, 0.01):
        share = float((p_values <= level).mean())
        assert share <= level + 4.5 * math.sqrt(level * (1 - level) / len(texts)), level


@pytest.mark.parametrize("count", [2, 5, 20])
def test_equal_keys_give_the_p_value_of_one_key(count):
    """A key that is repeated adds no evidence; the fault was a continuity correction for weights that differ."""
    keys = [7] * count
    for number in range(20):
        text = np.random.default_rng(number).integers(0, 50_000, 54).tolist()
        assert detector(keys).score(text).p_value == pytest.approx(detector([7]).score(text).p_value)


def test_the_mean_of_the_table_is_not_one_half():
    """A long unmarked text would seem to be marked if one half were expected: the fault of an earlier detector."""
    seed = next(seed for seed in range(100, 200) if random_bits(seed, 2**16).mean() > 0.503)
    keys = np.random.default_rng(1).integers(0, 2**40, 30).tolist()
    found = detector(keys, sampling_table_seed=seed)
    score = found.score(np.random.default_rng(2).integers(0, 50_000, 200_000).tolist())
    z_of_one_half = (score.weighted_mean - 0.5) / (score.weighted_mean - score.expected_mean) * score.z
    assert z_of_one_half > 5
    assert abs(score.z) < 4
    assert 1e-4 < score.p_value < 1 - 1e-4


def test_a_repeated_text_is_no_further_evidence():
    """Also if it repeats itself after more tokens than the history of contexts has."""
    text = np.random.default_rng(3).integers(0, 50_000, 2000).tolist()
    found = detector()
    assert found.score(text * 5).counted_count == 1996 + 4  # the n-grams across the seam are new
    assert new_context_mask(np.array([*range(1, 2001)] * 5), 1024).all()  # transformers would count all of them


@pytest.mark.parametrize("keys", [KEYS, list(range(30))], ids=["nine keys", "thirty keys"])
def test_marked_texts_are_found(keys):
    marked = build([{"top_k": 50}, {"synthid": {"keys": keys}}], seed=1)
    rows = [make_row("normal", 500, number) for number in range(20)]
    chooser = np.random.default_rng(4)
    tokens = []
    for _ in range(100):
        token = marked.sample(rows[chooser.integers(20)])
        marked.accept(token)
        tokens.append(token)
    assert detector(keys).score(tokens).p_value < 1e-4
    assert detector([key + 1000 for key in keys]).score(tokens).p_value > 1e-3


def test_a_table_of_one_value():
    score = detector(sampling_table_size=1).score(list(range(50)))
    assert (score.z, score.p_value) == (0.0, 1.0)


def test_without_keys():
    with pytest.raises(ValueError, match="the watermark has no keys"):
        detector([])
