"""Fields that clients send and this server does not know, messages that they send back, and whole floats."""

import json

import httpx
import pytest

from .gen_serve import SECONDS_TO_WAIT, GenServe

PROMPT = {"prompt": "Once", "max_tokens": 1}
QUESTION = {"role": "user", "content": "Hi"}
CHAT = {"messages": [QUESTION], "max_tokens": 1}
WRITING_ROUTES = {
    "/v1/completions": PROMPT,
    "/v1/chat/completions": CHAT,
    "/chat/completions": CHAT,
    "/completion": PROMPT,
    "/completions": PROMPT,
    "/api/v1/generate": PROMPT,
    "/api/latest/generate": PROMPT,
}
STREAMING_ROUTES = ("/v1/completions", "/v1/chat/completions", "/completion", "/api/extra/generate/stream")
OTHER_ROUTES = {
    "/tokenize": {"content": "a"},
    "/v1/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [1]},
    "/v1/internal/encode": {"text": "a"},
    "/v1/internal/decode": {"tokens": [1]},
    "/v1/internal/token-count": {"text": "a"},
    "/v1/token/encode": {"text": "a"},
    "/v1/token/decode": {"tokens": [1]},
    "/api/extra/tokencount": {"prompt": "a"},
    "/api/extra/detokenize": {"ids": [1]},
    "/apply-template": {"messages": [QUESTION]},
}
OWN_ROUTES = {
    "/gen/next": PROMPT,
    "/gen/generate": PROMPT,
    "/gen/chain": {"chain": "min-p0.1"},
    "/gen/grammars/check": {"grammar": "json_object"},
    "/gen/presets/import": {"text": "chain: [dist]"},
}


def asked(server, path, body):
    """Return the answer to a body, as httpx gives it."""
    address = f"http://127.0.0.1:{server.port}{path}"
    return httpx.post(address, json=body, timeout=SECONDS_TO_WAIT)


def parts(answer):
    """Return the JSON of a stream's parts."""
    found = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(part) for part in found]


@pytest.mark.parametrize(
    ("path", "body"), (WRITING_ROUTES | OTHER_ROUTES).items(), ids=WRITING_ROUTES | OTHER_ROUTES
)
def test_an_unknown_field_is_named(small_server, path, body):
    answer = asked(small_server, path, body | {"foo_bar": 1, "baz": None})
    assert answer.status_code == 200, answer.text
    assert answer.json()["x_gen"]["ignored"] == ["foo_bar"]
    assert answer.headers["x-gen-ignored"] == "foo_bar"
    plain = asked(small_server, path, body)
    assert "x-gen-ignored" not in plain.headers
    assert plain.json().get("x_gen", {}).get("ignored", []) == []


@pytest.mark.parametrize("path", STREAMING_ROUTES)
def test_a_stream_names_it_too(small_server, path):
    body = CHAT if "chat" in path else PROMPT
    answer = asked(small_server, path, body | {"stream": True, "foo_bar": 1, "stream_options": {"foo": 1}})
    ignored = ["foo_bar", "stream_options.foo"]
    assert answer.headers["x-gen-ignored"] == ", ".join(ignored)
    assert [part["x_gen"]["ignored"] for part in parts(answer) if part.get("x_gen")] == [ignored]
    small_server.wait_for(r"ignored: foo_bar, stream_options\.foo")


@pytest.mark.parametrize(
    ("path", "body"), (WRITING_ROUTES | OTHER_ROUTES).items(), ids=WRITING_ROUTES | OTHER_ROUTES
)
def test_a_slip_is_an_error(small_server, path, body):
    names = ("max_tokens", "content", "prompt", "text", "tokens", "messages")
    name = next((name for name in names if name in body), "special")
    slip = f"{name[:-2]}{name[-1]}{name[-2]}"
    status, answer = small_server.post(path, body | {slip: 1})
    assert (status, answer["error"]["param"]) == (400, slip)
    assert answer["error"]["message"] == f"'{slip}': there is no such field; did you mean {name}?"


