"""Together's completion: plain lists of tokens and logprobs, the prompt's beside them."""

import json
from typing import Annotated, Literal

import pytest
from hypothesis import given, strategies as st
from logitsmith.common.strict_json import encode_json
from logitsmith.logprobs import other_apis
from logitsmith.logprobs.openai import logprobs_by_text
from pydantic import Field

from .steps import FINISH_REASONS, NO_NUMBERS, STEPS, follow, pieces, run as any_run, said, step
from .strict import Ours, Strict, Usage, checked

Logprob = Annotated[float, Field(le=0)] | None


class Lists(Strict):
    tokens: list[str]
    token_logprobs: list[Logprob]


class Prompt(Strict):
    text: str
    logprobs: Lists | None


class Choice(Strict):
    finish_reason: Literal["stop", "eos", "length", "tool_calls", "function_call"]
    logprobs: Lists | None
    index: Literal[0]


class TextChoice(Choice):
    text: str


class Message(Strict):
    role: Literal["assistant"]
    content: str


class ChatChoice(Choice):
    message: Message


class Response(Ours):
    id: str
    created: int
    model: str
    prompt: Annotated[list[Prompt], Field(max_length=1)]
    usage: Usage


class TextResponse(Response):
    object: Literal["text_completion"]
    choices: Annotated[list[TextChoice], Field(min_length=1, max_length=1)]


class ChatResponse(Response):
    object: Literal["chat.completion"]
    choices: Annotated[list[ChatChoice], Field(min_length=1, max_length=1)]


KINDS = {False: TextResponse, True: ChatResponse}

# As Together's own documentation shows them, shortened.
SHOWN = {
    "id": "85d3d3ff1a0d8c57-EWR",
    "object": "chat.completion",
    "created": 1709240335,
    "model": "codellama/CodeLlama-70b-Instruct-hf",
    "prompt": [],
    "choices": [
        {
            "finish_reason": "length",
            "logprobs": {"tokens": ["1", ".", " Define"], "token_logprobs": [-1.0029297, -0.07861328, -2.1367188]},
            "index": 0,
            "message": {"role": "assistant", "content": "1. Define"},
        }
    ],
    "usage": {"prompt_tokens": 33, "completion_tokens": 10, "total_tokens": 43},
}
SHOWN_WITH_ECHO = {
    **SHOWN,
    "prompt": [
        {
            "text": "<s> Source: user",
            "logprobs": {
                "tokens": ["<s>", "", "Source", ":", "user"],
                "token_logprobs": [None, -3.6757812, -12.984375, -0.025985718, -14],
            },
        }
    ],
}

PLAIN = pieces((b"1", -1.0029297), (b".", -0.07861328), (b" Define", -2.1367188))
ECHO = follow(
    step(b"<s>", token=1, is_control=True), step(b"Source", said(-12.984375)), step(b":", said(-0.025985718))
)


def together_completion(whole, chat):
    return other_apis.together_completion([whole.events], chat=chat, **whole.text_frame)


def run(steps, **rest):
    """A run with no more than the chosen token's logprobs, unless more are asked for."""
    return any_run(steps, **{"top": 1, **rest})


RUNS = {
    "plain": run(PLAIN),
    "from the chain": run(pieces((b"a", -0.5), (b"b", None), source="chain"), source="chain"),
    "no logprobs": run(follow(step(b"a")), source=None, top=0),
    "echo": run(PLAIN, echo=ECHO, prompt="<s>Source:"),
    "echo alone": run((), echo=ECHO, prompt="<s>Source:", reason="length"),
    "echo without logprobs": run(follow(step(b"a")), echo=(), prompt="Source:", source=None, top=0),
    "an emoji over tokens": run(pieces((b"a\xf0\x9f", -1.0), (b"\x98\x80", -0.25))),
    "held back at a stop": run(PLAIN, stop="Define", text="1. "),
    "every separator": run(pieces(("a\u2028b\x85\r\n\0".encode(), -1.0))),
}


def names(value):
    """The names of all fields, in their order, without ours; of a list its first item's."""
    if isinstance(value, dict):
        return [(name, names(inner)) for name, inner in value.items() if name != "logprobs_from"]
    return names(value[0]) if isinstance(value, list) and value else None


def test_more_than_the_chosen_token_has_a_list_of_its_own():
    found = together_completion(run(PLAIN, top=2, echo=ECHO, prompt="<s>Source:"), chat=False)
    lists = found["choices"][0]["logprobs"]
    assert [list(likely) for likely in lists["top_logprobs"]] == [list(logprobs_by_text(one)) for one in PLAIN]
    assert lists["top_logprobs"][0]["1"] == lists["token_logprobs"][0]
    assert found["prompt"][0]["logprobs"]["top_logprobs"][0] is None


