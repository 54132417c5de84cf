"""The tokenizer and the model under the routes of five families, as their clients ask and read."""

import pytest

MODEL = "pruned"
THE, SEA, IM_END = 504, 3426, 2
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
    "SillyTavern to llama-server": {"model": "undefined", "content": "The sea"},
    "mikupad": {"content": "The sea"},
    "llama-server": {"content": "The sea", "add_special": False, "parse_special": True},
    "vLLM": {"model": MODEL, "prompt": "The sea", "add_special_tokens": False},
    "SillyTavern to vLLM": {"model": MODEL, "prompt": "The sea"},
    "text-generation-webui": {"text": "The sea"},
    "SillyTavern to TabbyAPI": {"text": "The sea", "add_bos_token": False, "encode_special_tokens": True},
    "texts and ids": {"content": ["The", SEA]},
}


@pytest.mark.parametrize("path", ENCODE_PATHS)
def test_every_route_answers_every_client(http, path):
    for client, body in ENCODE_BODIES.items():
        assert post(http, path, body) == {
            "tokens": [THE, SEA],
            "ids": [THE, SEA],
            "length": 2,
            "count": 2,
            "value": 2,
            "max_model_len": 4096,
        }, client


# Each row: the body, and the tokens.
SPECIAL = {
    "the name of a control token": ({"content": "The<|im_end|>"}, [THE, IM_END]),
    "nothing": ({"content": ""}, []),
    "a model that adds no BOS": ({"content": "The", "add_special": True}, [THE]),
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
    found = post(http, "/tokenize", {"content": "The 😀", "with_pieces": True})
    pieces = [(THE, "The"), (216, " "), *zip((187, 249, 242, 218), ([240], [159], [152], [128]), strict=True)]
    assert found["tokens"] == [{"id": token, "piece": piece} for token, piece in pieces]
    assert found["ids"] == [token for token, _ in pieces]


@pytest.mark.parametrize("body", [{"messages": [USER]}, {"text": [USER]}], ids=["vLLM", "TabbyAPI"])
def test_messages(http, body):
    ids = post(http, "/v1/token/encode", body)["ids"]
    prompt = post(http, "/apply-template", {"messages": [USER]})["prompt"]
    assert ids == post(http, "/tokenize", {"content": prompt})["ids"]
    assert post(http, "/detokenize", {"tokens": ids})["content"] == prompt


@pytest.mark.parametrize("field", ["tokens", "ids"])
@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize", "/v1/internal/decode", "/v1/token/decode"])
def test_every_route_decodes(http, path, field):
    assert post(http, path, {field: [IM_END, THE], "model": "undefined"}) == dict.fromkeys(
        ("content", "prompt", "text", "result"), "<|im_end|>The"
    )


# Each row: the body, and the text.
DECODED = {
    "no tokens": ({"tokens": []}, ""),
    "without control tokens": ({"tokens": [THE, IM_END], "decode_special_tokens": False}, "The"),
    "without control tokens, as vLLM says it": ({"tokens": [THE, IM_END], "skip_special_tokens": True}, "The"),
    "a part of a character": ({"tokens": [218]}, "\ufffd"),
    "all parts of a character": ({"tokens": [216, 187, 249, 242, 218]}, " 😀"),
}


@pytest.mark.parametrize(("body", "text"), DECODED.values(), ids=DECODED)
def test_decoded_text(http, body, text):
    assert post(http, "/detokenize", body)["content"] == text


def test_mikupad_shows_tokens(http):
    """It asks for the text of each token."""
    text = "Once upon a time, in <|im_start|> a house."
    ids = post(http, "/tokenize", {"content": text})["tokens"]
    assert "".join(post(http, "/detokenize", {"tokens": [token]})["content"] for token in ids) == text


def test_lm_eval_needs_no_tokenizer(http):
    found = http.get("/tokenizer_info").json()
    assert (found["bos_token"], found["eos_token"]) == ("<|im_start|>", "<|im_end|>")
    assert "pad_token" in found
    assert "{% for message in messages %}" in found["chat_template"]


def test_sillytavern_finds_the_model(http):
    assert http.get("/v1/internal/model/info").json()["model_name"] == MODEL
    assert http.get("/v1/internal/model/list").json() == {"model_names": [MODEL]}
    card = http.get("/v1/model").json()
    sizes = card["parameters"]["max_seq_len"], card["parameters"]["cache_size"]
    assert (card["id"], *sizes) == (MODEL, 4096, 4 * 4096)
    assert http.get("/v1/model/list").json() == {"object": "list", "data": [card]}
    assert http.get("/v1/models").json()["data"][0]["id"] == MODEL
