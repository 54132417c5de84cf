"""The sums of a softmax against a loop in Python's own floats."""

import math

import numpy as np
import pytest
from hypothesis import given
from logitsmith.samplers import Candidates
from logitsmith.samplers.kernels import SoftmaxWorkspace

from .rows import NEG, row, rows


def by_loop(logits):
    highest = float(logits.max())
    differences = [float(logit) - highest for logit in logits]
    weights = [math.exp(difference) for difference in differences]
    total = math.fsum(weights)
    terms = [weight / total for weight in weights]
    return highest, math.log(total), -math.fsum(p * math.log(p) for p in terms if p > 0)


def check(logits):
    sums = SoftmaxWorkspace().sums(logits, Candidates(logits).max)
    assert sums == pytest.approx(by_loop(logits), rel=1e-5, abs=1e-5)


@given(rows(700))
def test_any_row(logits):
    check(logits)


@pytest.mark.parametrize(
    "logits",
    [
        row(1),
        row(0, NEG, NEG),
        row(5, -74.9, -75.1, -500, NEG),
        row(3e38, -3e38, 0),
        row(-1, *[-90.0] * 100_000),
    ],
    ids=["one row", "masked", "around the least difference", "further apart than float32", "a deep tail"],
)
def test_the_edges(logits):
    before = logits.tobytes()
    check(logits)
    assert logits.tobytes() == before


def test_a_deep_tail_counts_for_nothing():
    workspace = SoftmaxWorkspace()
    top = row(3, 2, 1)
    whole = np.concatenate([top, np.full(300_000, -85, np.float32)])
    assert workspace.sums(whole, whole[0]) == workspace.sums(top, top[0])
