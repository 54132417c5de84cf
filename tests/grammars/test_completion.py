"""The end of a sentence that was broken off: the shortest for GBNF, one that fits for the other kinds."""

import itertools
import json

import pytest
from hypothesis import assume, given, strategies as st
from logitsmith.grammars import (
    BYTE_VOCABULARY,
    GrammarError,
    compile_grammar,
    completion_search,
    shortest_completion,
)

from .drawn import ALPHABET, begins, gbnf, grammars, whole
from .vocabularies import Small

RECORD = 'root ::= "{" key ":" [0-9]+ ("," root)? "}"\nkey ::= "name" | "age"'
OBJECT = json.dumps(
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array", "items": {"type": "string"}}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
)

# An object with at least one key that begins with a and has a string.
ONE_STRING = json.dumps({"type": "object", "not": {"patternProperties": {"^a": {"not": {"type": "string"}}}}})

# An object with such a key, and one that begins with b.
TWO_STRINGS = json.dumps({"allOf": [json.loads(ONE_STRING), json.loads(ONE_STRING.replace("^a", "^b"))]})
# An object whose only required string is long, and needs none of the texts that match its patterns.
LONG_STRING = json.dumps(
    {
        "type": "object",
        "properties": {
            "s": {"type": "string", "minLength": 1000},
            **{key: {"type": "string", "pattern": f"^{key}{{300}}$"} for key in "abcdef"},
        },
        "required": ["s"],
        "additionalProperties": False,
    }
)
# The first walk goes round in this object, which matches several schemas.
AMBIGUOUS = json.dumps(
    {
        "oneOf": [
            {"maximum": 1, "else": {"oneOf": [True, {"type": "string"}], "patternProperties": {"^[ab]+$": False}}},
            {"const": {"a": 1, "b": 2}},
            {"patternProperties": {"a": {"not": True}, "^a": {"required": ["c", "b"], "enum": ["ba", [1, None]]}}},
        ]
    }
)

# Each row: kind, grammar, what was written, and the whole sentence.
CLOSED = {
    "nothing yet": ("gbnf", RECORD, "", "{age:0}"),
    "in a word": ("gbnf", RECORD, "{n", "{name:0}"),
    "deep inside": ("gbnf", RECORD, "{age:1,{age:2,{", "{age:1,{age:2,{age:0}}}"),
    "whole already": ("gbnf", RECORD, "{age:1}", "{age:1}"),
    "in a character": ("gbnf", "root ::= [é] [a]", b"\xc3", "éa"),
    "a schema in a key": ("json_schema", OBJECT, '{"', '{"a": 0, "b": []}'),
    "a schema in a string": ("json_schema", OBJECT, '{"a": 12, "b": ["x', '{"a": 12, "b": ["x"]}'),
    "a schema in an escape": ("json_schema", OBJECT, '{"a": 12, "b": ["\\u00', None),
    "a regex": ("regex", "[0-9]{4}-[a-z]+", "20", None),
    "a regex with one way among many": ("regex", "([a-y]{3}q|z)z", "", None),
    "a regex where only one letter leads on": ("regex", "[a-z]x[a-z]x[a-z]xend", "", None),
    "a long regex": ("regex", "[0-9]{150}end", "1", None),
    "one of many letters, by turns": ("regex", "([a-m]x|[n-z]y){30}!", "a", None),
    "a key that matches a pattern": ("json_schema", ONE_STRING, "", None),
    "keys that match two patterns": ("json_schema", TWO_STRINGS, "", None),
    "a long string beside long patterns": ("json_schema", LONG_STRING, "", None),
    "words that may go on for ever": ("lark", 'start: W+ "END"\nW: /[a-z]+q[a-z]+w/', "", None),
    "Lark": ("lark", 'start: "begin" ("a" | "bb")+ "end"', "beginbb", "beginbbend"),
}


@pytest.mark.parametrize(("kind", "source", "text", "sentence"), CLOSED.values(), ids=CLOSED)
def test_closes(kind, source, text, sentence):
    grammar = compile_grammar(source, None, kind)
    text = text.encode() if isinstance(text, str) else text
    state = grammar.start()
    assert state.accept_prefix(list(text)) == len(text)
    for token in state.completion_tokens():
        state.accept(token)
    assert state.is_complete
    assert state.text.startswith(text)
    assert grammar.matches(state.text)
    assert sentence is None or state.text.decode() == sentence


