"""`/v1/responses` with OpenAI's client: whole answers, events of streams, and `gen batch` say the same."""

import json

import openai
import pytest
from logitsmith.requests.asked import ask
from logitsmith.requests.fields import read_body
from logitsmith.requests.response_fields import ResponseFields
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, Field, TypeAdapter

from .gen_serve import SECONDS_TO_WAIT, parts_of_stream, run_async

LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
SCHEMA = {"type": "json_schema", "name": "word", "schema": {"type": "string", "maxLength": 4}}
USUAL = {"input": "Name a color.", "max_output_tokens": 9, "seed": 4}
BODIES = {
    "a text": {},
    "items": {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Name a color."}]}]},
    "instructions": {"instructions": "Be brief.", "metadata": {"a": "b"}},
    "logprobs": LOGPROBS,
    "a schema": {"text": {"format": SCHEMA}, "max_output_tokens": 40},
    "JSON": {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 40},
    "an end": {"stop": [" "], "max_output_tokens": 40},
    "no token": {"max_output_tokens": 0},
    "impossible tokens": LOGPROBS | {"logprobs_from": "chain", "chain": "top_k1 > dist", "logprob_token_ids": [5]},
}
OFTEN_OTHER = ("id", "created_at", "completed_at")


def without_changing_fields(response):
    message = {key: value for key, value in response["output"][0].items() if key != "id"}
    usage = {key: value for key, value in response["usage"].items() if key != "input_tokens_details"}
    kept = {key: value for key, value in response.items() if key not in OFTEN_OTHER}
    return kept | {"output": [message], "usage": usage}


@pytest.mark.parametrize("fields", BODIES.values(), ids=BODIES)
def test_events_say_what_the_whole_response_says(server, fields):
    body = USUAL | fields
    status, whole = server.post("/v1/responses", body)
    assert status == 200, whole
    TypeAdapter(Response).validate_python(whole)
    _, _, stream = server.request("POST", "/v1/responses", body | {"stream": True})
    names = [line.removeprefix("event: ") for line in stream.splitlines() if line.startswith("event: ")]
    events = parts_of_stream(stream)
    assert [event["type"] for event in events] == names
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    *_, text_done, part_done, item_done, last = events
    assert last["type"] == f"response.{whole['status']}"
    assert without_changing_fields(last["response"]) == without_changing_fields(whole)
    assert item_done["item"] == last["response"]["output"][0]
    assert part_done["part"] == item_done["item"]["content"][0]
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in deltas) == text_done["text"] == part_done["part"]["text"]
    logprobs = [entry for event in deltas for entry in event["logprobs"]]
    assert logprobs == text_done["logprobs"] == part_done["part"]["logprobs"]
    assert bool(logprobs) == ("include" in fields)


def test_the_text_is_that_of_a_chat(client):
    response = client.responses.create(
        model="", input="Name a color.", instructions="Be brief.", max_output_tokens=9, extra_body={"seed": 4}
    )
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a color."}]
    chat = client.chat.completions.create(model="", messages=messages, max_tokens=9, seed=4)
    assert response.output_text == chat.choices[0].message.content
    assert response.incomplete_details.reason == "max_output_tokens"
    assert (response.usage.input_tokens, response.usage.output_tokens) == (
        chat.usage.prompt_tokens,
        chat.usage.completion_tokens,
    )
    assert response.x_gen["command"] == chat.x_gen["command"]


class Word(BaseModel):
    word: str = Field(max_length=8)  # the answer then ends on every machine


def test_parse(client):
    fields = {"model": "", "input": "Say a word.", "text_format": Word, "extra_body": {"seed": 1}}
    parsed = client.responses.parse(**fields)
    with client.responses.stream(**fields) as stream:
        for _event in stream:
            pass
        assert stream.get_final_response().output_parsed == parsed.output_parsed
    assert isinstance(parsed.output_parsed, Word)


def test_other_clients(server):
    async def ask():
        async with openai.AsyncOpenAI(
            base_url=f"{server.address}/v1", api_key="x", timeout=SECONDS_TO_WAIT, max_retries=0
        ) as client:
            whole = await client.responses.create(
                model="", input="Hi", max_output_tokens=4, extra_body={"seed": 1}
            )
            stream = await client.responses.create(
                model="", input="Hi", max_output_tokens=4, extra_body={"seed": 1}, stream=True
            )
            return whole, [event async for event in stream]

    whole, events = run_async(ask())
    assert events[-1].response.output_text == whole.output_text


def test_a_batch_answers_the_same(gen, server):
    bodies = {name: USUAL | fields for name, fields in BODIES.items() if "logprobs_from" not in fields}
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": "/v1/responses", "body": body})
        for name, body in bodies.items()
    ]
    results = {
        result["custom_id"]: result["response"]["body"]
        for result in map(json.loads, gen("batch", "-", stdin="\n".join(lines)).splitlines())
    }
    assert set(results) == set(bodies)
    for name, result in results.items():
        TypeAdapter(Response).validate_python(result)
        _, expected = server.post("/v1/responses", bodies[name])
        for field in ("status", "text", "metadata", "instructions"):
            assert result[field] == expected[field], (name, field)
        assert result["output"][0]["content"] == expected["output"][0]["content"], name


