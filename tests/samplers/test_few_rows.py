"""Shares of few rows: whatever is called certain is what exact float32 sums say."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import Candidates
from logitsmith.samplers.candidates import FEW_ROWS, certain_position, running_sums
from logitsmith.samplers.kernels import position_of_share
from logitsmith.samplers.methods.top_p import TopP

from .rows import row, rows, table

SUMS = [1.0, 1.5, 1.75, 2.0]

POSITIONS = {
    "nothing": (0.0, 0),
    "in the first row": (0.3, 0),
    "at the edge of the first row": (0.5, None),
    "just before an edge": (0.75 - 1e-6, None),
    "just behind an edge": (0.75 + 1e-6, None),
    "in the third row": (0.8, 2),
    "in the last row": (0.9, 3),
    "everything": (1.0, None),
}


@pytest.mark.parametrize(("share", "position"), POSITIONS.values(), ids=POSITIONS)
def test_position(share, position):
    assert certain_position(SUMS, share) == position


@pytest.mark.parametrize("size", [2, 17, FEW_ROWS])
@pytest.mark.parametrize("side", [-1, 1], ids=["before", "behind"])
def test_the_margin_grows_with_the_rows(size, side):
    sums = [float(number) for number in range(1, size + 1)]
    margin = (size + 8) * 2.0**-21
    assert certain_position(sums, 1 / size + side * 0.9 * margin) is None
    assert certain_position(sums, 1 / size + side * 1.1 * margin) == (side > 0)


@pytest.mark.parametrize("size", [1, 2, 17, FEW_ROWS])
def test_running_sums(size):
    logits = np.random.default_rng(size).normal(0, 4, size).astype(np.float32)
    wide = np.exp(logits.astype(np.float64) - logits.max())
    np.testing.assert_allclose(running_sums(logits, logits.max()), np.cumsum(wide), rtol=1e-6)


def test_more_rows_are_not_few():
    assert Candidates(np.zeros(FEW_ROWS, np.float32)).certain_position(0.51) == 32
    assert Candidates(np.zeros(FEW_ROWS + 1, np.float32)).certain_position(0.51) is None


@given(rows(FEW_ROWS), st.floats(0, 1, exclude_max=True))
@np.errstate(over="ignore")
def test_a_certain_draw_is_the_exact_one(logits, share):
    candidates = Candidates(logits)
    position = candidates.certain_position(share)
    assert position in (None, position_of_share(candidates.weights(), share))


@given(rows(FEW_ROWS), st.floats(0, 1, exclude_max=True, width=32), st.sampled_from(["include", "exclude"]))
@np.errstate(over="ignore")
def test_top_p_keeps_what_float32_sums_keep(logits, p, boundary):
    candidates = Candidates(logits)
    candidates.sort_descending()
    mass = np.add.accumulate(candidates.llama_cpp_probs())
    crossing = int(mass.searchsorted(np.float32(p), "left" if boundary == "include" else "right"))
    kept = candidates.snapshot()
    TopP(p=p, boundary=boundary).apply(kept)
    assert len(kept) == min(max(crossing + (boundary == "include"), 1), logits.size)
    assert table(kept) == table(candidates)[: len(kept)]


def test_sums_hold_while_ordered_rows_are_dropped_from_the_end():
    candidates = Candidates(row(4, 3, 2, 1))
    candidates.sort_descending()
    assert candidates.certain_position(0.99) == 3
    candidates.truncate(2)
    assert candidates.certain_position(0.99) == 1
    candidates.set_logits(row(0, 9))
    assert candidates.certain_position(0.5) == 1
