"""Masks are llama.cpp's own, over whole vocabularies, along random walks; the few differences have names.

With LLAMA_CPP_MODELS set to the folder `models` of llama.cpp's sources, also over the vocabularies that lie there.
"""

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from llama_cpp import llama_cpp
from logitsmith.engine import Model, locate
from logitsmith.engine.native.vocabulary import NativeVocabulary
from logitsmith.engine.vocabulary import Vocabulary
from logitsmith.grammars import GrammarError, compile_grammar, list_grammars

from benchmarks.native_grammar import NativeGrammar

from ..grammars.drawn import gbnf, grammars, may_be_empty

LIBRARY = {entry.name: entry.path.read_text(encoding="utf-8") for entry in list_grammars()}

CONTROL = "control tokens, which llama.cpp lets match as the text that they are written as"
CUT = "tokens that end inside a character, which llama.cpp refuses where a negated class might exclude it"
STRAY = "tokens of bytes that begin no character, which llama.cpp lets through"
"""The only differences."""

REFUSED = "grammars that repeat what may be empty, which llama.cpp takes for left recursion"
AMBIGUOUS = "grammars so ambiguous that llguidance gives up, with an error"


@dataclass
class Tokens:
    """A vocabulary, and which of its tokens the differences are about."""

    vocabulary: Vocabulary
    control: np.ndarray = field(init=False)
    cut: np.ndarray = field(init=False)
    pieces: list = field(init=False)

    def __post_init__(self):
        vocabulary = self.vocabulary
        self.pieces = vocabulary.pieces
        self.control = np.array([vocabulary.is_control(token) for token in range(vocabulary.size)])
        self.cut = np.array([not is_utf8(piece) for piece in self.pieces])

    @property
    def handle(self):
        return self.vocabulary._native.handle


def is_utf8(data):
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def could_be_utf8(data):
    """Is this the beginning of a text in UTF-8?"""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def differences(tokens, state, ours, theirs):
    """The number of differences of each kind; any other kind fails."""
    text, negates = state.text, "[^" in state.grammar.source
    found = Counter()
    for token in np.flatnonzero(ours != theirs).tolist():
        piece = tokens.pieces[token]
        if tokens.control[token] and not ours[token]:
            found[CONTROL] += 1
        elif ours[token] and negates and not is_utf8(text + piece) and could_be_utf8(text + piece):
            found[CUT] += 1
        elif theirs[token] and not could_be_utf8(text + piece):
            found[STRAY] += 1
        else:
            who = "we allow" if ours[token] else "llama.cpp allows"
            pytest.fail(f"after {text!r} {who} token {token}, {piece!r}")
    return found


def compare(tokens, source, steps, seed):
    """Walk along tokens that both allow, and compare all masks; count them and the differences."""
    random, ends = Random(seed), tokens.vocabulary.eog
    native = NativeGrammar(tokens.handle, tokens.vocabulary.size, source)
    if native.is_rejected:
        return Counter({REFUSED: 1})
    state = compile_grammar(source, tokens.vocabulary).start()
    found = Counter()
    try:
        for _ in range(steps):
            theirs = native.mask()
            found["masks"] += 1
            try:
                ours = state.mask()
            except GrammarError as error:
                # No token continues the text: an error here, an empty mask there.
                if "no token of the vocabulary can write" not in error.message:
                    raise
                assert not theirs[~tokens.control].any()
                break
            found += differences(tokens, state, ours, theirs)
            both = [token for token in np.flatnonzero(ours & theirs).tolist() if token not in ends]
            if not both:
                break
            # Short tokens leave more ways open.
            short = [token for token in both if len(tokens.pieces[token]) <= 2]
            token = random.choice(short if short and random.random() < 0.5 else both)
            state.accept(token)
            assert native.allows(token)
            native.accept(token)
            found["steps"] += 1
    finally:
        native.close()
    found["grammars"] += 1
    return found


def compare_drawn(tokens, rules, steps, seed):
    try:
        found = compare(tokens, gbnf(rules), steps, seed)
    except GrammarError as error:
        if not error.message.startswith("the grammar is too ambiguous, or never ends: "):
            raise
        return Counter({AMBIGUOUS: 1})
    assert not found[REFUSED] or any(map(repeats_nothing, rules.values()))
    return found


def repeats_nothing(node):
    match node:
        case ("repeat", inner, _, _):
            return may_be_empty(inner) or repeats_nothing(inner)
        case ("seq" | "alt", nodes):
            return any(map(repeats_nothing, nodes))
    return False


@pytest.fixture(scope="module")
def tokens():
    with Model.load(locate()[0], n_ctx=64) as model:
        yield Tokens(model.vocabulary)


@pytest.mark.parametrize("name", LIBRARY)
def test_library(tokens, name):
    assert compare(tokens, LIBRARY[name], 4, 1)["masks"] > 0


