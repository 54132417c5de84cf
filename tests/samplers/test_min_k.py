import math

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import NEG, NORMAL, TIES, make_row, row, rows, run, table

# tau, logits, ids left
WORKED = {
    # Falls 1/1, 4/2, 1/3: the second one, of 5 - 4 = 1, is the steepest.
    "the steepest fall": (0.0, row(9, 8, 4, 3), [0, 1]),
    "at the first place": (0.0, row(9, 6, 3, 0), [0]),
    "a later fall must be greater by its place": (0.0, row(9, 8, 7, 4), [0]),
    "of equal falls the first": (0.0, row(9, 8, 6, 3), [0]),
    "a later one that is greater": (0.0, row(9, 8, 6, 2.99), [0, 1, 2]),
    "sorted": (0.0, row(3, 8, 4, 9), [3, 1]),
    # The reach is 6: 12 / 6 = 2 tokens at least.
    "the least number": (12.0, row(9, 6, 5, 3), [0, 1]),
    "rounded down": (17.9, row(9, 6, 5, 3), [0, 1]),
    "one more": (18.0, row(9, 6, 5, 3), [0, 1, 2]),
    "no more than there are": (1e30, row(9, 6, 5, 3), [0, 1, 2, 3]),
    "the fall is later than the least number": (6.0, row(9, 8, 1, 0), [0, 1]),
    "equal logits": (0.0, row(2, 2, 2), [0, 1, 2]),
    "nearly equal logits": (3.0, row(0.5, 0.25, 0.0), [0, 1, 2]),
    "-inf is left out of the reach": (3.0, row(NEG, 1.0, NEG, 0.5, 0.25), [1, 3, 4]),
    "-inf goes": (0.0, row(NEG, 2, 2), [1, 2]),
    "one finite": (3.0, row(NEG, 2, NEG), [1]),
    "one candidate": (3.0, row(-3), [0]),
    "huge": (3.0, row(3e38, -3e38, 0), [0]),
    "tiny": (3.0, row(1e-40, 0, -1e-40), [0, 1, 2]),
    "of equal logits the first": (1.0, row(1, 0.5, 0.5, 0.5), [0, 1]),
    "of equal logits at the least number": (2.0, row(1, 0, 0, 0), [0, 1]),
}


@pytest.mark.parametrize(("tau", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(tau, logits, ids):
    left = run({"min_k": tau}, logits)
    assert table(left) == [(i, float(logits[i])) for i in ids]
    assert left.is_ordered


def kept(logits, tau):
    """The tokens that stay, by the words of the paper: all of w, then the greater of two numbers."""
    order = sorted((i for i in range(logits.size) if logits[i] > NEG), key=lambda i: (-logits[i], i))
    values = [float(logits[i]) for i in order]
    reach = values[0] - values[-1]
    if reach == 0:
        return order
    falls = [(values[i] - values[i + 1]) / (i + 1) for i in range(len(values) - 1)]
    steepest = max(range(len(falls)), key=lambda i: (falls[i], -i))
    return order[: max(steepest + 1, math.floor(min(tau / reach, len(order))))]


TAU = st.sampled_from([0.0, 3.0]) | st.floats(0, 5000)


@given(rows(5000), TAU)
@example(NORMAL, 5000.0)
@example(TIES, 3.0)
def test_brute_force(logits, tau):
    assert run({"min_k": tau}, logits).ids.tolist() == kept(logits, tau)


@pytest.mark.parametrize("place", [1, 63, 64, 65, 200, 1023, 1024, 1025, 2999])
def test_a_fall_at_any_place(place):
    """All rows before the fall are equal, and so are those after it."""
    logits = np.where(np.arange(3000) < place, 1.0, 0.0).astype(np.float32)
    assert run({"min_k": 0.0}, logits).ids.tolist() == list(range(place))


@given(rows(300), st.floats(0.1, 10))
def test_a_temperature_changes_nothing_but_the_least_number(logits, t):
    scaled = logits.astype(np.float64) / t
    if np.abs(scaled[scaled > NEG]).max() > 1e38:
        return
    before = run({"min_k": 0.0}, logits)
    after = run({"min_k": 0.0}, scaled.astype(np.float32))
    # Rounded quotients may make two falls equal, or change which of two nearly equal ones is greater.
    falls = np.diff(-np.sort(-logits[logits > NEG].astype(np.float64)))
    slopes = -falls / np.arange(1, falls.size + 1)
    if slopes.size and slopes.max() > 0 and np.count_nonzero(slopes > slopes.max() * 0.999) == 1:
        assert len(before) == len(after) or np.abs(logits[logits > NEG]).max() > 1e4 * slopes.max()


def test_the_lowest_logit_is_one_in_play():
    # In the whole row the reach is 100, and 3 / 100 tokens are none; of three tokens it is 1.
    logits = row(1, 0.5, 0, -99)
    assert build("min_k").apply(logits).ids.tolist() == [0, 1, 2]
    assert build("top_k3 > min_k(tau=2)").apply(logits).ids.tolist() == [0, 1]


def test_rows_that_a_step_masked_are_forgotten():
    assert build("top_n_sigma1 > min_k").apply(make_row("normal", 300, 1)).masked_count == 0