@pytest.mark.parametrize("shown", [SHOWN, SHOWN_WITH_ECHO], ids=["without echo", "with echo"])
def test_the_documented_shape_is_what_is_checked(shown):
    assert checked(ChatResponse, shown).model_dump(mode="json", exclude_unset=True) == shown


@pytest.mark.parametrize(("name", "shown"), [("plain", SHOWN), ("echo", SHOWN_WITH_ECHO)])
def test_fields_stand_as_in_the_documented_shape(name, shown):
    assert names(together_completion(RUNS[name], chat=True)) == names(shown)


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
@pytest.mark.parametrize("whole", RUNS.values(), ids=RUNS)
def test_a_completion_is_strict(whole, chat):
    wanted = together_completion(whole, chat)
    found = checked(KINDS[chat], wanted)
    assert found.model_dump(mode="json", exclude_unset=True) == json.loads(encode_json(wanted))
    (choice,) = found.choices
    assert (choice.message.content if chat else choice.text) == whole.done.text
    assert found.logprobs_from == whole.source
    assert [prompt.text for prompt in found.prompt] == ([] if whole.echo is None else [whole.prompt])
    assert (choice.logprobs is None) == (whole.source is None)
    if choice.logprobs is not None:
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(whole.tokens)


def test_to_the_letter():
    assert together_completion(RUNS["echo"], chat=False) == {
        "id": "0123456789abcdef",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "SmolLM2-135M-Instruct",
        "logprobs_from": "model",
        "prompt": [
            {
                "text": "<s>Source:",
                "logprobs": {
                    "tokens": ["<s>", "Source", ":"],
                    "token_logprobs": [None, -12.984375, -0.025985718],
                },
            }
        ],
        "choices": [
            {
                "finish_reason": "stop",
                "logprobs": {
                    "tokens": ["1", ".", " Define"],
                    "token_logprobs": [-1.0029297, -0.07861328, -2.1367188],
                },
                "index": 0,
                "text": "1. Define",
            }
        ],
        "usage": {"prompt_tokens": 4, "completion_tokens": 3, "total_tokens": 7},
    }


def test_a_message_in_place_of_a_text():
    (choice,) = together_completion(RUNS["plain"], chat=True)["choices"]
    assert choice["message"] == {"role": "assistant", "content": "1. Define"}
    assert "text" not in choice


@pytest.mark.parametrize("chat", [False, True], ids=["text", "chat"])
def test_the_prompt_is_not_in_the_text(chat):
    (choice,) = together_completion(RUNS["echo"], chat)["choices"]
    assert "1. Define" in (choice.get("text"), choice.get("message", {}).get("content"))


def test_echo_without_logprobs_has_no_lists():
    assert together_completion(RUNS["echo without logprobs"], chat=False)["prompt"] == [
        {"text": "Source:", "logprobs": None}
    ]


def test_a_part_of_a_character_is_spelled():
    (choice,) = together_completion(RUNS["an emoji over tokens"], chat=False)["choices"]
    assert choice["text"] == "a😀"
    assert choice["logprobs"]["tokens"] == ["bytes:a\\xf0\\x9f", "bytes:\\x98\\x80"]


def test_a_special_token_is_not_in_the_text():
    (choice,) = together_completion(run((*PLAIN, step(b"</s>", said(-0.5), is_control=True))), chat=False)[
        "choices"
    ]
    assert choice["text"] == "1. Define"
    assert choice["logprobs"]["tokens"] == ["1", ".", " Define", ""]


@pytest.mark.parametrize(("ours", "theirs"), FINISH_REASONS.items())
def test_every_finish_reason(ours, theirs):
    assert together_completion(run(PLAIN, reason=ours), chat=False)["choices"][0]["finish_reason"] == theirs


@pytest.mark.parametrize("value", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_logprob_that_there_is_none_for_is_null(value):
    whole = run([step(b"a", said(value))], echo=(step(b"b", said(value)),))
    found = checked(TextResponse, together_completion(whole, chat=False))
    assert found.choices[0].logprobs.token_logprobs == [None]
    assert found.prompt[0].logprobs.token_logprobs == [None]


@given(st.lists(STEPS, max_size=3), st.none() | st.lists(STEPS, max_size=2).map(tuple), st.booleans())
def test_any_run_is_strict(steps, echo, chat):
    checked(KINDS[chat], together_completion(run(steps, echo=echo, prompt="a\u2028b"), chat))
