import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import MAX_FLOAT32, MIN_FLOAT32, NEG, NORMAL, row, rows, run, table

# factor, curve, logits, logits afterwards
WORKED = {
    "a parabola": (1.0, 1.0, row(3, 1, 2), [3, -1, 2]),
    "a flatter parabola": (0.5, 1.0, row(3, 1, 2), [3, 1, 2.5]),
    "close to the best they come closer": (0.25, 1.0, row(3, 1, 2), [3, 2, 2.75]),
    "far from it they fall away": (0.25, 1.0, row(0, -8), [0, -16]),
    # k = s = 1/2
    "half a parabola, half a cubic": (1.0, 2.0, row(3, 1, 2), [3, -3, 2]),
    # k = 0, s = 1
    "a cubic": (1.0, 3.0, row(3, 1, 2), [3, -5, 2]),
    # k = -1, s = 2: 3 + 1/16 - 2/64
    "beyond 3 the near ones overtake": (1.0, 5.0, row(3, 2.75, 1), [3, 3.03125, -9]),
    "negative logits": (0.5, 1.0, row(-3, -5, -4), [-3, -5, -3.5]),
    "all of the best stay": (2.0, 2.0, row(3, 3, 2), [3, 3, 1]),
    "-inf stays -inf": (1.0, 2.0, row(NEG, 3, 2), [NEG, 3, 2]),
    "-inf stays -inf beyond 3": (1.0, 9.0, row(NEG, 3), [NEG, 3]),
    "overflow below is held finite": (1.0, 1.0, row(3e38, 0), [float(np.float32(3e38)), MIN_FLOAT32]),
    "overflow above is held finite": (1e38, 1e30, row(1, 0.5), [1, MAX_FLOAT32]),
    "one candidate": (5.0, 2.0, row(-3), [-3]),
}


@pytest.mark.parametrize(("factor", "curve", "logits", "expected"), WORKED.values(), ids=WORKED)
def test_worked_example(factor, curve, logits, expected):
    left = run({"quadratic": {"factor": factor, "curve": curve}}, logits)
    assert table(left) == list(enumerate(expected))


def check(logits, factor, curve):
    highest = max(logits.tolist())
    k, s = (3 - curve) / 2, (curve - 1) / 2
    left = run({"quadratic": {"factor": factor, "curve": curve}}, logits)
    assert left.ids.tolist() == list(range(logits.size))
    for value, new in zip(logits.tolist(), left.logits.tolist(), strict=True):
        if value == NEG:
            assert new == NEG
            continue
        d = value - highest
        parabola, cubic = k * factor * d**2, s * factor * d**3
        expected = min(max(highest - parabola + cubic, MIN_FLOAT32), MAX_FLOAT32)
        # Where the terms cancel out, what is left is as exact as doubles of their size are.
        terms = abs(highest) + abs(parabola) + abs(cubic)
        assert math.isclose(new, expected, rel_tol=1e-6, abs_tol=1e-14 * terms + 1e-44)


FACTOR = st.sampled_from([0.07, 0.5, 1.0, 1e30]) | st.floats(0, 10, exclude_min=True)
CURVE = st.sampled_from([1.0, 3.0, 1e30]) | st.floats(1, 8)


@given(rows(300), FACTOR, CURVE)
@example(NORMAL, 0.3, 2.5)
def test_brute_force(logits, factor, curve):
    check(logits, factor, curve)


def test_beyond_curve_3_rows_count_as_unsorted():
    left = build([{"top_k": 3}, {"quadratic": {"factor": 1.0, "curve": 5.0}}]).apply(row(1, 2.75, 3))
    assert table(left) == [(2, 3.0), (1, 3.03125), (0, -9.0)]
    assert not left.is_ordered
    assert left.max == np.float32(3.03125)
