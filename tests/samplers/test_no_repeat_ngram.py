import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from logitsmith.samplers import build

from .rows import NEG, NORMAL, row, rows, run, table, within

LOGITS = row(1, 4, -4, 0, 2)

# n, logits, history, ids that are left
WORKED = {
    "no history": (2, LOGITS, [], [0, 1, 2, 3, 4]),
    "a bigram": (2, LOGITS, [1, 2, 3, 1], [0, 1, 3, 4]),
    "two bigrams": (2, LOGITS, [1, 2, 1, 3, 1], [0, 1, 4]),
    "a token after itself": (2, LOGITS, [1, 1], [0, 2, 3, 4]),
    "the last token was not seen before": (2, LOGITS, [1, 2, 3], [0, 1, 2, 3, 4]),
    "a trigram": (3, LOGITS, [1, 2, 3, 1, 2], [0, 1, 2, 4]),
    "half a trigram": (3, LOGITS, [1, 2, 3, 4, 2], [0, 1, 2, 3, 4]),
    "a trigram that overlaps itself": (3, LOGITS, [1, 1, 1], [0, 2, 3, 4]),
    "too short for an n-gram": (3, LOGITS, [1, 1], [0, 1, 2, 3, 4]),
    "n = 1 is every token seen": (1, LOGITS, [1, 3, 3], [0, 2, 4]),
    "n longer than the history": (1000, LOGITS, [1, 3, 3], [0, 1, 2, 3, 4]),
    "every candidate would go": (1, LOGITS, [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
    "all but one would go": (1, LOGITS, [0, 1, 2, 4], [3]),
    "all but -inf would go": (1, row(1, NEG, 2), [0, 2], [0, 1, 2]),
    "one candidate": (1, row(1), [0], [0]),
}


@pytest.mark.parametrize("split", [0, 2, 99], ids=["output", "both", "prompt"])
@pytest.mark.parametrize(("n", "logits", "history", "ids"), WORKED.values(), ids=WORKED)
def test_worked_example(n, logits, history, ids, split):
    left = run({"no_repeat_ngram": n}, logits, history[:split], history[split:])
    assert table(left) == [(i, float(logits[i])) for i in ids]


def repeats(history, n):
    """The tokens with which the end of the history would be an n-gram that stands in it."""
    found = set()
    for start in range(len(history) - n + 1):
        if history[start : start + n - 1] == history[len(history) - n + 1 :]:
            found.add(history[start + n - 1])
    return found


def kept(logits, history, n):
    banned = repeats(history, n)
    left = [i for i in range(logits.size) if i not in banned]
    return left if any(logits[i] > NEG for i in left) else list(range(logits.size))


# Few tokens, so that they repeat.
HISTORY = st.integers(0, 5).flatmap(lambda last: st.lists(st.integers(0, last), max_size=40))
LENGTH = st.integers(1, 6)


@given(rows(300), LENGTH, HISTORY, HISTORY)
@example(NORMAL, 2, [199_999, 7, 77] * 2, [8, 199_999])
def test_brute_force(logits, n, prompt, output):
    prompt, output = within(prompt, logits), within(output, logits)
    left = run({"no_repeat_ngram": n}, logits, prompt, output)
    assert table(left) == [(i, float(logits[i])) for i in kept(logits, prompt + output, n)]


@pytest.mark.parametrize(("n", "tokens"), [(1, 4000), (2, 100), (3, 20), (4, 10), (20, 1)])
def test_a_history_of_32768_tokens(n, tokens):
    history = np.random.default_rng(n).integers(0, tokens, 32_768).tolist()
    logits = row(*range(4001))
    chain = build([{"no_repeat_ngram": n}])
    chain.reset(history[:-50])
    for count in range(32_718, 32_768):
        chain.accept(history[count])
    left = chain.apply(logits).ids.tolist()
    assert left == kept(logits, history, n)
    assert 1 <= len(left) < logits.size
