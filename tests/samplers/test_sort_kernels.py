"""Kernels that rank: Python's own stable sort is the oracle."""

import numpy as np
import pytest
from logitsmith.samplers import kernels as sort_kernels
from logitsmith.samplers.kernels import column_maxima, descending, highest_rows

from .rows import STYLES, make_row, ranked

SIZES = [1, 2, 256, 257, 2_047, 2_048, 2_111, 10_007, 65_535, 65_536]


@pytest.fixture(params=[False, True], ids=["by pairs", "by radix"])
def sort(request, monkeypatch):
    """Each sort of long rows, whichever is faster on this processor."""
    monkeypatch.setattr(sort_kernels, "_is_radix_sort_faster", lambda: request.param)


@pytest.mark.usefixtures("sort")
@pytest.mark.parametrize("style", STYLES)
def test_descending_is_a_stable_sort(style):
    for size in SIZES:
        logits = make_row(style, size, size)
        assert descending(logits).tolist() == ranked(logits)


@pytest.mark.usefixtures("sort")
@pytest.mark.parametrize("size", [300, 5_000])
def test_zeros_of_both_signs_are_equal(size):
    logits = np.zeros(size, dtype=np.float32)
    logits[::2] = -0.0
    assert descending(logits).tolist() == list(range(size))


@pytest.mark.parametrize(("by_radix", "by_pairs"), [(1, 2), (2, 1)])
def test_the_faster_sort_is_taken(by_radix, by_pairs, monkeypatch):
    seconds = {sort_kernels._ascending_by_radix: by_radix, sort_kernels._ascending_by_pairs: by_pairs}
    monkeypatch.setattr(sort_kernels, "_measure_seconds", lambda sort, _keys: seconds[sort])
    assert sort_kernels._is_radix_sort_faster.__wrapped__() == (by_radix < by_pairs)


@pytest.mark.parametrize("style", STYLES)
def test_highest_rows_are_the_head_of_the_sort(style):
    for size in SIZES:
        logits = make_row(style, size, size)
        order = ranked(logits)
        for count in (1, 2, 40, 256, 1_000):
            assert highest_rows(logits, min(count, size)).tolist() == order[:count]


@pytest.mark.parametrize("width", [320, 2_188])
@pytest.mark.parametrize("apart", ["side by side", "in a column", "in a column, nearly", "in a column of maxima"])
def test_leading_rows_that_stand_in_one_column_or_in_none(width, apart):
    # 9 values do not fit into the table.
    logits = make_row("normal", 32 * width + 9, 1).copy()
    maxima = column_maxima(logits).size
    steps = {"side by side": 1, "in a column": maxima, "in a column, nearly": maxima + 1}
    step = steps.get(apart, maxima // (maxima // 256))
    logits[: 30 * step : step] += 1000
    logits[-3:] += 2000
    assert highest_rows(logits, 40).tolist() == ranked(logits)[:40]
