import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers.methods.dry import SuffixAutomaton, WindowSuffixMatcher, suffix_match_lengths

# text -> for each place, how many letters up to it are the same as the last ones
WORKED = {
    "": [],
    "a": [0],
    "ab": [0, 0],
    "aa": [1, 0],
    "aaaa": [1, 2, 3, 0],
    "abab": [0, 2, 0, 0],
    "ababa": [1, 0, 3, 0, 0],
    "abcabc": [0, 0, 3, 0, 0, 0],
    "abccbcyabc": [0, 0, 3, 1, 0, 2, 0, 0, 0, 0],
    "aabaabaa": [1, 2, 0, 1, 5, 0, 1, 0],
}


def letters(text):
    return [ord(letter) for letter in text]


@pytest.mark.parametrize(("text", "lengths"), WORKED.items(), ids=WORKED)
def test_common_suffixes(text, lengths):
    assert suffix_match_lengths(letters(text)).tolist() == lengths


def common(tokens, place):
    """Return the number of tokens up to ``place`` that are the same as the last ones, one after the other."""
    length = 0
    while length <= place and tokens[place - length] == tokens[-1 - length]:
        length += 1
    return length


alphabets = st.sampled_from(["a", "ab", "ab", "abc", "abcdefgh"])
histories = alphabets.flatmap(lambda alphabet: st.text(alphabet, max_size=60)).map(letters)


@given(histories)
def test_common_suffixes_by_brute_force(tokens):
    expected = [common(tokens, place) for place in range(len(tokens) - 1)] + [0] * bool(tokens)
    assert suffix_match_lengths(tokens).tolist() == expected


@pytest.mark.parametrize("period", [1, 2, 3, 1000])
def test_long_repetitions(period):
    size = 32_768
    expected = [place + 1 if (size - 1 - place) % period == 0 else 0 for place in range(size - 1)] + [0]
    assert suffix_match_lengths([place % period for place in range(size)]).tolist() == expected


# text, window, limit, least, the letters that would carry on a repetition, with its length so far
FOLLOWERS = {
    "one": ("abcab", 5, 9, 1, {"c": 2}),
    "every token but the first": ("abcab", 5, 9, 0, {"b": 0, "c": 2, "a": 0}),
    "the first, since it comes again": ("abcabca", 7, 9, 0, {"b": 4, "c": 0, "a": 0}),
    "two of different length": ("abcxbcyabc", 10, 9, 2, {"x": 3, "y": 2}),
    "too short": ("abcxbcyabc", 10, 9, 3, {"x": 3}),
    "the same letter twice": ("abxabxab", 8, 9, 1, {"x": 5}),
    "the limit": ("abcxbcyabc", 10, 2, 2, {"x": 2, "y": 2}),
    "the limit is 0": ("aaa", 3, 0, 0, {"a": 0}),
    "the limit is too short": ("abcxbcyabc", 10, 1, 2, {}),
    "the window cuts a repetition": ("abcxabc", 6, 9, 1, {"x": 2}),
    "and leaves it out": ("abcxabc", 4, 9, 1, {}),
    "an overlap": ("aaaa", 4, 9, 2, {"a": 3}),
    "a window of one": ("aaaa", 1, 9, 0, {}),
    "no history": ("", 0, 9, 0, {}),
}


@pytest.mark.parametrize(("text", "window", "limit", "least", "expected"), FOLLOWERS.values(), ids=FOLLOWERS)
def test_followers(text, window, limit, least, expected):
    known = {ord(letter): length for letter, length in expected.items()}
    assert WindowSuffixMatcher(letters(text), window).followers(limit, least) == known
    if window == len(text):
        assert SuffixAutomaton(letters(text)).followers(limit, least) == known


def followers(tokens, limit, least):
    found = {}
    for place, token in enumerate(tokens[1:]):
        length = min(common(tokens, place), limit)
        if length >= least:
            found[token] = max(length, found.get(token, 0))
    return found


LEAST = st.integers(0, 4)
LIMIT = st.integers(0, 5) | st.just(1000)


@given(histories, histories, st.lists(st.booleans(), max_size=60), LIMIT, LEAST, st.integers(0, 80))
def test_followers_by_brute_force(prompt, output, asked, limit, least, window):
    """``asked``: after which tokens there is a question, which is when what is new is taken in."""
    history = list(prompt)
    repeats, automaton = WindowSuffixMatcher(history, window), SuffixAutomaton(history)
    for token, ask in zip(output, asked + [True] * len(output), strict=False):
        history.append(token)
        if ask:
            recent = history[max(len(history) - window, 0) :]
            assert repeats.followers(limit, least) == followers(recent, limit, least)
            assert automaton.followers(limit, least) == followers(history, limit, least)


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("prompt", [0, 1, 300])
@pytest.mark.parametrize("window", [5000, 400])
def test_there_is_room_for_many(prompt, asked, window):
    history = [place % 7 for place in range(prompt)]
    repeats, automaton = WindowSuffixMatcher(history, window), SuffixAutomaton(history)
    for place in range(1500):
        if asked:
            repeats.followers(9, 1)
            automaton.followers(9, 1)
        history.append(place % 5)
    assert repeats.followers(99, 3) == followers(history[-window:], 99, 3)
    assert automaton.followers(99, 3) == followers(history, 99, 3)


@pytest.mark.parametrize("kind", ["window", "all"])
def test_a_long_history_of_one_token(kind):
    history = [7] * 32_768
    repeats = SuffixAutomaton(history) if kind == "all" else WindowSuffixMatcher(history, 40_000)
    for size in (32_768, 32_769):
        assert repeats.followers(size, 1) == {7: size - 1}
        history.append(7)
    history.append(8)
    assert repeats.followers(99, 1) == {}
