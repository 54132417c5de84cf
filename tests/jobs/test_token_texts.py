"""Texts as token ids, in every form that gen detect reads."""

import json

import pytest
from logitsmith.jobs.errors import InvalidLineError
from logitsmith.jobs.token_texts import TextKind, guess_kind, read_token_texts

START = {"event": "start", "model": "m", "seed": 1}
DONE = {"event": "done", "finish_reason": "length", "stop": None, "text": "ab"}


def token(number, text="a"):
    return {"event": "token", "id": number, "text": text}


def jsonl(*lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


# the file, its kind, and the name, tokens and end tokens of its texts; a text becomes the codes of its letters
TEXTS = {
    "a text": ("ab\n", "text", [("", [97, 98], [])]),
    "a text with a number": ("1 b", "text", [("", [49, 32, 98], [])]),
    "a text in braces": ("{a}", "text", [("", [123, 97, 125], [])]),
    "an empty text": ("", "text", [("", [], [])]),
    "ids with spaces": ("1 2\n3\n", "ids", [("", [1, 2, 3], [])]),
    "ids with commas": ("1,2, 3", "ids", [("", [1, 2, 3], [])]),
    "a JSON list": ("[1, 2, 3]", "ids", [("", [1, 2, 3], [])]),
    "lists": ("[1, 2]\n[]\n[3]\n", "ids", [("text 1", [1, 2], []), ("text 2", [], []), ("text 3", [3], [])]),
    "a list of lists": ("[[1, 2], [3]]", "ids", [("text 1", [1, 2], []), ("text 2", [3], [])]),
    "a run": (jsonl(START, token(5), token(6), DONE), "jsonl", [("", [5, 6], [])]),
    "a run with its prompt": (
        jsonl(START, {"event": "prompt", "id": 1, "text": "x"}, token(5), DONE),
        "jsonl",
        [("", [5], [])],
    ),
    "a run that the model ended": (
        jsonl(START, token(5), token(2, ""), {**DONE, "finish_reason": "stop"}),
        "jsonl",
        [("", [5, 2], [2])],
    ),
    "a run that a stop string ended": (
        jsonl(START, token(5), token(2, ""), {**DONE, "finish_reason": "stop", "stop": "x"}),
        "jsonl",
        [("", [5, 2], [])],
    ),
    "a run that was cut off": (jsonl(START, token(5), token(6)), "jsonl", [("", [5, 6], [])]),
    "tokens only": (jsonl(token(5), token(6)), "jsonl", [("", [5, 6], [])]),
    "a run that went back": (
        jsonl(START, token(5), {"event": "rewind", "index": 1, "dropped": [7]}, token(6), DONE),
        "jsonl",
        [("", [5, 6], [])],
    ),
    "samples": (
        jsonl({**START, "sample": 0}, token(5), DONE, {**START, "sample": 1}, token(6), DONE),
        "jsonl",
        [("text 1", [5], []), ("text 2", [6], [])],
    ),
    "results with tokens": (
        jsonl({"id": "a", "line": 1, "text": "x", "tokens": [token(5), token(2, "")], "finish_reason": "stop"}),
        "jsonl",
        [("a", [5, 2], [2])],
    ),
    "results with ids": (jsonl({"id": "a", "tokens": [5, 6]}), "jsonl", [("a", [5, 6], [])]),
    "results without tokens": (jsonl({"id": "a", "text": "ab"}, {"text": "c"}), "jsonl", [
        ("a", [97, 98], []),
        ("line 2", [99], []),
    ]),
    "OpenAI's batch": (
        jsonl({"custom_id": "q", "response": {"body": {"choices": [{"message": {"content": "ab"}}]}}}),
        "jsonl",
        [("q", [97, 98], [])],
    ),
    "OpenAI's completion": (jsonl({"id": "x", "choices": [{"text": "ab"}]}), "jsonl", [("x", [97, 98], [])]),
}  # fmt: skip


def read(data, kind=None):
    data = data.encode()
    found = guess_kind(data) if kind is None else TextKind(kind)
    return found, list(read_token_texts(data, found, lambda text: list(text.encode())))


@pytest.mark.parametrize(("data", "kind", "texts"), TEXTS.values(), ids=TEXTS)
def test_texts(data, kind, texts):
    found, read_texts = read(data)
    assert found == kind
    assert [(text.name, text.tokens, sorted(text.end_tokens)) for text in read_texts] == texts


def test_a_byte_order_mark():
    assert read("\ufeff" + jsonl(START, token(5), DONE))[1][0].tokens == [5]
    assert read("\ufeff1 2", "ids")[1][0].tokens == [1, 2]


def test_a_request_without_an_answer():
    (text,) = read(jsonl({"id": "a", "error": {"message": "too long"}}))[1]
    assert text.problem == "the request has no answer ('too long')"


REFUSALS = {
    "neither": ('{"a": 1}\n', None, 'line 1: it is not an event of gen --format jsonl, and has neither "tokens"'),
    "broken": (jsonl(START) + "{\n", None, "line 2: it is not JSON"),
    "not an object": (jsonl(START) + "[]\n", None, "line 2: it is not an object"),
    "no id": (jsonl(START, {"event": "token", "text": "a"}), None, "line 2: id null is not a token id"),
    "a negative id": (jsonl(START, token(-1)), None, "line 2: id -1 is not a token id"),
    "a boolean": (jsonl({"id": "a", "tokens": [True]}), None, "line 1: id true is not a token id"),
    "a huge id": (f"1 {'9' * 5000}", "ids", f"{'9' * 20}"),
    "a huge id of a token": (
        jsonl({"id": "a", "tokens": [2**31]}),
        None,
        "line 1: id 2147483648 is not a token id",
    ),
    "words as ids": ("1 two 3", "ids", "'two' is not token ids; write them with spaces or commas"),
    "nothing as ids": ("", "ids", "it has no token ids"),
}


@pytest.mark.parametrize(("data", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(data, kind, message):
    with pytest.raises(InvalidLineError) as caught:
        read(data, kind)
    assert str(caught.value).startswith(message)


def test_bytes_that_are_not_utf_8():
    with pytest.raises(InvalidLineError, match="it is not UTF-8: byte 0xff at offset 1"):
        list(read_token_texts(b"a\xff", TextKind.text, lambda text: []))
