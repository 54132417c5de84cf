"""OpenAI's objects and streams: as its API has them, and as its own client reads them."""

import json
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate

import httpx2
import openai
import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json
from logitsmith.logprobs.openai import SERVER_SENT_DONE, server_sent
from logitsmith.logprobs.text_tokens import TextOffsets
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from .steps import (
    chat_completion,
    cut_texts,
    follow,
    pieces,
    run,
    said,
    step,
    text_completion,
)
from .test_shapes import ECHOES, PLAIN, RUNS, TEXT_RUNS, chat_parts, text_parts


def stream(parts):
    return ("".join(map(server_sent, parts)) + SERVER_SENT_DONE).encode()


def client(body, size=None):
    """OpenAI's client with a server that answers with this. ``size``: of the pieces in which a stream comes."""
    if size is None:
        content, kind = body, "application/json"
    else:
        content, kind = (body[at : at + size] for at in range(0, len(body), size)), "text/event-stream"
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, content=content, headers={"content-type": kind})
    )
    return openai.OpenAI(
        api_key="none", base_url="http://server/v1", http_client=httpx2.Client(transport=transport)
    )


def assert_whole(found, wanted):
    """Check that the client's object has the fields and values of `wanted`."""
    assert found.model_dump(mode="json", exclude_unset=True) == json.loads(encode_json(wanted))


@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_openai_client_reads_whole_answers(whole):
    text, chat = text_completion(whole), chat_completion(whole)
    is_numbered = whole.source != "chain" and whole.echo is None  # OpenAI's types have no logprob that is null
    with client(encode_json(text).encode()) as api:
        found = api.completions.create(model="m", prompt="p", logprobs=2, echo=whole.echo is not None)
    with client(encode_json(chat).encode()) as api:
        found_chat = api.chat.completions.create(model="m", messages=[], logprobs=True, top_logprobs=2)
    for each, kind, wanted in ((found, Completion, text), (found_chat, ChatCompletion, chat)):
        assert type(each) is kind
        assert_whole(each, wanted)
        if is_numbered:
            assert_whole(kind.model_validate(wanted, strict=True), wanted)
    for part in chat_parts(whole) if is_numbered else ():
        assert_whole(ChatCompletionChunk.model_validate(part, strict=True), part)


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_openai_client_reads_a_text_stream(whole, size):
    parts = [*text_parts(whole)]
    with client(stream(parts), size) as api, api.completions.create(model="m", prompt="p", stream=True) as events:
        found = [*events]
    assert len(found) == len(parts)
    for chunk, part in zip(found, parts, strict=True):
        assert_whole(chunk, part)
    wanted = text_completion(whole)
    (choice,) = wanted["choices"]
    assert "".join(chunk.choices[0].text for chunk in found) == choice["text"]
    assert found[-1].choices[0].finish_reason == choice["finish_reason"]
    assert found[-1].usage.model_dump(exclude_unset=True) == wanted["usage"]
    told = [chunk.choices[0].logprobs for chunk in found if chunk.choices[0].logprobs is not None]
    logprobs = choice["logprobs"] or {"tokens": [], "token_logprobs": [], "text_offset": []}
    for name in ("tokens", "token_logprobs", "text_offset"):
        assert [value for one in told for value in getattr(one, name)] == logprobs[name]
    assert [value for one in told for value in one.top_logprobs or ()] == (logprobs.get("top_logprobs") or [])


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_openai_client_reads_a_chat_stream(whole, size):
    parts = [*chat_parts(whole)]
    with client(stream(parts), size) as api:
        found = [*api.chat.completions.create(model="m", messages=[], stream=True)]
    assert len(found) == len(parts)
    for chunk, part in zip(found, parts, strict=True):
        assert_whole(chunk, part)
    wanted = chat_completion(whole)
    (choice,) = wanted["choices"]
    assert found[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in found) == choice["message"]["content"]
    assert found[-1].choices[0].finish_reason == choice["finish_reason"]
    assert found[-1].usage.model_dump(exclude_unset=True) == wanted["usage"]
    told = [chunk.choices[0].logprobs for chunk in found if chunk.choices[0].logprobs is not None]
    content = [token.model_dump(exclude_unset=True) for one in told for token in one.content]
    assert content == (choice["logprobs"] or {"content": []})["content"]


