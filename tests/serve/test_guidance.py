"""Guidance and healing in requests: equal to the command, in the place where each client expects it."""

import json
import shlex

import pytest

NEGATIVE = "A desert of dust and"
WRITTEN = {"prompt": "The sea was", "max_tokens": 12, "seed": 5, "chain": "temp1"}


def post(server, body, path="/v1/completions"):
    status, answer = server.post(path, body)
    assert status == 200, answer
    assert answer["x_gen"]["ignored"] == []
    return answer


GUIDED = {
    "guidance": {"guidance": {"scale": 1.8, "negative_prompt": NEGATIVE}},
    "guidance_scale": {"guidance_scale": 1.8, "negative_prompt": NEGATIVE},
    "cfg_scale": {"cfg_scale": 1.8, "negative_prompt": NEGATIVE},
    "set": {"set": {"guidance.scale": 1.8, "guidance.negative_prompt": NEGATIVE}},
}


def test_the_text_is_that_of_the_command(server, gen):
    words = ("run", "The sea was", "--no-chat", "-n", 12, "--seed", 5, "--chain", "temp1")
    expected = gen(*words, "--cfg-scale", 1.8, "--cfg-negative-prompt", NEGATIVE)
    for name, fields in GUIDED.items():
        assert post(server, WRITTEN | fields)["choices"][0]["text"] == expected, name
    assert post(server, WRITTEN)["choices"][0]["text"] != expected


def test_the_command_repeats_a_guided_chat(server, gen):
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "chat_template": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
        "max_tokens": 8,
        "seed": 5,
        "guidance": {"scale": 2, "negative_prompt": "Be rude."},
    }
    answer = post(server, body, "/v1/chat/completions")
    words = shlex.split(answer["x_gen"]["command"])[1:]
    assert gen(*words) == answer["choices"][0]["message"]["content"]
    (setting,) = [json.loads(word.partition("=")[2]) for word in words if word.startswith("guidance=")]
    assert setting["negative_prompt"] == "system: Be rude.\nuser: Hello\nassistant:"


def test_koboldcpps_negative_prompt_stands_before_the_prompt(server):
    body = {"prompt": "The sea was", "max_length": 12, "sampler_seed": 5, "chain": "temp1"}
    kobold = post(server, body | {"guidance_scale": 9, "negative_prompt": NEGATIVE}, "/api/v1/generate")
    negative_prompts = [f"{NEGATIVE}{between}The sea was" for between in ("\n", "")]
    guidances = [{"scale": 9, "negative_prompt": negative_prompt} for negative_prompt in negative_prompts]
    own, other = (post(server, WRITTEN | {"guidance": guidance})["choices"][0]["text"] for guidance in guidances)
    assert kobold["results"][0]["text"] == own != other


NEXT = {
    "guided": (
        {"prompt": "The sea was", "chain": "min-p0.05", "guidance": GUIDED["guidance"]["guidance"]},
        ["The sea was", "--chain", "min-p0.05", "--cfg-scale", 1.8, "--cfg-negative-prompt", NEGATIVE],
        ["model", "guidance", "min_p", "dist"],
    ),
    "healed": (
        {"prompt": "The capital of Fra", "chain": "dist", "heal": True},
        ["The capital of Fra", "--chain", "dist", "--set", "heal=true"],
        ["model", "healing", "dist"],
    ),
}


@pytest.mark.parametrize(("body", "words", "stages"), NEXT.values(), ids=NEXT)
def test_the_next_token_is_that_of_the_command(server, gen, body, words, stages):
    found = post(server, body | {"top": 4, "seed": 3}, "/gen/next")
    del found["x_gen"]
    assert found == json.loads(gen("next", "--no-chat", "--format", "json", "--top", 4, "-s", 3, *words))
    assert [stage["name"] for stage in found["stages"]] == stages


def test_another_scale_decodes_nothing(server):
    body = {"prompt": "The sea was red", "guidance": {"scale": 1.8, "negative_prompt": NEGATIVE}}
    first = post(server, body, "/gen/next")
    other = post(server, body | {"guidance": body["guidance"] | {"scale": 3}}, "/gen/next")
    assert other["x_gen"]["decoded_tokens"] == 0
    assert other["candidates"] != first["candidates"]


def test_a_healed_prompt_is_healed_in_both_readings(server):
    """A negative prompt that equals the prompt changes nothing."""
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Where?"}]
    body = {"messages": [*messages, {"role": "assistant", "content": "The capital of Fra"}], "max_tokens": 8}
    body |= {"heal": True, "seed": 5, "chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}
    guidance = {"scale": 3, "negative_prompt": "Be kind."}
    guided = post(server, body | {"guidance": guidance}, "/v1/chat/completions")
    assert guided["choices"] == post(server, body, "/v1/chat/completions")["choices"]
