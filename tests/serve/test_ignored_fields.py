"""Each field is answered, or named in `x_gen.ignored` and in a header: on every route, whole and streamed."""

import json

import pytest

from .gen_serve import GenServe, parts_of_stream
from .routes import CHAT, OTHER_ROUTES, PROMPT, TEXT_ROUTES

NAMES = dict(zip(("completions", "chat", "responses", "llama-server", "kobold"), TEXT_ROUTES, strict=True))
STREAMS = TEXT_ROUTES | {"/api/extra/generate/stream": PROMPT}


def ask(server, route, fields, *, is_stream=False):
    """Return the bodies of an answer, one or those of a stream, and the names of ignored fields."""
    path, body = NAMES[route], TEXT_ROUTES[NAMES[route]] | fields
    if is_stream and route == "kobold":
        path = "/api/extra/generate/stream"
    elif is_stream:
        body = body | {"stream": True}
    status, headers, answer = server.request("POST", path, body)
    assert status == 200, answer
    bodies = parts_of_stream(answer) if is_stream else [answer]
    bodies = [body.get("response", body) for body in bodies]
    ignored = [body["x_gen"] for body in bodies if body.get("x_gen")][-1]["ignored"]
    assert headers.get("x-gen-ignored", "") == ", ".join(ignored)
    return bodies, ignored


# Each row: fields, and the routes that ignore them; the other routes answer them.
ALL = tuple(NAMES)
NOT_OF_OPENAI = ("llama-server", "kobold")
FIELDS = {
    "stream_options.continuous_usage_stats": ({"stream_options": {"continuous_usage_stats": True}}, ALL),
    "prompt_logprobs": ({"prompt_logprobs": 2}, ("responses", *NOT_OF_OPENAI)),
    "echo": ({"echo": True, "logprobs": 1}, ("responses", *NOT_OF_OPENAI)),
    "return_tokens": ({"return_tokens": True}, ("completions", "chat", "responses", "kobold")),
    "return_tokens_as_token_ids": ({"return_tokens_as_token_ids": True, "logprobs": 1}, NOT_OF_OPENAI),
    "return_tokens_as_token_ids without logprobs": ({"return_tokens_as_token_ids": True}, ALL),
    "trace": ({"trace": 2}, NOT_OF_OPENAI),
    "logprobs_from both": ({"logprobs": 1, "logprobs_from": "both"}, NOT_OF_OPENAI),
    "logprob_token_ids": ({"logprob_token_ids": [5]}, ("llama-server",)),
    "top_logprobs without logprobs": ({"top_logprobs": 2}, ALL),
    "top_logprobs beside n_probs": ({"top_logprobs": 2, "n_probs": 1}, ALL),
    "post_sampling_probs without logprobs": ({"post_sampling_probs": True}, ALL),
    "post_sampling_probs against logprobs_from": (
        {"post_sampling_probs": True, "logprobs_from": "model", "logprobs": 1},
        ALL,
    ),
    "best_of": ({"best_of": 2}, ALL),
}


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", NAMES)
def test_a_field_is_answered_or_named(server, route, is_stream):
    for case, (fields, routes) in FIELDS.items():
        expected = [case.partition(" ")[0]] if route in routes else []
        assert ask(server, route, fields, is_stream=is_stream)[1] == expected, case


