"""Each field is answered, or named in `x_gen.ignored`: on every route, whole and streamed, for texts and chats."""

import json

import pytest

TEXT = {"prompt": "The sea", "max_tokens": 2, "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "temperature": 0}
ROUTES = {
    "completions": ("/v1/completions", TEXT),
    "chat": ("/v1/chat/completions", CHAT),
    "llama-server": ("/completion", TEXT),
    "kobold": ("/api/v1/generate", TEXT),
}
KOBOLD_STREAM = "/api/extra/generate/stream"


def ask(http, route, is_stream, fields):
    """The bodies of an answer: one, or those of a stream; and the names that are reported as ignored."""
    path, body = ROUTES[route]
    if is_stream and route == "kobold":
        path = KOBOLD_STREAM
    response = http.post(path, json=body | fields | ({} if route == "kobold" else {"stream": is_stream}))
    assert response.status_code == 200, response.text
    if is_stream:
        lines = [line for line in response.text.splitlines() if line.startswith("data: {")]
        bodies = [json.loads(line.removeprefix("data: ")) for line in lines]
    else:
        bodies = [response.json()]
    (facts,) = [body["x_gen"] for body in bodies if body.get("x_gen")][-1:]
    names = response.headers.get("x-gen-ignored", "")
    assert facts["ignored"] == (names.split(", ") if names else [])
    return bodies, facts["ignored"]


# Each row: fields, and by route the names that are ignored; the others are answered.
FIELDS = {
    "stream_options": (
        {"stream_options": {"continuous_usage_stats": True}},
        {key: ["stream_options.continuous_usage_stats"] for key in ROUTES},
    ),
    "prompt_logprobs": (
        {"prompt_logprobs": 2},
        {"llama-server": ["prompt_logprobs"], "kobold": ["prompt_logprobs"]},
    ),
    "echo": ({"echo": True, "logprobs": 1}, {"llama-server": ["echo"], "kobold": ["echo"]}),
    "return_tokens": (
        {"return_tokens": True},
        {"completions": ["return_tokens"], "chat": ["return_tokens"], "kobold": ["return_tokens"]},
    ),
    "return_tokens_as_token_ids": (
        {"return_tokens_as_token_ids": True, "logprobs": 1},
        {"llama-server": ["return_tokens_as_token_ids"], "kobold": ["return_tokens_as_token_ids"]},
    ),
    "return_tokens_as_token_ids without logprobs": (
        {"return_tokens_as_token_ids": True},
        {name: ["return_tokens_as_token_ids"] for name in ROUTES},
    ),
    "trace": ({"trace": 2}, {"llama-server": ["trace"], "kobold": ["trace"]}),
    "both sources": (
        {"logprobs": 1, "logprobs_from": "both"},
        {"llama-server": ["logprobs_from"], "kobold": ["logprobs_from"]},
    ),
    "logprob_token_ids": ({"logprob_token_ids": [5]}, {"llama-server": ["logprob_token_ids"]}),
    "top_logprobs without logprobs": ({"top_logprobs": 2}, {name: ["top_logprobs"] for name in ROUTES}),
    "top_logprobs beside n_probs": (
        {"top_logprobs": 2, "n_probs": 1},
        {name: ["top_logprobs"] for name in ROUTES},
    ),
    "post_sampling_probs without logprobs": (
        {"post_sampling_probs": True},
        {name: ["post_sampling_probs"] for name in ROUTES},
    ),
    "post_sampling_probs against logprobs_from": (
        {"post_sampling_probs": True, "logprobs_from": "model", "logprobs": 1},
        {name: ["post_sampling_probs"] for name in ROUTES},
    ),
    "best_of": ({"best_of": 2}, {name: ["best_of"] for name in ROUTES}),
}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("fields", "ignored"), FIELDS.values(), ids=FIELDS)
def test_a_field_is_answered_or_named(http, fields, ignored, route, is_stream):
    assert ask(http, route, is_stream, fields)[1] == ignored.get(route, [])


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["completions", "chat"])
def test_the_prompts_logprobs_are_given_once_for_each_choice(http, route, is_stream):
    bodies, _ = ask(http, route, is_stream, {"prompt_logprobs": 2, "n": 2, "logprobs": True, "top_logprobs": 1})
    choices = [choice for body in bodies for choice in body["choices"]]
    found = {choice["index"]: choice["prompt_logprobs"] for choice in choices if "prompt_logprobs" in choice}
    assert sum("prompt_logprobs" in choice for choice in choices) == len(found) == 2
    for entries in found.values():
        assert entries[0] is None
        assert all(len(entry) in (2, 3) for entry in entries[1:])
        assert all(token["rank"] >= 1 for entry in entries[1:] for token in entry.values())
    lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    counts = {len(entry["top_logprobs"]) for found in lists for entry in found["content"]}
    assert counts <= ({1, 2} if route == "completions" else {1})


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_a_chat_is_echoed_with_its_tokens(http, is_stream):
    bodies, _ = ask(http, "chat", is_stream, {"echo": True, "logprobs": True, "n": 2})
    ((record,),) = [body["prompt"] for body in bodies if "prompt" in body]
    assert "Hi" in record["text"]
    assert "".join(record["logprobs"]["tokens"]) == record["text"]


@pytest.mark.parametrize("fields", [{"n": 2}, {"n_cmpl": 2}, {"prompt": ["a", "b"]}], ids=str)
def test_a_stream_of_messages_has_one_text(http, fields):
    assert ask(http, "kobold", True, fields)[1] == [*fields]


ENDED = "If you have any other questions, feel free to ask."


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_the_end_token_has_an_entry(http, is_stream):
    """lm-eval drops the last entry as the generated token, and sums those before it."""
    fields = {"prompt": ENDED, "max_tokens": 1, "echo": True, "logprobs": 1}
    bodies, _ = ask(http, "completions", is_stream, fields)
    choices = [choice for body in bodies for choice in body["choices"]]
    lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    tokens, values = ([value for found in lists for value in found[name]] for name in ("tokens", "token_logprobs"))
    assert "".join(choice["text"] for choice in choices) == "".join(tokens)
    usage = http.post("/v1/completions", json=TEXT | fields).json()["usage"]
    assert len(tokens) == len(values) == usage["total_tokens"]


@pytest.mark.parametrize("name", ["stream", "echo", "logprobs", "trace", "return_tokens"])
def test_the_next_token_names_fields_of_answers(http, name):
    assert http.post("/gen/next", json={"prompt": "The sea", name: 2 if name == "trace" else True}).json()[
        "x_gen"
    ]["ignored"] == [name]
