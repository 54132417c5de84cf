"""The numbers of rows that a batch uses, when kernels differ as they do on several processors."""

import numpy as np
import pytest
from logitsmith.engine.exactness import (
    DecodePlan,
    GroupSizes,
    ProbeRow,
    choose_decode_plan,
    common_plan,
    divide_rows,
)
from logitsmith.logprobs.events import BatchExactness, ExactnessLevel

EXACT, AMONG, ROUNDING = ExactnessLevel.EXACT, ExactnessLevel.AMONG_THEMSELVES, ExactnessLevel.ROUNDING


class ScriptedRows:
    """Rows whose kernel depends on how many there are, and on their place; each kernel rounds in its own way.

    ``is_lost``: the difference is in the hidden state only.
    """

    def __init__(self, kernel, contents=2, is_lost=False):
        self.kernel, self.distinct_sequence_count, self.is_lost = kernel, contents, is_lost
        self.decodes = []

    def decode(self, first, count, copies=1):
        total = count * copies
        self.decodes.append(total)
        rows = []
        for place in range(0, total, copies):
            content = (first + place // copies) % self.distinct_sequence_count
            rounding = np.float32(1e-6) * hash(self.kernel(total, place)) % 1e-5
            logits = np.arange(4, dtype=np.float32) * (content + 1)
            row = ProbeRow(logits, logits + np.float32(rounding))
            rows.append(row if self.is_lost else ProbeRow(row.state, logits))
        return rows


def one_kernel(total, place):
    return 0


def tiled_from_8(total, place):
    """K-quants that are not repacked."""
    return int(total >= 8)


def fours_and_rest(total, place):
    """Repacked Q4_K: groups of four by one kernel, what is left by another; the output from 8 rows by a third."""
    return int(place < total - total % 4) + 2 * (total >= 8)


def other_than_alone(total, place):
    """F16: a product with a vector, or with a matrix."""
    return int(total > 1)


def pairs(total, place):
    """Two rows at a time, and an odd one alone: the last of 3 rows is computed as a row alone."""
    return int(place < total - total % 2)


def every_place(total, place):
    return total * 100 + place


def only_fours(total, place):
    return 7 if total == 4 else total * 100 + place


CASES = [
    pytest.param(
        one_kernel, EXACT, {2: (2,), 5: (2, 4, 5), 8: (2, 4, 8), 32: (2, 4, 8, 16, 32)}, 2, id="one kernel"
    ),
    pytest.param(tiled_from_8, EXACT, {2: (2,), 7: (2, 4, 7), 8: (2, 4), 32: (2, 4)}, 2, id="tiled from 8"),
    pytest.param(fours_and_rest, EXACT, {2: (2,), 3: (2, 3), 4: (2, 3), 8: (2, 3)}, 2, id="fours and the rest"),
    pytest.param(other_than_alone, AMONG, {2: (2,), 8: (2, 4, 8), 16: (2, 4, 8, 16)}, 2, id="other than alone"),
    pytest.param(pairs, AMONG, {2: (2,), 3: (2,), 8: (2, 4, 8)}, 2, id="pairs"),
    pytest.param(only_fours, AMONG, {2: (4,), 4: (4,), 8: (4,)}, 4, id="only fours"),
    pytest.param(every_place, ROUNDING, {2: (2,), 3: (2, 3), 8: tuple(range(2, 9))}, 2, id="every place"),
]


@pytest.mark.parametrize("is_lost", [False, True], ids=["in the logits", "in the state"])
@pytest.mark.parametrize("contents", [1, 2, 8])
@pytest.mark.parametrize(("kernel", "level", "counts", "copies"), CASES)
def test_the_numbers_of_rows_that_agree_are_used(kernel, level, counts, copies, contents, is_lost):
    for slots, expected in counts.items():
        plan = choose_decode_plan(ScriptedRows(kernel, contents, is_lost), slots)
        assert (plan.exactness.level, plan.allowed_row_counts, plan.single_row_copies) == (
            level,
            expected,
            copies,
        ), slots


@pytest.mark.parametrize(("kernel", "level", "counts", "copies"), CASES)
def test_each_row_of_a_batch_is_computed_alike(kernel, level, counts, copies):
    """Whatever the number of slots is, and however many of them are in use."""
    kernels = set()
    for slots in range(2, 20):
        plan = choose_decode_plan(ScriptedRows(kernel), slots)
        for used in range(1, slots + 1):
            for step in range(1, slots // used + 1):
                numbers = tuple(range(0, used * step, step))
                single_row_copies = (plan.copies_of_single_token(0),) * used
                for group in divide_rows(
                    numbers, single_row_copies, GroupSizes(plan.allowed_row_counts, slots, can_fill_gaps=True), ()
                ):
                    total = group.row_count if group.row_count > 1 else plan.copies_of_single_token(0)
                    kernels |= {kernel(total, place) for place in range(group.row_count)}
    if level is EXACT:
        assert kernels == {kernel(1, 0)}
    elif level is AMONG:
        assert len(kernels) == 1
    else:
        assert len(kernels) > 1


@pytest.mark.parametrize(
    ("exactness", "length", "rows"),
    [
        pytest.param(BatchExactness(EXACT), 9000, 1, id="a row alone agrees"),
        pytest.param(BatchExactness(EXACT, max_exact_tokens=256), 255, 1, id="the last token that agrees alone"),
        pytest.param(BatchExactness(EXACT, max_exact_tokens=256), 256, 2, id="another kernel of flash attention"),
        pytest.param(BatchExactness(AMONG), 3, 2, id="a row alone does not agree"),
        pytest.param(BatchExactness(ROUNDING), 3, 2, id="nothing agrees"),
    ],
)
def test_a_token_without_neighbors_is_copied_where_a_row_alone_does_not_agree(exactness, length, rows):
    assert DecodePlan(exactness, (2, 4), 2).copies_of_single_token(length) == rows


def test_the_default_costs_few_rows():
    """About the time of 15 tokens: eight rows in one call take less than eight tokens."""
    rows = ScriptedRows(one_kernel)
    choose_decode_plan(rows, 8)
    assert sum(rows.decodes) == 1 + 1 + 2 + 4 + 8 + 2


def test_experts_allow_what_equal_and_different_rows_allow():
    exact = choose_decode_plan(ScriptedRows(one_kernel), 8)
    assert common_plan(exact, choose_decode_plan(ScriptedRows(tiled_from_8), 8), 8).allowed_row_counts == (2, 4)
    among = choose_decode_plan(ScriptedRows(other_than_alone), 8)
    assert common_plan(exact, among, 8).exactness.level is ROUNDING
    assert common_plan(among, among, 8).exactness.level is ROUNDING


@pytest.mark.parametrize(
    ("exactness", "text"),
    [
        (BatchExactness(EXACT), "exact"),
        (BatchExactness(AMONG, 5e-6), "exact among themselves"),
        (BatchExactness(ROUNDING, 5e-6), "to rounding (5e-6)"),
        (BatchExactness(ROUNDING, 0.0871), "to rounding (9e-2)"),
        (BatchExactness(ROUNDING), "to rounding"),
    ],
)
def test_the_text_is_short(exactness, text):
    assert str(exactness) == text


@pytest.mark.parametrize(
    ("exactness", "tokens", "text"),
    [
        (BatchExactness(EXACT, max_exact_tokens=256), 256, "exact"),
        (BatchExactness(EXACT, max_exact_tokens=256), 257, "exact among themselves"),
        (BatchExactness(EXACT), 4000, "exact"),
        (BatchExactness(AMONG), 3, "exact among themselves"),
        (BatchExactness(ROUNDING, 1e-6), 3, "to rounding (1e-6)"),
    ],
)
def test_a_long_text_is_not_what_it_is_alone(exactness, tokens, text):
    assert str(exactness.for_answer(tokens)) == text
