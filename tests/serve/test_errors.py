"""Bodies that are rejected: the status, and the field at fault."""

import json
from pathlib import Path

import openai
import pytest
from logitsmith.serve import limits

from .gen_serve import post_bytes
from .routes import OTHER_ROUTES, OWN_ROUTES, ROUTES, TEXT_ROUTES

MANY = [f"b{number}" for number in range(limits.MAX_ITEMS + 1)]
LONG = "a" * (limits.MAX_STRING_CHARACTERS + 1)
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}
CALLED = {"type": "function", "function": {"name": "f"}}
ON_EVERY_ROUTE = (
    ("temperature", {"temperature": -1}),
    ("temperature", {"temperature": "hot"}),
    ("stop", {"stop": LONG}),
    ("guided_regex", {"guided_regex": "("}),
    ("grammar", {"grammar": "root ::= b"}),
    ("grammar", {"grammar": {"file": "/etc/passwd"}}),
    ("preset", {"preset": "../presets/builtin/min-p.yaml"}),
    ("sampler_order", {"sampler_order": [9]}),
)
"""Fields at fault, with what a request adds."""
REJECTED = {
    "/v1/completions": (
        # values of one field
        ("top_p", {"top_p": 7}),
        ("max_tokens", {"max_tokens": -7}),
        ("samplers", {"samplers": ["top_q"]}),
        ("max_tokens", {"max_tokens": -99999999999999999999}),
        ("n", {"n": 0}),
        ("n", {"n": 129}),
        ("n", {"prompt": ["a"] * 100, "n": 100}),
        ("chain", {"chain": "min_p=3"}),
        ("chain", {"chain": "top_k " * 2000}),
        ("prompt", {"prompt": []}),
        ("prompt", {"prompt": ["a", 1]}),
        ("prompt", {"prompt": [-1]}),
        ("prompt", {"prompt": [1, 1.5]}),
        ("prompt", {"prompt": [1, 10**9]}),
        ("prompt", {"prompt": [99999999999999999999]}),
        ("prompt", {"prompt": ["a"] * (limits.MAX_PROMPTS + 1)}),
        ("prompt", {"prompt": [1] * 5000}),
        ("prompt", {"prompt": "a " * 5000}),
        ("prompt", {"prompt": "a" * 3_000_000}),
        ("stop", {"stop": MANY}),
        ("stop_sequence", {"stop_sequence": MANY}),
        ("stop_token_ids", {"stop_token_ids": [-1]}),
        ("stop_token_ids", {"stop_token_ids": [1, 3.5]}),
        ("banned_tokens", {"banned_tokens": [9_999_999]}),
        ("banned_tokens", {"banned_tokens": ",".join(map(str, range(1100)))}),
        ("custom_token_bans", {"custom_token_bans": [1, 3.5]}),
        ("bad_words", {"bad_words": [LONG]}),
        ("bans", {"bans": ["a", ""]}),
        ("bans", {"bans": MANY}),
        ("bans", {"bans": [{"text": LONG}]}),
        ("bans", {"bans": [{"regex": LONG}]}),
        ("bans", {"bans": MANY[:600], "banned_strings": MANY[:600]}),
        ("banned_regex", {"banned_regex": MANY}),
        ("logit_bias", {"logit_bias": [[1, 2, 3]]}),
        ("logit_bias", {"logit_bias": [[5, "much"]]}),
        ("logit_bias", {"logit_bias": {LONG: 1}}),
        ("logit_bias", {"logit_bias": {str(token): 1 for token in range(1100)}}),
        ("logit_bias", {"logit_bias": json.dumps(dict.fromkeys(MANY, 1))}),
        ("dry_sequence_breakers", {"dry_multiplier": 1, "dry_sequence_breakers": [LONG]}),
        ("sampler_order", {"sampler_order": [0, 3.5]}),
        ("logprobs", {"logprobs": 60_000}),
        ("logprobs", {"logprobs": 1000, "max_tokens": 4000}),
        ("n_probs", {"n_probs": 60_000}),
        ("prompt_logprobs", {"prompt_logprobs": 60_000}),
        ("trace", {"trace": 60_000}),
        ("logprob_token_ids", {"logprob_token_ids": [9_999_999], "logprobs": 1}),
        ("phases", {"phases": [{"until": ""}, {}]}),
        ("phases", {"phases": [{"until": LONG, "chain": "temp1"}, {}]}),
        # grammars, and texts that look like paths
        ("grammar", {"grammar": "root ::= ("}),
        ("grammar", {"grammar": "missing"}),
        ("grammar", {"grammar": "/etc/passwd"}),
        ("guided_grammar", {"guided_grammar": "/etc/passwd"}),
        ("regex", {"regex": "/a/b/c("}),
        ("heal", {"heal": True, "regex": "a"}),
        ("regex", {"grammar": "root ::= (", "regex": "a"}),
        ("json_schema", {"grammar": 'root ::= "a"', "json_schema": {"type": "object"}}),
        ("guided_json", {"guided_json": {"type": "x"}}),
        ("json_schema", {"json_schema": {"$ref": "file:///etc/passwd"}}),
        ("json_schema", {"json_schema": {"$ref": "#/components/a", "components": {"a": {"type": "nonsense"}}}}),
        ("structured_outputs", {"structured_outputs": {"regex": "("}}),
        ("structured_outputs", {"structured_outputs": {}}),
        ("structured_outputs", {"structured_outputs": {"regex": "a+", "choice": ["b"]}}),
        ("structured_outputs", {"structured_outputs": {"json": {}, "regex": "a"}}),
        ("preset", {"preset": "model"}),
        ("preset", {"preset": "/etc/passwd"}),
        ("chat_template", {"chat_template": "chatml"}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"a": 1}}),
        # what `set` sets
        ("set", {"set": {"top_p": 7}}),
        ("set", {"set": {"top_kx": 1}}),
        ("set", {"set": ["top_k"]}),
        ("set", {"set": {"grammar": {"file": "/etc/passwd"}}}),
        ("set", {"set": ["grammar={file: /etc/passwd}"]}),
        ("set", {"set": {"grammar": {"regex": "("}}}),
        ("set", {"set": ["guidance.model=/etc/passwd"]}),
        ("set", {"set": {"guidance": {"model": "x"}}}),
        ("set", {"set": {"stop": MANY}}),
        ("set", {"set": {"bans": MANY}}),
        ("set", {"set": [f"bans={json.dumps(MANY)}"]}),
        ("set", {"set": [f"bans={'a' * 200_000}"]}),
        ("set", {"set": {"ban.strings": MANY}}),
        ("set", {"set": {"sequence_bias.bias": dict.fromkeys(MANY, 1)}}),
        # guidance and drafts
        ("guidance", {"guidance": {"negative_prompt": "x"}}),
        ("guidance", {"guidance": {"size": 2}}),
        ("guidance", {"guidance": {"scale": "a"}}),
        ("guidance", {"guidance": {"scale": 2, "model": "/etc/passwd"}}),
        ("negative_prompt", {"guidance_scale": 2, "negative_prompt": "word " * 9000}),
        ("speculative", {"speculative": "yes"}),
        ("speculative.n_max", {"speculative.n_max": 65}),
        ("speculative.n_max", {"speculative.n_max": -1}),
        ("speculative.p_min", {"speculative.p_min": 1.5}),
        ("speculative.n_mxa", {"speculative.n_mxa": 3}),
    ),
    "/v1/chat/completions": (
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": CALLED}),
        ("function_call", {"function_call": {"name": "f"}}),
        ("chat_template", {"chat_template": "/etc/passwd"}),
        ("chat_template_kwargs", {"chat_template_kwargs": {"enable_thinking": "false"}}),
        ("messages", {"messages": [{"role": "user", "content": [IMAGE]}]}),
        ("messages", {"messages": [{"role": "user"}]}),
        ("messages", {"messages": [{"role": "nobody", "content": "a"}]}),
        ("messages", {"messages": [{"role": "user", "content": "a"}] * (limits.MAX_MESSAGES + 1)}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 60_000}),
        ("n_probs", {"n_probs": 60_000}),
        ("trace", {"trace": 60_000}),
    ),
    "/completion": (
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}}),
        (None, {"prompt": ["\ud83d", "a"]}),
        (None, {"prompt": ["\ud83d", 1]}),
        ("n_prodict", {"n_prodict": 4}),
        ("samplers", {"samplers": ["top_q"]}),
        ("heal", {"heal": True, "regex": "a"}),
        ("n_probs", {"n_probs": 60_000}),
    ),
    "/api/v1/generate": (
        ("memory", {"prompt": [1, 2], "memory": "a"}),
        ("heal", {"heal": True, "regex": "a"}),
        ("logprobs", {"logprobs": 60_000}),
        (None, {"prompt": "\ud800"}),
    ),
    "/tokenize": (
        ("content", {"content": 5}),
        (None, {"content": ["a", -1]}),
        (None, {"content": "\ud83d"}),
        ("messages", {"content": None, "messages": []}),
        ("content", {"content": None}),
    ),
    "/detokenize": (
        (None, {"tokens": [99_999_999]}),
        ("tokens", {"tokens": "a"}),
        ("tokens", {"tokens": None}),
    ),
    "/api/extra/tokencount": (("prompt", {"prompt": 4}), (None, {"prompt": "\ud800"})),
    "/api/extra/detokenize": (("ids", {"ids": [-1]}),),
    "/apply-template": (("chat_template", {"chat_template": "/etc/passwd"}),),
    "/gen/next": (
        ("prompt", {"prompt": None}),
        ("prompt", {"prompt": ["a", "b"]}),
        ("top", {"top": 0}),
        ("heal", {"heal": True, "regex": "a"}),
        ("against", {"against": ["LICENSE"]}),
        ("against", {"against": ["presets/builtin/min-p.yaml"]}),
        ("against", {"against": ["top-k1"] * 17}),
        ("tops", {"tops": 3}),
    ),
    "/gen/generate": (
        ("n", {"prompt": ["a", "b"]}),
        ("trace", {"trace": 60_000}),
    ),
    "/gen/chain": (("chain", {"chain": "top_q"}),),
    "/gen/grammars/check": (
        ("grammar", {"grammar": {"file": "/etc/hostname"}}),
        ("grammar", {"grammar": {"name": "../grammars/library/json"}}),
        ("text", {"text": "[" * 100_001}),
        ("grammar", {"grammar": None}),
    ),
    "/gen/presets/import": (
        ("text", {"text": "nothing of the kind"}),
        ("text", {"text": "chain:\n- top_q: 3\n"}),
        ("text", {"text": "a" * 1_000_001}),
        ("text", {"text": "{}", "format": "word"}),
        ("path", {"path": "/etc/hostname"}),
        (None, {"text": "\ud800"}),
    ),
}
ROWS = [(path, *row) for path, rows in REJECTED.items() for row in rows]
ROWS += [(path, *row) for path in (*TEXT_ROUTES, "/gen/next") for row in ON_EVERY_ROUTE]


