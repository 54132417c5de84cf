from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st
from logitsmith.grammars import BYTE_VOCABULARY, GrammarError, compile_grammar

from .drawn import gbnf, grammars
from .vocabularies import SINGLE, SMALL
from .walks import walk

END = 256


def state_of(source, text=b"", vocabulary=BYTE_VOCABULARY):
    state = compile_grammar(source, vocabulary).start()
    assert state.accept_prefix(list(text)) == len(text)
    return state


def allowed(state):
    return bytes(np.flatnonzero(state.mask()[:256]).tolist())


def test_mask():
    mask = state_of('root ::= "ab" | "cd"').mask()
    assert mask.shape == (BYTE_VOCABULARY.size,)
    assert mask.dtype == np.bool_
    assert np.flatnonzero(mask).tolist() == [ord("a"), ord("c")]


def test_a_mask_is_the_callers_own():
    state = state_of('root ::= "ab"')
    state.mask()[:] = True
    assert allowed(state) == b"a"


MASKS = {
    "in a text": ('root ::= "ab"', b"a", b"b", False),
    "at the end": ('root ::= "ab"', b"ab", b"", True),
    "an end that may be": ('root ::= "a"+', b"a", b"a", True),
    "nothing at all": ("root ::=", b"", b"", True),
    "or nothing": ('root ::= "a"?', b"", b"a", True),
    "in a character": ("root ::= [éè]", "é".encode()[:1], bytes([0xA8, 0xA9]), False),
    "after a character": ("root ::= [éè]+", "é".encode(), "é".encode()[:1], True),
    "a negated class": ("root ::= [^é]", "é".encode()[:1], bytes({*range(0x80, 0xC0)} - {0xA9}), False),
    "what begins no character": (
        "root ::= .",
        b"",
        bytes([*range(1, 0x80), *range(0xC2, 0xF5)]),
        False,
    ),
    "an overlong form": ("root ::= .", b"\xe0", bytes(range(0xA0, 0xC0)), False),
    "a surrogate": ("root ::= .", b"\xed", bytes(range(0x80, 0xA0)), False),
    "beyond the last character": ("root ::= .", b"\xf4", bytes(range(0x80, 0x90)), False),
}


@pytest.mark.parametrize(("source", "text", "bytes_", "ends"), MASKS.values(), ids=MASKS)
def test_masks(source, text, bytes_, ends):
    state = state_of(source, text)
    assert allowed(state) == bytes_
    assert state.mask()[END] == ends
    assert state.is_complete == ends
    assert state.text == text


def test_accept_refuses_what_the_mask_refuses():
    state = state_of('root ::= "a" [bé]')
    state.accept(ord("a"))
    for token in np.flatnonzero(~state.mask()).tolist():
        with pytest.raises(GrammarError, match=rf"the grammar does not allow token {token}, "):
            state.accept(token)
    assert state.text == b"a"
    state.accept(ord("b"))
    assert state.is_complete


@pytest.mark.parametrize("token", [-1, 257, 10**9, 2**40, -(2**40)])
def test_accept_rejects_ids_outside_the_vocabulary(token):
    state = state_of('root ::= "a"')
    with pytest.raises(GrammarError, match="does not allow token"):
        state.accept(token)
    state.accept(ord("a"))


# Each row: the text so far, a token that is not allowed after it, and the end of the message.
NOT_ALLOWED = {
    "at the beginning": (b"", ord("b"), "token 98, 'b', at the beginning of the text"),
    "later": (b"aaa", ord("b"), "token 98, 'b', after 'aaa'"),
    "a part of a character": (b"a", 0xC3, r"token 195, '\\xc3', after 'a'"),
    "not an id": (b"", -1, "token -1, which is not an id of the vocabulary"),
}


@pytest.mark.parametrize(("text", "token", "message"), NOT_ALLOWED.values(), ids=NOT_ALLOWED)
def test_a_token_that_is_not_allowed_is_shown_as_text(text, token, message):
    with pytest.raises(GrammarError) as caught:
        state_of('root ::= "a"+', text).accept(token)
    assert str(caught.value) == f"the grammar does not allow {message}"


def test_after_the_end_nothing_may_come():
    state = state_of('root ::= "a"*', b"a")
    state.accept(END)
    assert state.is_complete
    assert not state.mask().any()
    assert state.forced_tokens() == []
    assert state.text == b"a"
    for token in (ord("a"), END):
        with pytest.raises(GrammarError):
            state.accept(token)


