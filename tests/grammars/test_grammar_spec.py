"""A grammar as a preset or a flag names it."""

import datetime

import pytest
from logitsmith.grammars import (
    BYTE_VOCABULARY,
    GrammarError,
    find_mismatch,
    grammar as parsed_grammar,
    resolve_grammar,
)
from logitsmith.grammars.gbnf import grammar as gbnf_grammar
from logitsmith.grammars.spec import TriggeredConstraint

GBNF = 'root ::= "a" | other\nother ::= "b"'


@pytest.fixture
def base(tmp_path):
    (tmp_path / "own.gbnf").write_text(GBNF)
    (tmp_path / "s.json").write_text('{"type": "integer"}')
    (tmp_path / "l.lark").write_text('start: "two"\n')
    (tmp_path / "latin").write_bytes(b'root ::= "a"\n# \xe9\n')
    return tmp_path


# Each row: the value, the kind, the label, a sentence.
NAMED = {
    "a name": ("yes_no", "gbnf", "grammar yes_no", "yes"),
    "GBNF": (GBNF, "gbnf", "grammar", "b"),
    "a table with a name": ({"name": "yes_no"}, "gbnf", "grammar yes_no", "no"),
    "a table with GBNF": ({"gbnf": GBNF, "root": "other"}, "gbnf", "grammar", "b"),
    "a file": ({"file": "own.gbnf"}, "gbnf", "own.gbnf", "a"),
    "a built-in name": ("own", "gbnf", "grammar own", "b"),
    "a schema": ({"json_schema": '{"type": "null"}'}, "json_schema", "JSON Schema", "null"),
    "a schema as a table": ({"json_schema": {"type": "null"}}, "json_schema", "JSON Schema", "null"),
    "a schema of anything": ({"json_schema": True}, "json_schema", "JSON Schema", "[1]"),
    "a schema's file": ({"json_schema_file": "s.json"}, "json_schema", "s.json", "12"),
    "a regex": ({"regex": "a+"}, "regex", "regex", "aa"),
    "Lark": ({"lark": 'start: "x"\n'}, "lark", "lark", "x"),
    "a Lark file": ({"lark_file": "l.lark"}, "lark", "l.lark", "two"),
}


@pytest.mark.parametrize(("value", "kind", "label", "sentence"), NAMED.values(), ids=NAMED)
def test_named(base, value, kind, label, sentence):
    spec = resolve_grammar(value, [("here", base)], base)
    spec.check()
    assert (spec.kind, spec.label) == (kind, label)
    state = spec.start(BYTE_VOCABULARY)
    for byte in sentence.encode():
        state.accept(byte)
    assert state.is_complete


def test_after():
    spec = resolve_grammar({"regex": "a", "after": "go"})
    assert isinstance(spec.start(BYTE_VOCABULARY), TriggeredConstraint)
    assert spec.description == {"kind": "regex", "root": "root", "source": "a", "after": "go"}


# Each row: the value, what is said.
WRONG = {
    "an unknown name": ("yes_mo", "did you mean yes_no?"),
    "an unknown key": ({"grammar": "x"}, "unknown key 'grammar'"),
    "nothing": ({}, "got none of them"),
    "two": ({"regex": "a", "name": "json"}, "got name and regex"),
    "a number": ({"regex": 12}, "grammar.regex: 12 is not a string"),
    "an empty after": ({"regex": "a", "after": ""}, "the text after which the grammar begins is empty"),
    "a root of a regex": ({"regex": "a", "root": "x"}, "a root rule is allowed only with GBNF, not with regex"),
    "no such file": ({"file": "none.gbnf"}, "none.gbnf: there is no such file"),
    "a folder": ({"file": "."}, "it is a folder"),
    "a file of bytes": ({"file": "latin"}, "latin: line 2: the file is not UTF-8"),
    "what JSON has no number for": ({"json_schema": {"const": float("nan")}}, "grammar.json_schema: not JSON"),
    "what JSON has no value for": ({"json_schema": {"const": datetime.date(2020, 1, 1)}}, "is not JSON"),
}


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_wrong(base, value, message):
    with pytest.raises(GrammarError) as caught:
        resolve_grammar(value, [], base)
    assert message in str(caught.value)


CHECKED = {
    "GBNF": ('root ::= "a', "grammar: line 1, column 10: "),
    "a regex": ({"regex": "(a"}, "regex: "),
    "a name that is not a root": (
        {"name": "json", "root": "rot"},
        "grammar json: line 1, column 1: unknown root rule 'rot'",
    ),
}


@pytest.mark.parametrize(("value", "message"), CHECKED.values(), ids=CHECKED)
def test_check_says_which(value, message):
    with pytest.raises(GrammarError) as caught:
        resolve_grammar(value).check()
    assert str(caught.value).startswith(message)


TOKENS = {
    "GBNF": ('root ::= <think> "a"', True),
    "GBNF by number": ("root ::= !<[1]>", True),
    "GBNF with the signs in a literal": ('root ::= "<think>" # <b>', False),
    "Lark": ({"lark": "start: <think>\n"}, True),
    "Lark with the signs in a literal": ({"lark": 'start: "<think>" /<a>/ // <b>\n'}, False),
    "a regex": ({"regex": "<think>"}, False),
}


@pytest.mark.parametrize(("value", "names"), TOKENS.values(), ids=TOKENS)
def test_names_tokens(value, names):
    spec = resolve_grammar(value)
    assert spec.has_token_references == names
    spec.check()


@pytest.fixture
def parsed_texts(monkeypatch):
    """The GBNF texts that were parsed, each as often as it was."""
    texts = []

    class CountedParser(gbnf_grammar.GbnfParser):
        def __init__(self, source):
            texts.append(source)
            super().__init__(source)

    monkeypatch.setattr(gbnf_grammar, "GbnfParser", CountedParser)
    parsed_grammar.parse_grammar.cache_clear()
    return texts


@pytest.mark.parametrize("source", [GBNF, 'root ::= "a" !<[7]>?'], ids=["text", "tokens"])
def test_a_run_parses_its_gbnf_once(parsed_texts, source):
    spec = resolve_grammar(source)
    spec.check()  # what a command does before the model is loaded
    parsed_grammar.parse_grammar.cache_clear()  # the spec keeps the rules itself
    assert spec.has_token_references == ("<" in source)
    state = spec.start(BYTE_VOCABULARY)
    state.mask()
    if not spec.has_token_references:
        state.completion_tokens()
        assert find_mismatch(spec.compile(None), "ax") is not None
    assert parsed_texts == [source]


def test_lines_of_a_batch_share_what_was_parsed(parsed_texts):
    for _ in range(3):
        resolve_grammar({"gbnf": GBNF, "root": "other"}).start(BYTE_VOCABULARY).completion_tokens()
    assert parsed_texts == [GBNF]
