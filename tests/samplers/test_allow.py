import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import SamplingError, build

from ..oracle.native import NativeChain
from .rows import NEG, row, rows, table

WORKED = {
    "two of four": ([2, 0], row(1, 2, 3, 4), [(0, 1.0), (2, 3.0)]),
    "one, without a list": (3, row(1, 2, 3, 4), [(3, 4.0)]),
    "all": ([0, 1, 2], row(3, 2, 1), [(0, 3.0), (1, 2.0), (2, 1.0)]),
    "off": ([], row(3, 2), [(0, 3.0), (1, 2.0)]),
    "twice the same": ([1, 1], row(3, 2), [(1, 2.0)]),
}


@pytest.mark.parametrize(("tokens", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(tokens, logits, left):
    assert table(build([{"allow": {"tokens": tokens}}]).apply(logits)) == left


@given(rows(), st.data())
def test_brute_force(logits, data):
    allowed = data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1, max_size=9)) | {int(logits.argmax())}
    left = build([{"allow": sorted(allowed)}]).apply(logits)
    assert sorted(table(left)) == [(token, float(logits[token])) for token in sorted(allowed)]


@given(rows(), st.data())
def test_equal_to_llama_cpps_bias_of_minus_infinity(logits, data):
    """llama.cpp has no such sampler. Its bias of -inf for all other tokens leaves the same probabilities."""
    allowed = data.draw(st.sets(st.integers(0, len(logits) - 1), max_size=9)) | {int(logits.argmax())}
    others = {token: NEG for token in range(len(logits)) if token not in allowed}
    ours = build([{"allow": sorted(allowed)}]).apply(logits)
    with NativeChain([{"logit_bias": {"bias": others}}], vocabulary=len(logits)) as chain:
        left = chain.apply(logits)
    theirs = {int(token): float(logit) for token, logit in zip(left.ids, left.logits, strict=True) if logit > NEG}
    assert {token: logit for token, logit in table(ours) if logit > NEG} == theirs


def test_an_allowed_token_that_a_grammar_forbids():
    mask = np.array([False, True])
    with pytest.raises(SamplingError, match="no allowed token is left"):
        build("allow(tokens=[0])").apply(row(1, 9), mask)
