"""Masks over vocabularies of several kinds, against a brute force that tries every token."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from logitsmith.grammars import GrammarError, compile_grammar

from .drawn import gbnf, grammars
from .vocabularies import SINGLE, SMALL, Small
from .walks import bit_by_bit, walk


@pytest.mark.parametrize("name", SMALL)
@settings(max_examples=settings.default.max_examples // 2)
@given(rules=grammars(rich=True), seed=st.integers(0, 1000))
def test_masks_are_those_of_a_brute_force(name, rules, seed):
    vocabulary = SMALL[name]
    state = compile_grammar(gbnf(rules), vocabulary).start()
    for mask, _ in walk(state, Random(seed), 4):
        expected = bit_by_bit(rules, vocabulary, state.text)
        wrong = np.flatnonzero(mask != expected).tolist()
        assert not wrong, [(vocabulary.pieces[token], bool(mask[token])) for token in wrong]


@pytest.mark.parametrize("name", SMALL)
def test_empty_tokens_and_control_tokens_never_match_text(name):
    vocabulary = SMALL[name]
    mask = compile_grammar("root ::= .*", vocabulary).start().mask()
    for token, piece in enumerate(vocabulary.pieces):
        if token and (vocabulary.is_control(token) or not piece):
            assert not mask[token], piece


def test_tokens_of_the_same_bytes_are_allowed_alike():
    vocabulary = SMALL["bpe"]
    state = compile_grammar('root ::= "ab" "a"', vocabulary).start()
    same = [token for token, piece in enumerate(vocabulary.pieces) if piece == b"ab"]
    assert len(same) == 2
    assert state.mask()[same].all()
    for token in same:
        other = state.copy()
        other.accept(token)
        assert other.text == b"ab"


FORCED = {
    "no space of SentencePiece's own": ("sentencepiece", 'root ::= "ab"', b"", [b"ab"]),
    "an existing space": ("sentencepiece", 'root ::= " ab"', b"", [b" ab"]),
    "no space in the middle": ("sentencepiece", 'root ::= "bab" "è"', b"b", [b"ab", "è".encode()]),
    "a tokenizer that knows no such text": ("sentencepiece", 'root ::= "xy"', b"", [b"x", b"y"]),
    "over characters": ("bpe", 'root ::= "éè"', b"", ["éè".encode()]),
    "from the inside of a character": ("bpe", 'root ::= "éb"', "é".encode()[:1], ["é".encode()[1:], b"b"]),
    "of three letters": ("bpe", 'root ::= "aaa"', b"", [b"aaa"]),
    "words": ("wordpiece", 'root ::= "ab bab"', b"", [b"ab", b" bab"]),
    "nothing that could be written": ("wordpiece", 'root ::= "xy"', b"", []),
}


@pytest.mark.parametrize(("name", "source", "text", "pieces"), FORCED.values(), ids=FORCED)
def test_forced(name, source, text, pieces):
    vocabulary = SMALL[name]
    state = compile_grammar(source, vocabulary).start()
    state.accept_prefix([vocabulary.pieces.index(text)] if text else [])
    assert state.text == text
    forced = state.forced_tokens()
    # The last token may still become a longer one.
    assert [vocabulary.pieces[token] for token in forced] == pieces[: len(forced)]
    for token in forced:
        assert state.mask()[token]
        state.accept(token)


@pytest.mark.parametrize("name", SMALL)
@given(rules=grammars(rich=True), seed=st.integers(0, 1000))
def test_forced_tokens_are_the_only_text(name, rules, seed):
    """No token that is allowed writes anything but the forced text, as far as that goes."""
    vocabulary = SMALL[name]
    state = compile_grammar(gbnf(rules), vocabulary).start()
    for _ in walk(state, Random(seed), 5):
        forced = b"".join(vocabulary.pieces[token] for token in state.forced_tokens())
        if forced:
            for token in np.flatnonzero(state.mask()).tolist():
                piece = vocabulary.pieces[token]
                assert forced.startswith(piece) or piece.startswith(forced)


def test_a_vocabulary_that_cannot_write_what_must_come():
    state = compile_grammar('root ::= "ax"', SMALL["wordpiece"]).start()
    state.accept(SMALL["wordpiece"].pieces.index(b"a"))
    assert state.forced_tokens() == []
    with pytest.raises(
        GrammarError, match="no token of the vocabulary has the bytes that the grammar requires next"
    ):
        state.mask()


def test_several_end_tokens():
    vocabulary = Small(SINGLE, control=("<end>", "<eot>", "<think>"))
    vocabulary.eog = frozenset({0, 1})
    grammar = compile_grammar('root ::= "a"', vocabulary)
    state = grammar.start()
    assert np.flatnonzero(state.mask()).tolist() == [vocabulary.pieces.index(b"a")]
    state.accept(vocabulary.pieces.index(b"a"))
    for end in (0, 1):
        assert state.mask()[end]
        other = state.copy()
        other.accept(end)
        assert not other.mask().any()
    assert not state.mask()[2]


def test_no_end_token():
    vocabulary = Small(SINGLE, control=("<think>",))
    vocabulary.eog = frozenset()
    state = compile_grammar('root ::= "a"', vocabulary).start()
    state.accept(vocabulary.pieces.index(b"a"))
    assert state.is_complete
    assert not state.mask().any()


def test_a_negated_token_does_not_match_an_end_token():
    vocabulary = SMALL["bpe"]
    state = compile_grammar("root ::= !<think>", vocabulary).start()
    mask = state.mask()
    assert mask[vocabulary.pieces.index(b"</think>")]
    assert not mask[vocabulary.pieces.index(b"<think>")]
    assert not mask[0]


def test_a_token_that_ends_a_text_may_not_be_named():
    with pytest.raises(GrammarError):
        compile_grammar("root ::= <end>", SMALL["bpe"]).start().accept(1)
