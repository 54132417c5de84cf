"""Sums in order, and the search in them: a plain loop is the oracle."""

import numpy as np
import pytest
from logitsmith.samplers.kernels import (
    certain_position_of_share,
    position_of_share,
    sequential_sum,
    sequential_sum_of_squares,
)

from .rows import make_row


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 127, 128, 129, 1000, 49_152])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_sum_of_a_loop_to_the_last_bit(size, scale, dtype):
    values = (np.random.default_rng(size).normal(0, scale, size)).astype(dtype)
    total = dtype(0)
    for value in values:
        total += value
    assert sequential_sum(values).tobytes() == total.tobytes()
    assert sequential_sum(-np.zeros(size, dtype)).tobytes() == dtype(0).tobytes()
    assert sequential_sum(values[::2]) == (np.add.accumulate(values[::2])[-1] if size else 0)


def test_what_is_not_finite_stays_so():
    with np.errstate(invalid="ignore"):
        assert sequential_sum(np.array([1, np.inf], np.float32)) == np.inf
        assert np.isnan(sequential_sum(np.array([np.inf, -np.inf], np.float32)))


def midway(rng, size):
    """Values whose squares, as floats, lie midway between floats of 8,192 and more, which exactly they do not."""
    values = rng.uniform(1, 2, 400 * max(size, 1)).astype(np.float32)
    squares = values * values
    halves = squares * 2**11
    values = values[(halves == np.rint(halves)) & (squares != values.astype(np.float64) ** 2)]
    return np.append(np.full(1, 90.5, np.float32), np.resize(values, size))[:size]


VALUES = {
    "normal": lambda rng, size: rng.normal(0, 3, size),
    "far from 0": lambda rng, size: rng.normal(50, 1, size),
    "growing": lambda rng, size: np.exp(np.linspace(-40, 5, size)) * rng.uniform(1, 2, size),
    "falling": lambda rng, size: np.exp(np.linspace(5, -40, size)) * rng.uniform(1, 2, size),
    "equal": lambda rng, size: np.full(size, rng.uniform(1, 2)),
    "integers": lambda rng, size: rng.integers(-9, 9, size),
    "zeros first": lambda rng, size: np.where(np.arange(size) < size // 2, 0, rng.normal(0, 3, size)),
    "still at first": lambda rng, size: np.where(np.arange(size) < size // 2, 1e-3, 5) * rng.normal(0, 1, size),
    "tiny": lambda rng, size: rng.normal(0, 1e-22, size),
    "tinier": lambda rng, size: rng.choice([0, 2.0**-75, 1.3 * 2.0**-75], size),
    "too large": lambda rng, size: rng.normal(0, 1e18, size),
    "midway": midway,
}


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 192, 1000, 20_000])
@pytest.mark.parametrize("kind", VALUES)
def test_a_sum_of_squares_is_a_float_that_doubles_are_added_to(size, kind):
    values = VALUES[kind](np.random.default_rng(size), size).astype(np.float32)
    total = np.float32(0)
    with np.errstate(over="ignore"):
        for value in values.tolist():
            total = np.float32(np.float64(total) + value * value)
        assert sequential_sum_of_squares(values).tobytes() == total.tobytes()


def test_squares_that_floats_put_midway_are_found_in_the_sum():
    values = midway(np.random.default_rng(1), 2_000)
    assert sequential_sum_of_squares(values) != sequential_sum(values * values)


def looped(weights, share):
    """The first position whose running sum reaches the share of the total, or is it all."""
    ends = np.add.accumulate(weights.astype(np.float64))
    return next(place for place, end in enumerate(ends) if end >= min(share * ends[-1], ends[-1]))


@pytest.mark.parametrize("size", [1, 7, 512, 2_048, 2_049, 5_000])
@pytest.mark.parametrize("style", ["flat", "normal", "peaked"])
def test_first_reaching_is_that_of_a_loop(style, size):
    weights = np.exp(make_row(style, size, 1) - make_row(style, size, 1).max())
    for share in np.random.default_rng(size).random(40):
        assert position_of_share(weights, share) == looped(weights, share)


def test_the_ends():
    assert position_of_share(np.zeros(3_000, np.float32) + 1, 0.0) == 0
    assert position_of_share(np.append(np.ones(3_000, np.float32), np.zeros(9, np.float32)), 1 - 2**-53) == 2_999


@pytest.mark.parametrize("style", ["flat", "normal", "peaked"])
def test_surely_reaching_is_right_or_silent_with_weights_that_are_off(style):
    rng = np.random.default_rng(3)
    error = 1e-4
    weights = np.exp(make_row(style, 3_000, 1) - make_row(style, 3_000, 1).max())
    ends = np.add.accumulate(weights, dtype=np.float64) / weights.sum(dtype=np.float64)
    borders = np.clip(ends[::50] * (1 + error * rng.normal(size=60)), 0, 1 - 2**-53)
    answers = []
    for share in [0.0, *rng.random(200), *borders]:
        off = weights * (1 + error * rng.choice([-1, 1], 3_000)).astype(np.float32)
        found = certain_position_of_share(off, share, 1.01 * error)
        assert found is None or found == position_of_share(weights, share)
        answers.append(found)
    assert None in answers
    assert sum(found is not None for found in answers) > 20


def test_weights_too_small_for_a_float32_settle_nothing():
    weights = np.full(3_000, 2.0**-140, np.float32)
    for share in (0.1003, 0.5003, 0.9003):  # between two sums
        assert certain_position_of_share(weights, share, 0.0) is None
        assert certain_position_of_share(weights * np.float32(2.0**100), share, 0.0) == looped(weights, share)


def test_what_is_missing_at_the_first_row_of_a_block_is_what_the_block_has_to_give():
    weights = np.ones(4_096, np.float32)
    assert certain_position_of_share(weights, 512.5 / 4_096, 1e-4) == 512
    assert certain_position_of_share(weights, (512 + 1e-3) / 4_096, 1e-4) is None
