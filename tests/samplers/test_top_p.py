import math

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from .rows import LARGEST, NEG, agree, make_row, native, row, rows, run, table

# exp of these is 8 : 4 : 2 : 2, so the probabilities are 1/2, 1/4, 1/8 and 1/8; sorted ids are 2 0 1 3.
HALVES = row(math.log(4), math.log(2), math.log(8), math.log(2))
PROBABILITY = st.sampled_from([0.0, 1e-50, 0.5, 0.9, 0.999]) | st.floats(0, 1, exclude_max=True)

WORKED = {
    "within the first": (0.4, "include", 1, [2]),
    "crosses at the second": (0.6, "include", 1, [2, 0]),
    "crosses at the third": (0.8, "include", 1, [2, 0, 1]),
    "crosses at the last": (0.9, "include", 1, [2, 0, 1, 3]),
    "zero keeps the best": (0.0, "include", 1, [2]),
    "min_keep wins": (0.1, "include", 3, [2, 0, 1]),
    "min_keep beyond the row": (0.1, "include", 9, [2, 0, 1, 3]),
    "exclude drops the crossing one": (0.6, "exclude", 1, [2]),
    "exclude, third": (0.8, "exclude", 1, [2, 0]),
    "exclude never drops the first": (0.4, "exclude", 1, [2]),
    "exclude at zero": (0.0, "exclude", 1, [2]),
    "exclude, min_keep": (0.4, "exclude", 2, [2, 0]),
}


@pytest.mark.parametrize(("p", "boundary", "min_keep", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(p, boundary, min_keep, ids):
    left = run({"top_p": {"p": p, "boundary": boundary, "min_keep": min_keep}}, HALVES)
    assert left.ids.tolist() == ids


@pytest.mark.parametrize(("boundary", "count"), [("include", 2), ("exclude", 2)])
def test_exactly_at_the_threshold(boundary, count):
    # Four equal logits have probabilities of exactly 1/4, two have exactly 0.5: both boundaries keep two.
    logits = row(7, 7, 7, 7)
    step = {"top_p": {"p": 0.5, "boundary": boundary}}
    assert len(run(step, logits)) == count


@pytest.mark.parametrize(
    ("p", "boundary", "count"),
    [
        (0.4999999, "include", 2),
        (0.5000001, "include", 3),
        (0.4999999, "exclude", 1),
        (0.5000001, "exclude", 2),
    ],
)
def test_next_to_the_threshold(p, boundary, count):
    assert len(run({"top_p": {"p": p, "boundary": boundary}}, row(7, 7, 7, 7))) == count


@pytest.mark.parametrize("boundary", ["include", "exclude"])
@pytest.mark.parametrize("count", [255, 256, 257, 2047, 2048, 2049])
def test_the_mass_is_reached_where_the_look_ahead_ends(count, boundary):
    # 4096 equal logits have probabilities of exactly 2^-12, so that count of them have exactly p.
    left = run({"top_p": {"p": count / 4096, "boundary": boundary}}, row(*[1.0] * 4096))
    assert left.ids.tolist() == list(range(count))
    left = run({"top_p": {"p": (count + 0.5) / 4096, "boundary": boundary}}, row(*[1.0] * 4096))
    assert len(left) == count + (boundary == "include")


@pytest.mark.parametrize("boundary", ["include", "exclude"])
def test_a_mass_that_is_reached_far_behind_the_first_look(boundary):
    logits = make_row("normal", 20_000, 1)
    sums, order = running_sums(logits)
    for p in (0.3, 0.9, 0.99):
        reached = int(np.searchsorted(sums, np.float32(p), "left" if boundary == "include" else "right"))
        left = run({"top_p": {"p": p, "boundary": boundary}}, logits)
        assert left.ids.tolist() == order[: reached + (boundary == "include")]
        assert len(left) > 256 or p == 0.3


def probabilities(logits):
    """Softmax in float32, row by row, and the rows' order from high to low."""
    values = logits.tolist()
    highest = max(values)
    weights = [np.float32(math.exp(np.float32(value - highest))) for value in values]
    total = np.float32(0)
    for weight in weights:
        total = total + weight
    order = sorted(range(len(values)), key=lambda i: (-values[i], i))
    return [weight / total for weight in weights], order


def running_sums(logits):
    probs, order = probabilities(logits)
    mass, sums = np.float32(0), []
    for i in order:
        mass = mass + probs[i]
        sums.append(mass)
    return sums, order


@given(rows(300), PROBABILITY, st.integers(1, 20), st.sampled_from(["include", "exclude"]))
def test_brute_force(logits, p, min_keep, boundary):
    with np.errstate(over="ignore"):
        sums, order = running_sums(logits)
    bound = np.float32(p)
    assume(bound < 1)
    kept = []
    for i, mass in zip(order, sums, strict=True):
        if boundary == "include":
            kept.append(i)
            if mass >= bound and len(kept) >= min_keep:
                break
        elif mass <= bound or len(kept) < min_keep:
            kept.append(i)
        else:
            break
    left = run({"top_p": {"p": p, "min_keep": min_keep, "boundary": boundary}}, logits)
    assert left.ids.tolist() == kept


def too_near(logits, p):
    """Does the last bit of an expf decide how many rows are kept?

    llama.cpp takes expf from the C library, which may round the last bit otherwise than we do. Where a step
    of 1e-6 in p changes the count, such a bit may too, and the comparison says nothing.
    """
    counts = {len(run({"top_p": p + shift}, logits)) for shift in (-1e-6, 0, 1e-6) if 0 <= p + shift < 1}
    return len(counts) > 1


@given(rows(LARGEST), PROBABILITY, st.integers(1, 50))
def test_equals_llama_cpp(logits, p, min_keep):
    assume(not too_near(logits, p))
    if logits.size > 128:  # llama.cpp's bucket sort is right only below 3.3e8: see test_top_k.py
        logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))
    params = {"p": p, "min_keep": min_keep}
    agree(run({"top_p": params}, logits), native([{"top_p": params}], logits), cut=True)


def test_0_99999999_is_1_in_llama_cpp_too():
    assert native([{"top_p": {"p": 0.99999999}}], HALVES).ids.tolist() == [0, 1, 2, 3]


def test_all_rows_are_kept_when_rounding_keeps_the_mass_below_p():
    logits = make_row("flat", 100_000, 5)
    left = run({"top_p": 0.9999999}, logits)
    assert len(left) > 99_000
    assert np.all(np.diff(left.logits) <= 0)


def test_minus_inf_rows_come_last():
    assert table(run({"top_p": {"p": 0.5, "min_keep": 3}}, row(NEG, 1, 0))) == [(1, 1.0), (2, 0.0), (0, NEG)]