@pytest.mark.parametrize("parts", [text_parts, chat_parts], ids=["text", "chat"])
@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_an_event_is_one_line_of_data_and_an_empty_one(parts, whole):
    *events, last, end = stream(parts(whole)).split(b"\n\n")
    assert (last, end) == (b"data: [DONE]", b"")
    for event, part in zip(events, parts(whole), strict=True):
        assert event.splitlines() == [event]
        assert event.startswith(b"data: {")
        assert json.loads(event[6:], parse_constant=pytest.fail) == part


@pytest.mark.parametrize("parts", [text_parts, chat_parts], ids=["text", "chat"])
def test_chunks_share_their_head(parts):
    names = {"id", "object", "created", "model", "system_fingerprint", "logprobs_from"}
    heads = [{name: part[name] for name in names} for part in parts(RUNS["plain"])]
    assert heads == [heads[0]] * len(heads)


def test_a_text_completion_to_the_letter():
    one = follow(
        step(b" a", said(-0.5, (b" a", -0.5), (b"b", -1.5)), token=0),
        step(b"c", said(-2.0, (b"d", -0.25), (b"e", -1.0))),
    )
    assert text_completion(run(one, reason="length")) == {
        "id": "cmpl-0123456789abcdef",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "SmolLM2-135M-Instruct",
        "system_fingerprint": "logitsmith-0.1.0",
        "logprobs_from": "model",
        "choices": [
            {
                "text": " ac",
                "index": 0,
                "logprobs": {
                    "tokens": [" a", "c"],
                    "token_logprobs": [-0.5, -2.0],
                    "top_logprobs": [{" a": -0.5, "b": -1.5}, {"d": -0.25, "e": -1.0, "c": -2.0}],
                    "text_offset": [0, 2],
                },
                "finish_reason": "length",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6},
    }


def test_a_chat_completion_to_the_letter():
    one = follow(step(b" a", said(-2.0, (b"\xf0", -0.5), ("é".encode(), -1.5))))
    assert chat_completion(run(one)) == {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "SmolLM2-135M-Instruct",
        "system_fingerprint": "logitsmith-0.1.0",
        "logprobs_from": "model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": " a", "refusal": None},
                "logprobs": {
                    "content": [
                        {
                            "token": " a",
                            "logprob": -2.0,
                            "bytes": [32, 97],
                            "top_logprobs": [
                                {"token": "bytes:\\xf0", "logprob": -0.5, "bytes": [0xF0]},
                                {"token": "é", "logprob": -1.5, "bytes": [0xC3, 0xA9]},
                            ],
                        }
                    ],
                    "refusal": None,
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5},
    }


def test_the_last_part_of_a_chat_says_nothing_where_nothing_was_held_back():
    assert [*chat_parts(run(PLAIN))][-1]["choices"][0]["delta"] == {}
    assert [*chat_parts(RUNS["cut off inside a character"])][-1]["choices"][0]["delta"] == {"content": "\ufffd"}


def test_echo_puts_the_prompt_first():
    (choice,) = text_completion(ECHOES["echo"])["choices"]
    logprobs = choice["logprobs"]
    assert choice["text"] == "<s>Hi 😀 thereThe cat\nsat"
    assert logprobs["tokens"] == [
        "",  # a BOS token that the tokenizer added is not part of the text
        "<s>Hi",
        "bytes: \\xf0\\x9f",
        "bytes:\\x98\\x80",
        " there",
        "The",
        " cat",
        "\n",
        "sat",
    ]
    assert logprobs["token_logprobs"] == [None, -4.0, -5.0, -0.25, -2.0, -0.5, -1.25, -0.1, -2.0]
    assert logprobs["top_logprobs"][:2] == [None, {"Hello": -1.0, "<s>Hi": -4.0}]
    assert logprobs["text_offset"] == [0, 0, 5, 6, 7, 13, 16, 20, 21]


def test_a_stream_has_the_end_of_a_prompt_whose_token_a_stop_string_cuts():
    healed = replace(step(b"ab", text=""), healed_bytes=1)
    whole = run([healed], stop="b", text="", echo=(), prompt="a", source=None, top=0)
    assert "".join(part["choices"][0]["text"] for part in text_parts(whole)) == "a"
    assert text_completion(whole)["choices"][0]["text"] == "a"


