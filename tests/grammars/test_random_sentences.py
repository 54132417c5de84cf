"""Random sentences belong to their grammar, and are not all alike."""

import pytest
from hypothesis import given, strategies as st
from logitsmith.grammars import GrammarError, compile_grammar, list_grammars, random_sentence

from .drawn import gbnf, grammars, whole


@pytest.mark.parametrize("entry", list_grammars(), ids=lambda entry: entry.name)
def test_library(entry):
    source = entry.path.read_text(encoding="utf-8")
    grammar = compile_grammar(source)
    made = [random_sentence(source, seed) for seed in range(12)]
    for text in made:
        assert grammar.matches(text), text
    assert len(set(made)) > (1 if entry.name == "yes_no" else 5)


@given(grammars(rich=True), st.integers(0, 1000))
def test_drawn_grammars(rules, seed):
    source = gbnf(rules)
    made = random_sentence(source, seed)
    assert whole(rules, made)
    assert random_sentence(source, seed) == made


OTHER_KINDS = {
    "a regex": ("regex", r"\d{3}-[a-f]+(x|y)?"),
    "letters beyond ASCII": ("regex", "[æ-þ]+ 日?"),
    "Lark": ("lark", 'start: "a" B+\nB: /[0-9]x?/\n'),
    "an object": ("json_schema", '{"type": "object"}'),
    "anything": ("json_schema", "true"),
    "a tree": ("json_schema", '{"properties": {"a": {"$ref": "#"}}, "required": [], "type": "object"}'),
    "long": ("regex", "a{400}b?"),
}


@pytest.mark.parametrize(("kind", "source"), OTHER_KINDS.values(), ids=OTHER_KINDS)
def test_other_kinds(kind, source):
    grammar = compile_grammar(source, kind=kind)
    made = [random_sentence(source, seed, kind=kind) for seed in range(20)]
    for text in made:
        assert grammar.matches(text), text
    assert len(set(made)) > (1 if kind == "lark" else 0)
    assert random_sentence(source, 3, kind=kind) == made[3]


def test_a_lark_grammar_that_names_tokens_has_no_sentences_without_a_model():
    with pytest.raises(
        GrammarError, match="the grammar has token references; only a model can write its sentences"
    ):
        random_sentence("start: <[3]>", kind="lark")


def test_another_root():
    assert random_sentence('root ::= "a"\nx ::= "b"', 1, "x") == "b"


def test_without_a_seed_sentences_differ():
    assert len({random_sentence("root ::= [a-z]{20}") for _ in range(3)}) == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('root ::= "a" root', "ever ends"),
        ('root ::= <[1]> "a"', "token references"),
        ("root ::= x", "unknown rule 'x'"),
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
