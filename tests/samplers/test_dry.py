import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import build, make_sampler

from ..oracle.native import NativeChain
from .rows import (
    LARGEST,
    NEG,
    agree,
    make_row,
    native,
    row,
    rows,
    run,
    table,
    within,
)

# The tokens of the fake vocabulary are bytes, so that a text is a history.
ZEROS = row(*[0.0] * 128)
PLAIN = {"multiplier": 1.0, "base": 2.0, "allowed_length": 2, "breakers": []}


def penalized(params, text, output=""):
    """The letters whose logit is lowered after a text, and by how much."""
    left = run({"dry": PLAIN | params}, ZEROS, text.encode(), output.encode())
    assert left.is_full_vocabulary
    return {chr(i): -value for i, value in table(left) if value}


# parameters, text, penalties; 2^(n - 2) for n tokens repeated so far
WORKED = {
    "two": ({}, "abcxab", {"c": 1}),
    "three": ({}, "abcxabc", {"x": 2}),
    "one is allowed": ({}, "abca", {}),
    "nothing repeated": ({}, "abcd", {}),
    "the longest of two": ({}, "abcxbcxyabc", {"x": 2}),
    "one for each": ({}, "abcxbcyabc", {"x": 2, "y": 1}),
    "an overlap": ({}, "aaaa", {"a": 2}),
    "allowed length 1": ({"allowed_length": 1}, "abca", {"b": 1}),
    "allowed length 0 takes every token but the first": ({"allowed_length": 0}, "abca", {"a": 1, "b": 2, "c": 1}),
    "base 1 does not grow": ({"base": 1.0}, "abcdxabcd", {"x": 1}),
    "base 3": ({"base": 3.0}, "abcdxabcd", {"x": 9}),
    "multiplier": ({"multiplier": 0.75}, "abcxabc", {"x": 1.5}),
    "integers": ({"multiplier": 2, "base": 2}, "abcxabc", {"x": 4}),
    "the window holds it": ({"last_n": 6}, "zabcxab", {"c": 1}),
    "the window cuts it": ({"last_n": 6}, "abcxabc", {"x": 1}),
    "the window leaves it out": ({"last_n": 4}, "abcxabc", {}),
    "the window is as short as what is allowed": ({"last_n": 2, "allowed_length": 2}, "aaaa", {}),
    "no history": ({}, "", {}),
    "a history as short as what is allowed": ({}, "aa", {}),
    "a breaker stops it": ({"breakers": [":"]}, "a:bcxa:bc", {"x": 1}),
    "just behind a breaker": ({"breakers": [":"]}, "abc:xabc:", {}),
    "a breaker further back": ({"breakers": [":"]}, ":abcxabc", {"x": 2}),
    "a breaker is never penalized": ({"breakers": [":"]}, "abc:abc", {}),
    "a breaker of two letters may be": ({"breakers": [":y"]}, "abc:abc", {":": 2}),
    "and stops it as a whole": ({"breakers": [":y"]}, "a:ycdxa:ycd", {"x": 1}),
    "but not in part": ({"breakers": [":y"]}, "a:cdxa:cd", {"x": 4}),
    "the last of several": ({"breakers": ["\n", ":", "*"]}, "a:b*cdexa:b*cde", {"x": 2}),
    "an empty one is none": ({"breakers": [""]}, "abc:xabc:", {"x": 4}),
    "overlap: both letters": ({"breakers": ["ab"], "match": "overlap"}, "xbcyxbc", {"y": 2}),
    "last_token: the last one": ({"breakers": ["ab"], "match": "last_token"}, "xbcyxbc", {}),
    "last_token is never penalized": ({"breakers": ["ab"], "match": "last_token"}, "xcbxc", {}),
}


@pytest.mark.parametrize(("params", "text", "expected"), WORKED.values(), ids=WORKED)
def test_worked_example(params, text, expected):
    assert penalized(params, text) == expected


def test_the_default_breakers():
    for breaker in '\n:"*':
        params = {"dry": {"multiplier": 1.0, "base": 2.0}}
        left = run(params, ZEROS, f"a{breaker}bcxa{breaker}bc".encode())
        assert left.logits[ord("x")] == -1


def by_hand(history, p):
    """Penalties as the docstring has them, place by place; breakers are looked for in the text."""
    window = history if p["last_n"] < 0 else history[max(0, len(history) - p["last_n"]) :]
    size, allowed = len(window), p["allowed_length"]
    if size <= allowed or not p["multiplier"] or p["base"] < 1:
        return {}
    limit = next(
        (
            size - start - max(len(text) for text in p["breakers"] if window[start:].startswith(text))
            for start in reversed(range(size))
            if any(window[start:].startswith(text) for text in p["breakers"])
        ),
        size,
    )
    longest = {}
    for place in range(size - 1):
        n = 0
        while n <= place and n < limit and window[place - n] == window[size - 1 - n]:
            n += 1
        if n >= allowed and limit >= allowed and window[place + 1] not in p["breakers"]:
            longest[window[place + 1]] = max(n, longest.get(window[place + 1], 0))
    base = float(np.float32(p["base"]))
    return {
        ord(letter): np.float32(float(np.float32(p["multiplier"])) * base ** (n - allowed))
        for letter, n in longest.items()
    }


