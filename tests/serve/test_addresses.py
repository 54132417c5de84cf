"""Addresses as clients write them, and the small questions that they ask when they connect."""

import pytest

MODEL = "pruned"
GETS = {
    "/v1/models": ["data", 0, "id"],
    "/models": ["data", 0, "id"],
    f"/v1/models/{MODEL}": ["id"],
    f"/models/{MODEL}": ["id"],
    "/v1/model": ["id"],
    "/v1/internal/model/info": ["model_name"],
    "/api/v1/model": ["result"],
}
"""The paths that name the model, and the place of its name in the answer."""


@pytest.mark.parametrize("end", ["", "/", "//"])
@pytest.mark.parametrize("start", ["", "/"])
@pytest.mark.parametrize("path", GETS)
def test_slashes_that_a_client_adds(small_server, path, start, end):
    """No redirect: behind a proxy its address would lack the scheme and the prefix."""
    status, headers, answer = small_server.request("GET", f"{start}{path}{end}")
    assert (status, headers.get("location")) == (200, None)
    for name in GETS[path]:
        answer = answer[name]
    assert answer == MODEL


@pytest.mark.parametrize("path", ["/v1/completions/", "//completion", "/v1//completions", "/api/v1/generate/"])
def test_slashes_of_posts(small_server, path):
    status, answer = small_server.post(path, {"prompt": "Once", "max_tokens": 1})
    assert status == 200, answer


@pytest.mark.parametrize("path", ["/", "//", "/docs/", "/health/", "/metrics/"])
def test_slashes_of_pages(small_server, path):
    assert small_server.request("GET", path)[0] == 200


@pytest.mark.parametrize("name", ["other", "user/other", "user%2Fother", f"{MODEL}/x"])
@pytest.mark.parametrize("path", ["/v1/models", "/models"])
def test_models_that_the_server_does_not_have(small_server, path, name):
    status, _, answer = small_server.request("GET", f"{path}/{name}")
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert MODEL in error["message"]


@pytest.mark.parametrize("version", ["v1", "latest"])
@pytest.mark.parametrize(
    ("path", "answer"),
    [("config/soft_prompts_list", {"values": []}), ("config/soft_prompt", {"value": ""})],
)
def test_soft_prompts_of_koboldai(small_server, version, path, answer):
    assert small_server.request("GET", f"/api/{version}/{path}")[::2] == (200, answer)


def test_the_story_of_koboldcpp(small_server):
    assert small_server.request("GET", "/api/extra/preloadstory")[::2] == (200, {})


LONG = "sea " * 6000
OVERFLOWS = {
    "/v1/completions": ({"prompt": LONG}, "prompt"),
    "/v1/completions of ids": ({"prompt": [[1] * 6000]}, "prompt"),
    "/v1/completions of several": ({"prompt": ["a", LONG]}, "prompt"),
    "/v1/completions as a stream": ({"prompt": LONG, "stream": True}, "prompt"),
    "/v1/completions under guidance": (
        {"prompt": "a", "guidance_scale": 2, "negative_prompt": LONG},
        "negative_prompt",
    ),
    "/v1/chat/completions": ({"messages": [{"role": "user", "content": LONG}]}, "messages"),
    "/chat/completions": ({"messages": [{"role": "user", "content": LONG}], "stream": True}, "messages"),
    "/completion": ({"prompt": LONG}, "prompt"),
    "/completions": ({"prompt": LONG}, "prompt"),
    "/gen/next": ({"prompt": LONG}, "prompt"),
    "/apply-template": ({"messages": [{"role": "user", "content": LONG}]}, "messages"),
    "/tokenize": ({"messages": [{"role": "user", "content": LONG}]}, "messages"),
}


@pytest.mark.parametrize(("path", "case"), [(path.partition(" ")[0], case) for path, case in OVERFLOWS.items()])
def test_a_prompt_that_does_not_fit(small_server, path, case):
    """OpenAI's code and llama-server's numbers, by which clients shorten their prompts."""
    fields, field = case
    status, answer = small_server.post(path, {"max_tokens": 1} | fields)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", field)
    assert error["n_prompt_tokens"] >= 6000
    assert error["n_ctx"] == small_server.request("GET", "/props")[2]["default_generation_settings"]["n_ctx"]
    assert f"{error['n_prompt_tokens']:,}" in error["message"]


TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
THINKS = TURNS + "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}{# </think> #}"
PARTS = [{"type": "text", "text": "First line."}, {"type": "text", "text": "Second line."}]
USER, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer"}
PROMPTS = {
    "parts": (TURNS, [{"role": "user", "content": PARTS}], "[user]First line.\nSecond line."),
    "parts of a system message": (
        TURNS,
        [{"role": "system", "content": PARTS}, USER],
        "[system]First line.\nSecond line.[user]Hi",
    ),
    "parts of a begun answer": (
        THINKS,
        [USER, {"role": "assistant", "content": PARTS}],
        "[user]Hi[assistant]<think></think>First line.\nSecond line.",
    ),
    "a begun answer": (THINKS, [USER, ANSWER], "[user]Hi[assistant]<think></think>The answer"),
    "a template in JSON": ('{"chat_template": "{{ messages[0].content }}!"}', [USER], "Hi!"),
}


@pytest.mark.parametrize(("template", "messages", "prompt"), PROMPTS.values(), ids=PROMPTS)
def test_prompts_of_chats(small_server, template, messages, prompt):
    body = {"messages": messages, "chat_template": template}
    assert small_server.post("/apply-template", body) == (200, {"prompt": prompt})
    status, answer = small_server.post("/v1/chat/completions", body | {"max_tokens": 1, "echo": True})
    assert (status, answer["prompt"][0]["text"]) == (200, prompt)


@pytest.mark.parametrize(
    ("name", "shown"), [("", "''"), (" ", "' '"), ("a ", "'a '"), ("xyzzy", "xyzzy"), ("\n", "\\n")], ids=repr
)
@pytest.mark.parametrize("path", ["/v1/completions", "/api/v1/generate"])
def test_any_name_of_a_field_fits_into_a_header(small_server, path, name, shown):
    status, headers, answer = small_server.request("POST", path, {"prompt": "a", "max_tokens": 1, name: []})
    assert (status, answer["x_gen"]["ignored"]) == (200, [name])
    assert headers["x-gen-ignored"] == shown
