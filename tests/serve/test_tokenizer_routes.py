"""The tokenizer and the model under the routes of five families, as their clients ask and read."""

import json

import pytest

MODEL = "SmolLM2-135M-Instruct.Q4_1"
HELLO, WORLD, IM_END = 19556, 905, 2
USER = {"role": "user", "content": "Hi"}


def post(http, path, body):
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


ENCODE_PATHS = (
    "/tokenize",
    "/v1/tokenize",
    "/v1/internal/encode",
    "/v1/internal/token-count",
    "/v1/token/encode",
)
# Each row: the body that a client sends.
ENCODE_BODIES = {
    "SillyTavern to llama-server": {"model": "undefined", "content": "Hello world"},
    "mikupad": {"content": "Hello world"},
    "llama-server": {"content": "Hello world", "add_special": False, "parse_special": True},
    "vLLM": {"model": MODEL, "prompt": "Hello world", "add_special_tokens": False},
    "SillyTavern to vLLM": {"model": MODEL, "prompt": "Hello world"},
    "text-generation-webui": {"text": "Hello world"},
    "SillyTavern to TabbyAPI": {"text": "Hello world", "add_bos_token": False, "encode_special_tokens": True},
    "texts and ids": {"content": ["Hello", WORLD]},
}


@pytest.mark.parametrize("path", ENCODE_PATHS)
@pytest.mark.parametrize("body", ENCODE_BODIES.values(), ids=ENCODE_BODIES)
def test_every_route_answers_every_client(http, path, body):
    assert post(http, path, body) == {
        "tokens": [HELLO, WORLD],
        "ids": [HELLO, WORLD],
        "length": 2,
        "count": 2,
        "value": 2,
        "max_model_len": 1024,
    }


# Each row: the body, and the tokens.
SPECIAL = {
    "the name of a control token": ({"content": "Hello<|im_end|>"}, [HELLO, IM_END]),
    "nothing": ({"content": ""}, []),
    "a model that adds no BOS": ({"content": "Hello", "add_special": True}, [HELLO]),
}


@pytest.mark.parametrize(("body", "tokens"), SPECIAL.values(), ids=SPECIAL)
def test_control_tokens(http, body, tokens):
    assert post(http, "/tokenize", body)["tokens"] == tokens


@pytest.mark.parametrize("added", [{"parse_special": False}, {"encode_special_tokens": False}], ids=str)
def test_names_of_control_tokens_as_text(http, added):
    tokens = post(http, "/tokenize", {"content": "<|im_end|>", **added})["tokens"]
    assert IM_END not in tokens
    assert len(tokens) > 2


def test_pieces(http):
    found = post(http, "/tokenize", {"content": "Hello 😀", "with_pieces": True})
    assert found["tokens"] == [
        {"id": HELLO, "piece": "Hello"},
        {"id": 40303, "piece": [32, 240, 159, 152]},
        {"id": 218, "piece": [128]},
    ]
    assert found["ids"] == [HELLO, 40303, 218]


@pytest.mark.parametrize("body", [{"messages": [USER]}, {"text": [USER]}], ids=["vLLM", "TabbyAPI"])
def test_messages(http, body):
    ids = post(http, "/v1/token/encode", body)["ids"]
    prompt = post(http, "/apply-template", {"messages": [USER]})["prompt"]
    assert ids == post(http, "/tokenize", {"content": prompt})["ids"]
    assert post(http, "/detokenize", {"tokens": ids})["content"] == prompt


DECODE_PATHS = ("/detokenize", "/v1/detokenize", "/v1/internal/decode", "/v1/token/decode")


@pytest.mark.parametrize("path", DECODE_PATHS)
@pytest.mark.parametrize("field", ["tokens", "ids"])
def test_every_route_decodes(http, path, field):
    text = "<|im_end|>Hello"
    assert post(http, path, {field: [IM_END, HELLO], "model": "undefined"}) == dict.fromkeys(
        ("content", "prompt", "text", "result"), text
    )


# Each row: the body, and the text.
DECODED = {
    "no tokens": ({"tokens": []}, ""),
    "without control tokens": ({"tokens": [HELLO, IM_END], "decode_special_tokens": False}, "Hello"),
    "without control tokens, as vLLM says it": ({"tokens": [HELLO, IM_END], "skip_special_tokens": True}, "Hello"),
    "a part of a character": ({"tokens": [218]}, "\ufffd"),
    "all parts of a character": ({"tokens": [40303, 218]}, " 😀"),
}


@pytest.mark.parametrize(("body", "text"), DECODED.values(), ids=DECODED)
def test_decoded_text(http, body, text):
    assert post(http, "/detokenize", body)["content"] == text


# mikupad asks for the text of each token.
@pytest.mark.parametrize(
    ("encode", "field", "decode", "answer"),
    [
        ("/tokenize", "content", "/detokenize", "content"),
        ("/v1/internal/encode", "text", "/v1/internal/decode", "text"),
        ("/v1/token/encode", "text", "/v1/token/decode", "text"),
    ],
)
def test_mikupad_shows_tokens(http, encode, field, decode, answer):
    text = "Once upon a time, in <|im_start|> a house."
    ids = post(http, encode, {field: text})["tokens"]
    texts = [post(http, decode, {"tokens": [token]})[answer] for token in ids]
    assert "".join(texts) == text


# Each row: the path, the body, a part of the message.
ERRORS = {
    "no text": ("/tokenize", {}, "there is no text"),
    "a number": ("/tokenize", {"content": 5}, "content"),
    "not an id": ("/tokenize", {"content": ["a", -1]}, "-1"),
    "half a character": ("/tokenize", {"content": "\ud83d"}, "UTF-8"),
    "no messages": ("/tokenize", {"messages": []}, "messages"),
    "no tokens": ("/detokenize", {}, "there are no tokens"),
    "an unknown id": ("/detokenize", {"tokens": [99_999_999]}, "99999999"),
    "a text": ("/detokenize", {"tokens": "a"}, "tokens"),
}


@pytest.mark.parametrize(("path", "body", "message"), ERRORS.values(), ids=ERRORS)
def test_errors(http, path, body, message):
    answer = http.post(path, content=json.dumps(body))
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_lm_eval_needs_no_tokenizer(http):
    found = http.get("/tokenizer_info").json()
    assert (found["bos_token"], found["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "pad_token" in found
    assert "{% for message in messages %}" in found["chat_template"]
    ids = post(http, "/tokenize", {"prompt": "Hello world", "add_special_tokens": False})["tokens"]
    assert post(http, "/detokenize", {"tokens": ids})["prompt"] == "Hello world"


def test_sillytavern_finds_the_model(http):
    assert http.get("/v1/internal/model/info").json()["model_name"] == MODEL
    assert http.get("/v1/internal/model/list").json() == {"model_names": [MODEL]}
    card = http.get("/v1/model").json()
    assert (card["id"], card["parameters"]["max_seq_len"], card["parameters"]["cache_size"]) == (MODEL, 1024, 4096)
    assert http.get("/v1/model/list").json() == {"object": "list", "data": [card]}
    assert http.get("/v1/models").json()["data"][0]["id"] == MODEL
