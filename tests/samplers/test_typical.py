import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from .rows import LARGEST, NEG, make_row, native, row, rows, run

LN2 = math.log(2)
# Probabilities 1/4, 1/8, 1/2 and 1/8, surprises of 2, 3, 1 and 3 bits, an entropy of 1.75: sorted by the distance
# from it, 0.25, 0.75, 1.25 and 1.25, the ids are 0 2 1 3.
HALVES = row(-LN2, -2 * LN2, 0, -2 * LN2)
PROBABILITY = st.sampled_from([0.0, 1e-50, 0.2, 0.5, 0.95]) | st.floats(0, 1, exclude_max=True)

WORKED = {
    "zero keeps the nearest": (0.0, "include", 1, HALVES, [0]),
    "within the first": (0.2, "include", 1, HALVES, [0]),
    "the crossing one is kept": (0.3, "include", 1, HALVES, [0, 2]),
    "crosses at the third": (0.8, "include", 1, HALVES, [0, 2, 1]),
    "crosses at the last": (0.9, "include", 1, HALVES, [0, 2, 1, 3]),
    "min_keep wins": (0.0, "include", 3, HALVES, [0, 2, 1]),
    "min_keep beyond the row": (0.0, "include", 9, HALVES, [0, 2, 1, 3]),
    "exclude drops the crossing one": (0.8, "exclude", 1, HALVES, [0, 2]),
    "exclude never drops the first": (0.2, "exclude", 1, HALVES, [0]),
    "exclude at zero": (0.0, "exclude", 1, HALVES, [0]),
    "exclude, min_keep": (0.3, "exclude", 3, HALVES, [0, 2, 1]),
    "one candidate": (0.0, "include", 1, row(-5), [0]),
    "-inf comes last": (0.9, "include", 9, row(NEG, 0, NEG, -LN2, -LN2), [1, 3, 4, 0, 2]),
    # The best has 0.4, six others 0.1 each: an entropy of 1.75, surprises of 0.92 and 2.30.
    "the best is not typical": (0.15, "include", 1, row(math.log(4), 0, 0, 0, 0, 0, 0), [1, 2]),
}


