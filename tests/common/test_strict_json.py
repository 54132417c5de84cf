"""Strict JSON."""

import pytest
from logitsmith.common import parse_strict_json


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
