"""The jsonl lines: strict JSON, tokens by id and bytes, logprobs with their source."""

import base64
import io
import json
import math
import struct

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json, json_line
from logitsmith.logprobs.records import display_text

from .steps import DATA, NO_NUMBERS, STEPS, TEXTS, likely, prompt_line, said, step, token_line

HALF = b"\xf0\x9f"
ROW = struct.pack("<3f", -0.5, -1.5, -math.inf)

MODEL = said(-0.5, (b" a", -0.5), (HALF, -1.0), entropy=1.25)
CHAIN = said(-0.25, (b" a", -0.25), source="chain", entropy=0.5)

TOP = [
    {"id": 0, "token": " a", "bytes": [32, 97], "logprob": -0.5},
    {"id": 1, "token": "bytes:\\xf0\\x9f", "bytes": [0xF0, 0x9F], "logprob": -1.0},
]
CHAIN_TOP = [{"id": 0, "token": " a", "bytes": [32, 97], "logprob": -0.25}]
TOKEN = {"index": 3, "id": 7, "token": " a", "bytes": [32, 97]}

YES, NO = ({"id": number, "token": text, "bytes": [*text.encode()]} for number, text in enumerate(("yes", "no")))
ROW_TEXT = "AAAAvwAAwL8AAID/"


def told(logprob, top, entropy, **more):
    return {"logprob": logprob, "top_logprobs": top, "entropy": entropy, **more}


OF_MODEL, OF_CHAIN = told(-0.5, TOP, 1.25), told(-0.25, CHAIN_TOP, 0.5)
OF_TOKEN = told(-0.5, [], 1.25)

# Each row: what is said of a token, then what its line holds, in order.
FIELDS = {
    "nothing": ((), {"logprob": None, "top_logprobs": [], "text": " a"}),
    "model": ((MODEL,), {"logprobs_from": "model", **OF_MODEL, "text": " a"}),
    "chain": ((CHAIN,), {"logprobs_from": "chain", **OF_CHAIN, "text": " a"}),
    "both": ((MODEL, CHAIN), {"logprobs_from": "model", **OF_MODEL, "text": " a", "chain": OF_CHAIN}),
    "named": (
        (said(-0.5, entropy=1.25, named=likely((b"yes", -2.0), (b"no", -math.inf))),),
        {
            "logprobs_from": "model",
            **OF_TOKEN,
            "logprob_of": [{**YES, "logprob": -2.0}, {**NO, "logprob": None}],
            "text": " a",
        },
    ),
    "row": (
        (said(-0.5, entropy=1.25, row=ROW),),
        {"logprobs_from": "model", **OF_TOKEN, "row": ROW_TEXT, "text": " a"},
    ),
    "named and row of both": (
        (
            said(-0.5, entropy=1.25, named=likely((b"yes", -2.0)), row=ROW),
            said(None, source="chain", entropy=0.0, named=likely((b"yes", None)), row=ROW),
        ),
        {
            "logprobs_from": "model",
            **OF_TOKEN,
            "logprob_of": [{**YES, "logprob": -2.0}],
            "row": ROW_TEXT,
            "text": " a",
            "chain": told(None, [], 0.0, logprob_of=[{**YES, "logprob": None}], row=ROW_TEXT),
        },
    ),
}

SPELLINGS = {
    "text": (b" a", " a"),
    "nothing": (b"", ""),
    "a character": ("😀".encode(), "😀"),
    "control characters": (b"\0\t\n\x1b\x7f", "\0\t\n\x1b\x7f"),
    "line separators": ("\u2028\u2029\x85".encode(), "\u2028\u2029\x85"),
    "a written replacement character": ("\ufffd".encode(), "\ufffd"),
    "a byte order mark": ("\ufeff".encode(), "\ufeff"),
    "its beginning": (b"\xf0\x9f", "bytes:\\xf0\\x9f"),
    "its end": (b"\x98\x80", "bytes:\\x98\\x80"),
    "one byte": (b"\xe4", "bytes:\\xe4"),
    "behind ASCII": (b" a~\xf0", "bytes: a~\\xf0"),
    "before ASCII": (b"\x80!", "bytes:\\x80!"),
    "behind control characters": (b"\n\x7f\x1f\xff", "bytes:\\x0a\\x7f\\x1f\\xff"),
    "behind another character": ("é".encode() + b"\xf0", "bytes:\\xc3\\xa9\\xf0"),
    "half a pair": (b"\xed\xa0\x80", "bytes:\\xed\\xa0\\x80"),
    "longer than need be": (b"\xc0\xaf", "bytes:\\xc0\\xaf"),
}

TEXTS_IN_JSON = {
    "quotes": '"\\/',
    "line ends": "a\nb\r\nc",
    "control characters": "".join(map(chr, range(32))) + "\x7f",
    "line separators": "a\u2028b\u2029c\x85d\x0bf\x0cg\x1ch",
    "beyond the first plane": "😀𝄞",
    "a right-to-left override": "\u202eabc",
    "a byte order mark": "\ufeffa",
}