@pytest.mark.parametrize(
    ("path", "field", "fields"), ROWS, ids=[f"{path} {str(fields)[:50]}" for path, _, fields in ROWS]
)
def test_the_field_at_fault_is_named(server, path, field, fields):
    status, answer = server.post(path, ROUTES[path] | fields)
    error = answer["error"]
    assert (status, error["param"], error["type"]) == (400, field, "invalid_request_error")
    for told in ("--", "root:", f"{Path.home()}/", f"{Path.cwd()}/", f"{Path(__file__).parents[2]}/"):
        assert told not in error["message"]
    if path.startswith("/api/"):
        assert answer["detail"] == {"msg": error["message"], "type": error["type"]}


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
LISTS = "stop stop_sequence stopping_strings banned_strings bad_words"
INTEGERS = "max_tokens n_predict seed top_k n n_probs repeat_last_n dry_range min_keep"
VALUES = {
    "a text": ("x", f"{LENGTHS} {NUMBERS} {OTHERS}"),
    "a negative number": (-7, f"{LENGTHS} {NUMBERS}"),
    "too many": (10**9, "n n_cmpl n_probs logprobs prompt_logprobs trace"),
    "an object": ({}, f"{LISTS} samplers sampler_order"),
    "a long text": ([LONG], LISTS),
    "a fraction": (3.5, f"{INTEGERS} logprobs"),
    "a huge number": (1e300, f"{INTEGERS} logprobs"),
    "a boolean": (True, INTEGERS),
    "digits": ("3", f"{INTEGERS} logprobs"),
}
"""Values, and the fields that do not take them."""


