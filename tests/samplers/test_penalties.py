import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import build

from .rows import (
    LARGEST,
    NEG,
    FakeVocabulary,
    agree,
    make_row,
    native,
    row,
    rows,
    run,
    table,
    within,
)

# Tokens 0..4, of which 1 (logit 4), 2 (logit -4) and 3 (logit 0) occur in the histories below.
LOGITS = row(1, 4, -4, 0, NEG)

# parameters, prompt, output, logits of tokens 0..4 afterwards
WORKED = {
    "repeat divides and multiplies": ({"repeat": 2.0}, [1, 2, 3, 4], [], [1, 2, -8, 0, NEG]),
    "repeat, once a token": ({"repeat": 2.0}, [1, 1], [1], [1, 2, -4, 0, NEG]),
    "repeat below one rewards": ({"repeat": 0.5}, [1, 2], [], [1, 8, -2, 0, NEG]),
    "frequency counts": ({"frequency": 0.5}, [1, 2], [1, 1], [1, 2.5, -4.5, 0, NEG]),
    "presence does not": ({"presence": 0.5}, [1, 2], [1, 1], [1, 3.5, -4.5, 0, NEG]),
    "repeat comes first": (
        {"repeat": 2.0, "frequency": 1.0, "presence": 0.5},
        [1],
        [1],
        [1, -0.5, -4, 0, NEG],
    ),
    "negative rewards": ({"frequency": -1.0}, [1, 1], [], [1, 6, -4, 0, NEG]),
    "the window ends": ({"repeat": 2.0, "last_n": 2}, [1, 2], [3, 3], [1, 4, -4, 0, NEG]),
    "the window is exactly long enough": ({"repeat": 2.0, "last_n": 2}, [1, 2], [3], [1, 4, -8, 0, NEG]),
    "the whole history": ({"repeat": 2.0, "last_n": -1}, [1] + [3] * 500, [2], [1, 2, -8, 0, NEG]),
    "no history": ({"repeat": 2.0, "frequency": 1.0}, [], [], [1, 4, -4, 0, NEG]),
    "scope output": (
        {"repeat": 2.0, "frequency": 0.5, "presence": 0.25, "scope": "output"},
        [1, 1, 2],
        [1],
        [1, 1.25, -8, 0, NEG],
    ),
    "scope output, prompt leaves the window": (
        {"frequency": 1.0, "scope": "output", "last_n": 2},
        [1, 1],
        [1, 2, 1],
        [1, 3, -5, 0, NEG],
    ),
    "overflow is held finite": (
        {"presence": 3e38, "frequency": 3e38},
        [1],
        [],
        [1, -3.4028235e38, -4, 0, NEG],
    ),
}


@pytest.mark.parametrize(("params", "prompt", "output", "logits"), WORKED.values(), ids=WORKED)
def test_worked_example(params, prompt, output, logits):
    left = run({"penalties": params}, LOGITS, prompt, output)
    assert left.ids.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(left.logits, row(*logits))


def test_newline_may_be_spared():
    logits = make_row("normal", 20, 1)
    newline = FakeVocabulary(20).newline
    left = run({"penalties": {"repeat": 3.0, "penalize_newline": False}}, logits, [newline, 5])
    assert left.logits[newline] == logits[newline]
    assert left.logits[5] != logits[5]


def by_hand(logits, prompt, output, p):
    """Penalties as the docstring has them, one token at a time, in float32."""
    marked = [(token, False) for token in prompt] + [(token, True) for token in output]
    window = marked if p["last_n"] < 0 else marked[max(0, len(marked) - p["last_n"]) :]
    expected = []
    for token, value in enumerate(logits.tolist()):
        new = np.float32(value)
        count = sum(1 for seen, _ in window if seen == token)
        counted = sum(1 for seen, made in window if seen == token and (made or p["scope"] == "all"))
        spared = not p["penalize_newline"] and token == FakeVocabulary(len(logits)).newline
        if count and not spared and new > NEG:
            new = new * np.float32(p["repeat"]) if new <= 0 else new / np.float32(p["repeat"])
            minus = np.float32(counted) * np.float32(p["frequency"])
            if counted:
                minus = minus + np.float32(p["presence"])
            new = new - minus
            new = min(max(new, np.finfo(np.float32).min), np.finfo(np.float32).max)
        expected.append(float(new))
    return expected


NUMBER = st.sampled_from([-1.0, 0.0, 0.5]) | st.floats(-3, 3, width=32)
SETTINGS = st.fixed_dictionaries(
    {
        "repeat": st.sampled_from([1.0, 1.1, 2.0]) | st.floats(0.125, 5, width=32),
        "frequency": NUMBER,
        "presence": NUMBER,
        "last_n": st.integers(1, 30) | st.sampled_from([-1, 64]),
    }
)
ONLY_OURS = st.fixed_dictionaries({"scope": st.sampled_from(["all", "output"]), "penalize_newline": st.booleans()})
HISTORY = st.lists(st.integers(0, 30) | st.integers(0, 4999), max_size=80)


@given(rows(300), SETTINGS, ONLY_OURS, HISTORY, HISTORY)
def test_brute_force(logits, params, ours, prompt, output):
    params = params | ours
    prompt, output = within(prompt, logits), within(output, logits)
    with np.errstate(over="ignore"):
        expected = by_hand(logits, prompt, output, params)
    assert run({"penalties": params}, logits, prompt, output).logits.tolist() == expected


@given(rows(LARGEST), SETTINGS, HISTORY, HISTORY)
def test_equals_llama_cpp(logits, params, prompt, output):
    logits = np.clip(logits, np.float32(-1e37), None)  # llama.cpp lets what overflows become infinite
    logits = np.minimum(logits, np.float32(1e37))
    prompt, output = within(prompt, logits), within(output, logits)
    ours = run({"penalties": params}, logits, prompt, output)
    theirs = native([{"penalties": params}], logits, prompt + output)
    assert ours.ids.tolist() == theirs.ids.tolist()
    agree(ours, theirs)


def test_overflow_is_held_finite_where_llama_cpp_reaches_infinity():
    logits, params = row(1, 3e38), {"repeat": 0.5}
    assert run({"penalties": params}, logits, [1]).logits[1] == np.finfo(np.float32).max
    assert native([{"penalties": params}], logits, [1]).logits[1] == math.inf


def test_a_repeat_that_is_zero_in_float32_divides_without_a_crash():
    left = run({"penalties": {"repeat": 1e-50}}, row(1, 0, -1, NEG), [0, 1, 2, 3])
    assert table(left) == [(0, float(np.finfo(np.float32).max)), (1, 0.0), (2, 0.0), (3, NEG)]


def test_the_vocabulary_may_change_in_size_between_runs():
    chain = build([{"penalties": {"repeat": 2.0}}])
    chain.reset([1])
    chain.apply(row(1, 4))
    chain.reset([3])
    assert chain.apply(row(1, 4, 3, 2)).logits.tolist() == [1.0, 4.0, 3.0, 1.0]


def test_a_token_that_leaves_the_window_is_spared_though_the_new_one_stands_in_it():
    chain = build("penalties(presence=1, last_n=2)")
    chain.reset([5, 6])
    logits = np.zeros(8, dtype=np.float32)
    assert chain.apply(logits).logits.tolist() == [0, 0, 0, 0, 0, -1, -1, 0]
    chain.accept(6)
    assert chain.apply(logits).logits.tolist() == [0, 0, 0, 0, 0, 0, -1, 0]