BLANK_FIRST = run(
    pieces((b" you", -0.5), (b"?", -1.0)), echo=follow(step(b" Hi"), step(b" all", said(-2.0))), prompt="Hi all"
)


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_offsets_where_the_tokens_have_a_space_that_the_prompt_does_not(form):
    parts = [text_completion(BLANK_FIRST)] if form == "whole" else text_parts(BLANK_FIRST)
    choices = [part["choices"][0] for part in parts]
    text = "".join(choice["text"] for choice in choices)
    logprobs = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    tokens = [token for one in logprobs for token in one["tokens"]]
    offsets = [offset for one in logprobs for offset in one["text_offset"]]
    assert [text[offset:].startswith(token) for token, offset in zip(tokens[2:], offsets[2:], strict=True)] == [
        True,
        True,
    ]


# Each row: tokens, then where they begin in the text that they make.
OFFSETS = {
    "nothing": ([], []),
    "ASCII": ([b"The", b" cat", b"!"], [0, 3, 7]),
    "characters of many bytes": (["é中".encode(), "😀".encode(), b"a"], [0, 2, 3]),
    "an emoji over two": ([b"a", b"\xf0\x9f", b"\x98\x80", b"b"], [0, 1, 1, 2]),
    "an emoji byte by byte": ([b"\xf0", b"\x9f", b"\x98", b"\x80", b"b"], [0, 0, 0, 0, 1]),
    "text before and behind its parts": ([b"ab\xf0\x9f", b"\x98\x80cd", b"e"], [0, 2, 5]),
    "two characters that touch": ([b"a\xc3", b"\xa9\xe4\xb8", b"\xad", b"b"], [0, 1, 2, 3]),
    "empty tokens": ([b"", b"a", b"", b"b"], [0, 0, 1, 1]),
    "an empty token inside a character": ([b"a\xc3", b"", b"\xa9", b"b"], [0, 1, 1, 2]),
    "joined characters": (["👩\u200d".encode(), "👩".encode(), b"."], [0, 2, 3]),
    "bytes that are not UTF-8": ([b"\xff", b"a", b"\x80", b"b"], [0, 1, 2, 3]),
    "a character that is never whole": ([b"a\xf0\x9f", b"b", b"c"], [0, 2, 3]),
    "a character broken off by another": ([b"\xf0\x9f", "é".encode(), b"c"], [0, 1, 2]),
}


@pytest.mark.parametrize(("tokens", "wanted"), OFFSETS.values(), ids=OFFSETS)
def test_offsets(tokens, wanted):
    steps = pieces(*((data, -1.0) for data in tokens))
    assert TextOffsets().advance(steps) == wanted
    assert text_completion(run(steps))["choices"][0]["logprobs"]["text_offset"] == wanted
    one_by_one = TextOffsets()
    assert [place for one in steps for place in one_by_one.advance([one])] == wanted


@given(cut_texts())
def test_a_token_begins_where_its_character_does(cut):
    text, tokens = cut
    steps = pieces(*((data, -1.0) for data in tokens))
    starts = [0, *accumulate(map(len, tokens))][: len(tokens)]
    wanted = [len(text.encode()[:start].decode(errors="ignore")) for start in starts]
    assert TextOffsets().advance(steps) == wanted
    (choice,) = text_completion(run(steps))["choices"]
    assert (choice["text"], choice["logprobs"]["text_offset"]) == (text, wanted)
    assert "".join(part["choices"][0]["text"] for part in text_parts(run(steps))) == text


def characters(data):
    """Yield the offset of each character of these bytes, with one U+FFFD for each part that is not UTF-8."""
    at = 0
    while at < len(data):
        try:
            whole, broken = data[at:].decode(), 0
        except UnicodeDecodeError as error:
            whole, broken = data[at : at + error.start].decode(), error.end - error.start
        for character in whole:
            yield at
            at += len(character.encode())
        if broken:
            yield at
        at += broken


