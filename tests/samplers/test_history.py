import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers import SamplingError
from logitsmith.samplers.tokens import LastPositions, check_tokens, token_table

TOKENS = st.lists(st.integers(0, 40), max_size=80)

# tokens, tokens added, where tokens 0..4 stood last
WORKED = {
    "nothing": ([], [], [-1, -1, -1, -1, -1]),
    "each once": ([3, 0, 4], [], [1, -1, -1, 0, 2]),
    "the last time counts": ([1, 2, 1], [], [-1, 2, 1, -1, -1]),
    "added": ([1, 2], [1, 0], [3, 2, 1, -1, -1]),
    "added to nothing": ([], [4, 4], [-1, -1, -1, -1, 1]),
}


@pytest.mark.parametrize(("tokens", "added", "places"), WORKED.values(), ids=WORKED)
@pytest.mark.parametrize("asked", [True, False], ids=["asked before", "not asked before"])
def test_worked_example(tokens, added, places, asked):
    seen = LastPositions("it", tokens)
    if asked:
        seen.table(5)
    for token in added:
        seen.add(token)
    assert seen.table(5).tolist() == places
    assert len(seen) == len(tokens) + len(added)


def last_places(tokens, size):
    places = [-1] * size
    for place, token in enumerate(tokens):
        places[token] = place
    return places


@given(TOKENS, TOKENS, st.integers(41, 60))
def test_brute_force(before, added, size):
    seen = LastPositions("it", iter(before))
    history = list(before)
    for token in added:
        seen.add(token)
        history.append(token)
        assert seen.table(size).tolist() == last_places(history, size)
        assert len(seen) == len(history)
    # The vocabulary may change in size.
    assert seen.table(size + 7).tolist() == last_places(history, size + 7)
    assert seen.table(size).tolist() == last_places(history, size)


def test_a_long_history_in_a_large_vocabulary():
    tokens = np.random.default_rng(1).integers(0, 200_000, 32_768).tolist()
    seen = LastPositions("it", tokens[:30_000])
    seen.table(200_000)
    for token in tokens[30_000:]:
        seen.add(token)
    assert seen.table(200_000).tolist() == last_places(tokens, 200_000)


@pytest.mark.parametrize("token", [-1, 5, 50_000])
def test_an_id_outside_the_vocabulary(token):
    message = rf"^it: token id {token} in the text is not within 0\.\.4$"
    with pytest.raises(SamplingError, match=message):
        LastPositions("it", [1, token, 2]).table(5)
    seen = LastPositions("it", [1])
    seen.table(5)
    with pytest.raises(SamplingError, match=message):
        seen.add(token)
    # What was refused is not part of the history.
    seen.add(2)
    assert len(seen) == 2
    assert seen.table(5).tolist() == [-1, 0, 1, -1, -1]
    assert seen.table(6).tolist() == [-1, 0, 1, -1, -1, -1]


@given(TOKENS, st.integers(1, 45))
def test_tokens_are_refused_as_soon_as_one_is_outside(tokens, size):
    wrong = [token for token in tokens if token >= size]
    if not wrong:
        check_tokens("it", tokens, size)
        table = token_table("it", tokens, size)
        assert table.dtype == np.bool_
        assert table.tolist() == [token in tokens for token in range(size)]
        return
    for refuse in (check_tokens, token_table):
        with pytest.raises(SamplingError, match=rf"^it: token id \d+ in the text is not within 0\.\.{size - 1}$"):
            refuse("it", tokens, size)


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_a_negative_id_does_not_count_from_the_end(kind):
    for refuse in (check_tokens, token_table):
        with pytest.raises(SamplingError, match=r"^it: token id -1 in the text is not within 0\.\.2$"):
            refuse("it", kind([0, -1]), 3)
    check_tokens("it", kind([]), 3)
    assert token_table("it", kind([]), 3).tolist() == [False] * 3
