"""Text from the bytes of tokens: whole characters, and stop strings."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from logitsmith.engine.text_stream import TextStream


def stream(pieces, stops=()):
    """The text released by each piece and at the end, and the stop string that appeared."""
    text = TextStream(stops)
    out = [text.push(piece) for piece in pieces]
    return [*out, text.finish()], text.matched_stop


CASES = {
    "plain": ([b"a", b"b"], (), ["a", "b", ""], None),
    "a character over two tokens": ([b"\xc3", b"\xa9!"], (), ["", "é!", ""], None),
    "an emoji over four tokens": ([b"\xf0", b"\x9f", b"\x98", b"\x80"], (), ["", "", "", "😀", ""], None),
    "a character that never ends": ([b"a\xc3"], (), ["a", "\ufffd"], None),
    "bytes that are not UTF-8": ([b"a\xffb"], (), ["a\ufffdb", ""], None),
    "stop in one token": ([b"a", b"STOP"], ("STOP",), ["a", "", ""], "STOP"),
    "stop over tokens": ([b"xS", b"TO", b"Py"], ("STOP",), ["x", "", "", ""], "STOP"),
    "text before the stop is kept": ([b"ab STOP cd"], ("STOP",), ["ab ", ""], "STOP"),
    "held back, then released": ([b"ST", b"AR"], ("STOP",), ["", "STAR", ""], None),
    "held back at the end": ([b"x ST"], ("STOP",), ["x ", "ST"], None),
    "restart inside a near miss": ([b"aa", b"b"], ("aab",), ["", "", ""], "aab"),
    "longer near miss": ([b"aaa", b"b"], ("aab",), ["a", "", ""], "aab"),
    "the earlier of two stops": ([b"x, y. z"], (".", ","), ["x", ""], ","),
    "nothing after a stop": ([b"a.", b"b"], (".",), ["a", "", ""], "."),
    "a stop of several characters in UTF-8": ([b"x\xe3\x80", b"\x82y"], ("。",), ["x", "", ""], "。"),
    "an empty stop is none": ([b"ab"], ("",), ["ab", ""], None),
}


@pytest.mark.parametrize(("pieces", "stops", "out", "stopped"), CASES.values(), ids=CASES)
def test_stream(pieces, stops, out, stopped):
    assert stream(pieces, stops) == (out, stopped)


@given(st.text(), st.lists(st.integers(0, 40), max_size=8), st.lists(st.text(min_size=1, max_size=4), max_size=3))
def test_any_split_gives_the_text_up_to_the_first_stop(text, cuts, stops):
    data = text.encode()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in pairwise(edges)]
    out, stopped = stream(pieces, stops)
    # Brute force: the stop whose last character comes first ends the run; of these, the one that begins first.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    assert (stopped is not None) == bool(ends)
    if not ends:
        assert "".join(out) == text
    else:
        shown = "".join(out)
        assert text.startswith(shown)
        assert text[len(shown) :].startswith(stopped)
        assert all(stop not in shown for stop in stops)


def test_text_is_all_that_was_released():
    text = TextStream(["!"])
    for piece in (b"a\xc3", b"\xa9 b", b"c!d"):
        text.push(piece)
    assert text.finish() == ""
    assert text.text == "aé bc"