@given(st.lists(st.lists(st.sampled_from(b"a\xf0\x9f\x98\x80\xe4\xb8\xad\xc3\xff"), min_size=1).map(bytes)))
def test_offsets_in_any_bytes(tokens):
    begins = [*characters(b"".join(tokens))]
    starts = [0, *accumulate(map(len, tokens))][: len(tokens)]
    wanted = [bisect_right(begins, start) - 1 for start in starts]
    assert TextOffsets().advance(pieces(*((data, -1.0) for data in tokens))) == wanted


def test_special_tokens_are_not_in_the_text():
    steps = follow(
        step(b"a\xf0\x9f", said(-1.0)),
        step(b"<|pad|>", said(-2.0), is_control=True),
        step(b"\x98\x80b", said(-3.0)),
        step(b"<|im_end|>", said(-4.0), is_control=True),
    )
    (choice,) = text_completion(run(steps))["choices"]
    assert choice["text"] == "a😀b"
    assert choice["logprobs"]["tokens"] == ["bytes:a\\xf0\\x9f", "", "bytes:\\x98\\x80b", ""]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 3]
    (choice,) = chat_completion(run(steps))["choices"]
    assert choice["message"]["content"] == "a😀b"
    assert [bytes(token["bytes"]) for token in choice["logprobs"]["content"]] == [b"a\xf0\x9f", b"\x98\x80b"]


# Each row: a step, then its likely tokens by text.
BY_TEXT = {
    "chosen among them": (step(b"a", said(-0.5, (b"a", -0.5), (b"b", -1.0)), token=0), {"a": -0.5, "b": -1.0}),
    "chosen beside them": (step(b"c", said(-3.0, (b"a", -0.5))), {"a": -0.5, "c": -3.0}),
    "two that print alike": (
        step(b"c", said(-3.0, (b"a", -0.5), (b"a", -1.0))),
        {"a": -0.5, "token_id:1": -1.0, "c": -3.0},
    ),
    "chosen prints like a likelier one": (step(b"a", said(-3.0, (b"a", -0.5))), {"token_id:0": -0.5, "a": -3.0}),
    "chosen is the less likely of two that print alike": (
        step(b"a", said(-1.0, (b"a", -0.5), (b"a", -1.0)), token=1),
        {"token_id:0": -0.5, "a": -1.0},
    ),
    "spelled like the bytes of another": (
        step(b"x", said(-3.0, (b"bytes:\\xf0", -0.5), (b"\xf0", -1.0))),
        {"bytes:\\xf0": -0.5, "token_id:1": -1.0, "x": -3.0},
    ),
    "empty texts": (step(b"", said(-3.0, (b"", -1.0))), {"token_id:0": -1.0, "": -3.0}),
    "impossible ones are left out": (step(b"a", said(None, (b"b", -0.5), (b"c", float("-inf")))), {"b": -0.5}),
    "an impossible one that prints alike": (step(b"a", said(-1.0, (b"a", None))), {"a": -1.0}),
    "none": (step(b"a", said(None)), {}),
    "nothing is said of it": (step(b"a"), None),
}


@pytest.mark.parametrize(("token", "wanted"), BY_TEXT.values(), ids=BY_TEXT)
def test_likely_tokens_by_text(token, wanted):
    (found,) = text_completion(run([token]))["choices"][0]["logprobs"]["top_logprobs"]
    assert found == wanted
    assert found is None or [*found] == [*wanted]


def test_tokens_of_equal_text_are_all_listed_in_a_chat():
    one = step(b"a", said(-0.5, (b"a", -0.5), (b"a", -1.0), (b"\xf0", -2.0)))
    (token,) = chat_completion(run([one], top=3))["choices"][0]["logprobs"]["content"]
    assert [(top["token"], top["logprob"]) for top in token["top_logprobs"]] == [
        ("a", -0.5),
        ("a", -1.0),
        ("bytes:\\xf0", -2.0),
    ]


def test_the_first_distribution_is_written():
    one = step(b"a", said(-0.5, (b"a", -0.5)), said(-0.25, (b"b", -0.25), source="chain"), token=0)
    logprobs = text_completion(run([one]))["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([-0.5], [{"a": -0.5}])
    (token,) = chat_completion(run([one]))["choices"][0]["logprobs"]["content"]
    assert (token["logprob"], [top["token"] for top in token["top_logprobs"]]) == (-0.5, ["a"])
