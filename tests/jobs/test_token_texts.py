"""Texts as token ids, in every form that gen detect reads."""

import json

import pytest
from logitsmith.jobs.token_texts import TextKind, guess_kind, read_token_texts
from logitsmith.requests.errors import InvalidLineError

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
    "OpenAI's batch with the API's id": (
        jsonl({"id": "batch_req_1", "custom_id": "q", "response": {"body": {"choices": [{"text": "ab"}]}}}),
        "jsonl",
        [("q", [97, 98], [])],
    ),
    "llama-server's completion": (
        jsonl({"index": 0, "content": "ab", "tokens": [], "stop": True, "stop_type": "eos"}),
        "jsonl",
        [("line 1", [97, 98], [])],
    ),
    "llama-server's completion with its tokens": (
        jsonl({"content": "ab", "tokens": [5, 6], "stop": True, "stop_type": "limit"}),
        "jsonl",
        [("line 1", [5, 6], [])],
    ),
    "llama-server's completion in a batch": (
        jsonl({"custom_id": "q", "response": {"status_code": 200, "body": {"content": "ab", "tokens": []}}}),
        "jsonl",
        [("q", [97, 98], [])],
    ),
    "KoboldAI's results": (
        jsonl({"results": [{"text": "ab", "finish_reason": "length"}]}),
        "jsonl",
        [("line 1", [97, 98], [])],
    ),
    "several choices": (
        jsonl({"id": "x", "choices": [{"text": "ab"}, {"message": {"content": "c"}}]}),
        "jsonl",
        [("x: choice 1", [97, 98], []), ("x: choice 2", [99], [])],
    ),
    "an answer on several lines": (
        json.dumps({"custom_id": "q", "id": "x", "choices": [{"text": "ab"}]}, indent=2),
        "jsonl",
        [("q", [97, 98], [])],
    ),
    "an object on several lines": ('{\n"text": "a"\n}\n', "jsonl", [("", [97], [])]),
    "choices without a name": (
        json.dumps({"choices": [{"text": "a"}, {"text": "b"}]}, indent=2),
        "jsonl",
        [("choice 1", [97], []), ("choice 2", [98], [])],
    ),
    "a list of objects": (
        '[{"text": "ab"},\n {"id": "x", "tokens": [5]}]',
        "jsonl",
        [("item 1", [97, 98], []), ("x", [5], [])],
    ),
    "a list of events": (json.dumps([START, token(5), DONE]), "jsonl", [("", [5], [])]),
    "a text in brackets": ("[a]", "text", [("", [91, 97, 93], [])]),
    "lists with commas between them": (
        "[1, 2],\n[3]",
        "ids",
        [("text 1", [1, 2], []), ("text 2", [3], [])],
    ),
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


PROBLEMS = {
    "an empty file": ("", "there is nothing to score: it is empty"),
    "spaces": ("\ufeff \n", "there is nothing to score: it is empty"),
    "no content": (jsonl({"id": "a", "choices": [{"message": {"content": None}}]}), "the answer has no text"),
    "a tool call": (
        jsonl({"id": "a", "choices": [{"message": {"role": "assistant", "tool_calls": [{}]}}]}),
        "the answer has no text",
    ),
    "a null text": (jsonl({"id": "a", "text": None}), "the answer has no text"),
    "no choices": (jsonl({"id": "a", "choices": []}), "the request has no answer"),
    "no results": (jsonl({"results": []}), "the request has no answer"),
    "no response": (jsonl({"custom_id": "a", "response": None}), "the request has no answer"),
    "an error of the API": (
        jsonl({"custom_id": "a", "response": {"body": {"error": {"message": "too long"}}}}),
        "the request has no answer ('too long')",
    ),
}


@pytest.mark.parametrize(("data", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_texts_that_cannot_be_scored(data, problem):
    text, *others = read(data + (jsonl({"id": "b", "tokens": [5]}) if data.startswith("{") else ""))[1]
    assert (text.problem, text.tokens) == (problem, [])
    assert [other.tokens for other in others] == ([[5]] if data.startswith("{") else [])


REFUSALS = {
    "ids outside a list": (
        "1 2\n[3, 4] 5",
        None,
        "line 1: 1 is outside the lists; write all ids in lists, or none",
    ),
    "ids after a list": ("[3, 4]\n5", None, "line 2: 5 is outside the lists; write all ids in lists, or none"),
    "ids between inner lists": ("[[3], 5, [4]]", None, "line 1: 5 is outside the lists"),
    "a list that is not closed": ("[1, 2]\n[3, 4", None, "line 2: the list that begins here is not closed by the"),
    "an outer list that is not closed": ("[[1], [2, 3]", None, "line 1: the list that begins here is not closed"),
    "lists in an open list": ("[[1, 2], [3", None, "line 1: the list that begins here is not closed"),
    "a bracket too many": ("[1, 2]\n]", None, "line 2: the bracket ] closes no list"),
    "a bracket after ids": ("1 2]", None, "line 1: 1 is outside the lists"),
    "a list among ids": ("[1, [2]]", None, "line 1: a list of ids cannot contain another list"),
    "a deep list": ("[[[2]]]", None, "line 1: a list of ids cannot contain another list"),
    "an odd answer": ('{\n"a": 1}', None, 'it is not an event of gen --format jsonl, and has no "tokens", "text"'),
    "an odd item": ('[{"text": "a"}, {"a": 1}]', None, "item 2: it is not an event of gen --format jsonl"),
    "neither": ('{"a": 1}\n', None, 'line 1: it is not an event of gen --format jsonl, and has no "tokens"'),
    "a message of a chat": ('{"role": "user", "content": "a"}\n', None, "line 1: it is not an event of gen"),
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
    "a text as JSON": ("ab", "jsonl", "line 1: it is not JSON"),
}


@pytest.mark.parametrize(("data", "kind", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(data, kind, message):
    with pytest.raises(InvalidLineError) as caught:
        read(data, kind)
    assert str(caught.value).startswith(message)


def test_bytes_that_are_not_utf_8():
    with pytest.raises(InvalidLineError, match="it is not UTF-8: byte 0xff at offset 1"):
        list(read_token_texts(b"a\xff", TextKind.text, lambda text: []))