def strict(line):
    """Parse a line of JSON. Raises for NaN, Infinity and duplicate names."""

    def once(pairs):
        names = [name for name, _ in pairs]
        assert len(names) == len(set(names)), names
        return dict(pairs)

    assert [*io.BytesIO(line.encode())] == [line.encode()]
    assert line.endswith("}\n")
    return json.loads(line, parse_constant=pytest.fail, object_pairs_hook=once)


@pytest.mark.parametrize(("write", "event"), [(token_line, "token"), (prompt_line, "prompt")])
@pytest.mark.parametrize(("distributions", "fields"), FIELDS.values(), ids=FIELDS)
def test_fields_and_their_order(write, event, distributions, fields):
    found = strict(write(step(b" a", *distributions, index=3)))
    wanted = {"event": event, **TOKEN, **fields}
    assert found == wanted
    assert [*found] == [*wanted]


@pytest.mark.parametrize("write", [token_line, prompt_line])
@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_what_json_has_no_number_for_is_null(write, value):
    model = said(value, (b"a", value), named=likely((b"b", value)), entropy=value)
    chain = said(value, (b"a", value), source="chain", named=likely((b"b", value)), entropy=value)
    found = strict(write(step(b"x", model, chain)))
    for part in (found, found["chain"]):
        assert part["logprob"] is None
        assert part["entropy"] is None
        assert [token["logprob"] for token in part["top_logprobs"] + part["logprob_of"]] == [None, None]


def test_a_row_is_read_back_byte_for_byte():
    found = strict(token_line(step(b"x", said(-0.5, row=ROW))))
    assert struct.unpack("<3f", base64.b64decode(found["row"], validate=True)) == (-0.5, -1.5, -math.inf)
    assert strict(token_line(step(b"x", said(-0.5, row=b""))))["row"] == ""


@pytest.mark.parametrize("value", [-0.1, -1e-320, -1.7976931348623157e308, -0.0, -2 / 3], ids=str)
def test_numbers_are_written_exactly(value):
    found = strict(token_line(step(b"x", said(value, entropy=-value))))
    assert (found["logprob"], found["entropy"]) == (value, -value)
    assert math.copysign(1, found["logprob"]) == -1


@pytest.mark.parametrize(("data", "text"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_token_is_spelled(data, text):
    assert display_text(data) == text
    found = strict(token_line(step(data, said(-0.5, (data, -0.5)))))
    for token in (found, *found["top_logprobs"]):
        assert (token["token"], bytes(token["bytes"])) == (text, data)


@given(DATA)
def test_a_spelling_is_the_text_or_printable_ascii(data):
    text = display_text(data)
    if text.encode() != data:
        assert text.startswith("bytes:")
        assert text.isascii()
        assert text.isprintable()
        assert "\ufffd" not in text
        with pytest.raises(UnicodeDecodeError):
            data.decode()


@pytest.mark.parametrize("text", TEXTS_IN_JSON.values(), ids=TEXTS_IN_JSON)
def test_any_text_stays_on_one_line(text):
    assert strict(json_line({"text": text}))["text"] == text
    found = strict(token_line(step(text.encode(), text=text)))
    assert (found["token"], found["text"]) == (text, text)


def test_text_is_not_escaped_to_ascii():
    assert json_line({"text": "é中😀"}) == '{"text": "é中😀"}\n'


def test_text_may_lag_behind_the_bytes():
    found = strict(token_line(step(HALF, text="")))
    assert (found["token"], found["text"]) == ("bytes:\\xf0\\x9f", "")


def test_a_special_token_is_named_but_not_in_the_text():
    found = strict(token_line(step(b"<|im_end|>", is_control=True)))
    assert (found["token"], found["text"]) == ("<|im_end|>", "")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan], ids=str)
def test_a_number_that_json_lacks_is_an_error_and_not_written(value):
    with pytest.raises(ValueError, match="Out of range float"):
        json_line({"chain": [{"logit_bias": {"bias": value}}]})


@given(STEPS)
def test_any_step_is_strict_json_on_one_line(token):
    found = strict(token_line(token))
    assert bytes(found["bytes"]) == token.data
    assert found["text"] == token.text
    assert [*found][:5] == ["event", "index", "id", "token", "bytes"]
    assert ("logprobs_from" in found) == bool(token.distributions)
    assert ("chain" in found) == (len(token.distributions) == 2)
    assert strict(prompt_line(token)) == {**found, "event": "prompt"}


@given(st.dictionaries(TEXTS, TEXTS | st.floats(allow_nan=False, allow_infinity=False) | st.none()))
def test_encode_is_the_inverse_of_reading(fields):
    assert json.loads(encode_json(fields)) == fields
    assert "\n" not in encode_json(fields)