# Each row: kind, grammar, what was written, whether an end is found, and the steps that suffice for that.
BOUNDED = {
    "a lazy text, whose end is one letter of many": ("lark", "start: gen\ngen[lazy]: /.*z/", "ab", True, 140_000),
    "a repetition that grows with each step": ("regex", r"((a+|b+|c+|ab+)+){99999}", "ab", False, 10_000),
    "a count that is out of reach": ("regex", r"(\w+){99999}", "ab", False, 60_000),
    "a walk that goes round": ("json_schema", AMBIGUOUS, '{"K": {}, "x": 1, ', True, 8000),
    "a long way of one letter of many": ("regex", "[a-z]{3500}", "", True, 40_000),
}


@pytest.mark.parametrize(("kind", "source", "text", "is_found", "steps"), BOUNDED.values(), ids=BOUNDED)
def test_a_search_takes_a_bounded_number_of_steps(kind, source, text, is_found, steps, monkeypatch):
    taken = []
    go_to = completion_search._Cursor.go_to

    def counted(cursor, added):
        taken.append(len(added))
        return go_to(cursor, added)

    monkeypatch.setattr(completion_search._Cursor, "go_to", counted)
    state = compile_grammar(source, None, kind).start()
    assert state.accept_prefix(list(text.encode())) == len(text)
    if is_found:
        assert state.completion_tokens()
    else:
        with pytest.raises(GrammarError, match=r"no way to complete|too ambiguous|too many states"):
            state.completion_tokens()
    assert len(taken) < steps


@given(grammars(rich=True), st.text(ALPHABET, max_size=4))
def test_nothing_shorter_ends_the_sentence(rules, text):
    assume(begins(rules, text.encode()))
    state = compile_grammar(gbnf(rules)).start()
    for byte in text.encode():
        state.accept(byte)
    added = bytes(state.completion_tokens()).decode()
    assert whole(rules, text + added)
    # Beside ALPHABET, z stands for all the others.
    for length in range(min(len(added), 4)):
        for shorter in itertools.product(ALPHABET + "z", repeat=length):
            assert not whole(rules, text + "".join(shorter)), shorter


def test_a_grammar_that_names_tokens_cannot_be_closed():
    grammar = compile_grammar('root ::= <[1]> "b"', BYTE_VOCABULARY)
    with pytest.raises(GrammarError, match="token references"):
        grammar.start().completion_tokens()


def test_an_end_that_is_too_long_is_refused():
    state = compile_grammar('root ::= "a"{30000}').start()
    with pytest.raises(GrammarError, match=r"^the end of the sentence has 30,000 bytes; the limit is 20,000$"):
        state.completion_tokens()


WORDS = [b"a", b"b", b"aa", b"ab", b"aba", b"ba", b"c", b"abc", b"\xc3", b"\xa9", b"\xc3\xa9"]


def spellings(data, pieces):
    """All ways to write ``data`` with these pieces, by trying each of them at each place."""
    if not data:
        return [[]]
    begun = [(token, piece) for token, piece in pieces.items() if data.startswith(piece)]
    return [[token, *rest] for token, piece in begun for rest in spellings(data[len(piece) :], pieces)]


@given(
    st.binary(max_size=7).map(lambda data: bytes(b"abc\xc3\xa9"[byte % 5] for byte in data)),
    st.sets(st.integers(3, len(WORDS) + 2)),
)
def test_a_text_is_spelled_with_the_fewest_tokens_that_are_not_suppressed(data, suppressed):
    vocabulary = Small(WORDS)
    vocabulary.suppressed = suppressed
    pieces = {token: vocabulary.pieces[token] for token in range(3, vocabulary.size) if token not in suppressed}
    possible = spellings(data, pieces)
    found = completion_search.spell(data, vocabulary)
    if not possible:
        assert found is None
    else:
        assert found in possible
        assert len(found) == min(map(len, possible))


LIMITED = {
    "gbnf": ('root ::= "a" ("b" | "cc")', "b", b"cc"),
    "regex": ("a(b|c{3}|é)", "b", b"c"),
    "a character": ("ab?é", "b", b"\xc3\xa9"),
}


@pytest.mark.parametrize(("source", "excluded", "expected"), LIMITED.values(), ids=LIMITED)
def test_a_completion_without_some_bytes(source, excluded, expected):
    kind = "gbnf" if source.startswith("root") else "regex"
    grammar = compile_grammar(source, kind=kind)
    completion = shortest_completion(grammar, b"a", frozenset(excluded.encode()))
    assert not set(completion) & set(excluded.encode())
    assert set(completion) <= set(expected) | {0xC3, 0xA9}
    assert grammar.matches(b"a" + completion)


def test_no_completion_without_a_byte_that_all_need():
    with pytest.raises(GrammarError, match="no way to complete"):
        shortest_completion(compile_grammar('root ::= "ab"'), b"a", frozenset(b"b"))
