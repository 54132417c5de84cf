import numpy as np
import pytest
from hypothesis import given
from logitsmith.samplers import build

from .rows import (
    LARGEST,
    NEG,
    STYLES,
    FakeVocabulary,
    make_row,
    native,
    ranked,
    row,
    rows,
    run,
    table,
    vocabulary_with_ends,
)

WORKED = {
    "one": ([2], row(1, 3, 2), [(0, 1.0), (1, 3.0)]),
    "several": ([0, 2], row(1, 3, 2), [(1, 3.0)]),
    "none": ([], row(1, 3), [(0, 1.0), (1, 3.0)]),
}


@pytest.mark.parametrize(("eog", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(eog, logits, left):
    assert table(build(["ignore_eos"], vocab=vocabulary_with_ends(logits.size, *eog)).apply(logits)) == left


@given(rows(300).filter(lambda logits: logits.size > 1))
def test_brute_force(logits):
    eog = FakeVocabulary(logits.size).eog
    expected = [(i, value) for i, value in enumerate(logits.tolist()) if i not in eog]
    assert table(run("ignore_eos", logits)) == expected


@given(rows(LARGEST).filter(lambda logits: np.isfinite(logits[:-1].max(initial=NEG))))
def test_keeps_what_a_ban_in_llama_cpp_keeps_above_minus_inf(logits):
    # llama.cpp's --ignore-eos is a logit bias of -inf on these tokens.
    theirs = native([{"logit_bias": {"bias": {logits.size - 1: NEG}}}], logits)
    left = run("ignore_eos", logits)
    assert theirs.ids.size == logits.size
    assert theirs.logits[-1] == NEG
    assert left.ids.tolist() == theirs.ids[:-1].tolist()
    np.testing.assert_allclose(left.probs(), theirs.p[:-1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("k", [1, 5, 40, 2990])
@pytest.mark.parametrize("style", STYLES)
def test_a_top_k_after_it_keeps_the_highest_of_the_other_tokens(style, k):
    logits = make_row(style, 3000, 1)
    ends = [*ranked(logits)[:3], 7, 2999]
    left = build(f"ignore_eos > top_k{k}", vocab=vocabulary_with_ends(logits.size, *ends)).apply(logits)
    assert left.ids.tolist() == [i for i in ranked(logits) if i not in ends][:k]
    assert left.logits.tolist() == logits[left.ids].tolist()
    assert left.masked_count == 0
