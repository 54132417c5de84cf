import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from .rows import LARGEST, NEG, agree, native, row, rows, run, table

TEMPERATURE = st.sampled_from([1e-3, 0.1, 0.8, 1.5, 100.0, 1e30]) | st.floats(0.01, 5)

WORKED = {
    "half": (0.5, row(1, -3, 2), [(0, 2.0), (1, -6.0), (2, 4.0)]),
    "two": (2.0, row(1, -3, 2), [(0, 0.5), (1, -1.5), (2, 1.0)]),
    "an integer": (2, row(1, -3), [(0, 0.5), (1, -1.5)]),
    "-inf stays": (2.0, row(NEG, 4), [(0, NEG), (1, 2.0)]),
    "zero keeps the best": (0.0, row(1, 3, 2), [(1, 3.0)]),
    "zero keeps the first of equals": (0.0, row(1, 3, 3), [(1, 3.0)]),
    "zero in float32": (1e-50, row(1, 3, 2), [(1, 3.0)]),
    "the quotient overflows": (1e-45, row(1, 3, 2), [(1, 3.0)]),
    "the quotient of a negative best overflows": (1e-45, row(-1, -3, -2), [(0, -1.0)]),
    "only others overflow": (1e-38, row(0, -30), [(0, 0.0), (1, NEG)]),
    "one candidate": (0.5, row(3), [(0, 6.0)]),
}


@pytest.mark.parametrize(("t", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(t, logits, left):
    assert table(run({"temperature": t}, logits)) == left


@given(rows(300), TEMPERATURE)
def test_brute_force(logits, t):
    divisor = np.float32(t)
    with np.errstate(over="ignore"):
        expected = [(i, float(np.float32(value) / divisor)) for i, value in enumerate(logits.tolist())]
    assume(math.isfinite(max(value for _, value in expected)))
    assert table(run({"temperature": t}, logits)) == expected


@given(rows(LARGEST), TEMPERATURE)
def test_equals_llama_cpp(logits, t):
    with np.errstate(over="ignore"):
        assume(np.isfinite(logits.max() / np.float32(t)))
    ours, theirs = run({"temperature": t}, logits), native([{"temperature": {"t": t}}], logits)
    assert ours.ids.tolist() == theirs.ids.tolist()
    agree(ours, theirs)


@given(rows(300))
def test_zero_drops_the_rows_that_llama_cpp_sets_to_minus_inf(logits):
    left = run({"temperature": 0}, logits)
    theirs = native([{"temperature": {"t": 0.0}}], logits)
    assert len(left) == 1
    assert len(theirs.ids) == logits.size
    assert theirs.ids[theirs.logits > NEG].tolist() == left.ids.tolist()
    assert left.probs().tolist() == [1.0]