SETTINGS = st.fixed_dictionaries(
    {
        "multiplier": st.sampled_from([0.0, 0.8, 1.0]) | st.floats(0, 5),
        "base": st.sampled_from([1.0, 1.75, 0.5]) | st.floats(0.9, 3),
        "allowed_length": st.integers(0, 4),
        "last_n": st.integers(0, 20) | st.sampled_from([-1, 64]),
    }
)
TEXTS = st.sampled_from(["ab", "abc", "abc:", "abcdefgh:\n"]).flatmap(
    lambda letters: st.text(letters, max_size=50)
)
BREAKERS = st.lists(st.sampled_from([":", "\n", "a", "ab", "bc:", "ba"]), max_size=3)


@given(TEXTS, st.integers(0, 50), SETTINGS, BREAKERS)
def test_brute_force(text, prompt, params, breakers):
    params = params | {"breakers": breakers}
    logits = make_row("normal", 128, 1)
    expected = logits.copy()
    for letter, penalty in by_hand(text, params).items():
        expected[letter] -= penalty
    left = run({"dry": params}, logits, text[:prompt].encode(), text[prompt:].encode())
    np.testing.assert_array_equal(left.logits, expected)


HISTORY = st.lists(st.integers(0, 2), max_size=60) | st.lists(st.integers(0, 300), max_size=60)


@given(rows(LARGEST), SETTINGS, HISTORY)
def test_equals_llama_cpp(logits, params, history):
    params, history = params | {"breakers": []}, within(history, logits)
    ours = run({"dry": params}, logits, history)
    theirs = native([{"dry": params}], logits, history)
    assert ours.ids.tolist() == theirs.ids.tolist()
    agree(ours, theirs)


@given(rows(300), SETTINGS, HISTORY, HISTORY)
def test_equals_llama_cpp_token_by_token(logits, params, prompt, output):
    params, prompt, output = params | {"breakers": []}, within(prompt, logits), within(output, logits)
    ours = build([{"dry": params}])
    ours.reset(prompt)
    with NativeChain([{"dry": params}], vocabulary=logits.size) as theirs:
        theirs.accept(*prompt)
        for token in output:
            np.testing.assert_array_equal(ours.apply(logits).logits, theirs.apply(logits).logits)
            ours.accept(token)
            theirs.accept(token)


@pytest.mark.parametrize("base", [1.0000005, 1.0001, 1.75, 2.0, 1e30])
def test_the_exponent_is_held_where_float32_would_overflow(base):
    params = {"multiplier": 1e-30, "base": base, "allowed_length": 1, "breakers": []}
    ours = run({"dry": params}, ZEROS, b"a" * 500)
    theirs = native([{"dry": params}], ZEROS, b"a" * 500)
    np.testing.assert_array_equal(ours.logits, theirs.logits)
    # 499 are repeated; ln of the largest float32 is 88.7228, and 88.7228 / ln 2 is 128 in float32.
    exponent = min(498, int(np.float32(88.7228391) / np.float32(math.log(np.float32(base)))))
    assert ours.logits[ord("a")] == pytest.approx(-1e-30 * float(np.float32(base)) ** exponent, rel=1e-6)


def test_overflow_is_held_finite_where_llama_cpp_reaches_infinity():
    params, lowest = PLAIN | {"multiplier": 3e38}, np.finfo(np.float32).min
    assert run({"dry": params}, ZEROS, b"abcxabc").logits[ord("x")] == lowest
    assert native([{"dry": params}], ZEROS, b"abcxabc").logits[ord("x")] == NEG


def test_minus_inf_stays():
    logits = ZEROS.copy()
    logits[ord("x")] = NEG
    assert run({"dry": PLAIN}, logits, b"abcxabc").logits[ord("x")] == NEG


def test_a_long_history_of_one_token():
    chain = build([{"dry": PLAIN | {"base": 1.0}}])
    chain.reset([7] * 32_768)
    for _ in range(3):
        assert table(chain.apply(row(*[0.0] * 8)))[6:] == [(6, 0.0), (7, -1.0)]
        chain.accept(7)


@pytest.mark.parametrize(("value", "breakers"), [(".", ["."]), (None, []), ("", [""]), ([], [])])
def test_one_breaker_stands_for_a_list_and_nothing_for_none(value, breakers):
    assert make_sampler({"dry": {"breakers": value}}, "step").breakers == breakers
