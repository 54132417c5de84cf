"""Strict JSON."""

import json

import pytest
from logitsmith.common import json_problem, parse_strict_json


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}), (b'"\xc3\xa4"', "ä")]
)
def test_json_is_read(text, value):
    assert parse_strict_json(text) == value


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "{", "", "[1,]"])
def test_other_than_json_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - json's own messages
        parse_strict_json(text)


def test_deep_nesting_is_a_value_error():
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        parse_strict_json("[" * 100_000 + "]" * 100_000)


def test_too_many_digits_are_named_without_pythons_own_advice():
    with pytest.raises(ValueError, match=r"^it has a number of too many digits$"):
        parse_strict_json("[" + "9" * 5000 + "]")


BROKEN = {
    "": "a value is missing",
    "nope": "a value is missing",
    "[1, ": "a value is missing",
    "{a: 1}": "a key in double quotes is missing",
    '{"a" 1}': "a colon is missing",
    "[1 2]": "a comma or a closing bracket is missing",
    '["a': "a text begins that is never closed",
    '["a\n"]': "a text has a control character such as a line end",
    r'["\q"]': "a backslash begins no escape of JSON",
    r'["\u12"]': "a backslash begins no escape of JSON",
    "1 2": "something follows the value",
}


@pytest.mark.parametrize(("text", "problem"), BROKEN.items())
def test_what_is_wrong_with_a_text_that_is_no_json(text, problem):
    with pytest.raises(json.JSONDecodeError) as caught:
        parse_strict_json(text)
    assert json_problem(caught.value) == problem