@pytest.mark.parametrize(("path", "body"), OWN_ROUTES.items(), ids=OWN_ROUTES)
def test_our_own_routes_are_strict(small_server, path, body):
    status, answer = small_server.post(path, body | {"foo_bar": 1})
    assert (status, answer["error"]["param"]) == (400, "foo_bar")


def test_a_slip_instead_of_the_field_that_is_needed(small_server):
    status, answer = small_server.post("/v1/completions", {"promt": "a"})
    assert (status, answer["error"]["message"]) == (400, "'promt': there is no such field; did you mean prompt?")


def test_names_in_a_header_are_short_and_printable(small_server):
    names = {"é\n,": 1, **{f"a_long_name_{n:080}": 1 for n in range(200)}}
    answer = asked(small_server, "/v1/completions", PROMPT | names)
    assert len(answer.json()["x_gen"]["ignored"]) == 201
    header = answer.headers["x-gen-ignored"]
    assert header.startswith(r"\xe9\n,, ")
    assert header.endswith(", ...")
    assert len(header) < 2_500


def test_a_strict_server_rejects_what_it_does_not_know(pruned_model):
    with GenServe("--slots", "1", "--strict-fields", model=pruned_model) as server:
        for path, body in (*WRITING_ROUTES.items(), *OTHER_ROUTES.items()):
            status, answer = server.post(path, body | {"foo_bar": 1})
            assert (status, answer["error"]["param"]) == (400, "foo_bar"), path
        message = {"role": "user", "content": "Hi", "annotations": []}
        status, answer = server.post("/v1/chat/completions", CHAT | {"messages": [message]})
        assert (status, answer["error"]["param"]) == (400, "messages[0].annotations")
        status, answer = server.post("/v1/completions", PROMPT | {"user": "me", "n_keep": 3})
        assert (status, answer["x_gen"]["ignored"]) == (200, ["n_keep"])


CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
RETURNED = {
    "openai-python": (
        [{"role": "assistant", "content": "Hello", "refusal": None, "annotations": [], "audio": None,
          "function_call": None, "tool_calls": None}],
        ["messages[1].annotations"],
    ),
    "vLLM": ([{"role": "assistant", "content": "Hello", "tool_calls": [], "reasoning": "", "refusal": None}], []),
    "a refusal": ([{"role": "assistant", "content": None, "refusal": "No"}], ["messages[1].refusal"]),
    "parts with marks for a cache": (
        [{"role": "assistant", "content": [{"type": "text", "text": "a", "cache_control": {"type": "short"}}]}],
        ["messages[1].content[0].cache_control"],
    ),
    "a part with a refusal": ([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]}], []),
    "calls of tools": (
        [{"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "tool", "tool_call_id": "c1", "content": "2"}],
        ["messages[1].tool_calls", "messages[2].tool_call_id"],
    ),
    "an old call": (
        [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
         {"role": "function", "name": "f", "content": None}],
        ["messages[1].function_call", "messages[2].name"],
    ),
    "reasoning that the template does not read": (
        [{"role": "assistant", "content": "Hello", "reasoning_content": "Hm"}],
        ["messages[1].reasoning_content"],
    ),
    "reasoning in a part": (
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "x"},
                                           {"type": "text", "text": "Hello"}]}],
        ["messages[1].content[0].signature", "messages[1].content[0]"],
    ),
    "a developer": ([{"role": "assistant", "content": "Hello"}, {"role": "developer", "content": "Be short"}], []),
}  # fmt: skip


@pytest.mark.parametrize(("messages", "ignored"), RETURNED.values(), ids=RETURNED)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/apply-template"])
def test_messages_that_clients_send_back(small_server, path, messages, ignored):
    answer = asked(small_server, path, {"messages": [QUESTION, *messages, QUESTION], "max_tokens": 1})
    assert answer.status_code == 200, answer.text
    assert answer.json().get("x_gen", {}).get("ignored", []) == ignored


