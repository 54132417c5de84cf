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
