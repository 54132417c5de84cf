"""The confidence of answers and of their fields, on every route, whole and streamed."""

import json

import pytest

from .gen_serve import GenServe, parts_of_stream

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["colour", "n"],
    "additionalProperties": False,
}
ASKED = {"json_schema": SCHEMA, "field_confidence": True, "seed": 5, "max_tokens": 60, "temperature": 1}
PROMPT = {"prompt": "The sea"} | ASKED
CHAT = {"messages": [{"role": "user", "content": "Hi"}]} | ASKED
NAMES = ["mean_logprob", "min_logprob", "perplexity"]


@pytest.fixture(scope="module")
def exact(pruned_model):
    with GenServe("--deterministic", model=pruned_model) as server:
        yield server


def of_choice(answer):
    return answer["usage"]["confidence"], answer["choices"][0]["fields"]


def of_chunks(chunks):
    *_, last = (chunk for chunk in chunks if isinstance(chunk, dict) and chunk["choices"])
    *_, usage = (chunk for chunk in chunks if isinstance(chunk, dict) and not chunk["choices"])
    return usage["usage"]["confidence"], last["choices"][0]["fields"]


def of_response(response):
    return response["usage"]["confidence"], response["fields"]


def of_record(record):
    return record["confidence"], record["fields"]


WITH_USAGE = {"stream_options": {"include_usage": True}}
ROUTES = {  # a body, what is added for a stream, where the values are in a whole answer, and in a stream
    "/v1/completions": (PROMPT, WITH_USAGE, of_choice, of_chunks),
    "/v1/chat/completions": (CHAT, WITH_USAGE, of_choice, of_chunks),
    "/v1/responses": (
        {"input": "Hi"} | ASKED,
        {},
        of_response,
        lambda events: of_response(events[-1]["response"]),
    ),
    "/completion": (PROMPT, {}, of_record, lambda chunks: of_record(chunks[-1])),
    "/gen/generate": (
        PROMPT | {"stream": False},
        {},
        lambda answer: of_record(answer["lines"][-1]),
        lambda lines: of_record(lines[-1]),
    ),
}


@pytest.mark.parametrize(
    ("path", "body", "more", "of_whole", "of_stream"), [(p, *row) for p, row in ROUTES.items()]
)
def test_each_route_tells_confidence_whole_and_streamed(exact, path, body, more, of_whole, of_stream):
    status, answer = exact.post(path, body)
    assert status == 200, answer
    confidence, fields = of_whole(answer)
    assert list(confidence) == NAMES
    assert confidence["min_logprob"] <= confidence["mean_logprob"] <= 0
    assert list(fields) == ["/colour", "/n"]
    assert all(list(field) == ["logprob", "probability", "tokens", "forced"] for field in fields.values())
    _, _, stream = exact.request("POST", path, body | more | {"stream": True})
    parts = (
        [json.loads(line) for line in stream.splitlines()] if path == "/gen/generate" else parts_of_stream(stream)
    )
    assert of_stream(parts) == (confidence, fields)


def test_kobold_has_no_place_for_fields(exact):
    status, answer = exact.post("/api/v1/generate", PROMPT)
    assert (status, answer["x_gen"]["ignored"]) == (200, ["field_confidence"])


def test_a_request_without_a_grammar_is_refused(exact):
    status, answer = exact.post("/v1/completions", {"prompt": "a", "field_confidence": True})
    assert (status, answer["error"]["param"]) == (400, "field_confidence")
    assert "needs a JSON Schema" in answer["error"]["message"]


def test_an_answer_that_a_stop_string_cuts_has_no_fields(exact):
    _, answer = exact.post("/v1/completions", PROMPT | {"stop": ","})
    confidence, fields = of_choice(answer)
    assert list(confidence) == NAMES
    assert fields is None


def test_several_texts_have_a_common_confidence(exact):
    body = {"prompt": "The sea", "max_tokens": 4, "seed": 5, "temperature": 1}
    _, both = exact.post("/v1/completions", body | {"n": 2})
    each = [exact.post("/v1/completions", body | {"seed": seed})[1]["usage"]["confidence"] for seed in (5, 6)]
    common = both["usage"]["confidence"]
    assert common["min_logprob"] == min(single["min_logprob"] for single in each)
    assert common["mean_logprob"] == pytest.approx(sum(single["mean_logprob"] for single in each) / 2)
