import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import build

from .rows import LARGEST, NEG, make_row, native, row, rows, run, table

WIDTH = st.sampled_from([0.5, 1.0, 1e-3]) | st.floats(0.01, 6)

WORKED = {
    # Mean 1, sigma 1.
    "one sigma, between": (1.5, row(2, 0), [0]),
    "one sigma, at the threshold": (2.0, row(2, 0), [0, 1]),
    # Mean 2, sigma 2.
    "the order stays": (1.0, row(0, 4, 0, 4), [1, 3]),
    "exactly at the threshold": (2.0, row(0, 4, 0, 4), [0, 1, 2, 3]),
    "one bit below it": (1.9999999, row(0, 4, 0, 4), [1, 3]),
    # Mean 1, sigma sqrt(5): thresholds of 4 - 2.236 and 4 - 4.472.
    "sigma is that of the population": (1.0, row(4, -2, 2, 0), [0, 2]),
    "two of them": (2.0, row(4, -2, 2, 0), [0, 2, 3]),
    "an integer": (3, row(4, -2, 2, 0), [0, 1, 2, 3]),
    "-inf does not count, and goes": (2.0, row(NEG, 4, NEG, 0, 4, 0), [1, 3, 4, 5]),
    "equal ones all stay": (0.001, row(5, 5, 5), [0, 1, 2]),
    "one candidate": (1.0, row(-5), [0]),
    "one finite candidate": (1.0, row(NEG, -5, NEG), [1]),
    "0 in float32 keeps the best": (1e-50, row(1, 3, 3), [1, 2]),
    "a sigma beyond the floats keeps all": (1.0, row(3e38, -3e38, NEG), [0, 1, 2]),
    "a mean beyond the floats keeps all": (1e-50, row(3e38, 3e38, 3e38, 1), [0, 1, 2, 3]),
}


@pytest.mark.parametrize(("n", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(n, logits, ids):
    assert table(run({"top_n_sigma": n}, logits)) == [(i, float(logits[i])) for i in ids]


def bound(logits, n):
    """max - n * sigma in float64, and the distance from it within which float32's sums may decide otherwise."""
    finite = [value for value in logits.tolist() if value > NEG]
    mean = math.fsum(finite) / len(finite)
    sigma = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / len(finite))
    largest = max(abs(value) for value in finite)
    return max(finite) - n * sigma, 1e-5 * (largest + n * sigma)


def sure(logits, n):
    threshold, margin = bound(logits, n)
    highest = logits.max()
    return all(value == highest or abs(value - threshold) > margin for value in logits.tolist())


def moderate(logits):
    """Without values whose squares are beyond float32, or 0 in it: what these do is worked out above."""
    limited = np.clip(logits, np.float32(-1e15), np.float32(1e15))
    limited = np.where(np.abs(limited) < 1e-15, np.float32(0), limited)
    return np.where(np.isneginf(logits), logits, limited)


@given(rows(300), WIDTH)
def test_brute_force(logits, n):
    logits = moderate(logits)
    assume(sure(logits, n))
    threshold, _ = bound(logits, n)
    highest = max(logits.tolist())
    kept = [entry for entry in enumerate(logits.tolist()) if entry[1] >= threshold or entry[1] == highest]
    assert table(run({"top_n_sigma": n}, logits)) == kept


def check(logits, n):
    """Compare with llama.cpp, which sets to -inf what goes here; returns what llama.cpp left."""
    ours, theirs = run({"top_n_sigma": n}, logits), native([{"top_n_sigma": {"n": n}}], logits)
    assert theirs.ids.tolist() == list(range(logits.size))
    stayed = theirs.logits > NEG
    above = ours.logits > NEG
    assert ours.ids[above].tolist() == theirs.ids[stayed].tolist()
    assert ours.logits[above].tolist() == theirs.logits[stayed].tolist()
    with np.errstate(over="ignore"):
        weights = ours.weights()[above]
    np.testing.assert_allclose(weights / weights.sum(dtype=np.float64), theirs.p[stayed], atol=1e-5, rtol=0)


@given(rows(LARGEST), WIDTH)
def test_equals_llama_cpp(logits, n):
    check(moderate(logits), n)


@pytest.mark.parametrize("seed", range(20))
def test_equals_llama_cpp_where_the_threshold_falls_on_a_row(seed):
    # Here the last bit of sigma decides: llama.cpp adds squares that are doubles to a float.
    logits = make_row("normal", [100, 1000, 5000][seed % 3], seed)
    sigma = np.std(logits, dtype=np.float64)
    for value in np.random.default_rng(seed).choice(logits, 8):
        exact = float((logits.max() - value) / sigma)
        for n in (exact, exact * (1 - 1e-7), exact * (1 + 1e-7)):
            check(logits, max(n, 1e-3))


@pytest.mark.parametrize(
    "logits",
    [row(3e38, -3e38, NEG), row(3e38, 3e38, 3e38, 1), row(3e38, 1e30, -1e30), row(1e-30, -1e-30)],
    ids=["sigma", "mean", "squares", "tiny squares"],
)
def test_beyond_the_floats_equals_llama_cpp(logits):
    check(logits, 1.0)


def test_drops_the_rows_that_llama_cpp_sets_to_minus_inf():
    logits = row(4, -2, 2, 0)
    assert table(run({"top_n_sigma": 1.0}, logits)) == [(0, 4.0), (2, 2.0)]
    assert native([{"top_n_sigma": {"n": 1.0}}], logits).logits.tolist() == [4, NEG, 2, NEG]
    # So a step behind it that counts rows sees fewer of them here.
    after = [{"top_n_sigma": {"n": 1.0}}, {"top_k": {"k": 3}}]
    assert build(after).apply(logits).ids.tolist() == [0, 2]
    assert len(native(after, logits).ids) == 3
