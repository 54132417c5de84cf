"""The messages of rejected requests: each names the field at fault, in `param` and at its beginning."""

import pytest
from logitsmith.serve.errors import ForbiddenError
from logitsmith.serve.security import Access, check_request

from .gen_serve import post_bytes

PROMPT = {"prompt": "Once", "max_tokens": 1}
CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
BAD_SCHEMA = {"type": "x"}
FIELDS = {
    "temperature": ({"temperature": -1}, "temperature", "temperature: -1 is not ≥ 0"),
    "top_p": ({"top_p": 7}, "top_p", "top_p: 7 is not within 0..1"),
    "max_tokens": ({"max_tokens": -7}, "max_tokens", "max_tokens: -7 is not"),
    "chain": ({"chain": "min_p=3"}, "chain", "chain: chain[0].min_p.p: 3 is not"),
    "samplers": (
        {"samplers": ["top_kx"]},
        "samplers",
        "samplers: unknown sampler of llama.cpp 'top_kx'; did you mean top_k?",
    ),
    "sampler_order": ({"sampler_order": [9]}, "sampler_order", "sampler_order: 9 is not"),
    "set-value": ({"set": {"top_p": 7}}, "set", "set top_p: 7 is not within 0..1"),
    "set-name": ({"set": {"top_kx": 1}}, "set", "set top_kx: unknown sampler 'top_kx'; did you mean top_k?"),
    "set-form": ({"set": ["top_k"]}, "set", "set top_k: write name.parameter=value"),
    "set-grammar": ({"set": {"grammar": {"file": "a"}}}, "set", "set grammar: a grammar is GBNF"),
    "set-regex": ({"set": {"grammar": {"regex": "("}}}, "set", "set grammar: line 1, column 1: unclosed group"),
    "logprob_token_ids": (
        {"logprob_token_ids": [9_999_999], "logprobs": 1},
        "logprob_token_ids",
        "logprob_token_ids: token id 9999999 is not within 0..",
    ),
    "stop_token_ids": (
        {"stop_token_ids": [-1]},
        "stop_token_ids",
        "stop_token_ids: token id -1 is not within 0..",
    ),
    "prompt": ({"prompt": [1, -5]}, "prompt", "prompt: token id -5 is not within 0.."),
    "banned_tokens": ({"banned_tokens": [9_999_999]}, "banned_tokens", "banned_tokens: token id 9999999 is not"),
    "bans": ({"bans": ["a", ""]}, "bans", "bans[1]: "),
    "phases": ({"phases": [{"until": ""}, {}]}, "phases", "phases[0].until: "),
    "guided_regex": ({"guided_regex": "("}, "guided_regex", "guided_regex: line 1, column 1: unclosed group"),
    "guided_json": ({"guided_json": BAD_SCHEMA}, "guided_json", "guided_json: /type: unknown type 'x'"),
    "grammar": ({"grammar": "root ::= ("}, "grammar", "grammar: line 1, column 10: this ( is never closed"),
    "grammar-name": ({"grammar": "missing"}, "grammar", "grammar: unknown grammar 'missing'"),
    "grammar-file": ({"guided_grammar": "/etc/passwd"}, "guided_grammar", "guided_grammar: a grammar is GBNF"),
    "structured_outputs": (
        {"structured_outputs": {"regex": "("}},
        "structured_outputs",
        "structured_outputs: line 1, column 1: unclosed group",
    ),
    "chat_template": (
        {"chat_template": "chatml"},
        "chat_template",
        "chat_template: a prompt gets no chat template",
    ),
    "chat_template_kwargs": (
        {"chat_template_kwargs": {"a": 1}},
        "chat_template_kwargs",
        "chat_template_kwargs: a prompt gets no chat template",
    ),
    "a regex like a path": ({"regex": "/a/b/c("}, "regex", "regex: line 1, column 7: unclosed group\n  /a/b/c("),
    "the place in a schema": (
        {"json_schema": {"$ref": "#/components/a", "components": {"a": {"type": "nonsense"}}}},
        "json_schema",
        "json_schema: /components/a/type",
    ),
    "heal with a grammar": ({"heal": True, "regex": "a"}, "heal", "heal: not supported under a grammar"),
    "guidance in set": ({"set": ["guidance.model=x"]}, "set", "guidance.model: a request cannot name a model"),
    "a preset": ({"preset": "model"}, "preset", "preset model: this model names no sampling settings"),
}


@pytest.mark.parametrize(("fields", "field", "message"), FIELDS.values(), ids=FIELDS)
def test_the_field_is_named(small_server, fields, field, message):
    status, answer = small_server.post("/v1/completions", PROMPT | fields)
    error = answer["error"]
    assert (status, error["param"]) == (400, field)
    assert error["message"].startswith(message)
    assert "--" not in error["message"]


@pytest.mark.parametrize("path", ["/completion", "/api/v1/generate", "/gen/next"])
@pytest.mark.parametrize(
    ("fields", "field"), [({"temperature": -1}, "temperature"), ({"heal": True, "regex": "a"}, "heal")]
)
def test_the_field_is_named_on_every_route(small_server, path, fields, field):
    status, answer = small_server.post(path, {"prompt": "Once", **fields})
    assert (status, answer["error"]["param"]) == (400, field)


def test_the_field_of_a_chat_is_named(small_server):
    status, answer = small_server.post("/v1/chat/completions", CHAT | {"guided_regex": "("})
    assert (status, answer["error"]["param"]) == (400, "guided_regex")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            b"\xef\xbb\xbf{}", "line 1, column 1: Unexpected UTF-8 BOM (decode using utf-8-sig)", id="mark"
        ),
        pytest.param(b'{"prompt":\n ]', "line 2, column 2: Expecting value", id="value"),
    ],
)
def test_a_body_that_is_not_json(small_server, body, message):
    status, answer = small_server.post("/v1/completions", body)
    assert (status, answer["error"]["message"]) == (400, f"the body is not JSON: {message}")


def test_headers_that_fill_the_buffer(small_server):
    """h11 rejects them before the application sees the request."""
    answer = small_server.send(post_bytes(PROMPT, x="a" * 200_000))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"headers_too_large" in answer


def test_a_request_without_host_is_rejected_also_without_h11():
    scope = {"http_version": "1.1", "method": "GET", "path": "/", "query_string": b"", "headers": []}
    with pytest.raises(ForbiddenError):
        check_request(scope, Access(), {})
    assert check_request(scope | {"http_version": "1.0"}, Access(), {}) is None
