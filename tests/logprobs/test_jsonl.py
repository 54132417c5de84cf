"""The jsonl lines: strict JSON, tokens by id and bytes."""

import json
import math

import pytest
from logitsmith.logprobs import TokenLogprob, done_line, prompt_line, start_line, token_line

HALF = b"\xf0\x9f"


def test_token_line():
    line = token_line(3, TokenLogprob(7, b" a", -0.5), [TokenLogprob(8, HALF, -1.0)], " a")
    assert line.endswith("\n")
    assert json.loads(line) == {
        "event": "token",
        "index": 3,
        "id": 7,
        "token": " a",
        "bytes": [32, 97],
        "logprob": -0.5,
        "top_logprobs": [{"id": 8, "token": "\ufffd", "bytes": [0xF0, 0x9F], "logprob": -1.0}],
        "text": " a",
    }


@pytest.mark.parametrize("value", [None, -math.inf, math.nan, math.inf], ids=str)
def test_what_json_has_no_number_for_is_null(value):
    assert json.loads(token_line(0, TokenLogprob(1, b"x", value), (), ""))["logprob"] is None


def test_other_lines_name_their_event():
    assert json.loads(start_line({"seed": 1})) == {"event": "start", "seed": 1}
    assert json.loads(done_line({"text": "日\u2028\0"})) == {"event": "done", "text": "日\u2028\0"}
    assert json.loads(prompt_line(0, TokenLogprob(5, b"a", None)))["bytes"] == [97]


def test_a_line_is_one_line():
    assert start_line({"text": "a\nb\r\n"}).count("\n") == 1


def test_a_number_that_json_lacks_is_an_error_and_not_written():
    with pytest.raises(ValueError, match="Out of range float"):
        start_line({"x": math.inf})
