import math

import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import build

from .rows import HALVES, LARGE, NEG, check_floor, refuses, row, rows, run, softmax, table

# KoboldAI's wiki: probabilities 0.699, 0.009, 0.290 and 0.002, so that p_max squared is 0.488.
WIKI = row(2, -2.3, 1.12, -3.9)

WORKED = {
    "the wiki's example, 0.2": (0.2, WIKI, [0, 2]),
    "the wiki's example, 0.01": (0.01, WIKI, [0, 1, 2]),
    "the wiki's example, 0.001": (0.001, WIKI, [0, 1, 2, 3]),
    "the wiki's example, 0.7": (0.7, WIKI, [0]),
    "exactly at 1/16": (0.25, HALVES, [0, 1, 2, 3, 4]),
    "just above 1/16": (0.2500001, HALVES, [0, 1, 2]),
    "exactly at 1/8": (0.5, HALVES, [0, 1, 2]),
    "exactly at 1/4": (1, HALVES, [0, 1]),
    "exactly at the best": (2.0, HALVES, [0]),
    "above all of them": (100.0, HALVES, [0]),
    "above all of them keeps all of the best": (1000.0, row(3, 1, 3), [0, 2]),
    "flat: hardly a cut": (1.0, row(0.1, 0, 0.2, 0), [0, 1, 2, 3]),
    "sure: a deep cut": (1.0, row(0, 9, 7, 0), [1]),
    "the order stays": (0.5, HALVES[::-1], [2, 3, 4]),
    "-inf goes": (1e-30, row(NEG, 1, -20), [1, 2]),
    "zero in float32": (1e-50, row(NEG, 1), [0, 1]),
    "one candidate": (5.0, row(-3), [0]),
}


@pytest.mark.parametrize(("a", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(a, logits, ids):
    assert table(run({"top_a": a}, logits)) == [(i, float(logits[i])) for i in ids]


ZERO_IN_FLOAT32 = 2.0**-150
SMALLEST_EXACT = 1e-36
"""Below it, float32 has too few digits for the threshold."""


def check(logits, a):
    probs = softmax(logits)
    best = max(probs)
    threshold = min(a * best**2, best) if a > ZERO_IN_FLOAT32 else 0.0
    check_floor({"top_a": a}, logits, threshold)


@given(rows(300), st.floats(0, 2) | st.floats(1e-30, 1e30))
def test_brute_force(logits, a):
    assume(a <= ZERO_IN_FLOAT32 or a >= SMALLEST_EXACT)
    check(logits, a)


@pytest.mark.parametrize("a", [0.01, 0.2, 1.0])
@pytest.mark.parametrize("logits", LARGE)
def test_brute_force_on_a_large_vocabulary(logits, a):
    check(logits, a)


@given(rows(300))
def test_neutral_is_identity(logits):
    assert run({"top_a": 0.0}, logits).logits is logits
    assert [step.about.name for step in build([{"top_a": 0}]).steps] == ["dist"]


def test_after_a_step_that_reorders():
    left = build([{"top_k": 3}, {"top_a": 0.5}]).apply(HALVES[::-1])
    assert left.ids.tolist() == [4, 3]  # of three: 4/7, 2/7 and 1/7, so that the threshold is 8/49
    assert left.is_ordered


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-0.1, "chain[0].top_a.a: -0.1 is not ≥ 0"),
        (math.inf, "chain[0].top_a.a: inf is not a finite number (≥ 0)"),
        (1e39, "chain[0].top_a.a: 1e+39: must be within the range of float32, ±3.4e38"),
        ("low", "chain[0].top_a.a: 'low' is not a number (≥ 0)"),
        (True, "chain[0].top_a.a: true is not a number (≥ 0)"),
        ({"min_keep": 2}, "chain[0].top_a: unknown parameter 'min_keep'; known: a"),
    ],
)
def test_refusal(value, message):
    refuses({"top_a": value}, message)