def test_the_end_too_early():
    state = state_of('root ::= "ab"', b"a")
    with pytest.raises(GrammarError, match=r"token 256, '<end>'"):
        state.accept(END)
    state.accept(ord("b"))
    state.accept(END)


def test_copies_go_their_own_ways():
    state = state_of('root ::= "a" ("b" "c" | "d" "e")', b"a")
    other = state.copy()
    state.accept(ord("b"))
    other.accept(ord("d"))
    assert (state.text, allowed(state)) == (b"ab", b"c")
    assert (other.text, allowed(other)) == (b"ad", b"e")
    third = other.copy()
    third.accept(ord("e"))
    assert third.is_complete
    assert not other.is_complete
    third.accept(END)
    assert not third.copy().mask().any()


def test_states_of_one_grammar_know_nothing_of_each_other():
    grammar = compile_grammar('root ::= "ab"')
    one, other = grammar.start(), grammar.start()
    one.accept(ord("a"))
    assert allowed(other) == b"a"
    assert allowed(grammar.start()) == b"a"


FORCED = {
    "a literal": ('root ::= "abc" [de]', b"", b"abc"),
    "the rest of a literal": ('root ::= "abc" [de]', b"a", b"bc"),
    "a choice": ('root ::= "ab" | "cd"', b"", b""),
    "what a choice has in common": ('root ::= "abc" | "abd"', b"", b"ab"),
    "after the choice": ('root ::= "ab" | "cd"', b"c", b"d"),
    "where the text may end": ('root ::= "a" "b"?', b"a", b""),
    "at the end": ('root ::= "a"', b"a", b""),
    "the first byte of two characters": ("root ::= [éè]", b"", "é".encode()[:1]),
    "the last byte of a character": ('root ::= "é"', "é".encode()[:1], "é".encode()[1:]),
    "over rules": ('root ::= x "c"\nx ::= "a" y\ny ::= "b"', b"", b"abc"),
    "counts": ('root ::= "ab"{2}', b"", b"abab"),
}


@pytest.mark.parametrize(("source", "text", "text_forced"), FORCED.values(), ids=FORCED)
def test_forced(source, text, text_forced):
    state = state_of(source, text)
    assert bytes(state.forced_tokens()) == text_forced


SEEDS = st.integers(0, 1000)


@pytest.mark.parametrize("name", SMALL)
@given(rules=grammars(), seed=SEEDS)
def test_random_walks(name, rules, seed):
    """Forced tokens are allowed one after another, and allowed tokens never leave the grammar."""
    grammar = compile_grammar(gbnf(rules), SMALL[name])
    random = Random(seed)
    state = grammar.start()
    for mask, token in walk(state, random, 12):
        assert mask[0] == state.is_complete == grammar.matches(state.text)
        forced = state.forced_tokens()
        other = state.copy()
        for number in forced:
            assert other.mask()[number]
            other.accept(number)
        text = b"".join(grammar.vocabulary.pieces[number] for number in forced)
        assert not forced or not state.is_complete
        # Whatever else is allowed, its text is the same as far as it is forced.
        piece = grammar.vocabulary.pieces[token]
        assert text.startswith(piece[: len(text)]) or piece.startswith(text)
    assert state.is_complete == grammar.matches(state.text)
    if state.is_complete:
        state.accept(0)
        assert not state.mask().any()


@given(grammars(), SEEDS)
def test_walks_by_forced_tokens_and_without_end_in_the_same_texts(rules, seed):
    """Jumping over forced tokens leads to the same place as taking them one by one."""
    grammar = compile_grammar(gbnf(rules), SMALL["bpe"])
    random = Random(seed)
    jumping = grammar.start()
    stepping = grammar.byte_grammar.start()
    for _ in range(8):
        forced = jumping.forced_tokens()
        for token in forced:
            jumping.accept(token)
        tokens = [token for token in np.flatnonzero(jumping.mask()).tolist() if token]
        if not forced and not tokens:
            break
        if not forced:
            jumping.accept(random.choice(tokens))
        done = jumping.text[len(stepping.text) :]
        assert stepping.accept_prefix(list(done)) == len(done)
        assert stepping.is_complete == jumping.is_complete
        mask = stepping.mask()
        assert [mask[byte] for (byte,) in SINGLE] == jumping.mask()[3 : 3 + len(SINGLE)].tolist()
