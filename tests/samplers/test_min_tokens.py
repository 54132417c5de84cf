import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import SamplingError, build

from .rows import LARGE, NEG, FakeVocabulary, refuses, row, rows, run, table, vocabulary_with_ends

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
def test_brute_force(logits, n, made):
    every = list(enumerate(logits.tolist()))
    eog = FakeVocabulary(logits.size).eog
    expected = [(i, value) for i, value in every if i not in eog or made >= n]
    assert table(run({"min_tokens": n}, logits, [0] * 7, [0] * made)) == expected


@pytest.mark.parametrize("logits", LARGE)
def test_brute_force_on_a_large_vocabulary(logits):
    assert run({"min_tokens": 2}, logits, output=[1]).ids.tolist() == list(range(199_999))
    assert run({"min_tokens": 2}, logits, output=[1, 2]).logits is logits


def test_end_tokens_are_gone_for_exactly_n_tokens_and_reset_starts_again():
    chain = build([{"min_tokens": 5}], seed=1, vocab=vocabulary_with_ends(3, 1, 2))
    runs = []
    for _ in range(3):
        chain.reset([0, 1, 2])
        runs.append([])
        for made in range(10):
            left = chain.apply(LOGITS)
            assert left.ids.tolist() == ([0] if made < 5 else [0, 1, 2])
            runs[-1].append(chain.draw(left))
            chain.accept(runs[-1][-1])
    assert runs[0] == runs[1] == runs[2]


def test_looking_at_the_rows_counts_nothing():
    chain = build([{"min_tokens": 1}], vocab=vocabulary_with_ends(3, 2))
    for _ in range(3):
        chain.sample(LOGITS)
    assert chain.apply(LOGITS).ids.tolist() == [0, 1]


def test_after_a_step_that_reorders():
    left = build("top_k2 > min_tokens5", vocab=vocabulary_with_ends(3, 1)).apply(LOGITS)
    assert table(left) == [(2, 2.0)]
    assert left.is_ordered


def test_only_end_tokens_left():
    chain = build("top_k1 > min_tokens1", vocab=vocabulary_with_ends(3, 1))
    with pytest.raises(SamplingError, match=r"^min_tokens: only end-of-generation tokens are left$"):
        chain.apply(LOGITS)
    chain.accept(0)
    assert chain.apply(LOGITS).ids.tolist() == [1]


def test_only_minus_inf_left():
    with pytest.raises(SamplingError, match=r"^min_tokens: left no finite logit$"):
        build([{"min_tokens": 1}], vocab=vocabulary_with_ends(2, 1)).apply(row(NEG, 3))


@pytest.mark.parametrize("size", [2, 5])
def test_a_vocabulary_of_another_size(size):
    with pytest.raises(SamplingError, match=f"^min_tokens: the row has 3 logits, the vocabulary {size}$"):
        build([{"min_tokens": 1}], vocab=vocabulary_with_ends(size, 1)).apply(LOGITS)


@given(rows(300))
def test_neutral_is_identity(logits):
    assert run({"min_tokens": 0}, logits).logits is logits
    # A step that is off needs no vocabulary either.
    assert [step.about.name for step in build([{"min_tokens": 0}]).steps] == ["dist"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "chain[0].min_tokens.n: it needs a vocabulary: build the chain with vocab="),
        (-1, "chain[0].min_tokens.n: -1 is not ≥ 0"),
        (2.5, "chain[0].min_tokens.n: 2.5 is not an integer (≥ 0)"),
        (True, "chain[0].min_tokens.n: true is not an integer (≥ 0)"),
        ({"min": 2}, "chain[0].min_tokens: unknown parameter 'min'; known: n"),
    ],
)
def test_refusal(value, message):
    refuses({"min_tokens": value}, message)