def drawn_grammars(count):
    """The same draws in each run: llama.cpp takes hours for some ambiguous grammars, and nothing ends its call."""
    return settings(
        max_examples=count,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@drawn_grammars(15)
@given(rules=grammars(rich=True), seed=st.integers(0, 1000))
def test_drawn_grammars(tokens, rules, seed):
    compare_drawn(tokens, rules, 6, seed)


def masks_after(tokens, source, text=b""):
    """Our mask and llama.cpp's after a text of single tokens."""
    native = NativeGrammar(tokens.handle, tokens.vocabulary.size, source)
    state = compile_grammar(source, tokens.vocabulary).start()
    for token in tokens.vocabulary.tokenize(text):
        state.accept(token)
        assert native.allows(token)
        native.accept(token)
    ours, theirs = state.mask(), native.mask()
    native.close()
    return ours, theirs


def test_control_tokens_are_text_for_llama_cpp(tokens):
    ours, theirs = masks_after(tokens, "root ::= [^z]+")
    wrong = ours != theirs
    assert wrong[tokens.control].any()
    assert not ours[tokens.control].any()
    assert not wrong[~tokens.control & ~tokens.cut].any()


def test_llama_cpp_refuses_half_a_character_that_a_negated_class_might_exclude(tokens):
    first = next(token for token, piece in enumerate(tokens.pieces) if piece == "é".encode()[:1])
    for source, theirs_allow in (("root ::= [é]", True), ("root ::= [^é]", False), ("root ::= [^a]", True)):
        ours, theirs = masks_after(tokens, source)
        assert ours[first], source
        assert theirs[first] == theirs_allow, source


def test_llama_cpp_takes_repetitions_of_nothing_for_left_recursion(tokens):
    source = 'root ::= (""  | "a")* "b"'
    assert compare(tokens, source, 1, 1) == {REFUSED: 1}
    assert compile_grammar(source).matches("aab")


SOURCES = os.environ.get("LLAMA_CPP_MODELS")
VOCABULARIES = sorted(Path(SOURCES).glob("ggml-vocab-*.gguf")) if SOURCES else []


@pytest.fixture(scope="module", params=VOCABULARIES, ids=lambda path: path.stem.removeprefix("ggml-vocab-"))
def other_tokens(request):
    """The tokens of a model of which only the vocabulary is loaded."""
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(os.fsencode(request.param), params)
    if not model:
        pytest.skip("this llama.cpp cannot load it")
    yield Tokens(Vocabulary(NativeVocabulary(llama_cpp.llama_model_get_vocab(model), frozenset())))
    llama_cpp.llama_model_free(model)


@pytest.mark.skipif(not SOURCES, reason="LLAMA_CPP_MODELS, the folder models of llama.cpp's sources, is not set")
def test_the_vocabularies_are_there():
    assert len(VOCABULARIES) >= 10


OTHER_GRAMMARS = ["json", "c_subset", "japanese", "python_literal", "markdown_table"]


@pytest.mark.parametrize("name", OTHER_GRAMMARS)
def test_other_vocabularies(other_tokens, name):
    assert compare(other_tokens, LIBRARY[name], 6, 3)["masks"] > 0


def test_llama_cpp_lets_bytes_through_that_begin_no_character(other_tokens):
    never = [bytes([byte]) for byte in range(0xF5, 0x100)]
    stray = [token for token, piece in enumerate(other_tokens.pieces) if piece in never]
    ours, theirs = masks_after(other_tokens, "root ::= .")
    assert not ours[stray].any()
    assert theirs[stray].all()


def test_other_vocabularies_under_drawn_grammars(other_tokens):
    @drawn_grammars(10)
    @given(rules=grammars(rich=True), seed=st.integers(0, 1000))
    def check(rules, seed):
        compare_drawn(other_tokens, rules, 5, seed)

    check()


def report(name, tokens, found):
    """Print how many masks were compared, and how many bits of them differed."""
    bits = found["masks"] * tokens.vocabulary.size
    print(
        f"\n{name}: {found['grammars']} walks, {found['steps']:,} steps, {found['masks']:,} masks "
        f"of {tokens.vocabulary.size:,} tokens compared, {bits:,} bits"
    )
    for kind in (CONTROL, CUT, STRAY):
        print(f"  {found[kind]:,} differ: {kind}")
    print(f"  0 differ otherwise; left out: {found[REFUSED]} {REFUSED}; {found[AMBIGUOUS]} {AMBIGUOUS}")


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBRARY)
def test_library_at_length(tokens, name):
    found = Counter()
    for seed in range(5):
        found += compare(tokens, LIBRARY[name], 40, seed)
    report(name, tokens, found)


# In parts, so that several processes share them: other walks along the same grammars.
@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_drawn_grammars_at_length(tokens, part):
    found = Counter()

    @drawn_grammars(50)
    @given(rules=grammars(rich=True), seed=st.integers(1000 * part, 1000 * part + 999))
    def check(rules, seed):
        found.update(compare_drawn(tokens, rules, 12, seed))

    check()
    report(f"drawn grammars, part {part}", tokens, found)
    assert found["grammars"] >= 33
    assert found[AMBIGUOUS] <= 5
