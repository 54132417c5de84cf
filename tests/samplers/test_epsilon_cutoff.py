import pytest
from hypothesis import example, given, strategies as st

from .rows import HALVES, NEG, NORMAL, TIES, check_floor, row, rows, run, softmax, table

WORKED = {
    "exactly at 1/16": (0.0625, 1, HALVES, [0, 1, 2, 3, 4]),
    "just above 1/16": (0.06250001, 1, HALVES, [0, 1, 2]),
    "exactly at 1/8": (0.125, 1, HALVES, [0, 1, 2]),
    "exactly at 1/4": (0.25, 1, HALVES, [0, 1]),
    "exactly at the best": (0.5, 1, HALVES, [0]),
    "above the best": (0.9, 1, HALVES, [0]),
    "above the best keeps all of the best": (0.9, 1, row(3, 1, 3), [0, 2]),
    "in 1e-4, exactly at 1/16": (625, 1e-4, HALVES, [0, 1, 2, 3, 4]),
    "in 1e-4, just above 1/16": (625.001, 1e-4, HALVES, [0, 1, 2]),
    "in 1e-4, 1/4": (2500.0, 1e-4, HALVES, [0, 1]),
    # Probabilities 0.9991, 0.00034 and 0.00061.
    "3 in 1e-4, as text-generation-webui has it": (3, 1e-4, row(8, 0, 0.6), [0, 1, 2]),
    "5 in 1e-4": (5, 1e-4, row(8, 0, 0.6), [0, 2]),
    "7 in 1e-4": (7, 1e-4, row(8, 0, 0.6), [0]),
    "0.0003, as transformers has it": (3e-4, 1, row(8, 0, 0.6), [0, 1, 2]),
    "the order stays": (0.125, 1, HALVES[::-1], [2, 3, 4]),
    "-inf goes": (1e-30, 1, row(NEG, 1, -20), [1, 2]),
    "zero in float32": (1e-50, 1, row(NEG, 1), [0, 1]),
    "one candidate": (0.9, 1, row(-3), [0]),
}


@pytest.mark.parametrize(("epsilon", "unit", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(epsilon, unit, logits, ids):
    left = run({"epsilon_cutoff": {"epsilon": epsilon, "unit": unit}}, logits)
    assert table(left) == [(i, float(logits[i])) for i in ids]


def check(logits, epsilon, unit):
    probs = softmax(logits)
    best = max(probs)
    threshold = min(epsilon * unit, best)
    check_floor({"epsilon_cutoff": {"epsilon": epsilon, "unit": unit}}, logits, threshold)


PROBABILITY = st.floats(1e-30, 0.999) | st.floats(1e-5, 1e-2)


@given(rows(300), PROBABILITY, st.sampled_from([1.0, 1e-4]))
@example(NORMAL, 1e-6, 1.0)
@example(TIES, 1e-4, 1.0)
def test_brute_force(logits, probability, unit):
    check(logits, probability / unit, unit)
