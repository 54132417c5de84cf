"""`gen batch --on ray` and `gen score --on ray`: the results of one machine, whatever happens to the workers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..cluster.conftest import ray  # noqa: F401 - a fixture

SCORE_USAGE = {
    "a text": (["The sea", "--on", "ray"], "--on goes with --jsonl"),
    "workers alone": (["--jsonl", "in.jsonl", "--workers", "1"], "--workers goes with --on"),
}
USAGE = {
    "no cluster": (["--workers", "2"], "--workers goes with --on"),
    "a word": (["--on", "dask"], "--on: 'dask' is not ray, ray:HOST or ray:HOST:PORT"),
    "no host": (["--on", "ray:"], "--on: 'ray:' is not ray"),
    "no workers": (["--on", "ray", "--workers", "0"], "--workers: 0 is not ≥ 1"),
}
SMALL = ("--format", "jsonl", "-c", "256", "-t", "1", "--parallel", "4")
ON_RAY = ("--on", "ray", "--workers", "2", "--cpus-per-worker", "1")


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE)
def test_wrong_usage(gen, home, arguments, message):
    (home / "work" / "in.jsonl").write_text("")
    assert message in gen("batch", "in.jsonl", *arguments, code=2).err


@pytest.mark.parametrize(("arguments", "message"), SCORE_USAGE.values(), ids=SCORE_USAGE)
def test_wrong_usage_of_score(gen, home, arguments, message):
    (home / "work" / "in.jsonl").write_text("")
    assert message in gen("score", *arguments, code=2).err


def write_requests(work, count=24):
    requests = [{"id": f"r{n}", "prompt": f"The sea, for the {n}th time,", "max_tokens": 6} for n in range(count)]
    requests[3]["promt"] = requests[3].pop("prompt")
    requests[5]["json_schema"] = {"type": "boolean"}
    requests[7] = {"id": "r7", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 4}
    requests[9]["prompt"] = "word " * 400
    (work / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))


def results(path):
    """The results by id, without what names the machine or the run."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    kept = {line["id"]: {**line, "worker": None} for line in lines}
    assert len(kept) == len(lines)
    return kept


@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_the_results_are_those_of_one_machine(gen, home):
    work = home / "work"
    write_requests(work)
    gen("batch", "in.jsonl", "-o", "here.jsonl", *SMALL, code=1)
    done = gen("batch", "in.jsonl", "-o", "there.jsonl", *SMALL, *ON_RAY, code=1)
    assert "22 answered, 2 failed" in done.err
    assert "worker 2 on " in done.err
    here, there = results(work / "here.jsonl"), results(work / "there.jsonl")
    assert {name: {**result, "worker": None} for name, result in here.items()} == there
    worker = json.loads((work / "there.jsonl").read_text().splitlines()[-1])["worker"]
    assert worker["threads"] == 1
    assert set(worker) == {"cpu", "build", "threads"}
    again = gen("batch", "in.jsonl", "-o", "there.jsonl", "--resume", *SMALL, code=1)
    assert "0 answered, 0 failed, 24 were there, 2 of them failed" in again.err


@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_scores_are_those_of_one_machine_in_the_order_of_the_file(gen, home):
    lines = [{"id": n, "prompt": "The sea is", "choices": [" blue", f" {n}"]} for n in range(40)]
    lines[7] = {"id": 7, "text": "The sea was calm.", "line": 1}
    lines[9] = {"id": 9, "text": "The sea was calm."}
    (home / "work" / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ("score", "--jsonl", "in.jsonl", "-c", "256", "-t", "1")
    here = gen(*arguments, code=1)
    there = gen(*arguments, *ON_RAY, code=1)
    assert there.out == here.out
    assert here.err.strip() in there.err
    piped = gen("score", "--jsonl", "-", "-c", "256", "-t", "1", *ON_RAY, stdin=json.dumps(lines[0]) + "\n")
    assert piped.out == here.out.splitlines(keepends=True)[0]


def children(pid):
    """The processes below a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def workers_of(pid):
    """The workers of Ray's that belong to a driver, by the names that Ray gives their processes."""
    names = {}
    for child in children(pid):
        try:
            names[child] = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
    return [child for child, name in names.items() if name.startswith(b"ray::WorkerActor")]


@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_a_worker_that_is_killed_loses_nothing_and_a_driver_that_is_killed_is_gone_on_from(gen, home, environment):
    work = home / "work"
    write_requests(work, 60)
    gen("batch", "in.jsonl", "-o", "here.jsonl", *SMALL, code=1)
    arguments = ["batch", "in.jsonl", "-o", "there.jsonl", *SMALL, *ON_RAY]
    driver = subprocess.Popen(
        [sys.executable, "-m", "logitsmith.cli", *arguments], cwd=work, env=environment, stderr=subprocess.PIPE
    )
    output = work / "there.jsonl"

    def wait_for(count):
        while not output.exists() or output.read_bytes().count(b"\n") < count:
            assert driver.poll() is None, driver.stderr.read()
            time.sleep(0.01)

    wait_for(4)
    os.kill(workers_of(driver.pid)[0], signal.SIGKILL)
    wait_for(20)
    driver.kill()
    driver.communicate()
    done = gen(*arguments, "--resume", code=1)
    assert "58 answered" not in done.err
    expected = {name: {**result, "worker": None} for name, result in results(work / "here.jsonl").items()}
    assert results(output) == expected


@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_a_line_of_a_pipe_is_answered_when_it_comes(home, environment):
    arguments = ["batch", "-", *SMALL, *ON_RAY]
    command = [sys.executable, "-m", "logitsmith.cli", *arguments]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=home / "work", env=environment, text=True, bufsize=1, **streams) as driver:
        for name in ("first", "second", "third"):
            driver.stdin.write(json.dumps({"id": name, "prompt": "The sea", "max_tokens": 2}) + "\n")
            assert json.loads(driver.stdout.readline())["id"] == name
        driver.stdin.close()
        assert driver.wait() == 0
