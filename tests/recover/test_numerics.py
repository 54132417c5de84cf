"""The formulas, compared with a softmax of biased logits."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.recover.methods.parallel import logprob_from_anchor
from logitsmith.recover.methods.single import logprob_from_single_bias, single_bias_error
from logitsmith.recover.methods.top_n import logprob_from_suppression, suppression_error
from logitsmith.recover.numerics import log1mexp, log_odds, logsumexp

from .fakes import log_softmax, row_of

rows = st.integers(0, 1000).map(lambda seed: row_of(40, seed, spread=6.0))
ids = st.integers(0, 39)
biases = st.floats(-30, 60)


def biased(row, bias):
    moved = row.copy()
    for token, value in bias.items():
        moved[token] += value
    return log_softmax(moved)


LOG1MEXP = {  # log(-x) for tiny x, -e^x for large ones; at log(1/2) both ways must agree
    -1e-300: np.log(1e-300),
    -1e-12: np.log(1e-12),
    -0.1: np.log(1 - np.exp(-0.1)),
    -0.6931471805599453: np.log(0.5),
    -1.0: np.log(1 - np.exp(-1.0)),
    -50.0: -np.exp(-50.0),
    -800.0: 0.0,
    0.0: -np.inf,
}


@pytest.mark.parametrize("x", LOG1MEXP)
def test_log1mexp(x):
    assert log1mexp(x) == pytest.approx(LOG1MEXP[x], rel=1e-12, abs=1e-300)


@given(rows, ids, biases)
def test_single(row, token, bias):
    after = biased(row, {token: bias})[token]
    error = single_bias_error(after, row[token], 1e-15) if after < 0 else np.inf
    if error < 1e-6:
        assert logprob_from_single_bias(after, bias) == pytest.approx(row[token], abs=10 * error + 1e-12)


def test_the_seeds_example_by_hand():
    # p = 1/4, b = log 9: odds 1/3 become 3, so p' = 3/4.
    assert logprob_from_single_bias(np.log(0.75), np.log(9)) == pytest.approx(np.log(0.25), abs=1e-15)
    # log p = log p' - log(e^b - e^(b + log p') + p'), as it is written there.
    after, b = np.log(0.75), np.log(9)
    assert logprob_from_single_bias(after, b) == pytest.approx(
        after - np.log(np.exp(b) - np.exp(b + after) + 0.75)
    )


@given(rows, ids, ids, biases, biases)
def test_anchor(row, token, anchor, bias, anchors):
    if token != anchor:
        after = biased(row, {token: bias, anchor: anchors})
        found = logprob_from_anchor(after[token], bias - anchors, after[anchor], row[anchor])
        assert found == pytest.approx(row[token], abs=1e-12)


@given(rows, st.integers(1, 39), st.floats(0, 100))
def test_penalty(row, count, bias):
    order = np.argsort(-row)
    known, token = order[:count], order[count]
    after = biased(row, dict.fromkeys(known, -bias))[token]
    error = suppression_error(row[known], 1e-15)
    assert logprob_from_suppression(after, row[known], bias) == pytest.approx(row[token], abs=20 * error + 1e-12)


def test_a_penalty_of_all_of_the_probability():
    assert logprob_from_suppression(-0.25, np.float64([0.0]), 38.0) == -38.25


def test_odds_and_sums():
    assert log_odds(np.log(0.5)) == pytest.approx(0)
    assert log_odds(-1e-9) == pytest.approx(np.log(1e9))
    assert logsumexp(np.array([-1000.0, -1000.0])) == pytest.approx(-1000 + np.log(2))


def test_a_saturated_response_has_a_large_error():
    assert single_bias_error(-1e-9, np.log(0.5), 1e-6) > 100
    assert single_bias_error(np.log(0.5), np.log(0.5), 1e-6) == pytest.approx(1e-6)
