"""lm-evaluation-harness against `gen serve`: the numbers of `gen score` and the texts of `gen run`."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from .gen_serve import GenServe
from .sillytavern import skip_without

TASKS = Path(__file__).parent / "data" / "lm_eval"
QUESTIONS = [json.loads(line) for line in (TASKS / "sea.jsonl").read_text().splitlines()]


EVALUATE = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
given = json.load(sys.stdin)
tasks = TaskManager(include_path=".", include_defaults=False)  # it would read thousands of other tasks
given |= {"tasks": ["sea", "sea_text"], "task_manager": tasks, "bootstrap_iters": 0}
found = simple_evaluate("local-completions", **given)
json.dump(found["samples"], open(sys.argv[1], "w"))
"""


def lm_eval(address, folder, batch_size, **model_arguments):
    """Run both tasks. Returns the answers of the model, by task, in the order of the questions."""
    skip_without(find_spec("lm_eval"), "lm-eval")
    given = {"model": "gen", "base_url": f"{address}/v1/completions", "tokenizer_backend": "remote"}
    offline = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EVALUATE, folder / "samples.json"],
        input=json.dumps({"model_args": given | model_arguments, "batch_size": batch_size}),
        cwd=TASKS,
        env=os.environ | offline,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads((folder / "samples.json").read_text())
    for samples in answers.values():
        samples.sort(key=lambda sample: sample["doc_id"])
        assert [sample["doc"]["prompt"] for sample in samples] == [question["prompt"] for question in QUESTIONS]
    return answers


@pytest.fixture(scope="module")
def server():
    """A server with the bundled model: some of its answers to the questions are right."""
    with GenServe("--slots", "4", "-c", "1024") as server:
        yield server


@pytest.fixture(scope="module")
def gen(gen_server):
    """Run a command with the bundled model. Returns the JSON of its lines."""
    environment = {key: value for key, value in os.environ.items() if key != "GEN_MODEL"}

    def run(command, *words, stdin=""):
        words = [command, "-t", "1", *words]
        out, err, code = gen_server.run(words, stdin=stdin.encode(), cwd=TASKS, env=environment, timeout=300)
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]

    return run


@pytest.fixture(scope="module")
def scores(gen):
    """The scores of `gen score --choices`, by question."""
    return [line["choices"] for line in gen("score", "--jsonl", "sea.jsonl", "-c", "1024")]


@pytest.fixture(scope="module")
def texts(gen):
    """The most likely continuation by `gen batch`, up to the end of the line, by question."""
    bodies = [{"prompt": question["prompt"], "max_tokens": 8, "temperature": 0} for question in QUESTIONS]
    sent = [
        {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
        for number, body in enumerate(bodies)
    ]
    results = gen("batch", "-", stdin="\n".join(map(json.dumps, sent)))
    answers = {int(result["custom_id"]): result["response"]["body"] for result in results}
    return [answers[number]["choices"][0]["text"].split("\n")[0] for number in range(len(bodies))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch_size", "model_arguments"),
    [
        pytest.param(3, {"num_concurrent": 2}, id="batches of ids, two at a time"),
        pytest.param(1, {}, id="one prompt of ids at a time", marks=pytest.mark.slow),
        pytest.param(1, {"tokenized_requests": False}, id="texts", marks=pytest.mark.slow),
    ],
)
def test_the_numbers_are_those_of_gen_score(server, scores, texts, tmp_path, batch_size, model_arguments):
    answers = lm_eval(server.address, tmp_path, batch_size, **model_arguments)
    for sample, choices in zip(answers["sea"], scores, strict=True):
        found = sample["filtered_resps"]
        assert [is_greedy for _, is_greedy in found] == [choice["is_greedy"] for choice in choices]
        for (value, _), choice in zip(found, choices, strict=True):
            # Each token has the same logprob, to the last bit. The sums differ by their rounding.
            assert math.isclose(value, choice["sum_logprob"], rel_tol=1e-14)
        best = max(range(len(choices)), key=lambda number: choices[number]["sum_logprob"])
        assert sample["acc"] == (best == sample["doc"]["answer"])
    assert 0 < sum(sample["acc"] for sample in answers["sea"]) < len(QUESTIONS)
    assert any(choice["is_greedy"] for choices in scores for choice in choices)
    assert [sample["filtered_resps"] for sample in answers["sea_text"]] == [[text] for text in texts]
