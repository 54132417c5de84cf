import pytest
from hypothesis import given
from hypothesis import strategies as st
from logitsmith.samplers.repeats import Repeats, common_suffixes

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
    assert common_suffixes(letters(text)).tolist() == lengths


def common(tokens, place):
    """How many tokens up to ``place`` are the same as the last ones, one after the other."""
    length = 0
    while length <= place and tokens[place - length] == tokens[-1 - length]:
        length += 1
    return length


alphabets = st.sampled_from(["a", "ab", "ab", "abc", "abcdefgh"])
histories = alphabets.flatmap(lambda alphabet: st.text(alphabet, max_size=60)).map(letters)


@given(histories)
def test_common_suffixes_by_brute_force(tokens):
    expected = [common(tokens, place) for place in range(len(tokens) - 1)] + [0] * bool(tokens)
    assert common_suffixes(tokens).tolist() == expected


@pytest.mark.parametrize("period", [1, 2, 3, 1000])
def test_long_repetitions(period):
    size = 32_768
    expected = [place + 1 if (size - 1 - place) % period == 0 else 0 for place in range(size - 1)] + [0]
    assert common_suffixes([place % period for place in range(size)]).tolist() == expected


# text, window, limit, least, the letters that would carry on a repetition, with its length so far
FOLLOWERS = {
    "one": ("abcab", 5, 9, 1, [("c", 2)]),
    "each place by itself": ("abcab", 5, 9, 0, [("b", 0), ("c", 2), ("a", 0), ("b", 0)]),
    "two of different length": ("abcxbcyabc", 10, 9, 2, [("x", 3), ("y", 2)]),
    "too short": ("abcxbcyabc", 10, 9, 3, [("x", 3)]),
    "the same letter twice": ("abxabxab", 8, 9, 1, [("x", 2), ("x", 5)]),
    "the limit": ("abcxbcyabc", 10, 2, 2, [("x", 2), ("y", 2)]),
    "the limit is 0": ("aaa", 3, 0, 0, [("a", 0), ("a", 0)]),
    "the limit is too short": ("abcxbcyabc", 10, 1, 2, []),
    "the window cuts a repetition": ("abcxabc", 6, 9, 1, [("x", 2)]),
    "and leaves it out": ("abcxabc", 4, 9, 1, []),
    "an overlap": ("aaaa", 4, 9, 2, [("a", 2), ("a", 3)]),
    "a window of one": ("aaaa", 1, 9, 0, []),
    "no history": ("", 0, 9, 0, []),
}


def pairs(repeats, window, limit, least):
    tokens, lengths = repeats.followers(window, limit, least)
    return list(zip(tokens.tolist(), lengths.tolist(), strict=True))


@pytest.mark.parametrize(("text", "window", "limit", "least", "expected"), FOLLOWERS.values(), ids=FOLLOWERS)
def test_followers(text, window, limit, least, expected):
    assert pairs(Repeats(letters(text)), window, limit, least) == [(ord(letter), n) for letter, n in expected]


def followers(tokens, window, limit, least):
    recent = tokens[len(tokens) - window :]
    found = [(recent[place + 1], min(common(recent, place), limit)) for place in range(window - 1)]
    return [(token, length) for token, length in found if length >= least]


LEAST = st.integers(0, 4)
LIMIT = st.integers(0, 5) | st.just(1000)


@given(histories, st.data(), LIMIT, LEAST)
def test_followers_by_brute_force(tokens, data, limit, least):
    window = data.draw(st.integers(0, len(tokens)))
    assert pairs(Repeats(tokens), window, limit, least) == followers(tokens, window, limit, least)


@given(histories, histories, st.lists(st.booleans(), max_size=60), LIMIT, LEAST, st.data())
def test_adding_equals_searching_anew(prompt, output, asked, limit, least, data):
    """``asked``: after which tokens there is a question, which is what starts the bookkeeping."""
    repeats, tokens = Repeats(prompt), list(prompt)
    for token, ask in zip(output, asked + [True] * len(output), strict=False):
        repeats.add(token)
        tokens.append(token)
        assert len(repeats) == len(tokens)
        if ask:
            window = data.draw(st.integers(0, len(tokens)))
            assert pairs(repeats, window, limit, least) == followers(tokens, window, limit, least)
            assert repeats.tail(window).tolist() == tokens[len(tokens) - window :]


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("prompt", [0, 1, 300])
def test_there_is_room_for_many(prompt, asked):
    tokens = [place % 7 for place in range(prompt)]
    repeats = Repeats(tokens)
    for place in range(1500):
        if asked:
            repeats.followers(len(tokens), 9, 1)
        repeats.add(place % 5)
        tokens.append(place % 5)
    assert repeats.tail(len(tokens)).tolist() == tokens
    assert pairs(repeats, len(tokens), 99, 3) == followers(tokens, len(tokens), 99, 3)


def test_a_long_history_of_one_token():
    repeats = Repeats([7] * 32_768)
    for size in (32_768, 32_769):
        tokens, lengths = repeats.followers(size, size, 1)
        assert set(tokens.tolist()) == {7}
        assert lengths.tolist() == list(range(1, size))
        repeats.add(7)
    repeats.add(8)
    assert pairs(repeats, len(repeats), 99, 1) == []


def test_the_tokens_that_came_in_are_not_kept():
    tokens = [1, 2, 1]
    repeats = Repeats(tokens)
    tokens[1] = 9
    assert pairs(repeats, 3, 9, 1) == [(2, 1)]
