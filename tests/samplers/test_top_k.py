import numpy as np
import pytest
from hypothesis import given, strategies as st

from .rows import LARGEST, NEG, agree, native, row, rows, run, table

WORKED = {
    "two of four": (2, row(1, 3, 2, 0), [(1, 3.0), (2, 2.0)]),
    "one": (1, row(1, 3, 2, 0), [(1, 3.0)]),
    "all of them": (4, row(1, 3, 2, 0), [(1, 3.0), (2, 2.0), (0, 1.0), (3, 0.0)]),
    "more than there are": (9, row(1, 3), [(1, 3.0), (0, 1.0)]),
    "far more than there are": (2**70, row(1, 3), [(1, 3.0), (0, 1.0)]),
    "equal ones, the lower id": (2, row(5, 7, 5, 5), [(1, 7.0), (0, 5.0)]),
    "all equal": (3, row(0, 0, 0, 0), [(0, 0.0), (1, 0.0), (2, 0.0)]),
    "minus zero equals zero": (2, row(-0.0, 0.0, -1), [(0, 0.0), (1, 0.0)]),
    "-inf comes last": (2, row(NEG, 1, NEG), [(1, 1.0), (0, NEG)]),
    "one candidate": (40, row(-2), [(0, -2.0)]),
}


@pytest.mark.parametrize(("k", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(k, logits, left):
    assert table(run({"top_k": k}, logits)) == left


@given(rows(300), st.integers(1, 320))
def test_brute_force(logits, k):
    pool = list(enumerate(logits.tolist()))
    kept = []
    while pool and len(kept) < k:
        best = pool[0]
        for entry in pool:
            if entry[1] > best[1]:
                best = entry
        pool.remove(best)
        kept.append(best)
    assert table(run({"top_k": k}, logits)) == kept


@given(rows(LARGEST), st.integers(1, 5000))
def test_equals_llama_cpp(logits, k):
    if k > 128:  # there llama.cpp's bucket sort is right only below 3.3e8: see the test of that
        logits = np.clip(logits, np.float32(-1e8), np.float32(1e8))
    agree(run({"top_k": k}, logits), native([{"top_k": {"k": k}}], logits), cut=True)


def test_logits_beyond_3e8_are_sorted_where_llama_cpp_puts_them_last():
    # Above 128 rows llama.cpp sorts by buckets; int(6.4 * 1e9) overflows into the lowest one.
    logits = row(1e9, *np.arange(200.0) / 100)
    assert run({"top_k": 150}, logits).ids[0] == 0
    assert 0 not in native([{"top_k": {"k": 150}}], logits).ids
