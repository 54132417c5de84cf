"""The draws of llama.cpp's real server: with tokens that the model suppresses, and under a grammar.

The manual describes how they differ from ours (docs/reproducibility.md). The server runs in another process:
python -m tests.oracle.test_server_draws reads the path of a model and bodies of requests as JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from logitsmith.engine import Model, Token, generate
from logitsmith.grammars import compile_grammar
from logitsmith.samplers import build

from ..engine.small_models import write_model

ROOT = Path(__file__).parent.parent.parent
SUPPRESSED = (ord("h"), 256, 258, 262)
"""With the token that ends a text, so that every text has its full length."""
PROMPT = "he said "
SEEDS = (1, 2, 3)
TOKEN_COUNT = 24
LETTERS = 'root ::= ([a-gi-z] | " ")+'

CHAINS = {
    "a draw": ({"samplers": ["temperature"], "temperature": 1}, "dist"),
    "cuts": (
        {"samplers": ["top_k", "top_p", "temperature"], "top_k": 100, "top_p": 0.9, "temperature": 0.8},
        "top_k100 > top_p0.9 > temp0.8",
    ),
    "a step that counts candidates": (
        {"samplers": ["temperature"], "temperature": 0.8, "dynatemp_range": 0.5},
        "dynatemp(temperature=0.8, range=0.5)",
    ),
    "penalties": (
        {"samplers": ["penalties", "temperature"], "repeat_penalty": 1.3, "repeat_last_n": 64, "temperature": 1},
        "penalties(repeat=1.3, last_n=64)",
    ),
    "greedy": ({"samplers": ["temperature"], "temperature": 0}, "greedy"),
}
WINDOWS = ({"repeat_last_n": -1}, {"dry_penalty_last_n": -1}, {})


def cases():
    """Each body that is sent, by a key."""
    common = {"n_predict": TOKEN_COUNT, "return_tokens": True, "cache_prompt": False}
    bodies = {
        f"window {number}": {"n_predict": 1, "prompt": "a", **window} for number, window in enumerate(WINDOWS)
    }
    for name, (fields, _) in CHAINS.items():
        for seed in SEEDS:
            for grammar in ("", LETTERS):
                body = {**common, "prompt": PROMPT, "seed": seed, **fields}
                bodies[f"{name} {seed} {grammar}"] = body | ({"grammar": grammar} if grammar else {})
    return bodies


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    changes = {"tokenizer.ggml.suppress_tokens": [np.int32(token) for token in SUPPRESSED]}
    path = write_model(tmp_path_factory.mktemp("draws") / "small.gguf", "llama", changes=changes)
    with Model.load(path, n_ctx=256, threads=1) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def answers(model):
    request = json.dumps({"model": str(model.path), "bodies": cases()})
    words = [sys.executable, "-m", "tests.oracle.test_server_draws"]
    done = subprocess.run(words, input=request, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    import xllamacpp

    request = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = request["model"]
    params.no_extra_bufts = True  # its kernels for AMX crash when some compilers made them
    params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port = 256, 1, 0, 0
    params.warmup, params.cpuparams.n_threads = False, 1
    server = xllamacpp.Server(params)
    with httpx.Client(base_url=server.listening_address, timeout=60) as client:
        found = {key: client.post("/completion", json=body).json() for key, body in request["bodies"].items()}
    print("\n" + json.dumps(found), flush=True)


def chain_of(model, name, seed):
    return build(CHAINS[name][1], seed=seed, vocab=model.vocabulary)


def our_tokens(model, name, seed, constraint=None):
    model.context.truncate(0)
    events = generate(model, PROMPT, chain_of(model, name, seed), constraint, max_tokens=TOKEN_COUNT, jump=False)
    return [event.id for event in events if isinstance(event, Token)]


def tokens_by_rejection(model, name, seed):
    """Draw as llama.cpp under the grammar: from all tokens, and again from the allowed ones if it refuses."""
    chain, state = chain_of(model, name, seed), compile_grammar(LETTERS, model.vocabulary).start()
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    model.context.truncate(0)
    model.context.read(prompt)
    chain.reset(prompt)
    tokens, refused_count = [], 0
    for _ in range(TOKEN_COUNT):
        logits, mask = model.context.logits().copy(), state.mask()
        token = chain.sample(logits)
        if not mask[token]:
            refused_count += 1
            token = chain.sample(logits, mask)
        chain.accept(token)
        state.accept(token)
        model.context.append_batch([token])
        tokens.append(token)
    return tokens, refused_count


@pytest.mark.parametrize("name", CHAINS)
def test_suppressed_tokens_are_drawn_by_neither(model, answers, name):
    for seed in SEEDS:
        theirs = answers[f"{name} {seed} "]["tokens"]
        assert len(theirs) == TOKEN_COUNT
        assert our_tokens(model, name, seed) == theirs
        assert not set(theirs) & set(SUPPRESSED)


@pytest.mark.parametrize("name", ["a draw", "cuts", "penalties", "greedy"])
def test_a_refused_token_costs_a_second_draw_there(model, answers, name):
    refused_total = 0
    for seed in SEEDS:
        tokens, refused_count = tokens_by_rejection(model, name, seed)
        assert tokens == answers[f"{name} {seed} {LETTERS}"]["tokens"]
        refused_total += refused_count
    assert 0 < refused_total < len(SEEDS) * TOKEN_COUNT


@pytest.mark.parametrize(("name", "is_equal"), [("a draw", False), ("cuts", False), ("greedy", True)])
def test_a_mask_before_the_draw_gives_other_tokens_except_for_greedy(model, answers, name, is_equal):
    grammar = compile_grammar(LETTERS, model.vocabulary)
    for seed in SEEDS:
        ours = our_tokens(model, name, seed, grammar.start())
        assert (ours == answers[f"{name} {seed} {LETTERS}"]["tokens"]) is is_equal


def test_the_server_has_no_window_of_all_tokens(answers):
    for number in (0, 1):
        assert "must be between 0" in answers[f"window {number}"]["error"]["message"]
    settings = answers["window 2"]["generation_settings"]
    assert (settings["repeat_last_n"], settings["dry_penalty_last_n"]) == (64, 64)


if __name__ == "__main__":
    main()
