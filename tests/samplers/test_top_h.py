import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from .rows import NEG, NORMAL, TIES, make_row, row, rows, run

# Probabilities 1/2, 1/4, 1/8 and 1/8; -p ln p is 4, 4, 3 and 3 fourteenths of the entropy, so that the sums are
# 0.2857, 0.5714, 0.7857 and 1 of it. Sorted ids are 2 0 1 3.
HALVES = row(math.log(4), math.log(2), math.log(8), math.log(2))
# Each has a quarter of the entropy.
QUARTERS = row(7, 7, 7, 7)

WORKED = {
    "at least one": (0.1, 100, HALVES, [2]),
    "below the second sum": (0.571, 100, HALVES, [2]),
    "above the second sum": (0.572, 100, HALVES, [2, 0]),
    "below the third sum": (0.785, 100, HALVES, [2, 0]),
    "above the third sum": (0.786, 100, HALVES, [2, 0, 1]),
    "one keeps all": (1.0, 100, HALVES, [2, 0, 1, 3]),
    "exactly at a quarter": (0.25, 100, QUARTERS, [0]),
    "exactly at half": (0.5, 100, QUARTERS, [0, 1]),
    "below half": (0.4999999, 100, QUARTERS, [0]),
    # Of two tokens the probabilities are 2/3 and 1/3, the first has 0.4247 of their entropy.
    "of the first two, all": (1.0, 2, HALVES, [2, 0]),
    "of the first two, less than one": (0.42, 2, HALVES, [2]),
    "of the first two, one": (0.999, 2, HALVES, [2]),
    "of the first one": (1.0, 1, HALVES, [2]),
    "every token": (0.786, 0, HALVES, [2, 0, 1]),
    "every token at one": (1.0, 0, HALVES, [2, 0, 1, 3]),
    "one candidate": (0.5, 100, row(-3), [0]),
    "no entropy at all": (0.5, 100, row(NEG, 3), [1, 0]),
}


@pytest.mark.parametrize(("h", "top_n", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(h, top_n, logits, ids):
    left = run({"top_h": {"h": h, "top_n": top_n}}, logits)
    assert left.ids.tolist() == ids
    assert left.is_ordered


def shares(logits, top_n):
    """The running sums of -p ln p and the order of the tokens, of the ``top_n`` most likely ones."""
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))[: top_n or None]
    highest = float(logits[order[0]])
    # Weights are float32: of a token that takes nearly all, the rounding is most of the entropy.
    with np.errstate(over="ignore"):
        weights = [float(np.float32(math.exp(np.float32(logits[i]) - np.float32(highest)))) for i in order]
    total = math.fsum(weights)
    sums, entropy = [], 0.0
    for weight in weights:
        p = weight / total
        entropy += -p * math.log(p) if p else 0.0
        sums.append(entropy)
    return sums, order


def count(sums, bound):
    return max(1, sum(value <= bound for value in sums))


def check(logits, h, top_n):
    sums, order = shares(logits, top_n)
    left = run({"top_h": {"h": h, "top_n": top_n}}, logits)
    assert left.ids.tolist() == order[: len(left)]
    # The sums of thousands of doubles may be off by so much.
    margin = 1e-9 * sums[-1] + 1e-12
    assert count(sums, h * sums[-1] - margin) <= len(left) <= count(sums, h * sums[-1] + margin)


SHARE = st.sampled_from([0.25, 0.4, 0.5, 1.0]) | st.floats(0, 1, exclude_min=True)


@given(rows(300), SHARE, st.sampled_from([0, 100]) | st.integers(0, 400))
@example(NORMAL, 0.9, 0)
@example(TIES, 0.4, 100)
def test_brute_force(logits, h, top_n):
    check(logits, h, top_n)


def test_top_n_is_100_where_nothing_is_said():
    logits = make_row("flat", 1000, 3)
    assert len(run({"top_h": 1.0}, logits)) == 100
    assert len(run({"top_h": {"h": 1.0, "top_n": 0}}, logits)) == 1000
    assert len(run({"top_h": 0.4}, logits)) == pytest.approx(40, abs=2)
    assert len(run({"top_h": {"h": 0.4, "top_n": 0}}, logits)) == pytest.approx(400, abs=10)
