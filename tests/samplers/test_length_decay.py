import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import (
    MAX_FLOAT32,
    MIN_FLOAT32,
    NEG,
    NORMAL,
    FakeVocabulary,
    row,
    rows,
    run,
    vocabulary_with_ends as with_ends,
)

# factor, start, number of tokens in the output, logits, end tokens, logits afterwards
WORKED = {
    "at the start": (2.0, 0, 0, row(1, 2, 3), [2], [1, 2, 3]),
    "one token": (2.0, 0, 1, row(1, 2, 3), [2], [1, 2, 6]),
    "two tokens": (2.0, 0, 2, row(1, 2, 3), [2], [1, 2, 12]),
    "exactly start tokens": (2.0, 2, 2, row(1, 2, 3), [2], [1, 2, 3]),
    "one more than start": (2.0, 2, 3, row(1, 2, 3), [2], [1, 2, 6]),
    "a negative logit is raised": (2.0, 0, 1, row(1, 2, -3), [2], [1, 2, 0]),
    "a negative logit is raised above 0": (2.0, 0, 2, row(1, 2, -3), [2], [1, 2, 6]),
    "below 1 a logit is lowered": (0.5, 0, 1, row(1, 2, 4), [2], [1, 2, 2]),
    "below 1 a negative logit is lowered": (0.5, 0, 1, row(1, 2, -4), [2], [1, 2, -6]),
    "below 1, many tokens": (0.5, 0, 5000, row(4, -4), [0, 1], [0, -8]),
    "0 stays": (2.0, 0, 9, row(1, 0), [1], [1, 0]),
    "0 stays, however long": (2.0, 0, 5000, row(1, 0), [1], [1, 0]),
    "each end token from its own logit": (2.0, 0, 1, row(1, 2, -3, 5), [1, 2], [1, 4, 0, 5]),
    "-inf stays": (2.0, 0, 1, row(1, NEG, 3), [1, 2], [1, NEG, 6]),
    "-inf stays below 1": (0.5, 0, 1, row(1, NEG, 4), [1, 2], [1, NEG, 2]),
    "only -inf": (2.0, 0, 1, row(1, NEG), [1], [1, NEG]),
    "no end token": (2.0, 0, 1, row(1, 2), [], [1, 2]),
    "all end tokens": (2.0, 0, 1, row(1, 2), [0, 1], [2, 4]),
    "an overflow": (2.0, 0, 5000, row(1, 2, -2), [1, 2], [1, MAX_FLOAT32, MAX_FLOAT32]),
    "an overflow downward": (0.5, 0, 5000, row(1, MIN_FLOAT32), [1], [1, MIN_FLOAT32]),
}


def make(factor, start, *eog, size=3):
    return build([{"length_decay": {"factor": factor, "start": start}}], vocab=with_ends(size, *eog))


@pytest.mark.parametrize(("factor", "start", "made", "logits", "eog", "after"), WORKED.values(), ids=WORKED)
def test_worked_example(factor, start, made, logits, eog, after):
    chain = make(factor, start, *eog, size=logits.size)
    chain.reset([0] * 7)  # the prompt does not count
    for _ in range(made):
        chain.accept(0)
    left = chain.apply(logits)
    assert left.ids.tolist() == list(range(logits.size))
    assert left.logits.tolist() == pytest.approx(after, rel=1e-6)


@given(rows(300), st.floats(0.5, 1.5), st.integers(0, 6), st.integers(0, 9))
@example(NORMAL, 1.25, 0, 2)
def test_brute_force(logits, factor, start, made):
    """One token at a time, in float64."""
    expected = logits.astype(np.float64)
    for token in FakeVocabulary(logits.size).eog:
        growth = 1.0
        for _ in range(made - start):
            growth *= factor
        if logits[token] > NEG:
            expected[token] += abs(expected[token]) * (growth - 1)
    left = run({"length_decay": {"factor": factor, "start": start}}, logits, [0] * 4, [0] * made)
    assert left.ids.tolist() == list(range(logits.size))
    scale = np.abs(logits[logits > NEG]).max()
    clamped = np.where(logits > NEG, expected.clip(MIN_FLOAT32, MAX_FLOAT32), NEG)
    np.testing.assert_allclose(left.logits, clamped, rtol=1e-5, atol=1e-6 * scale)


def test_the_text_ends_sooner_and_reset_starts_again():
    chain = build("length_decay(factor=1.5, start=3) > greedy", vocab=with_ends(3, 2))
    logits = row(9, 0, 1)
    for _ in range(2):
        chain.reset([0, 1])
        made = 0
        while chain.sample(logits) != 2:
            chain.accept(0)
            made += 1
        assert made == 9  # 1.5^6 = 11.4 is the first power above 9
