import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import HALVES, NEG, NORMAL, TIES, make_row, row, rows, run, softmax, table

L = math.log
# Probabilities 1/2, 1/4, 1/8, 1/16 and 1/16: the sum of squares is 86/256 = 0.3359, and of five tokens the relaxed
# threshold is (5 * 0.3359 - 1) / 4 = 0.1699.
TENTHS = row(L(4), L(3), L(2), L(1))  # 0.4, 0.3, 0.2 and 0.1: squares 0.3, relaxed (4 * 0.3 - 1) / 3 = 0.0667

WORKED = {
    "only the best": ({}, HALVES, [0]),
    "relaxed": ({"norm": True}, HALVES, [0, 1]),
    "just below 0.3": ({}, row(L(4), L(2.99), L(2.01), L(1)), [0]),
    "just above 0.3": ({}, row(L(4), L(3.01), L(1.99), L(1)), [0, 1]),
    "relaxed keeps all": ({"norm": True}, TENTHS, [0, 1, 2, 3]),
    # At temperature 0.5 the weights are 16, 9, 4 and 1: squares 354/900 = 0.3933, and relaxed 0.1911.
    "a lower temperature": ({"temperature": 0.5}, TENTHS, [0]),
    "a lower temperature, relaxed": ({"temperature": 0.5, "norm": True}, TENTHS, [0, 1]),
    # At a high one, all probabilities approach 1/4, and so does the threshold: the upper half stays.
    "a higher temperature": ({"temperature": 1e6}, row(4, 1, 0, -9), [0, 1, 2]),
    "a temperature as an integer": ({"temperature": 1}, HALVES, [0]),
    "an even row": ({}, row(3, 3, 3), [0, 1, 2]),
    "an even row, relaxed": ({"norm": True}, row(3, 3, 3), [0, 1, 2]),
    "an even row at a temperature": ({"temperature": 0.3}, row(3, 3, 3), [0, 1, 2]),
    "an even row but for -inf": ({}, row(3, NEG, 3), [0, 2]),
    "two that are equally likely": ({}, row(5, 0, 5), [0, 2]),
    "-inf goes": ({"norm": True}, row(NEG, 1, 1, 1), [1, 2, 3]),
    "one candidate": ({}, row(-3), [0]),
    "one candidate, relaxed": ({"norm": True}, row(-3), [0]),
    "huge": ({"temperature": 1e-300}, row(-3e38, 3e38, NEG), [1]),
    "the order stays": ({"norm": True}, HALVES[::-1], [3, 4]),
}


@pytest.mark.parametrize(("params", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(params, logits, ids):
    assert table(run({"p_less": params}, logits)) == [(i, float(logits[i])) for i in ids]


def reference(probs, norm):
    """The two samplers of the authors, which take the probabilities of the whole vocabulary.

    p_less_samplers.py of github.com/ryttry/p-less keeps p >= sum(p^2), and p >= (V sum(p^2) - 1) / (V - 1).
    """
    probs = np.asarray(probs)
    threshold = np.square(probs).sum()
    if norm and probs.size > 1:
        threshold = (probs.size * threshold - 1) / (probs.size - 1)
    return threshold


def check(logits, norm, temperature):
    probs = softmax(logits if temperature is None else (logits.astype(np.float64) / temperature))
    threshold, best = float(reference(probs, norm)), max(probs)
    left = run({"p_less": {"norm": norm, "temperature": temperature}}, logits)
    kept = set(left.ids.tolist())
    assert left.ids.tolist() == sorted(kept)
    assert left.logits.tolist() == logits[left.ids].tolist()
    # Differences of float32 logits are rounded, and the relaxed threshold is a small difference of large numbers.
    margin = 1e-5 * (threshold + 1 / logits.size)
    assert {i for i, p in enumerate(probs) if p >= threshold + margin or p == best} <= kept
    assert kept <= {i for i, p in enumerate(probs) if p >= threshold - margin}
    assert logits[left.ids].min() > NEG


TEMPERATURE = st.none() | st.sampled_from([0.5, 2.0]) | st.floats(0.05, 20)


@given(rows(300), st.booleans(), TEMPERATURE)
@example(NORMAL, False, None)
@example(TIES, True, None)
def test_brute_force(logits, norm, temperature):
    check(logits, norm, temperature)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("temperature", [None, 0.7])
@pytest.mark.parametrize("size", [2, 3, 7, 1000, 49_152, 200_000])
def test_an_even_row_survives(size, temperature, norm):
    logits = np.full(size, 0.1, np.float32)
    assert len(run({"p_less": {"norm": norm, "temperature": temperature}}, logits)) == size


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_exactly_at_the_threshold(powers):
    """Weights are powers of two, so that every sum is exact, and a fraction can decide."""
    weights = [Fraction(1, 2**power) for power in powers]
    total, squares = sum(weights), sum(weight**2 for weight in weights)
    logits = row(*(-power * L(2) for power in powers))
    exact_logits = [-L(2**power) for power in powers]
    assert logits.tolist() == pytest.approx(exact_logits)
    decided = [i for i, weight in enumerate(weights) if abs(weight * total - squares) > 1e-5 or weight == 1]
    kept = run({"p_less": {}}, logits).ids.tolist()
    assert [i for i in decided if weights[i] * total >= squares or weights[i] == max(weights)] == [
        i for i in decided if i in kept
    ]


def test_dropped_tokens_count_in_the_vocabulary_of_norm():
    """As in the authors' code, which gets the probabilities of all tokens, those that are 0 as well."""
    logits = row(L(0.6), L(0.4), *[-99.0] * 998)
    # 1000 tokens: the threshold is 0.5195; of two tokens it would be 0.04.
    assert run({"p_less": {"norm": True}}, logits).ids.tolist() == [0]
    assert build("top_k2 > p_less(norm=true)").apply(logits).ids.tolist() == [0]
    assert build("p_less(norm=true)").apply(logits[:2].copy()).ids.tolist() == [0, 1]


def test_rows_that_a_step_masked_are_forgotten():
    assert build("top_n_sigma1 > p_less").apply(make_row("normal", 300, 1)).masked_count == 0