READING = (
    "{% for m in messages %}{{ m.role }}({{ m.reasoning_content }}|{{ m.content }}|{{ m.name }}|"
    "{{ m.tool_call_id }}|"
    "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}){% endfor %}"
)
REASONING = {
    "reasoning_content": ({"content": "Hello", "reasoning_content": "Hm"}, "(Hm|Hello|||)"),
    "reasoning": ({"content": "Hello", "reasoning": "Hm"}, "(Hm|Hello|||)"),
    "both": ({"content": "Hello", "reasoning_content": "Hm", "reasoning": "Hm"}, "(Hm|Hello|||)"),
    "a part of Anthropic's": (
        {"content": [{"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": "Hello"}]},
        "(Hm|Hello|||)",
    ),
    "a part of Mistral's": (
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
        "(Hm||||)",
    ),
    "a call": ({"content": None, "tool_calls": [CALL]}, '(||||f{"a": 1})'),
    "a call without JSON": (
        {"tool_calls": [{"function": {"name": "f", "arguments": "x"}}]},
        '(||||f"x")',
    ),
    "a name": ({"content": "Hello", "name": "Ann"}, "(|Hello|Ann||)"),
}


@pytest.mark.parametrize(("message", "shown"), REASONING.values(), ids=REASONING)
def test_a_template_reads_what_clients_send_back(small_server, message, shown):
    body = {"messages": [QUESTION, {"role": "assistant", **message}, QUESTION], "chat_template": READING}
    answer = asked(small_server, "/apply-template", body).json()
    assert answer == {"prompt": f"user(|Hi|||)assistant{shown}user(|Hi|||)"}


def test_other_reasoning_and_reasoning_of_a_continued_message_are_named(small_server):
    message = {"role": "assistant", "content": "Hello", "reasoning_content": "Hm", "reasoning": "So"}
    body = {"messages": [QUESTION, message, QUESTION], "chat_template": READING}
    assert asked(small_server, "/apply-template", body).json()["x_gen"]["ignored"] == ["messages[1].reasoning"]
    body = {"messages": [QUESTION, message | {"reasoning": None}], "chat_template": READING}
    assert asked(small_server, "/apply-template", body).json() == {
        "prompt": "user(|Hi|||)Hello",
        "x_gen": {"ignored": ["messages[1].reasoning_content"]},
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        pytest.param({"tool_choice": "required"}, "tool_choice", id="a tool is required"),
        pytest.param({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", id="a tool"),
        pytest.param({"function_call": {"name": "f"}}, "function_call", id="a function"),
        pytest.param({"chat_template_kwargs": {"enable_thinking": "false"}}, "chat_template_kwargs", id="text"),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
            "messages",
            id="an image",
        ),
        pytest.param({"messages": [{"role": "user"}]}, "messages", id="no content"),
        pytest.param({"messages": [{"role": "nobody", "content": "a"}]}, "messages", id="a role"),
    ],
)
def test_what_cannot_be_left_out_is_an_error(small_server, fields, param):
    status, answer = small_server.post("/v1/chat/completions", CHAT | fields)
    assert (status, answer["error"]["param"]) == (400, param)
    assert answer["error"]["message"].startswith(param)


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        pytest.param({"enable_thinking": False}, ["enable_thinking"], id="enable_thinking"),
        pytest.param({"reasoning_effort": "none"}, ["reasoning_effort"], id="reasoning_effort"),
        pytest.param(
            {"chat_template_kwargs": {"enable_thinking": False}},
            ["chat_template_kwargs.enable_thinking"],
            id="kwargs",
        ),
        pytest.param({"tools": [{"type": "function"}], "tool_choice": "auto"}, ["tools"], id="tools"),
    ],
)
def test_switches_that_the_template_does_not_read_are_named(small_server, fields, ignored):
    status, answer = small_server.post("/v1/chat/completions", CHAT | fields)
    assert (status, answer["x_gen"]["ignored"]) == (200, ignored)


