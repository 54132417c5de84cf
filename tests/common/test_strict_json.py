"""Strict JSON."""

import json

import pytest
from logitsmith.common.strict_json import json_problem, parse_strict_json


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}), (b'"\xc3\xa4"', "ä")]
)
def test_json_is_read(text, value):
    assert parse_strict_json(text) == value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "", "[1,]"])
def test_other_than_json_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own messages
        parse_strict_json(text)


TOO_DEEP = {
    "arrays": "[" * 501 + "]" * 501,
    "objects": '{"a":' * 501 + "1" + "}" * 501,
    "bytes": b"[" * 501 + b"]" * 501,
    "beside a string": '{"a": "]]", "b": ' + "[" * 500 + "]" * 500 + "}",
    "never closed": "[" * 501,
    "any Python's limit": "[" * 100_000 + "]" * 100_000,
}


@pytest.mark.parametrize("text", TOO_DEEP.values(), ids=TOO_DEEP)
def test_deep_nesting_is_a_value_error(text):
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        parse_strict_json(text)


DEEP_ENOUGH = {
    "at the limit": "[" * 500 + "]" * 500,
    "many beside each other": "[" + "[[]]," * 1000 + "[]]",
    "brackets in a string": '["' + "[" * 600 + '"]',
    "quotes in a string": '["' + '\\"[' * 600 + '"]',
    "brackets behind a backslash": '["\\\\", "' + "{" * 600 + '"]',
}


@pytest.mark.parametrize("text", DEEP_ENOUGH.values(), ids=DEEP_ENOUGH)
def test_only_depth_counts(text):
    assert parse_strict_json(text) == json.loads(text) == parse_strict_json(text.encode())


def test_an_open_string_of_many_quotes_is_not_json():
    with pytest.raises(json.JSONDecodeError):
        parse_strict_json("[" + "[]," * 600 + '"' + '\\"' * 100_000)


@pytest.mark.parametrize("number", ["9" * 5000, f"1e{'9' * 20}", f"0.1E-{'9' * 20}"])
def test_too_many_digits_are_named_without_pythons_own_advice(number):
    with pytest.raises(ValueError, match=r"^it has a number of too many digits$"):
        parse_strict_json(f"[{number}]")


BROKEN = {
    "[1, ": "Expecting value",
    "[1 2]": "Expecting ',' delimiter",
    '["a': "Unterminated string",
    '["a\n"]': "Invalid control character",
    "1 2": "Extra data",
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.items())
def test_the_parsers_own_message_without_the_position(text, problem):
    with pytest.raises(json.JSONDecodeError) as caught:
        parse_strict_json(text)
    assert json_problem(caught.value) == problem
