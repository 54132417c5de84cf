"""The chain that a request leads to, on each route: it is told, and fields without a place in it are named."""

import pytest
from logitsmith.requests.sampler_fields import CHAIN_FIELDS

from .gen_serve import parts_of_stream
from .routes import CHAT, PROMPT, TEXT_ROUTES
from .test_tool_fields import DEFAULT, OFF, RECORDED, of_import

WATERMARKED = {"chain": "top_k > temperature=0.5 > synthid(keys=[1, 2])"}
ANYWHERE = {
    "the default": ({}, DEFAULT),
    "all off": ({"temperature": 1, "top_p": 1, "min_p": 0, "top_k": 0}, "dist"),
    "chain": ({"chain": "top-k3 > temp2", "min_p": 0.1}, "top_k=3 > min_p=0.1 > temperature=2.0 > dist"),
    "preset": ({"preset": "deterministic"}, "greedy"),
    "set": ({"set": {"top_k.k": 7}}, "top_k=7 > top_p > min_p > temperature > dist"),
    "a list of biases": ({"logit_bias": [[253, -5]]}, f"logit_bias(253=-5.0) > {DEFAULT}"),
}
"""Fields that mean the same to all tools."""
OF_OPENAI = {
    "mirostat": ({"mirostat": 2, "mirostat_tau": 4}, "temperature > mirostat_v2=4.0"),
    "llama.cpp's letters": ({"samplers": "tk"}, "temperature > top_k > dist"),
    "KoboldCpp's numbers": (
        {"sampler_order": [5, 2, 0], "top_a": 0.1},
        "top_a=0.1 > temperature > top_p > min_p > top_k > dist",
    ),
    "text-generation-webui's names": (
        {"sampler_priority": "min_p\ntemperature\ntop_k\ntop_p"},
        "min_p > temperature > top_k > top_p > dist",
    ),
    "Aphrodite's names": (
        {"samplers_priorities": ["top_nsigma", "min_p", "temperature", "top_p_top_k"], "top_n_sigma": 2},
        "top_n_sigma=2.0 > min_p > temperature > top_p > top_k > dist",
    ),
    "temperature last": (
        {"temperature_last": True, "tfs": 0.9},
        "top_k > top_p > min_p > tfs=0.9 > temperature > dist",
    ),
    "a watermark stays": (WATERMARKED | {"samplers": ["top_k"]}, "top_k > synthid(keys=[1, 2]) > dist"),
}
# Each row: the path, the fields, and the chain.
CHAINS = {f"{path}, {name}": (path, *row) for path in TEXT_ROUTES for name, row in ANYWHERE.items()}
CHAINS |= {f"/v1/completions, {name}": ("/v1/completions", *row) for name, row in OF_OPENAI.items()}


@pytest.mark.parametrize(("path", "fields", "chain"), CHAINS.values(), ids=CHAINS)
def test_the_chain_is_told(server, path, fields, chain):
    status, answer = server.post(path, TEXT_ROUTES[path] | fields)
    assert status == 200, answer
    assert answer["x_gen"]["chain"] == chain
    assert answer["x_gen"]["ignored"] == []


@pytest.mark.parametrize(
    ("fields", "chain"),
    [
        ({"mirostat": 2}, "temperature=0.5 > mirostat_v2"),
        ({"adaptive_target": 0.5}, "top_k > temperature=0.5 > adaptive_p=0.5"),
    ],
    ids=["mirostat", "adaptive"],
)
def test_a_watermark_that_goes_is_named(server, fields, chain):
    _, answer = server.post("/v1/completions", PROMPT | WATERMARKED | fields)
    assert (answer["x_gen"]["chain"], answer["x_gen"]["ignored"]) == (chain, ["synthid"])


SLOPED = OFF["koboldcpp"] | {"rep_pen": 1.2, "tfs": 0.9}
OF_TOOLS = {
    "webui, text": ("/v1/completions", RECORDED["ooba", "dynatemp"], "webui"),
    "webui, chat": ("/v1/chat/completions", RECORDED["ooba", "mirostat with penalties"], "webui"),
    "webui without a type": (
        "/v1/completions",
        OFF["webui"] | {"repetition_penalty": 1.2, "repetition_penalty_range": 0},
        "webui",
    ),
    "KoboldCpp, its own route": ("/api/v1/generate", SLOPED | {"mirostat": 0}, "koboldcpp"),
    "KoboldCpp, text": ("/v1/completions", RECORDED["koboldcpp", "tfs"], "koboldcpp"),
    "TabbyAPI, text": ("/v1/completions", RECORDED["tabby", "usual"], "tabbyapi"),
    "the next token": ("/gen/next", SLOPED, "koboldcpp"),
}


@pytest.mark.parametrize(("path", "body", "name"), OF_TOOLS.values(), ids=OF_TOOLS)
def test_a_body_of_a_tool_has_the_tools_chain(server, path, body, name):
    fields = {key: body[key] for key in (CHAIN_FIELDS | {"api_type"}) & body.keys()}
    prompt = CHAT if "chat" in path else PROMPT if path != "/gen/next" else {"prompt": "a"}
    status, answer = server.post(path, fields | prompt)
    assert status == 200, answer
    assert answer["x_gen"]["chain"] == of_import(body, name)
    if path.startswith("/v1"):
        _, answer = server.post(path, fields | prompt | {"stream": True})
        facts = [part["x_gen"] for part in parts_of_stream(answer) if part.get("x_gen")]
        assert facts[-1]["chain"] == of_import(body, name)