@pytest.mark.parametrize(("value", "names"), VALUES.values(), ids=VALUES)
def test_the_name_is_the_one_that_was_sent(server, value, names):
    for name in names.split():
        status, answer = server.post("/v1/completions", {"prompt": "Once", name: value})
        assert (status, answer["error"]["param"]) == (400, name)
        assert answer["error"]["message"].startswith(f"{name}: ")
        assert "-1.." not in answer["error"]["message"], name


@pytest.mark.parametrize("path", TEXT_ROUTES | OTHER_ROUTES)
def test_a_slip_is_an_error(server, path):
    body = ROUTES[path]
    names = ("max_tokens", "content", "prompt", "text", "tokens", "messages", "input", "ids")
    name = next(name for name in names if name in body)
    slip = f"{name[:-2]}{name[-1]}{name[-2]}" if name != "ids" else "specail"
    status, answer = server.post(path, body | {slip: 1})
    assert (status, answer["error"]["param"]) == (400, slip)
    assert answer["error"]["message"].endswith(f"did you mean {name if name != 'ids' else 'special'}?")


@pytest.mark.parametrize("path", OWN_ROUTES)
def test_our_own_routes_are_strict(server, path):
    status, answer = server.post(path, OWN_ROUTES[path] | {"foo_bar": 1})
    assert (status, answer["error"]["param"]) == (400, "foo_bar")