@pytest.mark.parametrize(("p", "boundary", "min_keep", "logits", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(p, boundary, min_keep, logits, ids):
    left = run({"typical": {"p": p, "boundary": boundary, "min_keep": min_keep}}, logits)
    assert left.ids.tolist() == ids
    assert left.logits.tolist() == [logits[i] for i in ids]
    assert not left.is_ordered


@pytest.mark.parametrize(
    ("p", "boundary", "count"),
    [
        (0.5, "include", 3),
        (0.4999999, "include", 2),
        (0.5000001, "include", 3),
        (0.5, "exclude", 1),
        (0.4999999, "exclude", 1),
        (0.5000001, "exclude", 2),
    ],
)
def test_at_the_threshold(p, boundary, count):
    # Four equal logits have probabilities of exactly 1/4: "mass > p" is not yet true of two of them at 0.5.
    left = run({"typical": {"p": p, "boundary": boundary}}, row(7, 7, 7, 7))
    assert left.ids.tolist() == list(range(count))


def test_mass_of_exactly_p_in_llama_cpp():
    assert len(native([{"typical": {"p": 0.5}}], row(7, 7, 7, 7)).ids) == 3


def by_distance(logits):
    """(score, probability, id) from the nearest to the entropy on, in float32, row by row."""
    order = sorted(range(logits.size), key=lambda i: (-logits[i], i))
    weights = [np.float32(math.exp(np.float32(logits[i] - logits[order[0]]))) for i in order]
    total = entropy = np.float32(0)
    for weight in weights:
        total = total + weight
    probs = [weight / total for weight in weights]
    logs = [np.float32(math.log(p)) if p else np.float32(NEG) for p in probs]
    for p, log in zip(probs, logs, strict=True):
        entropy = entropy - (p * log if p else np.float32(0))
    scores = [abs(-log - entropy) for log in logs]
    return sorted(zip(scores, probs, order, strict=True), key=lambda entry: entry[0])


def kept_by_hand(logits, p, min_keep, boundary):
    bound = np.float32(p)
    with np.errstate(over="ignore"):
        entries = by_distance(logits)
    kept, mass = [], np.float32(0)
    for _, prob, token in entries:
        before, mass = mass, mass + prob
        if (before <= bound if boundary == "include" else mass < bound) or len(kept) < min_keep:
            kept.append(token)
    return kept


@given(rows(300), PROBABILITY, st.integers(1, 20), st.sampled_from(["include", "exclude"]))
def test_brute_force(logits, p, min_keep, boundary):
    assume(np.float32(p) < 1)
    left = run({"typical": {"p": p, "min_keep": min_keep, "boundary": boundary}}, logits)
    assert left.ids.tolist() == kept_by_hand(logits, p, min_keep, boundary)


@pytest.mark.parametrize("boundary", ["include", "exclude"])
def test_a_mass_that_is_reached_far_behind_the_first_look(boundary):
    logits = make_row("normal", 20_000, 1)
    left = run({"typical": {"p": 0.9, "boundary": boundary}}, logits)
    assert left.ids.tolist() == kept_by_hand(logits, 0.9, 1, boundary)
    assert len(left) > 256


def agree_but_for_equals(logits, p, min_keep=1):
    """Assert the tokens that llama.cpp keeps, save among those as far from the entropy as the last one kept.

    The logarithms of neighbouring logits may be equal in float32, and a logf may round the last bit otherwise;
    llama.cpp's sort takes any of equal scores.
    """
    params = {"p": p, "min_keep": min_keep}
    ours, theirs = run({"typical": params}, logits), native([{"typical": params}], logits)
    # Both sum in float32, from the most likely on: over a long flat row that is more than 1e-5 off the true
    # entropy.
    order = np.argsort(-logits, kind="stable")
    wide = logits[order].astype(np.float64)
    weights = np.exp(wide - wide[0]).astype(np.float32)
    probs = weights / np.add.accumulate(weights)[-1]
    logs = np.log(probs, dtype=np.float64).astype(np.float32)
    scores = np.empty_like(logs)
    scores[order] = np.abs(-logs - np.add.accumulate(-probs * logs)[-1])
    mine, other = set(ours.ids.tolist()), set(theirs.ids.tolist())
    distances = np.abs(scores - scores[ours.ids[-1]])[list(mine ^ other)]
    assert distances.max(initial=0) < 1e-5 * max(1.0, scores[ours.ids[-1]])
    if mine == other:
        weights = ours.weights()[np.argsort(ours.ids)]
        probs = weights / weights.sum(dtype=np.float64)
        np.testing.assert_allclose(probs, theirs.p[np.argsort(theirs.ids)], atol=1e-5, rtol=0)


def too_near(logits, p):
    """Would another last bit of the probabilities keep another number of rows? See test_top_p.py."""
    counts = {len(run({"typical": p + shift}, logits)) for shift in (-1e-6, 0, 1e-6) if 0 <= p + shift < 1}
    return len(counts) > 1


def without_zeros(logits):
    """The rows whose probability is not 0 in float32; of the others llama.cpp can't take the entropy."""
    logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))  # its bucket sort: see test_top_k.py
    return logits[logits > logits.max() - 80]


@given(rows(LARGEST), PROBABILITY, st.integers(1, 50))
def test_equals_llama_cpp(logits, p, min_keep):
    logits = without_zeros(logits)
    assume(not too_near(logits, p))
    agree_but_for_equals(logits, p, min_keep)


@given(rows(300), PROBABILITY)
def test_rows_of_no_probability_change_nothing(logits, p):
    left = run({"typical": p}, logits)
    more = run({"typical": p}, row(*logits, NEG, NEG))
    assert more.ids.tolist()[: len(left)] == left.ids.tolist()
    assert set(more.ids[len(left) :].tolist()) <= {logits.size, logits.size + 1}


@pytest.mark.parametrize("last", [NEG, -200.0], ids=["-inf", "underflow"])
def test_a_probability_of_0_has_no_entropy_where_llama_cpps_is_nan(last):
    logits = row(math.log(4), 0, 0, 0, 0, 0, 0, last)
    # Without the last row the two keep the same, as worked out above; with it llama.cpp takes the best rows.
    assert run({"typical": 0.15}, logits[:-1]).ids.tolist() == [1, 2]
    assert 0 not in native([{"typical": {"p": 0.15}}], logits[:-1]).ids
    assert run({"typical": 0.15}, logits).ids.tolist() == [1, 2]
    assert native([{"typical": {"p": 0.15}}], logits).ids.tolist() == [0]
