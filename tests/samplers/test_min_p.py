import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from .rows import LARGEST, NEG, agree, native, row, rows, run, table

PROBABILITY = st.sampled_from([1e-50, 1e-45, 1e-30, 0.05, 0.5, 1.0]) | st.floats(0, 1)

WORKED = {
    "half": (0.5, 1, row(1, 3, 2.9, 0), [(1, 3.0), (2, 2.9)]),
    "the order stays": (0.1, 1, row(1, 3, 0, 2), [(0, 1.0), (1, 3.0), (3, 2.0)]),
    "one keeps the best": (1.0, 1, row(1, 3, 2), [(1, 3.0)]),
    "one keeps all of the best": (1.0, 1, row(3, 1, 3), [(0, 3.0), (2, 3.0)]),
    "min_keep wins, from high to low": (0.9, 3, row(0, 1, 5, 3), [(2, 5.0), (3, 3.0), (1, 1.0)]),
    "min_keep of equals": (0.9, 2, row(0, 0, 5, 0), [(2, 5.0), (0, 0.0)]),
    "min_keep beyond the row": (0.9, 9, row(0, 5), [(1, 5.0), (0, 0.0)]),
    "-inf goes": (1e-30, 1, row(NEG, 1, -20), [(1, 1.0), (2, -20.0)]),
    "zero in float32": (1e-50, 1, row(NEG, 1), [(0, NEG), (1, 1.0)]),
}


def rounded(entries):
    return [(i, float(np.float32(logit))) for i, logit in entries]


@pytest.mark.parametrize(("p", "min_keep", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(p, min_keep, logits, left):
    assert table(run({"min_p": {"p": p, "min_keep": min_keep}}, logits)) == rounded(left)


def bound(logits, p):
    return np.float32(max(logits.tolist())) + np.float32(math.log(np.float32(p)))


def test_exactly_at_the_threshold():
    edge = bound(row(2.0), 0.25)
    below = np.nextafter(edge, np.float32(NEG))
    assert run({"min_p": 0.25}, row(2.0, edge, below)).ids.tolist() == [0, 1]
    assert native([{"min_p": {"p": 0.25}}], row(2.0, edge, below)).ids.tolist() == [0, 1]


@given(rows(300), PROBABILITY, st.integers(1, 20))
def test_brute_force(logits, p, min_keep):
    values = list(enumerate(logits.tolist()))
    if np.float32(p) > 0:
        lowest = bound(logits, p)
        kept = [entry for entry in values if entry[1] >= lowest]
        if len(kept) < min_keep:
            kept = sorted(values, key=lambda entry: -entry[1])[:min_keep]
    else:
        kept = values
    assert table(run({"min_p": {"p": p, "min_keep": min_keep}}, logits)) == kept


def decided_by_the_last_bit(logits, p):
    """Would another last bit of ln p keep other rows? llama.cpp's logf may round it otherwise than we do."""
    if not 0 < np.float32(p) < 1:  # the logarithm of 1 is exact
        return False
    log = np.float32(math.log(np.float32(p)))
    edges = [logits.max() + np.nextafter(log, np.float32(end)) for end in (NEG, 0)]
    return np.count_nonzero(logits >= edges[0]) != np.count_nonzero(logits >= edges[1])


@given(rows(LARGEST), PROBABILITY, st.integers(1, 50))
def test_equals_llama_cpp(logits, p, min_keep):
    if logits.size > 128:  # llama.cpp's bucket sort is right only below 3.3e8: see test_top_k.py
        logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))
    assume(not decided_by_the_last_bit(logits, p))
    params = {"p": p, "min_keep": min_keep}
    # Only min_keep can cut among equal logits.
    agree(run({"min_p": params}, logits), native([{"min_p": params}], logits), cut=min_keep > 1)


@given(rows(300), PROBABILITY)
def test_keeps_llama_cpps_order(logits, p):
    assume(not decided_by_the_last_bit(logits, p))
    left = run({"min_p": p}, logits)
    assert left.ids.tolist() == native([{"min_p": {"p": p}}], logits).ids.tolist()


def test_means_p_times_the_best_probability():
    logits = row(*np.linspace(-8, 3, 400))
    left = run({"min_p": 0.05}, logits)
    probs = np.exp(np.float64(logits)) / np.exp(np.float64(logits)).sum()
    assert len(left) == np.count_nonzero(probs >= 0.05 * probs.max())
