import pytest
from hypothesis import assume, example, given, strategies as st

from .rows import HALVES, NEG, NORMAL, TIES, check_floor, row, rows, run, softmax, table

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
@example(NORMAL, 0.01)
@example(TIES, 0.2)
def test_brute_force(logits, a):
    assume(a <= ZERO_IN_FLOAT32 or a >= SMALLEST_EXACT)
    check(logits, a)