# Each row: the route, fields, and which of them are ignored.
WITHOUT_EFFECT = {
    "labels": ("completions", {"user": "me", "cache_prompt": True, "api_type": "koboldcpp"}, []),
    "two values of one setting": ("completions", {"typical": 0.5, "typical_p": 0.6}, ["typical_p"]),
    "one value twice": ("completions", {"typical": 0.5, "typical_p": 0.5}, []),
    "left out of the order": ("completions", {"top_a": 0.1, "samplers": ["top_k", "temperature"]}, ["top_a"]),
    "half a range": ("completions", {"dynatemp_low": 0.5}, ["dynatemp_low"]),
    "null is absent": ("completions", {"top_k": None, "use_beam_search": True}, ["use_beam_search"]),
    "limits of drafts": (
        "completions",
        {"speculative": True, "speculative.n_max": 5, "speculative.n_min": 1, "speculative.p_min": 0.05},
        ["speculative.n_max", "speculative.n_min", "speculative.p_min", "speculative"],
    ),
    "no drafts": ("completions", {"speculative": False}, []),
    "neutral guidance": ("completions", {"guidance_scale": 1.0, "negative_prompt": ""}, []),
    "guidance that is off": ("completions", {"guidance_scale": 1, "negative_prompt": "x"}, ["negative_prompt"]),
    "an empty negative prompt": ("completions", {"negative_prompt": ""}, []),
    "a negative prompt without a scale": ("completions", {"negative_prompt": "x"}, ["negative_prompt"]),
    "a scale of 1": ("completions", {"guidance": {"scale": 1}, "negative_prompt": "y"}, ["negative_prompt"]),
    "set to 1": ("completions", {"set": ["guidance.scale=1"], "negative_prompt": "y"}, ["negative_prompt"]),
    "two scales": (
        "completions",
        {"guidance": {"scale": 3, "negative_prompt": "x"}, "guidance_scale": 1},
        ["guidance_scale"],
    ),
    "two names of the scale": ("completions", {"guidance_scale": 2, "cfg_scale": 3}, ["cfg_scale"]),
    "a format of the schema": (
        "completions",
        {"json_schema": {"type": "string", "format": "phone", "maxLength": 4}},
        ["grammar /format"],
    ),
    "a switch": ("chat", {"enable_thinking": False}, ["enable_thinking"]),
    "an effort": ("chat", {"reasoning_effort": "none"}, ["reasoning_effort"]),
    "a variable of the template": (
        "chat",
        {"chat_template_kwargs": {"enable_thinking": False}},
        ["chat_template_kwargs.enable_thinking"],
    ),
    "tools": ("chat", {"tools": [{"type": "function"}], "tool_choice": "auto"}, ["tools"]),
    "llama-server's own": (
        "llama-server",
        {"echo": True, "n_keep": 4, "cache_prompt": True, "timings_per_token": True},
        ["n_keep", "timings_per_token", "echo"],
    ),
    "images": ("kobold", {"images": ["aGk="]}, ["images"]),
    "a kept grammar": ("kobold", {"grammar_retain_state": True}, ["grammar_retain_state"]),
    "world info": ("kobold", {"use_world_info": True}, ["use_world_info"]),
    "switches that are off": (
        "kobold",
        {"quiet": True, "use_story": False, "guidance_scale": 1, "frmttriminc": False},
        [],
    ),
}


