"""lm-evaluation-harness against `gen serve`: the numbers of `gen score` and the texts of `gen run`."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .sillytavern import skip_without
from .test_openai import batch, gen

TASKS = Path(__file__).parent / "data" / "lm_eval"
QUESTIONS = [json.loads(line) for line in (TASKS / "sea.jsonl").read_text().splitlines()]


def lm_eval(address, folder, flags, **model_arguments):
    """Run both tasks. Returns the answers of the model, by task, in the order of the questions."""
    skip_without(find_spec("lm_eval"), "lm-eval")
    given = {"model": "gen", "base_url": f"{address}/v1/completions", "tokenizer_backend": "remote"}
    arguments = ",".join(f"{name}={value}" for name, value in {**given, **model_arguments}.items())
    offline = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments),
            *("--tasks", "sea,sea_text", "--include_path", ".", "--log_samples", "--output_path", str(folder)),
            *flags,
        ],
        cwd=TASKS,
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = {}
    for task in ("sea", "sea_text"):
        (file,) = folder.glob(f"gen/samples_{task}_2*.jsonl")
        samples = sorted(map(json.loads, file.read_text().splitlines()), key=lambda sample: sample["doc_id"])
        assert [sample["doc"]["prompt"] for sample in samples] == [question["prompt"] for question in QUESTIONS]
        answers[task] = samples
    return answers


@pytest.fixture(scope="module")
def scores():
    """The scores of `gen score --choices`, by question."""
    lines = gen("score", "--jsonl", str(TASKS / "sea.jsonl"), "-t", "1", "-c", "1024").splitlines()
    return [json.loads(line)["choices"] for line in lines]


@pytest.fixture(scope="module")
def texts():
    """The most likely continuation by `gen batch`, up to the end of the line, by question."""
    bodies = [{"prompt": question["prompt"], "max_tokens": 8, "temperature": 0} for question in QUESTIONS]
    return [answer["choices"][0]["text"].split("\n")[0] for answer in batch(*bodies)]


@pytest.mark.parametrize(
    ("flags", "model_arguments"),
    [
        pytest.param(["--batch_size", "3"], {"num_concurrent": 2}, id="batches of ids, two at a time"),
        pytest.param([], {}, id="one prompt of ids at a time", marks=pytest.mark.slow),
        pytest.param([], {"tokenized_requests": False}, id="texts", marks=pytest.mark.slow),
    ],
)
def test_the_numbers_are_those_of_gen_score(server, scores, texts, tmp_path, flags, model_arguments):
    answers = lm_eval(server, tmp_path, flags, **model_arguments)
    for sample, choices in zip(answers["sea"], scores, strict=True):
        found = [(float(value), word == "True") for value, word in sample["filtered_resps"]]
        assert [is_greedy for _, is_greedy in found] == [choice["is_greedy"] for choice in choices]
        for (value, _), choice in zip(found, choices, strict=True):
            # Each token has the same logprob, to the last bit. The sums differ by their rounding.
            assert math.isclose(value, choice["sum_logprob"], rel_tol=1e-14)
        best = max(range(len(choices)), key=lambda number: choices[number]["sum_logprob"])
        assert sample["acc"] == (best == sample["doc"]["answer"])
    assert 0 < sum(sample["acc"] for sample in answers["sea"]) < len(QUESTIONS)
    assert any(choice["is_greedy"] for choices in scores for choice in choices)
    assert [sample["filtered_resps"] for sample in answers["sea_text"]] == [[text] for text in texts]
