"""Sums in order: a plain loop is the oracle."""

import numpy as np
import pytest
from logitsmith.samplers.sums import in_order


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 127, 128, 129, 1000, 49_152])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_the_sum_of_a_loop_to_the_last_bit(size, scale, dtype):
    values = (np.random.default_rng(size).normal(0, scale, size)).astype(dtype)
    total = dtype(0)
    for value in values:
        total += value
    assert in_order(values).tobytes() == total.tobytes()
    assert in_order(values[::2]) == (np.add.accumulate(values[::2])[-1] if size else 0)


def test_what_is_not_finite_stays_so():
    with np.errstate(invalid="ignore"):
        assert in_order(np.array([1, np.inf], np.float32)) == np.inf
        assert np.isnan(in_order(np.array([np.inf, -np.inf], np.float32)))
