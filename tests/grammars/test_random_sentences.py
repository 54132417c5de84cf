"""Random sentences belong to their grammar, and are not all alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from logitsmith.grammars import GrammarError, compile_grammar, list_grammars, random_sentence

from .drawn import gbnf, grammars, whole


@pytest.mark.parametrize("entry", list_grammars(), ids=lambda entry: entry.name)
def test_library(entry):
    source = entry.path.read_text(encoding="utf-8")
    grammar = compile_grammar(source)
    made = [random_sentence(source, seed) for seed in range(30)]
    for text in made:
        assert grammar.matches(text), text
    assert len(set(made)) > (3 if entry.name == "yes_no" else 15)


@given(grammars(rich=True), st.integers(0, 1000))
def test_drawn_grammars(rules, seed):
    source = gbnf(rules)
    made = random_sentence(source, seed)
    assert whole(rules, made)
    assert random_sentence(source, seed) == made


def test_another_root():
    assert random_sentence('root ::= "a"\nx ::= "b"', 1, "x") == "b"


def test_without_a_seed_sentences_differ():
    assert len({random_sentence("root ::= [a-z]{20}") for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('root ::= "a" root', "ever ends"),
        ('root ::= <[1]> "a"', "names tokens"),
        ("root ::= x", "rule 'x' is not defined"),
    ],
    ids=["endless", "tokens", "wrong"],
)
def test_what_has_no_sentence(source, message):
    with pytest.raises(GrammarError, match=message):
        random_sentence(source)


def test_deep_recursion_comes_to_an_end():
    source = 'root ::= "(" root root root root ")" | "a"'
    for seed in range(50):
        assert compile_grammar(source).matches(random_sentence(source, seed))
