from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.samplers.tokens import TextCompletions, TokenBytesIndex

PIECES = [b"a", b"b", b"ab", b"ba", b"cab", b"bc", b"c", b"", b"bcab"]

# text, end of what was written, pieces that would complete the text
WORKED = {
    "nothing was written": (b"ab", b"", []),
    "its first byte was written": (b"ab", b"ca", [b"b", b"ba", b"bc", b"bcab"]),
    "something else was written": (b"ab", b"cb", []),
    "its first two bytes were written": (b"abc", b"ab", [b"c", b"cab"]),
    "its first byte, and the rest in one": (b"abc", b"ba", [b"bc", b"bcab"]),
    "two beginnings in one token": (b"aab", b"aa", [b"b", b"ba", b"bc", b"bcab", b"ab"]),
    "it overlaps itself": (b"aba", b"ab", [b"a", b"ab"]),
    "and begins again within itself": (b"aba", b"aba", [b"ba"]),
    "one byte has no beginning": (b"a", b"aaa", []),
    "no piece is long enough": (b"aaaa", b"a", []),
    "what was written is shorter": (b"abc", b"b", []),
}


def completing(overlaps, tail):
    return [int(token) for ids in overlaps.completing(tail) for token in ids]


@pytest.mark.parametrize(("text", "tail", "pieces"), WORKED.values(), ids=WORKED)
def test_worked_example(text, tail, pieces):
    found = completing(TextCompletions(text, TokenBytesIndex(PIECES)), tail)
    assert sorted(PIECES[token] for token in found) == sorted(pieces)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (b"ab", [b"ab", b"cab", b"bcab"]),
        (b"c", [b"cab", b"bc", b"c", b"bcab"]),
        (b"abc", []),
        (b"bcab", [b"bcab"]),
    ],
)
def test_tokens_that_contain_all_of_it(text, pieces):
    overlaps = TextCompletions(text, TokenBytesIndex(PIECES))
    assert overlaps.text == text
    assert [PIECES[token] for token in overlaps.single_tokens] == pieces


def begins_before_and_ends_within(text, tail, piece):
    """Does the text stand across the seam between the two, with at least one byte on each side?"""
    joined = tail + piece
    for start in range(len(tail)):
        if start + len(text) > len(tail) and joined[start : start + len(text)] == text:
            return True
    return False


TEXT = st.binary(min_size=1, max_size=6).map(lambda data: bytes(b"ab\xc3\xff"[byte % 4] for byte in data))
ANY = st.just(b"") | TEXT


@given(TEXT, st.lists(ANY, max_size=12), st.lists(ANY, max_size=6))
def test_brute_force(text, pieces, written):
    tail = b"".join(written)
    overlaps = TextCompletions(text, TokenBytesIndex(pieces))
    assert overlaps.single_tokens == [token for token, piece in enumerate(pieces) if piece.count(text)]
    across = [i for i, piece in enumerate(pieces) if begins_before_and_ends_within(text, tail, piece)]
    assert sorted(set(completing(overlaps, tail))) == across
    # Of what was written before, no more than the text's length is needed.
    assert sorted(set(completing(overlaps, tail[-len(text) :]))) == across


def test_a_large_vocabulary():
    pieces = [i.to_bytes(3, "big") for i in range(200_000)]
    text = b"\x01\x02\x03\x04"
    overlaps = TextCompletions(text, TokenBytesIndex(pieces))
    for tail in (b"", b"\x01", b"\x01\x02", b"\x01\x02\x03", b"\x02"):
        across = [i for i, piece in enumerate(pieces) if begins_before_and_ends_within(text, tail, piece)]
        assert sorted(set(completing(overlaps, tail))) == across


def test_many_texts_cost_one_arrangement_of_the_vocabulary():
    known = TokenBytesIndex([i.to_bytes(3, "big") for i in range(49_152)])
    began = perf_counter()
    for number in range(300):
        TextCompletions(number.to_bytes(2, "big") + b"banned", known)
    assert perf_counter() - began < 1  # 30 ms where it was measured; 5 s by a scan for each


def test_no_pieces():
    assert TextCompletions(b"ab", TokenBytesIndex([])).single_tokens == []
    assert completing(TextCompletions(b"ab", TokenBytesIndex([])), b"a") == []


def test_ids_may_index_a_table():
    (ids,) = TextCompletions(b"ab", TokenBytesIndex(PIECES)).completing(b"a")
    table = np.zeros(len(PIECES), dtype=np.bool_)
    table[ids] = True
    assert table.sum() == len(ids) == 4