@pytest.mark.parametrize(("route", "fields", "ignored"), WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_fields_without_effect_are_named(server, route, fields, ignored):
    assert ask(server, route, fields)[1] == ignored


@pytest.mark.parametrize("path", STREAMS | OTHER_ROUTES)
def test_an_unknown_field_is_named(server, path):
    body, fields = (STREAMS | OTHER_ROUTES)[path], {"foo_bar": 1, "baz": None}
    status, headers, answer = server.request("POST", path, body | fields)
    assert status == 200, answer
    facts = (parts_of_stream(answer)[-1] if "stream" in path else answer)["x_gen"]
    assert facts["ignored"] == ["foo_bar"]
    assert headers["x-gen-ignored"] == "foo_bar"
    if "stream" not in path:
        _, headers, plain = server.request("POST", path, body)
        assert "x-gen-ignored" not in headers
        assert plain.get("x_gen", {}).get("ignored", []) == []


@pytest.mark.parametrize("route", NAMES)
def test_a_stream_names_unknown_fields(server, route):
    start = len(server.lines)
    added = {"foo_bar": 1, "stream_options": {"foo": 1}}
    assert ask(server, route, added, is_stream=True)[1] == ["foo_bar", "stream_options.foo"]
    server.wait_for(r"ignored: foo_bar, stream_options\.foo", start)


@pytest.mark.parametrize("fields", [{"n": 2}, {"n_cmpl": 2}, {"prompt": ["a", "b"]}], ids=str)
def test_a_stream_of_messages_has_one_text(server, fields):
    assert ask(server, "kobold", fields, is_stream=True)[1] == [*fields]


@pytest.mark.parametrize("name", ["stream", "echo", "logprobs", "trace", "return_tokens"])
def test_the_next_token_names_fields_of_answers(server, name):
    _, answer = server.post("/gen/next", {"prompt": "The sea", name: 2 if name == "trace" else True})
    assert answer["x_gen"]["ignored"] == [name]


NAMES_IN_HEADERS = {"": "''", " ": "' '", "a ": "'a '", "xyzzy": "xyzzy", "\n": "\\n"}


@pytest.mark.parametrize("path", ["/v1/completions", "/api/v1/generate"])
@pytest.mark.parametrize("name", NAMES_IN_HEADERS, ids=repr)
def test_any_name_of_a_field_fits_into_a_header(server, path, name):
    _, headers, answer = server.request("POST", path, PROMPT | {name: []})
    assert answer["x_gen"]["ignored"] == [name]
    assert headers["x-gen-ignored"] == NAMES_IN_HEADERS[name]


def test_names_in_a_header_are_short_and_printable(server):
    names = {"é\n,": 1, **{f"a_long_name_{n:080}": 1 for n in range(200)}}
    _, headers, answer = server.request("POST", "/v1/completions", PROMPT | names)
    assert len(answer["x_gen"]["ignored"]) == 201
    header = headers["x-gen-ignored"]
    assert header.startswith(r"\xe9\n,, ")
    assert header.endswith(", ...")
    assert len(header) < 2_500


def test_a_strict_server_rejects_what_it_does_not_know(pruned_model):
    with GenServe("--slots", "1", "--strict-fields", "--deterministic", model=pruned_model) as server:
        for path, body in (TEXT_ROUTES | OTHER_ROUTES).items():
            status, answer = server.post(path, body | {"foo_bar": 1})
            assert (status, answer["error"]["param"]) == (400, "foo_bar"), path
        message = {"role": "user", "content": "Hi", "annotations": []}
        status, answer = server.post("/v1/chat/completions", CHAT | {"messages": [message]})
        assert (status, answer["error"]["param"]) == (400, "messages[0].annotations")
        status, answer = server.post("/v1/completions", PROMPT | {"user": "me", "n_keep": 3})
        assert (status, answer["x_gen"]["ignored"]) == (200, ["n_keep"])
        # A deterministic server ignores the wish to reuse answers.
        _, answer = server.post("/completion", PROMPT | {"cache_prompt": True})
        assert answer["x_gen"]["ignored"] == ["cache_prompt"]
        assert answer["x_gen"]["exactness"] == "exact"


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("route", ["completions", "chat"])
def test_the_prompts_logprobs_are_given_once_for_each_choice(server, route, is_stream):
    fields = {"prompt_logprobs": 2, "n": 2, "logprobs": True, "top_logprobs": 1}
    bodies, _ = ask(server, route, fields, is_stream=is_stream)
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
def test_a_chat_is_echoed_with_its_tokens(server, is_stream):
    bodies, _ = ask(server, "chat", {"echo": True, "logprobs": True, "n": 2}, is_stream=is_stream)
    ((record,),) = [body["prompt"] for body in bodies if "prompt" in body]
    assert "Hi" in record["text"]
    assert "".join(record["logprobs"]["tokens"]) == record["text"]


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "streamed"])
def test_the_end_token_has_an_entry(server, is_stream):
    """lm-eval drops the last entry as the generated token, and sums those before it."""
    fields = {"max_tokens": 1, "echo": True, "logprobs": 1, "chain": "logit_bias(2=200) > greedy"}
    bodies, _ = ask(server, "completions", fields, is_stream=is_stream)
    choices = [choice for body in bodies for choice in body["choices"]]
    assert choices[-1]["finish_reason"] == "stop"
    lists = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    tokens, values = ([value for found in lists for value in found[name]] for name in ("tokens", "token_logprobs"))
    assert "".join(choice["text"] for choice in choices) == "".join(tokens)
    usage = server.post("/v1/completions", PROMPT | fields)[1]["usage"]
    assert len(tokens) == len(values) == usage["total_tokens"]


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
NULLS = dict.fromkeys(("refusal", "audio", "function_call", "tool_calls"))
THINKING = [{"type": "thinking", "thinking": "Hm", "signature": "x"}, {"type": "text", "text": "Hello"}]
MARKED = [{"type": "text", "text": "a", "cache_control": {"type": "short"}}]
SPOKEN = {"role": "assistant", "content": "Hello"}
SILENT = {"role": "assistant", "content": None}
# Each row: the messages after a question, and the ignored fields, after their number.
RETURNED = {
    "openai-python": ([SPOKEN | NULLS | {"annotations": []}], ["[1].annotations"]),
    "vLLM": ([SPOKEN | {"tool_calls": [], "reasoning": "", "refusal": None}], []),
    "a refusal": ([SILENT | {"refusal": "No"}], ["[1].refusal"]),
    "parts with marks for a cache": ([SPOKEN | {"content": MARKED}], ["[1].content[0].cache_control"]),
    "a part with a refusal": ([SPOKEN | {"content": [{"type": "refusal", "refusal": "No"}]}], []),
    "calls of tools": (
        [SILENT | {"tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "2"}],
        ["[1].tool_calls", "[2].tool_call_id"],
    ),
    "an old call": (
        [
            SILENT | {"function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": None},
        ],
        ["[1].function_call", "[2].name"],
    ),
    "reasoning that the template does not read": (
        [SPOKEN | {"reasoning_content": "Hm"}],
        ["[1].reasoning_content"],
    ),
    "reasoning in a part": ([SPOKEN | {"content": THINKING}], ["[1].content[0].signature", "[1].content[0]"]),
    "a developer": ([SPOKEN, {"role": "developer", "content": "Be short"}], []),
}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
@pytest.mark.parametrize(("messages", "ignored"), RETURNED.values(), ids=RETURNED)
def test_messages_that_clients_send_back(server, path, messages, ignored):
    question = CHAT["messages"][0]
    status, answer = server.post(path, {"messages": [question, *messages, question], "max_tokens": 1})
    assert status == 200, answer
    assert answer.get("x_gen", {}).get("ignored", []) == [f"messages{name}" for name in ignored]


@pytest.mark.parametrize("field", ["json_schema", "response_format", "guided_json"])
def test_a_lenient_schema_names_what_it_leaves_out(server, field):
    """The schema itself says so: a request has no flags."""
    schema = {"type": "string", "maxLength": 3, "pattern": "(?!b)"}
    for added, status in (({}, 400), ({"x-guidance": {"lenient": True}}, 200)):
        sent = {"json_schema": schema | added, "guided_json": json.dumps(schema | added)}
        sent["response_format"] = {"type": "json_schema", "schema": schema | added}
        found, answer = server.post("/v1/completions", PROMPT | {field: sent[field]})
        assert found == status, answer
        if status == 400:
            assert answer["error"]["param"] == field
            assert '"x-guidance": {"lenient": true}' in answer["error"]["message"]
        else:
            assert answer["x_gen"]["ignored"] == ["grammar /pattern"]
    _, answer = server.post("/gen/grammars/check", {"grammar": schema})
    assert '"x-guidance": {"lenient": true}' in answer["message"]