def test_a_switch_that_the_template_reads_is_not_named(small_server):
    fields = {
        "chat_template": READING + "{{ enable_thinking }}",
        "chat_template_kwargs": {"enable_thinking": False},
    }
    assert asked(small_server, "/apply-template", CHAT | fields).json() == {"prompt": "user(|Hi|||)False"}


WHOLE = {
    "max_tokens": ({"max_tokens": 2.0}, {"max_tokens": 2}),
    "seed": ({"seed": 5.0}, {"seed": 5}),
    "lists of ids": (
        {"prompt": [4.0, 5.0], "stop_token_ids": [7.0], "logprobs": 1.0, "logprob_token_ids": [3.0]},
        {"prompt": [4, 5], "stop_token_ids": [7], "logprobs": 1, "logprob_token_ids": [3]},
    ),
    "lists of lists": ({"prompt": [[4.0, 5.0]], "n": 2.0}, {"prompt": [[4, 5]], "n": 2}),
    "biases": ({"logit_bias": [[5.0, -1.0], [6, False]]}, {"logit_bias": [[5, -1], [6, False]]}),
    "keys of biases": ({"logit_bias": {"5.0": -1.0}}, {"logit_bias": {"5": -1}}),
    "samplers": (
        {"top_k": 40.0, "rep_pen_range": 64.0, "rep_pen": 1.1, "sampler_order": [6.0, 0.0, 5.0]},
        {"top_k": 40, "rep_pen_range": 64, "rep_pen": 1.1, "sampler_order": [6, 0, 5]},
    ),
    "settings": ({"set": {"top_k.k": 40.0, "max_tokens": 2.0}}, {"set": {"top_k.k": 40, "max_tokens": 2}}),
    "tables": (
        {"loop_guard": {"repeats": 4.0}, "bans": [{"text": "zz"}], "trace": 1.0},
        {"loop_guard": {"repeats": 4}, "bans": [{"text": "zz"}], "trace": 1},
    ),
}


@pytest.mark.parametrize(("floats", "integers"), WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("path", ["/v1/completions", "/completion", "/api/v1/generate", "/gen/generate"])
def test_whole_floats_are_integers(small_server, path, floats, integers):
    if path == "/gen/generate" and "n" in floats:
        floats, integers = {"prompt": [4.0]}, {"prompt": [4]}  # it answers with one text
    defaults = PROMPT | {"seed": 1}
    found, expected = (asked(small_server, path, defaults | fields) for fields in (floats, integers))
    assert (found.status_code, expected.status_code) == (200, 200), (found.text, expected.text)
    assert tokens_of(found) == tokens_of(expected)


def tokens_of(answer):
    """Return what an answer says about its text and settings."""
    if "event" in answer.text[:20]:
        lines = [json.loads(line) for line in answer.text.splitlines()]
        return (
            [line.get("id") for line in lines],
            lines[-1]["text"],
            *(lines[-1]["x_gen"][name] for name in ("seed", "command")),
        )
    (answer, *_) = body if isinstance(body := answer.json(), list) else [body]
    text = answer.get("content") or [
        choice["text"] for choice in answer.get("choices") or answer.get("results") or ()
    ]
    return text, {name: answer["x_gen"][name] for name in ("seed", "chain", "command")}


FRACTIONS = (
    "max_tokens",
    "n_predict",
    "seed",
    "top_k",
    "n",
    "logprobs",
    "n_probs",
    "repeat_last_n",
    "dry_range",
    "min_keep",
)


@pytest.mark.parametrize("value", [3.5, 1e300, True, "3"], ids=str)
@pytest.mark.parametrize("name", FRACTIONS)
def test_other_numbers_are_no_integers(small_server, name, value):
    if name == "logprobs" and value is True:
        return  # all tokens have logprobs
    status, answer = small_server.post("/v1/completions", PROMPT | {name: value})
    assert (status, answer["error"]["param"]) == (400, name)
    assert answer["error"]["message"].startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["prompt", "stop_token_ids", "sampler_order", "custom_token_bans"])
