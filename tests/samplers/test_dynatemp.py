import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import build

from .rows import LARGEST, NEG, native, row, rows, run, table

# Probabilities 1/2, 1/4, 1/8 and 1/8: an entropy of 1.75 bits of 2, so H / ln n is 7/8.
HALVES = row(-math.log(4), -math.log(2), 0, -math.log(4))
WHOLE = st.sampled_from([0.0, 0.5, 1.0, 2.0])
SETTINGS = st.fixed_dictionaries(
    {
        "temperature": WHOLE | st.floats(0, 3),
        "range": st.sampled_from([0.25, 1.0]) | st.floats(1e-3, 3),
        "exponent": WHOLE | st.floats(0.1, 4),
    }
)

# (temperature, range, exponent), logits, what they are divided by, ids left
WORKED = {
    "sure: the lowest": ((1.0, 0.5, 1.0), row(0, 200, -50), 0.5, [1, 0, 2]),
    "no idea: the highest": ((1.0, 0.5, 1.0), row(3, 3, 3, 3), 1.5, [0, 1, 2, 3]),
    "in between": ((1.0, 0.5, 1.0), HALVES, 0.5 + 7 / 8, [2, 1, 0, 3]),
    "an exponent above 1 is cooler": ((1.0, 0.5, 2.0), HALVES, 0.5 + 49 / 64, [2, 1, 0, 3]),
    "an exponent below 1 is hotter": ((1.0, 0.5, 0.5), HALVES, 0.5 + math.sqrt(7 / 8), [2, 1, 0, 3]),
    "exponent 0: the highest": ((1.0, 0.5, 0.0), row(0, 200, -50), 1.5, [1, 0, 2]),
    "the range ends at 0": ((0.5, 1.5, 1.0), HALVES, 2 * 7 / 8, [2, 1, 0, 3]),
    "integers": ((2, 1, 1), HALVES, 1 + 2 * 7 / 8, [2, 1, 0, 3]),
    "temperature 0": ((0.0, 0.5, 1.0), HALVES, 0.5 * 7 / 8, [2, 1, 0, 3]),
    "range 0 is temperature, the order stays": ((0.5, 0.0, 1.0), row(1, -3, 2), 0.5, [0, 1, 2]),
    "range 0 in float32": ((0.5, 1e-50, 1.0), row(1, -3, 2), 0.5, [0, 1, 2]),
    "one candidate stays as it is": ((0.5, 0.25, 1.0), row(3), 1, [0]),
    "one candidate, range 0": ((0.5, 0.0, 1.0), row(3), 0.5, [0]),
    "-inf stays, and counts": ((1.0, 0.5, 1.0), row(NEG, 2, NEG, 2), 1.0, [1, 3, 0, 2]),
    "temperature 0, range 0 keeps the best": ((0.0, 0.0, 1.0), row(1, 3, 2), 1, [1]),
    "sure, from 0 on, keeps the best": ((1.0, 1.0, 1.0), row(0, 200), 1, [1]),
    "a quotient that overflows keeps the best": ((1e-40, 1e-40, 1.0), row(2, 3), 1, [1]),
}


