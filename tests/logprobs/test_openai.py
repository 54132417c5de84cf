"""OpenAI's objects and streams: as its API has them, and as its own client reads them."""

import json
from bisect import bisect_right
from dataclasses import replace
from itertools import accumulate
from typing import Annotated, Literal

import httpx2
import openai
import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json
from logitsmith.logprobs.openai import SERVER_SENT_DONE, ChatAnswer, server_sent
from logitsmith.logprobs.text_tokens import TextOffsets
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import Field

from .steps import (
    FINISH_REASONS,
    NO_NUMBERS,
    STEPS,
    chat_completion,
    cut_texts,
    follow,
    pieces,
    run,
    said,
    step,
    text_answer,
    text_completion,
)
from .strict import Ours, Strict, Usage, checked

Logprob = Annotated[float, Field(le=0)] | None
Byte = Annotated[int, Field(ge=0, le=255)]


class TextLogprobs(Strict):
    tokens: list[str]
    token_logprobs: list[Logprob]
    top_logprobs: list[dict[str, Annotated[float, Field(le=0)]] | None] | None
    text_offset: list[Annotated[int, Field(ge=0)]]


class TextChoice(Strict):
    text: str
    index: Literal[0]
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length", "content_filter"]


class TextCompletion(Ours):
    id: Annotated[str, Field(pattern="^cmpl-.")]
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: Annotated[list[TextChoice], Field(min_length=1, max_length=1)]
    usage: Usage


class TextChunkChoice(TextChoice):
    finish_reason: Literal["stop", "length", "content_filter"] | None


class TextChunk(TextCompletion):
    choices: Annotated[list[TextChunkChoice], Field(min_length=1, max_length=1)]
    usage: Usage | None = None


class TopToken(Strict):
    token: str
    logprob: Logprob
    bytes: list[Byte] | None


class ChatToken(TopToken):
    top_logprobs: list[TopToken]


class ChatLogprobs(Strict):
    content: list[ChatToken] | None
    refusal: None


class Message(Strict):
    role: Literal["assistant"]
    content: str
    refusal: None


class ChatChoice(Strict):
    index: Literal[0]
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class ChatObject(Ours):
    id: Annotated[str, Field(pattern="^chatcmpl-.")]
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: Annotated[list[ChatChoice], Field(min_length=1, max_length=1)]
    usage: Usage


class Delta(Strict):
    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChatChunkChoice(Strict):
    index: Literal[0]
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter", "function_call"] | None


class ChatChunkObject(ChatObject):
    object: Literal["chat.completion.chunk"]
    choices: Annotated[list[ChatChunkChoice], Field(min_length=1, max_length=1)]
    usage: Usage | None = None


PLAIN = pieces((b"The", -0.5), (b" cat", -1.25), (b"\n", -0.1), (b"sat", -2.0))
EMOJI = pieces((b"a", -0.5), (b"\xf0\x9f", -1.0), (b"\x98", -0.25), (b"\x80!", -0.125), ("é中".encode(), -3.0))
ENDED = (*PLAIN, step(b"<|im_end|>", said(-0.75), index=4, is_control=True))
HALVES = follow(step(b"a", said(-0.5)), step("é".encode()[:1], said(-0.25)))
PROMPT = "<s>Hi 😀 there"
ECHO = follow(
    step(b"<s>", is_control=True, token=1),
    step(b"<s>Hi", said(-4.0, (b"Hello", -1.0))),
    step(b" \xf0\x9f", said(-5.0, (b" ", -1.0))),
    step(b"\x98\x80", said(-0.25, (b"\x98\x80", -0.25))),
    step(b" there", said(-2.0, (b" there", -2.0))),
)

RUNS = {
    "plain": run(PLAIN),
    "from the chain": run(pieces((b"a", -0.5), (b"b", None), source="chain"), source="chain"),
    "no logprobs": run(follow(step(b"The"), step(b" cat")), source=None, top=0),
    "no likely tokens": run(follow(step(b"The", said(-0.5)), step(b" cat", said(-1.5))), top=0),
    "an emoji over tokens": run(EMOJI),
    "a special token": run(ENDED),
    "held back at a stop": run(PLAIN, stop="cat", text="The cat\nsat on"),
    "cut off inside a character": run(HALVES, reason="length", text="a\ufffd"),
    "nothing written": run((), reason="length"),
    "every separator": run(pieces(("a\u2028b\u2029\x85\r\n\x0b\x1c".encode(), -1.0), (b"\n\ndata: x\n\n", -2.0))),
}
ECHOES = {
    "echo": run(PLAIN, echo=ECHO, prompt=PROMPT),
    "echo alone": run((), echo=ECHO, prompt=PROMPT, reason="length"),
    "echo without logprobs": run(follow(step(b"a")), echo=(), prompt=PROMPT, source=None, top=0),
    "echo without likely tokens": run(
        follow(step(b"!", said(-0.5))), echo=follow(step(b"a"), step(b"b", said(-1.0))), prompt="ab", top=0
    ),
}
TEXT_RUNS = {**RUNS, **ECHOES}


def text_parts(whole):
    """A run as it is streamed as text."""
    return text_answer(whole).stream(whole.events, whole.prompt)