def test_a_fraction_in_a_list_is_an_error(small_server, name):
    status, answer = small_server.post("/v1/completions", PROMPT | {name: [1, 3.5]})
    assert (status, answer["error"]["param"]) == (400, name)


LENGTHS = "max_tokens max_completion_tokens max_new_tokens max_length n_predict num_predict"
NUMBERS = (
    "top_p min_p temperature temp typical typical_p typ_p tfs tfs_z repeat_penalty repetition_penalty rep_pen "
    "repeat_last_n repetition_penalty_range rep_pen_range rep_pen_size penalty_range min_tokens min_length n "
    "n_cmpl top_logprobs n_probs logprobs prompt_logprobs trace mirostat mirostat_mode"
)
OTHERS = (
    "seed sampler_seed top_k top_n_sigma nsigma top_nsigma frequency_penalty presence_penalty best_of dry_range "
    "dry_penalty_last_n guidance_scale cfg_scale ignore_eos ban_eos_token stream echo heal cache_prompt"
)
BAD_VALUES = {
    "text": ("x", f"{LENGTHS} {NUMBERS} {OTHERS}"),
    "negative": (-7, f"{LENGTHS} {NUMBERS}"),
    "too many": (10**9, "n n_cmpl n_probs logprobs prompt_logprobs trace"),
    "an object": ({}, "stop stop_sequence stopping_strings banned_strings bad_words samplers sampler_order"),
    "too long": (["a" * 5000], "stop stop_sequence stopping_strings banned_strings bad_words"),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, id=f"{name} {kind}")
        for kind, (value, names) in BAD_VALUES.items()
        for name in names.split()
    ],
)
def test_an_error_names_the_field_that_was_sent(small_server, name, value):
    status, answer = small_server.post("/v1/completions", {"prompt": "Once", name: value})
    assert (status, answer["error"]["param"]) == (400, name)
    assert answer["error"]["message"].startswith(f"{name}: ")
    assert "-1.." not in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields", "name"),
    [
        pytest.param("/v1/completions", {"n_probs": 60_000}, "n_probs", id="llama.cpp's name"),
        pytest.param("/v1/completions", {"logprobs": 60_000}, "logprobs", id="completions"),
        pytest.param("/completion", {"n_probs": 60_000}, "n_probs", id="llama-server"),
        pytest.param("/api/v1/generate", {"logprobs": 60_000}, "logprobs", id="KoboldAI"),
        pytest.param("/v1/completions", {"prompt_logprobs": 60_000}, "prompt_logprobs", id="of the prompt"),
        pytest.param(
            "/v1/chat/completions", {"logprobs": True, "top_logprobs": 60_000}, "top_logprobs", id="chat"
        ),
        pytest.param("/v1/chat/completions", {"n_probs": 60_000}, "n_probs", id="chat, llama.cpp's name"),
    ],
)
def test_the_range_of_logprobs_is_that_of_the_vocabulary(small_server, path, fields, name):
    status, answer = small_server.post(path, (CHAT if "chat" in path else PROMPT) | fields)
    assert (status, answer["error"]["param"]) == (400, name)
    assert answer["error"]["message"].startswith(f"{name}: 60000 is not within 0..")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/gen/generate"])
def test_the_range_of_a_trace_is_that_of_the_vocabulary(small_server, path):
    status, answer = small_server.post(path, (CHAT if "chat" in path else PROMPT) | {"trace": 60_000})
    assert (status, answer["error"]["param"]) == (400, "trace")
    assert answer["error"]["message"].startswith("trace: 60000 is not within 1..")