TEXT = {"type": "input_text", "text": "b"}
CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"x": 1}'}
CALLED = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]}
ANSWER = {"role": "assistant", "content": [{"type": "output_text", "text": "c", "annotations": []}]}
PARTS = [{"type": "text", "text": "c"}]
ITEMS = {
    "a text": ({"input": "a"}, {"input": {"role": "user", "content": "a"}}),
    "instructions": (
        {"input": "a", "instructions": "i"},
        {"instructions": {"role": "system", "content": "i"}, "input": {"role": "user", "content": "a"}},
    ),
    "messages": (
        {"input": [{"role": "developer", "content": "a"}, {"type": "message", "role": "user", "content": [TEXT]}]},
        {
            "input[0]": {"role": "system", "content": "a"},
            "input[1]": {"role": "user", "content": [{"type": "text", "text": "b"}]},
        },
    ),
    "an answer that was thought about": (
        {"input": [THOUGHT, ANSWER]},
        {"input[0]": {"role": "assistant", "content": PARTS, "reasoning_content": "hm"}},
    ),
    "two answers": (
        {"input": [ANSWER, ANSWER]},
        {f"input[{n}]": {"role": "assistant", "content": PARTS} for n in (0, 1)},
    ),
    "calls of tools": (
        {"input": [ANSWER, CALL, CALL, {"type": "function_call_output", "call_id": "1", "output": "3"}]},
        {
            "input[0]": {"role": "assistant", "content": PARTS, "tool_calls": [CALLED, CALLED]},
            "input[3]": {"role": "tool", "content": "3", "tool_call_id": "1"},
        },
    ),
    "reasoning alone": (
        {"input": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "x"}], "summary": []}]},
        {"input[0]": {"role": "assistant", "content": "", "reasoning_content": "x"}},
    ),
}


@pytest.mark.parametrize(("body", "messages"), ITEMS.values(), ids=ITEMS)
def test_items_become_messages(body, messages):
    fields, ignored = read_body(ResponseFields, body, is_strict=True)
    assert {placed.place: placed.message.template_message() for placed in fields.placed_messages()} == messages
    assert ignored == []


RESULT = {"type": "function_call_output", "call_id": "1", "output": "3"}
QUESTION = {"role": "user", "content": "a"}
# Each row: items, and the paths of what only some templates read
NAMED = {
    "the result of a call": ([QUESTION, ANSWER, RESULT], ["input[2].call_id"]),
    "calls after an answer": ([QUESTION, ANSWER, CALL, CALL], ["input[2]", "input[3]"]),
    "reasoning before a call": ([THOUGHT, THOUGHT, CALL], ["input[0]", "input[1]", "input[2]"]),
    "reasoning before an answer": ([QUESTION, THOUGHT, ANSWER], ["input[1]"]),
    "a part of an answer": (
        [THOUGHT, {"role": "assistant", "content": [{"type": "reasoning_text", "text": "hm"}]}],
        ["input[0]", "input[1].content[0]"],
    ),
}


@pytest.mark.parametrize(("items", "paths"), NAMED.values(), ids=NAMED)
def test_fields_of_items_are_named_as_the_client_has_them(items, paths):
    fields, _ = read_body(ResponseFields, {"input": items}, is_strict=True)
    assert list(ask(fields, place="body.").template_fields) == [f"body.{path}" for path in paths]


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "stores no responses"),
        ({"conversation": {"id": "c"}}, "conversation", "stores no responses"),
        ({"prompt": {"id": "p"}}, "prompt", "stores no responses"),
        ({"background": True}, "background", "stores no responses"),
        ({"input": [{"type": "item_reference", "id": "a"}]}, "input", "stores no responses"),
        ({"input": [{"type": "web_search_call"}]}, "input", "is not one of message, reasoning"),
        ({"input": [{"role": "user"}]}, "input", "needs the field content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input", "text only"),
        ({"input": []}, "input", ""),
        ({"input": "word " * 5000}, "input", "do not fit into the context"),
        ({"n": 2}, "n", "one text"),
        ({"tool_choice": "required"}, "tool_choice", "no tools are called"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text", "needs a schema"),
    ],
)
def test_what_cannot_be_answered_is_refused(server, fields, field, told):
    status, answer = server.post("/v1/responses", USUAL | fields)
    assert (status, answer["error"]["param"]) == (400, field), answer
    assert told in answer["error"]["message"]


def test_what_has_no_effect_is_named(server):
    fields = {
        "store": True,
        "truncation": "auto",
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low", "summary": None},
        "tools": [{"type": "function", "name": "f"}],
        "top_logprobs": 2,
        "echo": True,
    }
    _, answer = server.post("/v1/responses", USUAL | fields)
    assert sorted(answer["x_gen"]["ignored"]) == sorted(
        ["echo", "include[0]", "reasoning.effort", "store", "tools", "top_logprobs", "truncation"]
    )
