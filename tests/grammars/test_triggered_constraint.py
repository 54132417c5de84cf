"""A grammar that begins behind a text: what is free before it, and what may come with its last token."""

import numpy as np
import pytest
from logitsmith.grammars import GrammarError, compile_grammar
from logitsmith.grammars.spec import TriggeredConstraint

from .vocabularies import Small

TEXTS = [b"a", b"b", b":", b"::", b":a", b":b", b"x:", b"x:a", b"x:b", b":ab", b"::a", b"::b", b"a:", b"a::b"]
VOCABULARY = Small(TEXTS)
PIECES = VOCABULARY.pieces


def begun(trigger, source='root ::= "a" [ab]'):
    return TriggeredConstraint(compile_grammar(source, VOCABULARY), trigger)


def refused(state):
    return {PIECES[token] for token in np.flatnonzero(~state.mask()).tolist()}


# Each row: the text before which all is free, what was written so far, what cannot come.
FREE = {
    "one character": (":", [], {b"::", b":b", b"x:b", b"::a", b"::b", b"a::b"}),
    "two characters": ("::", [], {b"::b", b"a::b"}),
    "two characters, one written": ("::", [b"x:"], {b"::", b":b", b"::a", b"::b", b"a::b"}),
    "one written, then something else": ("::", [b":", b"a"], {b"::b", b"a::b"}),
    "three characters": ("a::", [], {b"a::b"}),
    "three characters, two written": ("a::", [b"a:"], {b"::", b":b", b"::a", b"::b", b"a::b"}),
    "a beginning that begins again": ("a::", [b"a", b"a"], {b"::b", b"a::b"}),
    "a control token": ("</think>", [b"a"], set()),
}


@pytest.mark.parametrize(("trigger", "written", "out"), FREE.values(), ids=FREE)
def test_only_wrong_beginnings_are_refused_before(trigger, written, out):
    state = begun(trigger)
    for piece in written:
        state.accept(PIECES.index(piece))
    assert refused(state) == out
    assert not state.is_complete
    assert state.forced_tokens() == []


def free_by_brute_force(trigger, written):
    """Pieces after which the trigger is not there, or is followed by the beginning of a sentence."""
    found = set()
    sentences = [b"aa", b"ab"]
    for piece in PIECES:
        _, sign, rest = (b"".join(written) + piece).partition(trigger.encode())
        if not sign or any(sentence.startswith(rest) for sentence in sentences):
            found.add(piece)
    return found


@pytest.mark.parametrize("trigger", [":", "::", "x:", "a::", "ab", "bab", "aab"])
@pytest.mark.parametrize("length", range(4))
def test_masks_equal_brute_force(trigger, length):
    for first in TEXTS[:6]:
        written = [first, b"a", b"b"][:length]
        if trigger.encode() in b"".join(written):
            continue
        state = begun(trigger)
        for piece in written:
            state.accept(PIECES.index(piece))
        assert set(PIECES) - refused(state) == free_by_brute_force(trigger, written)


def test_it_holds_once_the_text_was_written():
    state = begun("::")
    for piece in (b"x:", b":a"):
        state.accept(PIECES.index(piece))
    assert {PIECES[token] for token in np.flatnonzero(state.mask()).tolist()} == {b"a", b"b"}
    state.accept(PIECES.index(b"b"))
    assert state.is_complete
    assert state.completion_tokens() == []


def test_a_wrong_beginning_is_refused():
    with pytest.raises(GrammarError, match="cannot begin with b'b'"):
        begun(":").accept(PIECES.index(b":b"))


def test_the_end_of_the_text_is_free_before():
    state = begun(":")
    assert state.mask()[0]
    state.accept(0)
    assert not state.is_complete


def test_what_has_not_begun_cannot_be_closed():
    with pytest.raises(GrammarError, match="':' was not written"):
        begun(":").completion_tokens()


def test_it_says_after_what():
    assert begun(":").description == {
        "kind": "gbnf",
        "root": "root",
        "source": 'root ::= "a" [ab]',
        "after": ":",
    }


def test_an_empty_text_is_refused():
    with pytest.raises(GrammarError, match="is empty"):
        begun("")


def test_a_mask_is_the_callers_own():
    state = begun(":")
    state.mask()[:] = False
    assert state.mask().any()
