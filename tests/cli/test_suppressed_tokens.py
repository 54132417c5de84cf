"""Every command that draws tokens leaves out those that the model's file suppresses."""

import json

import numpy as np
import pytest

from ..engine.small_models import write_model
from ..serve.gen_serve import GenServe

SUPPRESSED = [*range(128, 256), 5, 262]
"""Half of the bytes, so that a run that draws them is noticed after a few tokens."""
RUN = ("he said", "--chain", "temp1", "-n", "24", "-s", "1")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    changes = {
        "tokenizer.ggml.suppress_tokens": [np.int32(token) for token in SUPPRESSED],
        "tokenizer.chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
    }
    return write_model(tmp_path_factory.mktemp("cli") / "suppressing.gguf", "llama", changes=changes)


def ids(lines):
    return [line["id"] for line in lines if line["event"] == "token"]


def check(tokens):
    assert len(tokens) == 24
    assert not set(tokens) & set(SUPPRESSED)


def check_text(text):
    assert text.strip()
    assert all(ord(character) < 128 for character in text)


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--lookup", "4"),
        ("--grammar", "root ::= .+"),
        ("--loop-guard",),
        ("--thinking-chain", "temp2"),
        ("--heal",),
    ],
    ids=str,
)
def test_run(gen, path, flags):
    check(ids(gen("run", *RUN, "-m", path, "--format", "jsonl", *flags).lines))


def test_next(gen, path):
    lines = gen("next", "he said", "--chain", "temp2", "-m", path).out.splitlines()
    assert lines[0].split() == ["model", "suppressed", "temperature"]
    assert next(line for line in lines if line.startswith("kept")).split() == ["kept", "263", "133", "133"]
    assert "suppressed   133 of 263 tokens allowed" in lines


def test_batch(gen, path):
    body = {"prompt": "he said", "max_tokens": 24, "seed": 1, "chain": "temp1", "logprobs": 0}
    (line,) = gen("batch", "-", "-m", path, stdin=json.dumps(body) + "\n").lines
    check_text(line["response"]["body"]["choices"][0]["text"])


def test_samples(gen, path):
    lines = gen("run", *RUN, "-m", path, "--samples", "2", "--format", "jsonl").lines
    for sample in (0, 1):
        check(ids([line for line in lines if line.get("sample") == sample]))


def test_chat(gen, path):
    text = gen("chat", "-m", path, "--chain", "temp1", "-n", "24", "-s", "1", stdin="he said\n").out
    check_text(text)


def test_serve(path):
    with GenServe("--slots", "2", model=path) as server:
        body = {"prompt": "he said", "n_predict": 24, "seed": 1, "chain": "temp1", "return_tokens": True}
        check(server.post("/completion", body)[1]["tokens"])
        stages = server.post("/gen/next", {"prompt": "he said", "chain": "temp1"})[1]["stages"]
        assert [(stage["name"], stage["kept"]) for stage in stages][:2] == [("model", 263), ("suppressed", 133)]
