import math

import numpy as np
import pytest
from hypothesis import example, given
from logitsmith.samplers import Candidates, build

from .rows import NORMAL, row, rows

# The example of KoboldAI's wiki, and its numbers to three places.
EXAMPLE = row(2, -2.3, 1.12, -3.9)
POWERS = [7.389, 0.100, 3.065, 0.020]
PROBABILITIES = [0.699, 0.009, 0.290, 0.002]


def probs(logits):
    with np.errstate(over="ignore"):  # as in a chain
        return Candidates(logits).probs()


def test_the_powers_of_the_example():
    # The weights are exp(logit - max), and the highest logit is 2.
    assert (Candidates(EXAMPLE).weights() * np.float64(math.e**2)).round(3).tolist() == POWERS


def test_the_probabilities_of_the_example():
    assert probs(EXAMPLE).astype(np.float64).round(3).tolist() == PROBABILITIES


# 0.6988 of the numbers draw the first token, up to 0.7083 the second, up to 0.9981 the third.
DRAWS = [(0.0, 0), (0.698, 0), (0.699, 1), (0.708, 1), (0.709, 2), (0.998, 2), (0.999, 3)]


@pytest.mark.parametrize(("u", "token"), DRAWS)
def test_a_draw_of_the_example(u, token):
    assert Candidates(EXAMPLE).pick(u) == token


def test_the_token_with_logit_2_is_drawn_in_69_9_percent_of_cases():
    chain = build([], seed=69)
    draws = np.bincount([chain.sample(EXAMPLE) for _ in range(10_000)], minlength=4)
    # The standard deviation of the first share is 0.0046.
    np.testing.assert_allclose(draws / 10_000, PROBABILITIES, atol=0.015)


def by_hand(logits):
    highest = max(logits.tolist())
    powers = [math.exp(value - highest) for value in logits.tolist()]
    total = math.fsum(powers)
    return [power / total for power in powers]


@given(rows(300))
@example(NORMAL)
def test_brute_force(logits):
    # The difference of two logits is rounded to float32: 4e-6 where it is 100 and the power is nearly nothing.
    np.testing.assert_allclose(probs(logits), by_hand(logits), rtol=1e-5, atol=1e-40)
