import math

import pytest
from hypothesis import example, given, strategies as st

from .rows import HALVES, NEG, NORMAL, TIES, check_floor, row, rows, run, softmax, table

# The entropy of HALVES is 1.875 ln 2, and exp(-H) is 0.27263.

WORKED = {
    # Below exp(-2 H) = 0.0743 the floor is epsilon itself.
    "epsilon, exactly at 1/16": (0.0625, 1, HALVES, [0, 1, 2, 3, 4]),
    "epsilon, just above 1/16": (0.06250001, 1, HALVES, [0, 1, 2]),
    "epsilon, below 1/16": (0.04, 1, HALVES, [0, 1, 2, 3, 4]),
    # 0.3 * 0.27263 = 0.0818
    "the root, 0.0818": (0.09, 1, HALVES, [0, 1, 2]),
    # 0.45 * 0.27263 = 0.1227, where epsilon alone would drop 1/8
    "the root, 0.1227": (0.2025, 1, HALVES, [0, 1, 2]),
    "the root, 0.1363": (0.25, 1, HALVES, [0, 1]),
    "the root, 0.2587": (0.9004, 1, HALVES, [0]),
    "in 1e-4, exactly at 1/16": (625, 1e-4, HALVES, [0, 1, 2, 3, 4]),
    "in 1e-4, the root, 0.1227": (2025, 1e-4, HALVES, [0, 1, 2]),
    "in 1e-4, the root, 0.1363": (2500, 1e-4, HALVES, [0, 1]),
    # Probabilities 0.9991, 0.00034 and 0.00061; the entropy is 0.0082.
    "3 in 1e-4, as text-generation-webui has it": (3, 1e-4, row(8, 0, 0.6), [0, 1, 2]),
    "5 in 1e-4": (5, 1e-4, row(8, 0, 0.6), [0, 2]),
    "0.0005, as transformers has it": (5e-4, 1, row(8, 0, 0.6), [0, 2]),
    # H = ln 4, so that the floor is 0.9487 / 4, below each of them.
    "flat: no cut": (0.9, 1, row(1, 1, 1, 1), [0, 1, 2, 3]),
    "no entropy: epsilon": (0.9, 1, row(100, 0, 0), [0]),
    "the order stays": (0.09, 1, HALVES[::-1], [2, 3, 4]),
    "-inf goes": (1e-30, 1, row(NEG, 1, -20), [1, 2]),
    "zero in float32": (1e-50, 1, row(NEG, 1), [0, 1]),
    "one candidate": (0.9, 1, row(-3), [0]),
}


@pytest.mark.parametrize(("epsilon", "unit", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(epsilon, unit, logits, ids):
    left = run({"eta_cutoff": {"epsilon": epsilon, "unit": unit}}, logits)
    assert table(left) == [(i, float(logits[i])) for i in ids]


def check(logits, epsilon, unit):
    probs = softmax(logits)
    best = max(probs)
    entropy = -math.fsum(p * math.log(p) for p in probs if p)
    threshold = min(epsilon * unit, math.sqrt(epsilon * unit) * math.exp(-entropy), best)
    check_floor({"eta_cutoff": {"epsilon": epsilon, "unit": unit}}, logits, threshold)


PROBABILITY = st.floats(1e-30, 0.999) | st.floats(1e-5, 1e-2)


@given(rows(300), PROBABILITY, st.sampled_from([1.0, 1e-4]))
@example(NORMAL, 1e-6, 1.0)
@example(TIES, 1e-3, 1.0)
def test_brute_force(logits, probability, unit):
    check(logits, probability / unit, unit)