@pytest.mark.parametrize(("params", "logits", "t", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(params, logits, t, ids):
    temperature, reach, exponent = params
    left = run({"dynatemp": {"temperature": temperature, "range": reach, "exponent": exponent}}, logits)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == pytest.approx([float(logits[i]) / t for i in ids], rel=1e-6)


def softmax(ordered):
    """Softmax in float32, row by row from high to low."""
    weights = [np.float32(math.exp(np.float32(value - ordered[0]))) for value in ordered]
    total = np.float32(0)
    for weight in weights:
        total = total + weight
    return [weight / total for weight in weights]


def chosen_temperature(logits, params):
    entropy = np.float32(0)
    for p in softmax([np.float32(value) for value in sorted(logits.tolist(), reverse=True)]):
        if p > 0:
            entropy = entropy - p * np.float32(math.log(p))
    share = entropy / np.float32(math.log(len(logits)))
    middle, reach = float(np.float32(params["temperature"])), float(np.float32(params["range"]))
    low, high = max(0.0, middle - reach), middle + reach
    return low + (high - low) * float(share) ** params["exponent"]


@given(rows(300).filter(lambda logits: logits.size > 1), SETTINGS)
def test_brute_force(logits, params):
    with np.errstate(over="ignore"):
        t = chosen_temperature(logits, params)
    entries = sorted(enumerate(logits.tolist()), key=lambda entry: -entry[1])
    left = run({"dynatemp": params}, logits)
    # Below, rounding decides whether it is 0, and whether the quotient overflows.
    assume(t == 0 or t > 1e-5)
    if t == 0 or abs(entries[0][1] / t) > 3.4e38:
        assert table(left) == entries[:1]
    else:
        assert left.ids.tolist() == [i for i, _ in entries]
        expected = [value / t if value / t > -3.4e38 else NEG for _, value in entries]
        assert left.logits.tolist() == pytest.approx(expected, rel=2e-6)


def same(ours, theirs, logits):
    """Assert the same tokens, where llama.cpp's unstable sort lets them, and logits and probabilities as near
    as the last bit of its powf allows."""
    np.testing.assert_allclose(ours.logits, theirs.logits, rtol=1e-6, atol=0)
    np.testing.assert_array_equal(logits[ours.ids], logits[theirs.ids])
    assert sorted(ours.ids.tolist()) == sorted(theirs.ids.tolist())
    with np.errstate(over="ignore"):
        weights = ours.weights()
    np.testing.assert_allclose(weights / weights.sum(dtype=np.float64), theirs.p, atol=1e-5, rtol=0)


@given(rows(LARGEST), SETTINGS)
def test_equals_llama_cpp(logits, params):
    # The last bit of a quotient of 1e6 and more is enough to change the probabilities. And llama.cpp's bucket
    # sort is right only below 3.3e8: see test_top_k.py.
    logits = np.clip(logits, np.float32(-1e8), np.float32(10))
    theirs = native([{"dynatemp": params}], logits)
    ours = run({"dynatemp": params}, logits)
    assume(len(ours) == logits.size)  # at a temperature of 0 all but one go: see below
    same(ours, theirs, logits)


@given(rows(300), st.floats(0.01, 3))
def test_range_0_equals_llama_cpps_too(logits, t):
    with np.errstate(over="ignore"):
        assume(np.isfinite(logits.max() / np.float32(t)))
    params = {"temperature": t, "range": 0.0}
    ours, theirs = run({"dynatemp": params}, logits), native([{"dynatemp": params}], logits)
    assert ours.ids.tolist() == theirs.ids.tolist()
    assert ours.logits.tolist() == theirs.logits.tolist() == run({"temperature": t}, logits).logits.tolist()


@pytest.mark.parametrize("params", [{"temperature": 0.0}, {"temperature": 1.0, "range": 1.0}], ids=str)
def test_a_temperature_of_0_drops_the_rows_that_llama_cpp_sets_to_minus_inf(params):
    logits = row(0, 200, 3)
    assert table(run({"dynatemp": params}, logits)) == [(1, 200.0)]
    theirs = native([{"dynatemp": params}], logits)
    assert len(theirs.ids) == 3
    assert theirs.ids[theirs.logits > NEG].tolist() == [1]


def test_a_quotient_that_overflows_keeps_the_best_where_llama_cpp_reaches_infinity():
    params, logits = {"temperature": 1e-40, "range": 1e-40}, row(2, 3)
    assert table(run({"dynatemp": params}, logits)) == [(1, 3.0)]
    assert native([{"dynatemp": params}], logits).logits.tolist() == [math.inf, math.inf]


def test_what_a_mask_forbids_does_not_count():
    chain = build([{"dynatemp": {"temperature": 1.0, "range": 0.5}}])
    logits = row(2, 1, 2, 5)
    left = chain.apply(logits, np.array([True, False, True, False]))
    assert left.logits.tolist() == pytest.approx([2 / 1.5] * 2)
    # A row of -inf is not banned, it is a candidate of no weight: H / ln n is 1/2 here.
    assert chain.apply(row(2, NEG, 2, NEG)).logits.tolist() == [2, 2, NEG, NEG]


def test_an_exponent_that_takes_a_share_above_1_beyond_the_floats():
    # Six equal rows have H / ln n = 1.0000001 in float32; to the power of 1e10 that is e^1192.
    left = run({"dynatemp": {"temperature": 1.0, "range": 0.5, "exponent": 1e10}}, row(*[3.0] * 6))
    assert np.isfinite(left.max)


@pytest.mark.parametrize("logits", [row(1, 0, NEG), row(1e4, 0, 0)], ids=["hot", "cold"])
def test_a_range_beyond_the_floats(logits):
    left = run({"dynatemp": {"temperature": 3e38, "range": 3e38}}, logits)
    assert not np.isnan(left.logits).any()
