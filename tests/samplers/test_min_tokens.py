import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import NORMAL, FakeVocabulary, row, rows, run, table, vocabulary_with_ends

LOGITS = row(1, 3, 2)

# n, end tokens, prompt, output, ids that are left
WORKED = {
    "the first token": (2, [2], [], [], [0, 1]),
    "one before the last": (2, [2], [], [0], [0, 1]),
    "exactly n were made": (2, [2], [], [0, 1], [0, 1, 2]),
    "more were made": (2, [2], [], [0, 1, 1], [0, 1, 2]),
    "the prompt does not count": (2, [2], [0, 1, 0], [0], [0, 1]),
    "an end token counts as well": (2, [2], [], [2, 2], [0, 1, 2]),
    "several end tokens": (1, [0, 2], [], [], [1]),
    "no end token": (1, [], [], [], [0, 1, 2]),
    "never an end": (10**30, [2], [], [0] * 50, [0, 1]),
}


@pytest.mark.parametrize(("n", "eog", "prompt", "output", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(n, eog, prompt, output, ids):
    chain = build([{"min_tokens": n}], vocab=vocabulary_with_ends(3, *eog))
    chain.reset(prompt)
    for token in output:
        chain.accept(token)
    assert table(chain.apply(LOGITS)) == [(i, float(LOGITS[i])) for i in ids]


@given(rows(300).filter(lambda logits: logits.size > 1), st.integers(0, 30), st.integers(0, 30))
@example(NORMAL, 2, 1)
@example(NORMAL, 2, 2)
def test_brute_force(logits, n, made):
    every = list(enumerate(logits.tolist()))
    eog = FakeVocabulary(logits.size).eog
    expected = [(i, value) for i, value in every if i not in eog or made >= n]
    assert table(run({"min_tokens": n}, logits, [0] * 7, [0] * made)) == expected
