"""Guidance in requests of the server: equal to the command, in the place where each client expects it."""

import json
import shlex
import subprocess
import sys

import httpx
import pytest

NEGATIVE = "A desert of dust and"


@pytest.fixture
def small_http(small_server):
    with httpx.Client(base_url=f"http://127.0.0.1:{small_server.port}", timeout=60) as client:
        yield client


def completion(http, **fields):
    body = {"prompt": "The sea was", "max_tokens": 12, "seed": 5, "chain": "temp1", **fields}
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def model_flags(path):
    return ["-m", path, "-t", 1, "--no-chat"]


def gen(*words):
    return subprocess.run(
        [sys.executable, "-m", "logitsmith.cli", *map(str, words)], capture_output=True, check=True, text=True
    ).stdout


@pytest.mark.parametrize(
    "fields",
    [
        {"guidance": {"scale": 1.8, "negative_prompt": NEGATIVE}},
        {"guidance_scale": 1.8, "negative_prompt": NEGATIVE},
        {"cfg_scale": 1.8, "negative_prompt": NEGATIVE},
        {"set": {"guidance.scale": 1.8, "guidance.negative_prompt": NEGATIVE}},
    ],
    ids=["guidance", "guidance_scale", "cfg_scale", "set"],
)
def test_the_text_is_that_of_the_command(small_http, pruned_model, fields):
    answer = completion(small_http, **fields)
    flags = ["--cfg-scale", 1.8, "--cfg-negative-prompt", NEGATIVE]
    words = [
        "run",
        "The sea was",
        "-m",
        pruned_model,
        "-t",
        1,
        "--no-chat",
        "-n",
        12,
        "--seed",
        5,
        "--chain",
        "temp1",
    ]
    assert answer["choices"][0]["text"] == gen(*words, *flags)
    assert answer["x_gen"]["ignored"] == []
    assert answer["choices"][0]["text"] != completion(small_http)["choices"][0]["text"]


def test_the_command_repeats_a_guided_chat(small_http, pruned_model):
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "chat_template": template,
        "max_tokens": 8,
        "seed": 5,
        "guidance": {"scale": 2, "negative_prompt": "Be rude."},
    }
    answer = small_http.post("/v1/chat/completions", json=body).json()
    words = shlex.split(answer["x_gen"]["command"])[1:]
    repeated = gen(words[0], "-m", pruned_model, "-t", 1, *words[1:])
    assert repeated == answer["choices"][0]["message"]["content"]
    (setting,) = [json.loads(word.partition("=")[2]) for word in words if word.startswith("guidance=")]
    assert setting["negative_prompt"] == "system: Be rude.\nuser: Hello\nassistant:"


@pytest.mark.parametrize(
    ("fields", "ignored"),
    [
        ({"guidance_scale": 1, "negative_prompt": ""}, []),
        ({"guidance_scale": 1, "negative_prompt": "x"}, ["negative_prompt"]),
        ({"negative_prompt": ""}, []),
        ({"negative_prompt": "x"}, ["negative_prompt"]),
        ({"guidance": {"scale": 1}, "negative_prompt": "y"}, ["negative_prompt"]),
        ({"set": ["guidance.scale=1"], "negative_prompt": "y"}, ["negative_prompt"]),
        ({"guidance": {"scale": 3, "negative_prompt": "x"}, "guidance_scale": 1}, ["guidance_scale"]),
        ({"guidance_scale": 2, "cfg_scale": 3}, ["cfg_scale"]),
    ],
    ids=["neutral", "off", "no text", "no scale", "own scale 1", "set to 1", "two scales", "two names"],
)
def test_fields_without_effect_are_named(small_http, fields, ignored):
    assert completion(small_http, **fields)["x_gen"]["ignored"] == ignored


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"guidance": {"negative_prompt": "x"}}, "guidance: guidance has no scale; set its scale, such as 1.5"),
        ({"guidance": {"size": 2}}, "guidance: unknown key 'size'; known: scale, negative_prompt, model"),
        ({"guidance": {"scale": "a"}}, "guidance.scale: 'a' is not a number within ±100"),
        ({"guidance": {"scale": 2, "model": "/etc/passwd"}}, "guidance.model: a request cannot name a model"),
        ({"set": ["guidance.model=/etc/passwd"]}, "guidance.model: a request cannot name a model"),
        ({"set": {"guidance": {"model": "x"}}}, "guidance.model: a request cannot name a model"),
        ({"guidance_scale": 2, "negative_prompt": "word " * 9000}, "negative_prompt: "),
    ],
    ids=["no scale", "unknown key", "no number", "model", "set a model", "set a table", "too long"],
)
def test_refused(small_http, fields, message):
    response = small_http.post("/v1/completions", json={"prompt": "x", "max_tokens": 1, **fields})
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)


def test_koboldcpps_negative_prompt_stands_before_the_prompt(small_http):
    body = {"prompt": "The sea was", "max_length": 12, "sampler_seed": 5, "chain": "temp1"}
    kobold = small_http.post(
        "/api/v1/generate", json={**body, "guidance_scale": 1.8, "negative_prompt": NEGATIVE}
    ).json()
    own = completion(small_http, guidance={"scale": 1.8, "negative_prompt": f"{NEGATIVE}\nThe sea was"})
    assert kobold["results"][0]["text"] == own["choices"][0]["text"]
    assert kobold["x_gen"]["ignored"] == []


def test_the_next_token_is_that_of_the_command(small_http, pruned_model):
    body = {"prompt": "The sea was", "chain": "min-p0.05", "top": 4, "seed": 3}
    guidance = {"scale": 1.8, "negative_prompt": NEGATIVE}
    found = small_http.post("/gen/next", json={**body, "guidance": guidance}).json()
    del found["x_gen"]
    words = [
        "next",
        "The sea was",
        "-m",
        pruned_model,
        "-t",
        1,
        "--no-chat",
        "--format",
        "json",
        "--top",
        4,
        "-s",
        3,
    ]
    flags = ["--chain", "min-p0.05", "--cfg-scale", 1.8, "--cfg-negative-prompt", NEGATIVE]
    assert found == json.loads(gen(*words, *flags))
    other_scale = small_http.post("/gen/next", json={**body, "guidance": guidance | {"scale": 3}}).json()
    assert other_scale["x_gen"]["decoded_tokens"] == 0
    assert other_scale["candidates"] != found["candidates"]


def test_a_healed_prompt_is_healed_in_both_readings(small_http):
    """A negative prompt that equals the prompt changes nothing."""
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where?"}]
    body = {"messages": [*messages, {"role": "assistant", "content": "The capital of Fra"}], "max_tokens": 8}
    body |= {"heal": True, "seed": 5, "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}
    plain = small_http.post("/v1/chat/completions", json=body).json()
    guided = small_http.post(
        "/v1/chat/completions", json={**body, "guidance": {"scale": 3, "negative_prompt": "Be kind."}}
    ).json()
    assert guided["choices"] == plain["choices"]


def test_the_next_token_of_a_healed_prompt(small_http, pruned_model):
    body = {"prompt": "The capital of Fra", "chain": "dist", "top": 3, "seed": 3, "heal": True}
    found = small_http.post("/gen/next", json=body).json()
    assert [stage["name"] for stage in found["stages"]] == ["model", "healing", "dist"]
    del found["x_gen"]
    words = ["next", "The capital of Fra", *model_flags(pruned_model), "--format", "json", "--top", 3, "-s", 3]
    assert found == json.loads(gen(*words, "--chain", "dist", "--set", "heal=true"))
