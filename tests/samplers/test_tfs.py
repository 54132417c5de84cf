import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st

from .rows import HALVES, NEG, NORMAL, TIES, row, rows, run

# KoboldAI's wiki works with these probabilities.
WIKI = row(*(math.log(p) for p in (0.4, 0.3, 0.15, 0.1, 0.05)))
# The second differences of HALVES are 1/8, 1/16 and 1/16, so that the sums are 1/2, 3/4 and 1.
EQUAL = row(3, 3, 3, 3, 3, 3)

# z, logits, how many `pad: true` keeps, how many `pad: false` keeps
WORKED = {
    "the wiki's example, 0": (0.0, WIKI, 1, 1),
    "the wiki's example, 0.3": (0.3, WIKI, 1, 1),
    "the wiki's example, 0.34": (0.34, WIKI, 2, 1),
    "the wiki's example, 0.9": (0.9, WIKI, 2, 1),
    "the wiki's example, 1 is off": (1.0, WIKI, 5, 5),
    "below the first sum": (0.4999999, HALVES, 1, 1),
    "exactly at the first sum": (0.5, HALVES, 2, 1),
    "below the second sum": (0.7499999, HALVES, 2, 1),
    "exactly at the second sum": (0.75, HALVES, 3, 2),
    "nearly 1": (0.999999, HALVES, 3, 2),
    "no bend anywhere": (0.5, EQUAL, 5, 2),
    "no bend anywhere, 0": (0.0, EQUAL, 5, 1),
    "no bend anywhere, 0.8": (0.8, EQUAL, 5, 3),
    # The bends sum up to 4e-8 and 3e-6; KoboldCpp holds the former to be none.
    "nearly no bend": (0.8, row(0, 0, 0, -1e-7, -1e-7, -1e-7), 3, 3),
    "a slight bend": (0.8, row(0, 0, 0, -1e-5, -1e-5, -1e-5), 3, 2),
    # One bend, which KoboldCpp's loop passes over: it keeps at least one token before it looks.
    "three candidates": (0.5, row(2, 1, 0), 1, 3),
    "two candidates": (0.5, row(2, 1), 1, 2),
    "two equal candidates": (0.5, row(1, 1), 1, 2),
    "one candidate": (0.0, row(2), 1, 1),
    "-inf is the tail": (0.999, row(1, NEG, NEG, NEG, NEG), 1, 1),
}


@pytest.mark.parametrize(("z", "logits", "padded", "plain"), WORKED.values(), ids=WORKED)
def test_worked_example(z, logits, padded, plain):
    for pad, count in ((True, padded), (False, plain)):
        assert run({"tfs": {"z": z, "pad": pad}}, logits).ids.tolist() == list(range(count))


def differences(values):
    return [after - before for before, after in itertools.pairwise(values)]


def steps_of_the_wiki(probs):
    """First and second differences, absolute values, shares, cumulative sums: the wiki's steps 3 to 7."""
    first = differences(probs)
    second = differences(first)
    absolute = [abs(bend) for bend in second]
    total = math.fsum(absolute)
    shares = [bend / total for bend in absolute] if total else []
    sums, reached = [], 0.0
    for share in shares:
        reached += share
        sums.append(reached)
    return first, second, absolute, shares, sums


def sorted_probabilities(logits):
    """From high to low, of weights in float32: where rows are nearly flat, their bends are all rounding."""
    highest = np.float32(max(logits.tolist()))
    with np.errstate(over="ignore"):
        weights = [float(np.float32(math.exp(np.float32(value) - highest))) for value in logits.tolist()]
    total = math.fsum(weights)
    return sorted((weight / total for weight in weights), reverse=True)


def keep(probs, z, pad):
    """Return the number of tokens that stay. Without padding it is KoboldCpp's loop."""
    size = len(probs)
    *_, absolute, _, sums = steps_of_the_wiki(probs)
    if pad:
        padded = [0.0, *(sums or [0.0] * (size - 2)), 1.0]
        return max(1, sum(value <= z for value in padded[:size]))
    if size <= 2:
        return size
    if math.fsum(absolute) <= 1e-6:
        sums = [(i + 1) / (size - 2) for i in range(size - 2)]
    for i, value in enumerate(sums):
        if value > z and i >= 1:
            return i
    return size


def check(logits, z, pad):
    """The sums may be off by about 1e-9: what is kept is what is kept within 1e-6 of z."""
    probs = sorted_probabilities(logits)
    left = run({"tfs": {"z": z, "pad": pad}}, logits)
    if len(probs) > 2 or pad:
        order = sorted(range(logits.size), key=lambda i: (-logits[i], i))
    else:  # nothing is done, not even sorted
        order = list(range(logits.size))
    assert left.ids.tolist() == order[: len(left)]
    assert keep(probs, max(z - 1e-6, 0), pad) <= len(left) <= keep(probs, min(z + 1e-6, 0.9999999), pad)


def decided_by_rounding(logits):
    """Is the sum of the bends nothing but rounding, as that of a straight line, or next to KoboldCpp's 1e-6?"""
    total = math.fsum(steps_of_the_wiki(sorted_probabilities(logits))[2])
    return 0 < total < 1e-8 or abs(total - 1e-6) < 1e-9


SHARE = st.sampled_from([0.0, 0.25, 0.5, 0.9, 0.95]) | st.floats(0, 0.999999)


@given(rows(300), SHARE, st.booleans())
@example(NORMAL, 0.95, True)
@example(TIES, 0.5, False)
def test_brute_force(logits, z, pad):
    assume(not decided_by_rounding(logits))
    check(logits, z, pad)


def test_pad_is_the_default():
    assert len(run({"tfs": 0.75}, HALVES)) == 3
