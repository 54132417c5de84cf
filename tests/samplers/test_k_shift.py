import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import NEG, NORMAL, TIES, make_row, ranked, row, rows, run, table

LOGITS = row(1, 4, 2, 3)  # from high to low: 1 3 2 0

# k, steps, number of tokens in the output, logits, the token that is left; None: all
WORKED = {
    "the best": (1, 1, 0, LOGITS, 1),
    "the second": (2, 1, 0, LOGITS, 3),
    "the last": (4, 1, 0, LOGITS, 0),
    "one token was written": (2, 1, 1, LOGITS, None),
    "the second of two": (2, 2, 1, LOGITS, 3),
    "two were written": (2, 2, 2, LOGITS, None),
    "fewer than k": (9, 1, 0, LOGITS, 0),
    "far fewer than k": (10**30, 1, 0, LOGITS, 0),
    "fewer than k are finite": (3, 1, 0, row(NEG, 1, NEG, 2), 1),
    "k are finite": (2, 1, 0, row(NEG, 1, NEG, 2), 1),
    "one is finite": (2, 1, 0, row(NEG, 1, NEG), 1),
    "one candidate": (2, 1, 0, row(3), 0),
    "of equal logits the first": (1, 1, 0, row(2, 5, 5), 1),
    "of equal logits the second": (2, 1, 0, row(2, 5, 5), 2),
    "all equal": (3, 1, 0, row(5, 5, 5, 5), 2),
}


@pytest.mark.parametrize(("k", "steps", "made", "logits", "token"), WORKED.values(), ids=WORKED)
def test_worked_example(k, steps, made, logits, token):
    left = run({"k_shift": {"k": k, "steps": steps}}, logits, prompt=[0], output=[0] * made)
    kept = range(logits.size) if token is None else [token]
    assert table(left) == [(i, float(logits[i])) for i in kept]


@given(rows(300), st.integers(1, 40), st.integers(1, 4), st.integers(0, 5))
@example(NORMAL, 5000, 1, 0)
@example(TIES, 200_000, 1, 0)
def test_brute_force(logits, k, steps, made):
    order = [i for i in ranked(logits) if logits[i] > NEG]
    expected = [order[min(k, len(order)) - 1]] if made < steps else list(range(logits.size))
    assert run({"k_shift": {"k": k, "steps": steps}}, logits, output=[0] * made).ids.tolist() == expected


def test_a_text_begins_with_each_token_and_continues_greedily():
    logits = make_row("normal", 300, 5)
    order = ranked(logits)
    for k in (1, 2, 3, 10):
        chain = build(f"k_shift{k} > greedy")
        for _ in range(2):
            chain.reset([4, 5])
            tokens = []
            for _ in range(3):
                tokens.append(chain.sample(logits))
                chain.accept(tokens[-1])
            assert tokens == [order[k - 1], order[0], order[0]]
