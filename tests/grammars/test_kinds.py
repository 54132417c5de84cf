"""JSON Schema, regular expressions and Lark: what they take, and what is said of what is wrong."""

import pytest
from logitsmith.grammars import BYTE_VOCABULARY, GrammarError, compile_grammar

# Each row: kind, grammar, sentences, texts that are none.
TAKES = {
    "a schema": (
        "json_schema",
        '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}',
        ['{"a": 1}', '{"a":1}', '{\n  "a": -3\n}', ' {"a": 0}\n'],
        ["{}", '{"a": 1.5}', '{"a": "1"}', '{"a": 1', "[]"],
    ),
    "a schema of limits": (
        "json_schema",
        '{"type": "array", "items": {"type": "integer", "minimum": 5, "maximum": 12}, "maxItems": 2}',
        ["[]", "[5]", "[12, 9]"],
        ["[4]", "[13]", "[5, 6, 7]"],
    ),
    "a schema of anything": ("json_schema", "true", ["1", '"a"', "{}", "null", '{"a": [1]}'], ["", "a", "[1"]),
    "an enum": ("json_schema", '{"enum": ["x", 7, null]}', ['"x"', "7", "null"], ["x", "8"]),
    "a reference": (
        "json_schema",
        '{"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}',
        ["[]", "[1, 2]"],
        ['["a"]'],
    ),
    "a regex": ("regex", r"\d{2}-[a-z]+", ["12-a", "00-xyz"], ["1-a", "12-", "12-a1", "x12-a"]),
    "a regex of alternatives": ("regex", "yes|no", ["yes", "no"], ["ye", "yesno", "maybe"]),
    "a regex with a slash": ("regex", "a/b", ["a/b"], ["ab"]),
    "a regex of other letters": ("regex", "[д-ж]+|é", ["де", "é"], ["e", "Д"]),
    "a regex that ends in an escaped backslash": ("regex", r"a\\", ["a\\"], ["a"]),
    "an empty regex": ("regex", "", [""], ["a"]),
    "Lark": ("lark", 'start: NAME ("," NAME)*\nNAME: /[a-z]+/\n', ["a", "ab,c"], ["", "a,", "A"]),
    "Lark with a comment": ("lark", '// <none>\nstart: "<a>" # <b>\n', ["<a>"], ["a"]),
}


@pytest.mark.parametrize(("kind", "source", "taken", "refused"), TAKES.values(), ids=TAKES)
def test_takes(kind, source, taken, refused):
    grammar = compile_grammar(source, None, kind)
    for text in taken:
        assert grammar.matches(text), text
    for text in refused:
        assert not grammar.matches(text), text


def test_a_schema_is_written_on_one_line():
    state = compile_grammar('{"enum": [[1, {"a": 2}]]}', BYTE_VOCABULARY, "json_schema").start()
    assert state.forced_text == b'[1, {"a": 2}]'


def test_a_schema_may_choose_its_whitespace():
    source = '{"x-guidance": {"item_separator": ",", "key_separator": ":"}, "enum": [[1, {"a": 2}]]}'
    assert compile_grammar(source, BYTE_VOCABULARY, "json_schema").start().forced_text == b'[1,{"a":2}]'


def test_lark_may_name_tokens():
    grammar = compile_grammar('start: "a" <[98]>\n', BYTE_VOCABULARY, "lark")
    assert grammar.has_token_references
    assert grammar.start().forced_tokens() == [97]


DEEP = 5_000

# Each row: kind, grammar, what is said; the place if there is one.
WRONG = {
    "not JSON": ("json_schema", '{"a":\n 1 2}', "not JSON: ", (2, 4)),
    "a number for a schema": ("json_schema", "12", "", None),
    "NaN": ("json_schema", '{"const": NaN}', "NaN is not a number in JSON", None),
    "infinity": ("json_schema", '{"const": 1e999}', "cannot represent exactly", None),
    "many digits": ("json_schema", '{"const": ' + "1" * 5000 + "}", "too many digits", None),
    "half a pair": ("json_schema", '{"const": "\\ud83d"}', "half of a surrogate pair", None),
    "a deep schema": ("json_schema", '{"items":' * DEEP + "{}" + "}" * DEEP, "nested too deeply", None),
    "a keyword of no help": ("json_schema", '{"type": "object", "not": {}}', "not", None),
    "an open group": ("regex", "(ab", "", None),
    "a backslash at the end": ("regex", "ab\\", "nothing follows this backslash", (1, 3)),
    "a look-ahead": ("regex", "a(?=b)", "", None),
    "no rules": ("lark", "", "", None),
    "an unknown rule": ("lark", "start: foo\n", "foo", None),
    "half a pair in Lark": ("lark", 'start: "a\ud83d"\n', "half of a surrogate pair", (1, 10)),
    "an unknown kind": ("bnf", "a", "must be one of gbnf, json_schema, regex, lark", None),
}


@pytest.mark.parametrize(("kind", "source", "message", "place"), WRONG.values(), ids=WRONG)
def test_wrong(kind, source, message, place):
    with pytest.raises(GrammarError) as caught:
        compile_grammar(source, None, kind)
    assert message in caught.value.message
    assert "panic" not in caught.value.message
    assert "backtrace" not in str(caught.value)
    if place is not None:
        assert (caught.value.line, caught.value.column) == place
