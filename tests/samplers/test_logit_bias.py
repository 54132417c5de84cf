import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.samplers import SamplingError, build

from .rows import (
    LARGEST,
    MAX_FLOAT32,
    MIN_FLOAT32,
    NEG,
    FakeVocabulary,
    agree,
    native,
    row,
    rows,
    run,
    table,
)

NUMBERS = st.floats(-50, 50) | st.sampled_from([100.0, -100.0])

WORKED = {
    "add": ({1: 2.0}, row(1, 3, 2), [(0, 1.0), (1, 5.0), (2, 2.0)]),
    "subtract": ({1: -2}, row(1, 3, 2), [(0, 1.0), (1, 1.0), (2, 2.0)]),
    "several": ({0: 1, 2: -1}, row(1, 3, 2), [(0, 2.0), (1, 3.0), (2, 1.0)]),
    "ban by -inf": ({1: NEG}, row(1, 3, 2), [(0, 1.0), (2, 2.0)]),
    "ban by its text": ({1: "-inf"}, row(1, 3, 2), [(0, 1.0), (2, 2.0)]),
    "ban by false": ({1: False}, row(1, 3, 2), [(0, 1.0), (2, 2.0)]),
    "ban and add": ({1: False, 0: 4}, row(1, 3, 2), [(0, 5.0), (2, 2.0)]),
    "zero": ({1: 0.0}, row(1, 3, 2), [(0, 1.0), (1, 3.0), (2, 2.0)]),
    "-inf stays -inf": ({0: 100.0}, row(NEG, 3), [(0, NEG), (1, 3.0)]),
    "a byte's text": ({"\x01": 2.0}, row(1, 3, 2), [(0, 1.0), (1, 5.0), (2, 2.0)]),
    "overflow is held finite": ({0: 3e38}, row(3e38, 3), [(0, MAX_FLOAT32), (1, 3.0)]),
    "overflow below is held finite": (
        {0: -3e38},
        row(-3e38, 3),
        [(0, MIN_FLOAT32), (1, 3.0)],
    ),
}


@pytest.mark.parametrize(("bias", "logits", "left"), WORKED.values(), ids=WORKED)
def test_worked_example(bias, logits, left):
    assert table(run({"logit_bias": bias}, logits)) == left
    assert table(run({"logit_bias": {"bias": bias}}, logits)) == left


@given(rows(300), st.data())
def test_brute_force(logits, data):
    ids = st.integers(0, logits.size - 1)
    bias = data.draw(st.dictionaries(ids, st.floats(-50, 50) | st.just(NEG), max_size=8))
    expected = []
    for i, value in enumerate(logits.tolist()):
        if bias.get(i) != NEG:
            expected.append((i, float(np.float32(value) + np.float32(bias.get(i, 0.0)))))
    assume(expected)
    assert table(run({"logit_bias": bias}, logits)) == expected


@given(rows(LARGEST), st.dictionaries(st.integers(0, 4999), NUMBERS, max_size=8))
def test_equals_llama_cpp(logits, bias):
    bias = {token % logits.size: value for token, value in bias.items()}
    ours, theirs = run({"logit_bias": bias}, logits), native([{"logit_bias": {"bias": bias}}], logits)
    assert ours.ids.tolist() == theirs.ids.tolist()
    agree(ours, theirs)


def test_a_ban_drops_the_row_that_llama_cpp_sets_to_minus_inf():
    logits = row(1, 3, 2)
    assert table(run({"logit_bias": {1: NEG}}, logits)) == [(0, 1.0), (2, 2.0)]
    theirs = native([{"logit_bias": {"bias": {1: NEG}}}], logits)
    assert theirs.ids.tolist() == [0, 1, 2]
    assert theirs.logits.tolist() == [1.0, NEG, 2.0]


def test_after_a_sorting_step_rows_count_as_unsorted_where_llama_cpp_holds_them_sorted():
    # After the bias token 1, at the end of the rows, is the most likely one. llama.cpp sums the masses in the
    # old order, and so needs all three to reach p; ours sorts again.
    steps = [{"top_k": {"k": 3}}, {"logit_bias": {"bias": {1: 9.0}}}, {"top_p": {"p": 0.5}}]
    logits = row(4, 0, 2)
    left = build(steps).apply(logits)
    assert table(left) == [(1, 9.0)]
    theirs = native(steps, logits)
    assert theirs.ids.tolist() == [0, 2, 1], "llama.cpp sorts again: say so in the docstring"


VOCABULARY_REFUSALS = [
    ({"ab": 1}, "chain[0].logit_bias.bias: 'ab' is 2 tokens [97, 98]; give one token, or its id"),
    ({"": 1}, "chain[0].logit_bias.bias: '' is 0 tokens []; give one token, or its id"),
    ({"a": 1, 97: 2}, "chain[0].logit_bias.bias: 97 is token 97, which another key names, too"),
]


@pytest.mark.parametrize(("bias", "message"), VOCABULARY_REFUSALS)
def test_refusal_of_a_text(bias, message):
    with pytest.raises(SamplingError) as caught:
        build([{"logit_bias": bias}], vocab=FakeVocabulary())
    assert str(caught.value) == message
