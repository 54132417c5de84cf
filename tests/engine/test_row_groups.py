"""The slots that are decoded in one call: the division that takes the least time."""

import itertools
import random

import pytest
from logitsmith.engine.exactness import DecodeTimes, GroupSizes, RowGroup, divide_rows

EQUAL = ((1, 1.0), (2, 1.0), (4, 1.0), (8, 1.0))
"""Where the memory is slow, each decode takes as long."""
BY_ROWS = ((1, 1.0), (2, 2.0), (4, 4.0), (8, 8.0))


def divide(numbers, counts=(2, 4, 8), slots=8, can_fill_gaps=True, lone=1, times=()):
    return divide_rows(tuple(numbers), (lone,) * len(numbers), GroupSizes(counts, slots, can_fill_gaps), times)


@pytest.mark.parametrize(
    ("numbers", "options", "groups"),
    [
        pytest.param(range(8), {}, [(0, 8)], id="all in one call"),
        pytest.param(range(8), {"counts": (2, 4)}, [(0, 4), (4, 4)], id="two halves"),
        pytest.param([3], {}, [(3, 1)], id="a lone one"),
        pytest.param([], {}, [], id="none"),
        pytest.param([0, 1, 2, 4, 5, 7], {}, [(0, 8)], id="holes are filled"),
        pytest.param([5, 6, 7], {"times": EQUAL}, [(4, 4)], id="a group lies within the slots"),
        pytest.param([0, 7], {"times": EQUAL}, [(0, 8)], id="few decodes where each takes as long"),
        pytest.param([0, 7], {"times": BY_ROWS}, [(0, 1), (7, 1)], id="few rows where each takes as long"),
        pytest.param([0, 1, 3], {"can_fill_gaps": False}, [(0, 2), (3, 1)], id="no holes in a recurrent model"),
        pytest.param([0, 1, 2], {"can_fill_gaps": False}, [(0, 1), (1, 2)], id="no ends in a recurrent model"),
        pytest.param([0, 1], {"counts": (4,), "lone": 4}, [(0, 4)], id="fillers instead of copies"),
        pytest.param([0, 1], {"counts": (8,), "slots": 4, "lone": 8}, [(0, 1), (1, 1)], id="more rows than slots"),
        pytest.param([0, 30], {"counts": (2, 32), "slots": 40}, [(0, 1), (30, 1)], id="far apart"),
    ],
)
def test_groups_take_little_time(numbers, options, groups):
    assert divide(numbers, **options) == tuple(RowGroup(*group) for group in groups)


def test_each_slot_is_in_a_group_and_no_division_takes_less_time():
    """Against all divisions into adjacent parts."""
    draw = random.Random(1)
    for _ in range(40):
        times = {rows: draw.uniform(1, rows) for rows in (1, 2, 4, 8)}
        numbers = sorted(draw.sample(range(8), draw.randint(1, 6)))
        groups = divide(numbers, times=tuple(times.items()))
        held = [number for first, size in groups for number in range(first, first + size)]
        assert set(numbers) <= set(held) <= set(range(8))
        taken = sum(times[size] for _, size in groups)
        for cuts in itertools.product([False, True], repeat=len(numbers) - 1):
            parts = [[numbers[0]]]
            for number, is_cut in zip(numbers[1:], cuts, strict=True):
                parts.append([number]) if is_cut else parts[-1].append(number)
            spans = [part[-1] - part[0] + 1 for part in parts]
            assert taken <= sum(times[min(c for c in (1, 2, 4, 8) if c >= span)] for span in spans) + 1e-9


def test_the_shortest_time_counts_and_small_changes_do_not():
    times = DecodeTimes()
    for seconds in (3.0, 2.0, 1.9, 5.0):
        times.record(8, seconds)
    times.record(2, 1.0)
    assert times.table == ((2, 1.0), (8, 2.0))


def test_times_that_are_ignored():
    times = DecodeTimes(is_ignored=True)
    times.record(2, 0.5)
    assert times.table == ()
