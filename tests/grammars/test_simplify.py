"""Rules written more plainly say the same, and are taken by the engine of the masks."""

import pytest
from hypothesis import given, strategies as st
from logitsmith.grammars import compile_grammar
from logitsmith.grammars.gbnf.grammar import parse_gbnf
from logitsmith.grammars.gbnf.lark import expression
from logitsmith.grammars.gbnf.rules import MAX_INLINED, simplify_rules

from .drawn import ALPHABET, gbnf, grammars, whole

# Each row: the rules, and how root is written afterwards.
PLAIN = {
    "characters of a choice": ('root ::= "a" | [bc] | "d"', "/[a-d]/"),
    "a text twice": ('root ::= "ab" | "ab" | "c"', '(/[c]/ | "ab")'),
    "a class of one in a sequence": ('root ::= "a" [b] "c"', '"abc"'),
    "a rule in a choice": ('root ::= [ab] | x\nx ::= "c" | [d]', "/[a-d]/"),
    "a rule in a sequence": ('root ::= "a" x "c"\nx ::= "b"', '"abc"'),
    "rules in rules": ('root ::= [ab] | x\nx ::= [b] | y\ny ::= "c"', "/[a-c]/"),
    "rules in rules, named before": ('y ::= "c"\nx ::= [b] | y\nroot ::= [ab] | x', "/[a-c]/"),
    "a large rule": ('root ::= "a" x\nx ::= "' + "b" * (MAX_INLINED + 1) + '"', '"a" RX'),
    "a class of many ranges": (
        'root ::= "a" x\nx ::= [' + "".join(chr(0x100 + 2 * i) for i in range(MAX_INLINED + 1)) + "]",
        '"a" RX',
    ),
    "a rule that comes back": ('root ::= "a" x\nx ::= "b" x | "c"', '"a" RX'),
}


@pytest.mark.parametrize(("source", "root"), PLAIN.values(), ids=PLAIN)
def test_plain(source, root):
    assert expression(simplify_rules(parse_gbnf(source).rules)["root"]) == root


# llguidance 1.9.1 panics on these if they are written as they stand.
PANICS = {
    "in a rule of a rule": 'root ::= [abèé] | x\nx ::= y | [abè]\ny ::= "é"',
    "in a group": "root ::= [aéêë] | ([é] | [éêë])",
    "in a repetition": 'root ::= ([éêë] | ("é" | [éêë] | "é"))?',
    "in sequences": 'root ::= [ab] | "ab" | [è] [é] | [éêë] | "èé"',
}


@pytest.mark.parametrize("source", PANICS.values(), ids=PANICS)
def test_what_makes_the_engine_panic(source):
    assert compile_grammar(source).matches("é")


@given(grammars(rich=True), st.lists(st.text(ALPHABET, max_size=5), max_size=10))
def test_the_language_is_the_same(rules, texts):
    grammar = compile_grammar(gbnf(rules))
    for text in texts:
        assert grammar.matches(text) == whole(rules, text)