def chat_parts(whole):
    """A run as it is streamed as a chat."""
    return ChatAnswer(**whole.frame).stream(whole.events)


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
def test_a_text_completion_is_strict(whole):
    found = checked(TextCompletion, text_completion(whole)).choices[0]
    assert found.text == (whole.prompt if whole.echo is not None else "") + whole.done.text
    assert "logprobs_from" in text_completion(whole)
    logprobs = found.logprobs
    assert (logprobs is None) == (whole.source is None)
    if logprobs is not None:
        count = len(whole.tokens) + len(whole.echo or ())
        lists = (logprobs.tokens, logprobs.token_logprobs, logprobs.text_offset)
        assert [len(values) for values in lists] == [count] * 3
        assert (logprobs.top_logprobs is None) == (whole.top == 0)
        assert len(logprobs.top_logprobs or logprobs.tokens) == count


@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_a_chat_completion_is_strict(whole):
    found = checked(ChatObject, chat_completion(whole)).choices[0]
    assert found.message.content == whole.done.text
    assert "logprobs_from" in chat_completion(whole)
    assert (found.logprobs is None) == (whole.source is None)
    if found.logprobs is not None:
        if whole.done.stop is None:
            own = [one.data for one in whole.tokens if not one.is_control]
            assert [bytes(token.bytes) for token in found.logprobs.content] == own
        assert all(len(token.top_logprobs) <= whole.top for token in found.logprobs.content)


@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_each_text_chunk_is_strict(whole):
    chunks = [checked(TextChunk, part) for part in text_parts(whole)]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert [chunk.choices[0].finish_reason is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]


@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_each_chat_chunk_is_strict(whole):
    parts = [*chat_parts(whole)]
    chunks = [checked(ChatChunkObject, part) for part in parts]
    assert [chunk.usage is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert [chunk.choices[0].finish_reason is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    assert parts[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all("role" not in part["choices"][0]["delta"] for part in parts[1:])


NUMBERED = {name: whole for name, whole in RUNS.items() if name != "from the chain"}


@pytest.mark.parametrize("whole", NUMBERED.values(), ids=NUMBERED)
@pytest.mark.parametrize(
    ("make", "kind"), [(text_completion, Completion), (chat_completion, ChatCompletion)], ids=["text", "chat"]
)
def test_openai_types_hold_a_whole_run(make, kind, whole):
    wanted = make(whole)
    assert_whole(kind.model_validate(wanted, strict=True), wanted)


@pytest.mark.parametrize("whole", NUMBERED.values(), ids=NUMBERED)
def test_openai_types_hold_each_chat_chunk(whole):
    for part in chat_parts(whole):
        assert_whole(ChatCompletionChunk.model_validate(part, strict=True), part)


@pytest.mark.parametrize("whole", TEXT_RUNS.values(), ids=TEXT_RUNS)
def test_openai_client_reads_a_text_completion(whole):
    wanted = text_completion(whole)
    with client(encode_json(wanted).encode()) as api:
        found = api.completions.create(model="m", prompt="p", logprobs=2, echo=whole.echo is not None)
    assert type(found) is Completion
    assert_whole(found, wanted)


@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_openai_client_reads_a_chat_completion(whole):
    wanted = chat_completion(whole)
    with client(encode_json(wanted).encode()) as api:
        found = api.chat.completions.create(model="m", messages=[], logprobs=True, top_logprobs=2)
    assert type(found) is ChatCompletion
    assert_whole(found, wanted)


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


@pytest.mark.parametrize(("ours", "theirs"), FINISH_REASONS.items())
def test_every_finish_reason(ours, theirs):
    whole = run(PLAIN, reason=ours)
    found = [make(whole)["choices"][0] for make in (text_completion, chat_completion)]
    found += [[*parts(whole)][-1]["choices"][0] for parts in (text_parts, chat_parts)]
    assert [choice["finish_reason"] for choice in found] == [theirs] * 4


def test_a_stop_string_is_a_stop():
    assert text_completion(run(PLAIN, stop="\n\n"))["choices"][0]["finish_reason"] == "stop"


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


def test_echo_counts_the_written_tokens_alone():
    assert text_completion(ECHOES["echo"])["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "total_tokens": 8,
    }


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


@pytest.mark.parametrize("make", [text_completion, chat_completion], ids=["text", "chat"])
def test_a_split_character_leaves_no_replacement_character(make):
    found = encode_json(make(run(EMOJI)))
    assert "\ufffd" not in found
    assert '"a😀!é中"' in found
    assert '"bytes:\\\\xf0\\\\x9f"' in found


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


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_missing_logprob_is_null(value):
    whole = run([step(b"a", said(value, (b"b", value), source="chain"))], source="chain")
    logprobs = text_completion(whole)["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([None], [{}])
    (token,) = chat_completion(whole)["choices"][0]["logprobs"]["content"]
    assert (token["logprob"], token["top_logprobs"][0]["logprob"]) == (None, None)


def test_the_first_distribution_is_written():
    one = step(b"a", said(-0.5, (b"a", -0.5)), said(-0.25, (b"b", -0.25), source="chain"), token=0)
    logprobs = text_completion(run([one]))["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([-0.5], [{"a": -0.5}])
    (token,) = chat_completion(run([one]))["choices"][0]["logprobs"]["content"]
    assert (token["logprob"], [top["token"] for top in token["top_logprobs"]]) == (-0.5, ["a"])


@given(st.lists(STEPS, max_size=3), st.none() | st.lists(STEPS, max_size=2).map(tuple), st.integers(0, 2))
def test_any_run_is_strict(steps, echo, top):
    whole = run(steps, echo=echo, prompt="a\u2028b", top=top)
    checked(TextCompletion, text_completion(whole))
    checked(ChatObject, chat_completion(whole))
    for part in text_parts(whole):
        checked(TextChunk, part)
    for part in chat_parts(whole):
        checked(ChatChunkObject, part)
