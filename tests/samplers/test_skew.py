import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import Candidates, build

from .rows import NEG, NORMAL, TIES, row, rows, run

# Probabilities 1/4, 1/2 and 1/4; from high to low it is 1/2, 1/4, 1/4. A skew of ln 2 squares the sums.
LOGITS = row(0, math.log(2), 0)
TWICE, HALF = math.log(2), -math.log(2)

# skew, order, logits, ids, probabilities afterwards
WORKED = {
    "toward the later ids": (TWICE, "vocabulary", LOGITS, [0, 1, 2], [1 / 16, 8 / 16, 7 / 16]),
    "toward the earlier ids": (HALF, "vocabulary", LOGITS, [0, 1, 2], [0.5, 0.366025, 0.133975]),
    "toward the less likely": (TWICE, "probability", LOGITS, [1, 0, 2], [4 / 16, 5 / 16, 7 / 16]),
    "toward the more likely": (HALF, "probability", LOGITS, [1, 0, 2], [0.707107, 0.158919, 0.133975]),
    "all the way to the last id": (20, "vocabulary", row(1, 5, 1), [2], [1]),
    "all the way to the least likely": (20, "probability", row(1, 5, 2), [0], [1]),
    # k is 2.06e-9, and so is the part that is left to the later ones, times -ln c.
    "all the way to the first id": (-20, "vocabulary", row(0, 0), [0, 1], [1, 1.4287e-9]),
    "-inf goes": (TWICE, "vocabulary", row(NEG, 0, NEG, 0, NEG), [1, 3], [1 / 4, 3 / 4]),
    "-inf goes, sorted": (TWICE, "probability", row(NEG, 0, NEG, 0, NEG), [1, 3], [1 / 4, 3 / 4]),
    "one candidate": (3.0, "vocabulary", row(-5), [0], [1]),
}


@pytest.mark.parametrize(("skew", "order", "logits", "ids", "probs"), WORKED.values(), ids=WORKED)
def test_worked_example(skew, order, logits, ids, probs):
    left = run({"skew": {"skew": skew, "order": order}}, logits)
    assert left.ids.tolist() == ids
    np.testing.assert_allclose(left.probs(), probs, rtol=1e-4)


def shifted(logits, skew, order):
    """The probabilities c_i^k - c_(i-1)^k, with the tokens that they belong to."""
    ids = list(range(logits.size))
    if order == "probability":
        ids.sort(key=lambda i: (-logits[i], i))
    highest = np.float32(max(logits.tolist()))
    with np.errstate(over="ignore"):  # weights are float32: a power of the sum would make much of the rest
        weights = [float(np.float32(math.exp(np.float32(logits[i]) - highest))) for i in ids]
    total, reached, before, found = math.fsum(weights), 0.0, 0.0, []
    for weight in weights:
        reached = min(reached + weight / total, 1.0)
        power = reached ** math.exp(skew)
        found.append(power - before)
        before = power
    return ids, found


def check(logits, skew, order):
    ids, expected = shifted(logits, skew, order)
    left = run({"skew": {"skew": skew, "order": order}}, logits)
    kept = set(left.ids.tolist())
    assert left.ids.tolist() == [i for i in ids if i in kept]
    # A difference of two sums of doubles is as exact as they are, times the power.
    exact = 1e-15 * logits.size * max(math.exp(skew), 1)
    assert all(p < exact for i, p in zip(ids, expected, strict=True) if i not in kept)
    wanted = [p for i, p in zip(ids, expected, strict=True) if i in kept]
    np.testing.assert_allclose(np.exp(left.logits, dtype=np.float64), wanted, rtol=1e-4, atol=exact)


ORDERS = ["vocabulary", "probability"]
SKEW = st.floats(-4, 4).filter(bool)


@given(rows(300), SKEW, st.sampled_from(ORDERS))
@example(NORMAL, -1.5, "vocabulary")
@example(TIES, 0.8, "probability")
def test_brute_force(logits, skew, order):
    check(logits, skew, order)


def test_vocabulary_is_the_order_where_nothing_is_said():
    assert run({"skew": TWICE}, LOGITS).ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("order", "ids"), [("vocabulary", [0, 1, 3]), ("probability", [3, 1, 0])])
def test_after_a_step_that_reorders(order, ids):
    left = build([{"top_k": 3}, {"skew": {"skew": TWICE, "order": order}}]).apply(row(1, 2, 0, 3))
    assert left.ids.tolist() == ids


@given(rows(300), st.floats(-3, 3).filter(bool), st.floats(0.001, 0.999))
def test_a_draw_in_order_of_probability_is_a_skewed_random_number(logits, skew, u):
    """exllamav2 leaves the probabilities alone, and raises the random number to the power of e^-skew."""
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))
    by_rank = Candidates(logits[order])
    left = run({"skew": {"skew": skew, "order": "probability"}}, logits)
    drawn = order.index(left.pick(u))
    # A number that falls upon a boundary between two tokens may draw either.
    with np.errstate(over="ignore"):
        first, last = (by_rank.pick(min((u * near) ** math.exp(-skew), 1 - 1e-16)) for near in (0.9999, 1.0001))
    assert first <= drawn <= last


@pytest.mark.parametrize("order", ORDERS)
@given(logits=rows(300), skew=st.sampled_from([-20, 20]) | st.floats(-20, 20).filter(bool))  # 0 is off
def test_what_is_left_sums_to_one_at_any_skew(order, logits, skew):
    left = run({"skew": {"skew": skew, "order": order}}, logits)
    assert np.exp(left.logits, dtype=np.float64).sum() == pytest.approx(1, abs=1e-5)
    assert np.isfinite(left.logits).all()
