"""What is computed on a GPU: every way of the decoder, some of the layers, and llama.cpp's own texts.

The GPU is one in software, which computes as a real one does but slowly: its batches, and the places of weights
and caches, are those of a GPU.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from ..serve.gen_serve import GenServe
from .conftest import BINDING, NAME

pytestmark = pytest.mark.slow

PROMPT = "Once upon a time, in a lighthouse by the sea,"
LENGTH = ("-n", "24")
GREEDY = ("--temp", "0", *LENGTH)
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}},
        "required": ["name"],
        "additionalProperties": False,
    }
)


@pytest.fixture
def greedy_text(gpu):
    return gpu.text(PROMPT, *GREEDY, "-ngl", "all")


def test_the_layers_are_on_the_device(gpu):
    start, *_ = gpu.events(PROMPT, "-n", "1", "-ngl", "all")
    assert start["device"]["layers"] == start["device"]["of"] > 1
    assert [device["name"] for device in start["device"]["devices"]] == [NAME]
    assert start["device"]["devices"][0]["free_bytes"] > 0


LAYERS = {"all": ["-ngl", "all"], "auto": [], "one": ["-ngl", "1"], "more than there are": ["-ngl", "99"]}


@pytest.mark.parametrize("flags", LAYERS.values(), ids=LAYERS)
def test_some_layers_write_the_same_text(gpu, greedy_text, flags):
    assert gpu.text(PROMPT, *GREEDY, *flags) == greedy_text


CPU_ALONE = {"no layer": ["-ngl", "0"], "no device": ["-dev", "none"]}


@pytest.mark.parametrize("flags", CPU_ALONE.values(), ids=CPU_ALONE)
def test_a_gpu_build_computes_on_the_cpu(gpu, flags):
    start, *_, done = gpu.events(PROMPT, *GREEDY, *flags)
    assert start["device"] == {"layers": 0, "of": start["device"]["of"], "devices": []}
    assert done["usage"]["completion_tokens"] == 24


def test_a_driver_without_a_gpu_is_the_cpu(driver_without_gpu):
    start, *_ = driver_without_gpu.events(PROMPT, "-n", "1")
    assert (start["device"]["layers"], start["device"]["devices"]) == (0, [])


WITHOUT_GPU = {
    "layers": (["-ngl", "all"], 0, "-ngl has no effect: llama.cpp finds no GPU"),
    "a device": (["-dev", NAME], 1, f"-dev: there is no device '{NAME}'; llama.cpp finds no GPU"),
}


@pytest.mark.parametrize(("flags", "code", "part"), WITHOUT_GPU.values(), ids=WITHOUT_GPU)
def test_a_driver_without_a_gpu_says_so(driver_without_gpu, flags, code, part):
    _, err = driver_without_gpu.gen("run", "-m", driver_without_gpu.model, PROMPT, "-n", "1", *flags, code=code)
    assert part in err


def test_gen_doctor_names_a_driver_without_a_gpu(driver_without_gpu):
    page = " ".join(driver_without_gpu.gen("doctor")[0].split())
    assert "none found, although llama.cpp is built for Vulkan; check the driver" in page


def test_a_given_context_that_does_not_fit_is_computed_on_the_cpu(gpu):
    out, err = gpu.gen("run", "-m", gpu.model, PROMPT, "-n", "1", "-c", "600000", "--format", "jsonl")
    assert json.loads(out.splitlines()[0])["device"]["layers"] == 0
    assert "and 1.0 GiB stays in reserve: 0 of 3 layers on the GPU" in err


def test_the_devices_are_listed(gpu, driver_without_gpu):
    assert NAME in gpu.gen("--list-devices")[0]
    assert NAME not in driver_without_gpu.gen("--list-devices")[0]


WRONG = {
    "an unknown device": (["-dev", "CUDA7"], NAME),
    "shares of missing GPUs": (["-ts", "1,1,1"], "1"),
    "a missing main GPU": (["-sm", "none", "-mg", "3"], "-mg"),
    "layers beside a context that does not fit": (
        ["-ngl", "all", "-c", "8000000"],
        "; try -ngl 0 or auto, or a smaller -c",
    ),
}


@pytest.mark.parametrize(("flags", "part"), WRONG.values(), ids=WRONG)
def test_what_is_not_there_is_refused(gpu, flags, part):
    _, err = gpu.gen("run", "-m", gpu.model, PROMPT, *flags, code=1)
    assert part in err


LIKE_GREEDY = {
    "prompt lookup": ["--lookup", "8"],
    "a draft model": ["-md", "DRAFT"],
    "one token at a time": ["-b", "1"],
    "logprobs": ["--logprobs", "3", "--format", "openai"],
    "flash attention": ["-fa", "on"],
    "the cache in the CPU's types": ["-ctk", "f16", "-ctv", "f16"],
}
"""Flags that change how logits are computed, and hardly the logits."""


@pytest.mark.parametrize("flags", LIKE_GREEDY.values(), ids=LIKE_GREEDY)
def test_the_text_is_that_of_the_usual_way(gpu, greedy_text, draft_path, flags):
    words = [str(draft_path) if word == "DRAFT" else word for word in flags]
    text = gpu.text(PROMPT, *GREEDY, *words)
    if "openai" in words:
        text = json.loads(text)["choices"][0]["text"]
    assert text.strip() == greedy_text.strip()


WAYS = {
    "guidance": (["--cfg-scale", "1.5", "--cfg-negative-prompt", "A storm"], r"(?s).+"),
    "beams": (["--beams", "3"], r"(?s).+"),
    "samples": (["--samples", "3", "--seed", "1"], r"(?s).+"),
    "a ban": (["--ban-regex", "[aeiou]"], r"[^aeiou]*"),
    "a loop guard": (["--loop-guard"], r"(?s).+"),
    "a context that shifts": (["-c", "64", "-n", "90", "--context-shift"], r"(?s).+"),
    "a schema": (["-j", SCHEMA], r"\{\s*\"name\"\s*:\s*\".*\"\s*\}"),
    "a grammar": (["--grammar", 'root ::= "yes" | "no"'], "yes|no"),
    "phases": (["--reasoning-budget", "4", "--thinking-end", "</think>"], r"(?s).*</think>.*"),
}
"""The ways of the decoder, each with the pattern of its text."""


@pytest.mark.parametrize(("flags", "pattern"), WAYS.values(), ids=WAYS)
def test_a_way_of_the_decoder_has_a_text(gpu, flags, pattern):
    first, second = (gpu.text(PROMPT, "--seed", "5", *LENGTH, *flags) for _ in range(2))
    assert re.fullmatch(pattern, first.strip())
    assert first == second


def test_a_saved_prompt_is_read_again(gpu, tmp_path):
    cache = tmp_path / "prompt.cache"
    words = ("chat", "--no-log", "-m", gpu.model, "--prompt-cache", cache, "--temp", "0", "-n", "8")
    answers = [gpu.gen(*words, stdin="Hello\n")[0] for _ in range(2)]
    assert answers[0] == answers[1] != ""
    assert cache.stat().st_size > 1000


def test_a_batch_answers_as_single_runs_do(gpu, greedy_text, tmp_path):
    prompts = [PROMPT, PROMPT + " a", "The sea was", PROMPT]
    lines = [json.dumps({"id": str(i), "prompt": prompt, "max_tokens": 24}) for i, prompt in enumerate(prompts)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    words = ["batch", tmp_path / "in.jsonl", "-m", gpu.model, "--temp", "0", "--format", "jsonl"]
    for flags, promise in (([], "to rounding"), (["--deterministic"], "exact")):
        out, _ = gpu.gen(*words, "--parallel", "4", *flags)
        answers = {line["id"]: line for line in map(json.loads, out.splitlines())}
        assert [answer["error"] for answer in answers.values()] == [None] * len(prompts)
        assert answers["0"]["text"] == answers["3"]["text"] == greedy_text.removesuffix("\n")
        assert all(answer["batch_exactness"].startswith(promise) for answer in answers.values())


LONG_PROMPT = " ".join(f"Chapter {number}." for number in range(60))
"""A prompt after which a text passes 256 tokens, where the attention is divided otherwise."""
SHARING_PROMPTS = (LONG_PROMPT + " one", LONG_PROMPT + " two")


def test_a_deterministic_batch_has_the_logprobs_of_single_runs(gpu, tmp_path):
    prompts = [LONG_PROMPT, PROMPT, "The sea was"]
    lines = [json.dumps({"id": prompt, "prompt": prompt, "seed": 3, "max_tokens": 12}) for prompt in prompts]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    flags = ("-m", gpu.model, "--logprobs", "1", "--format", "openai")
    out, _ = gpu.gen("batch", tmp_path / "in.jsonl", *flags, "--parallel", "3", "--deterministic")
    answers = {
        line["custom_id"]: line["response"]["body"]["choices"] for line in map(json.loads, out.splitlines())
    }
    for prompt in prompts:
        alone = json.loads(gpu.gen("run", prompt, *flags, "--seed", "3", "-n", "12")[0])
        assert answers[prompt][0]["logprobs"] == alone["choices"][0]["logprobs"]


def test_a_score_is_that_of_the_cpu(gpu, cpu):
    words = ("score", "-m", gpu.model, PROMPT, "--format", "json")
    on_gpu, on_cpu = (json.loads(machine.gen(*words)[0]) for machine in (gpu, cpu))
    assert on_gpu["sum_logprob"] == pytest.approx(on_cpu["sum_logprob"], abs=0.2)


def test_a_server_answers_several_clients(gpu, greedy_text, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(BINDING))
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    with GenServe("--slots", "4", model=gpu.model) as server, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.post("/v1/completions", body), range(8)))
        _, sharing = [server.post("/completion", body | {"prompt": prompt})[1] for prompt in SHARING_PROMPTS]
    assert {answer["choices"][0]["text"] for _, answer in answers} == {greedy_text.removesuffix("\n")}
    alone = gpu.text(SHARING_PROMPTS[1], *GREEDY, "-ngl", "all")
    assert (sharing["content"], sharing["tokens_cached"] >= 64) == (alone.removesuffix("\n"), True)


def test_the_text_is_llama_servers(gpu):
    body = {"prompt": PROMPT, "n_predict": 24, "seed": 7, "ignore_eos": True}
    with gpu.llama_server("-ngl", "99", "-np", "1", "-c", "512") as url:
        peer = httpx.post(f"{url}/completion", json=body, timeout=600).json()["content"]
    flags = ("--seed", "7", *LENGTH, "--ignore-eos", "-ngl", "99", "-c", "512")
    assert gpu.text(PROMPT, "-P", "llama-cpp", *flags).strip() == peer.strip()


def test_the_text_is_llama_cpps(gpu):
    flags = ("--seed", "7", *LENGTH, "-ngl", "99", "-c", "512")
    peer = gpu.program("llama-completion", "-p", PROMPT, *flags, "-no-cnv", "--no-display-prompt", "--no-warmup")
    assert gpu.text(PROMPT, "-P", "llama-cpp", *flags).strip() == peer.strip()
