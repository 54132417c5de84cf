"""Shares of few rows: whatever is called certain is what exact float32 sums say."""

import numpy as np
from hypothesis import given, strategies as st
from logitsmith.samplers import Candidates
from logitsmith.samplers.candidates import FEW_ROWS
from logitsmith.samplers.kernels import position_of_share
from logitsmith.samplers.methods.top_p import TopP

from .rows import rows, table


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
