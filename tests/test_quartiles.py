"""The quartiles that benchmarks print."""

import pytest

from benchmarks.quartiles import quartiles

VALUES = {
    "one": ([3], (3, 3, 3)),
    "two": ([1, 2], (1.25, 1.5, 1.75)),
    "three": ([4, 2, 3], (2.5, 3, 3.5)),
    "five": ([5, 1, 4, 2, 3], (2, 3, 4)),
}


@pytest.mark.parametrize(("values", "expected"), VALUES.values(), ids=VALUES)
def test_they_lie_among_the_values(values, expected):
    assert quartiles(values) == pytest.approx(expected)