BODIES = {
    "nothing": b"",
    "a null byte": b"\x00",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "no value": b'{"prompt":\n ]',
    "not UTF-8": b'{"prompt": "\xff"}',
    "UTF-16": '{"prompt": "a"}'.encode("utf-16"),
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "no number": b'{"prompt": NaN}',
    "many digits": b'{"prompt": "a", "seed": ' + b"1" * 10_000 + b"}",
    "an infinity": b'{"prompt": "a", "temperature": 1e999}',
    "half a character": b'{"prompt": "\\ud800"}',
    "half a character of a field": b'{"prompt": "a", "stop": "\\udfff"}',
    "half a character of a name": b'{"prompt": "a", "\\ud800": 1}',
    "a list": b"[1]",
    "many values": b'{"prompt": [' + b"1," * 1_000_001 + b"1]}",
    "a slip of the field that is needed": b'{"promt": "a"}',
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_that_cannot_be_read(server, body):
    status, answer = server.post("/v1/completions", body)
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("body", "place"),
    [(b"\xef\xbb\xbf{}", "line 1, column 1: "), (b'{"prompt":\n ]', "line 2, column 2: ")],
    ids=["mark", "value"],
)
def test_the_place_in_a_body_is_told(server, body, place):
    assert place in server.post("/v1/completions", body)[1]["error"]["message"]


def test_the_client_raises_its_own_errors(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="", prompt="x", top_p=3)
    assert caught.value.param == "top_p"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="", input="x")


LONG_PROMPT = "sea " * 6000
LONG_CHAT = {"messages": [{"role": "user", "content": LONG_PROMPT}]}
OVERFLOWS = {
    "/v1/completions": ({"prompt": LONG_PROMPT}, "prompt"),
    "/v1/completions of ids": ({"prompt": [[1] * 6000]}, "prompt"),
    "/v1/completions of several": ({"prompt": ["a", LONG_PROMPT]}, "prompt"),
    "/v1/completions as a stream": ({"prompt": LONG_PROMPT, "stream": True}, "prompt"),
    "/v1/completions under guidance": (
        {"prompt": "a", "guidance_scale": 2, "negative_prompt": LONG_PROMPT},
        "negative_prompt",
    ),
    "/v1/chat/completions": (LONG_CHAT, "messages"),
    "/chat/completions": (LONG_CHAT | {"stream": True}, "messages"),
    "/completion": ({"prompt": LONG_PROMPT}, "prompt"),
    "/completions": ({"prompt": LONG_PROMPT}, "prompt"),
    "/gen/next": ({"prompt": LONG_PROMPT}, "prompt"),
    "/apply-template": (LONG_CHAT, "messages"),
    "/tokenize": (LONG_CHAT, "messages"),
}


@pytest.mark.parametrize("case", OVERFLOWS)
def test_a_prompt_that_does_not_fit(server, case):
    """OpenAI's code and llama-server's numbers, by which clients shorten their prompts."""
    fields, field = OVERFLOWS[case]
    status, answer = server.post(case.partition(" ")[0], {"max_tokens": 1} | fields)
    error = answer["error"]
    assert (status, error["code"], error["param"]) == (400, "context_length_exceeded", field)
    assert error["n_prompt_tokens"] >= 6000
    assert error["n_ctx"] == 4096


@pytest.mark.parametrize(
    "fields",
    [{"guided_choice": MANY}, {"structured_outputs": {"choice": MANY}}, {"allowed_token_ids": list(range(2000))}],
    ids=["choices", "choices-of-vllm", "vocabulary"],
)
def test_grammars_and_vocabularies_have_no_limit_of_items(server, fields):
    assert server.post("/v1/completions", {"prompt": "Once", "max_tokens": 1} | fields)[0] == 200


def test_headers_that_fill_the_buffer(server):
    """h11 rejects them before the application sees the request."""
    answer = server.send(post_bytes({"prompt": "Once", "max_tokens": 1}, x="a" * 200_000))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"headers_too_large" in answer
