"""`--on ray` of `gen batch`, `gen score` and `gen decide`: the results of one machine, whatever happens."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from logitsmith.cli.options.model import ClusterOptions
from logitsmith.cli.render import batch_progress as batch_display, batch_progress as cluster_display
from logitsmith.cli.render.batch_progress import BatchProgress, ProgressDisplay, worker_lines
from logitsmith.cluster.worker import WorkerStatus
from logitsmith.engine import LoadOptions, Model
from logitsmith.engine.load_options import ModelSpec
from logitsmith.jobs.scoring import scored_line
from logitsmith.jobs.workers import model_for_workers

from ..cluster.conftest import ray  # noqa: F401 - a fixture

USAGE = {
    "no cluster": (["--workers", "2"], "--on"),
    "no workers": (["--on", "ray", "--workers", "0"], "--workers: 0"),
    **{
        on: (["--on", on], f"--on: {on!r}")
        for on in (
            "dask",
            "ray:",
            "ray:a:b",
            "ray:a:",
            "ray:a:0",
            "ray:a:65536",
            "ray:::1",
            "ray:[::1]",
            "ray://a:1",
        )
    },
    **{
        f"{gpus} GPUs": (["--on", "ray", "--gpus-per-worker", gpus], "--gpus-per-worker: ")
        for gpus in ("1.5", "0.00001", "0.12345", "inf", "nan")
    },
}
ADDRESSES = {
    "ray": None,
    "ray:head": "head",
    "ray:head.example:1": "head.example:1",
    "ray:192.0.2.1:65535": "192.0.2.1:65535",
    "ray:[::1]:6379": "[::1]:6379",
    "ray:[fe80::1%eth0]:6379": "[fe80::1%eth0]:6379",
}
SMALL = ("--format", "jsonl", "-c", "256", "-t", "1", "--parallel", "4")
ON_RAY = ("--on", "ray", "--workers", "2", "--cpus-per-worker", "1")


@pytest.mark.parametrize(("arguments", "named"), USAGE.values(), ids=USAGE)
def test_wrong_usage(gen, home, arguments, named):
    (home / "work" / "in.jsonl").write_text("")
    assert named in gen("batch", "in.jsonl", *arguments, code=2).err


def test_wrong_usage_of_score(gen, home):
    assert "--jsonl" in gen("score", "The sea", "--on", "ray", code=2).err
    assert "--on" in gen("score", "--jsonl", "-", "--workers", "1", code=2).err


@pytest.mark.parametrize(("on", "address"), ADDRESSES.items(), ids=ADDRESSES)
def test_places_of_a_head(on, address):
    options = ClusterOptions(on=on)
    options.check()
    assert options.address == address
    for gpus in (0.0, 0.0001, 0.3, 1.0, 2.0):
        ClusterOptions(on=on, worker_gpus=gpus).check()


def test_a_model_behind_links_keeps_its_name_and_its_parts(tmp_path, monkeypatch):
    """As in Hugging Face's cache, whose links have names, and whose files are called by their digests."""
    monkeypatch.chdir(tmp_path)
    names = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "lora.gguf"]
    for number, name in enumerate(names):
        (tmp_path / f"blob{number}").write_bytes(b"")
        (tmp_path / name).symlink_to(f"blob{number}")
    options = LoadOptions(lora=[(names[2], 1.0)])
    model = model_for_workers(ModelSpec(Path(names[1]), "-m", options), 1)
    assert model.options.threads == 1
    assert model.path == tmp_path / names[0]
    assert model.files == [tmp_path / name for name in names]


LINES = {
    "a text longer than the context": ({"text": "The sea was calm. " * 60}, 300, 100),
    "choices": ({"prompt": "The sea is", "choices": [" blue", " green"]}, 3, 1),
}


@pytest.mark.parametrize(("line", "tokens", "calls"), LINES.values(), ids=LINES)
def test_the_progress_of_a_line_is_told_while_it_is_scored(pruned_model, line, tokens, calls):
    counts = []
    with Model.load(pruned_model, n_ctx=256, threads=1) as model:
        with_progress = scored_line(model, json.dumps(line).encode(), 1, None, counts.append)
        assert with_progress == scored_line(model, json.dumps(line).encode(), 1, None)
    assert sum(counts) >= tokens
    assert len(counts) >= calls


def worker_status(number, *, is_ready=True):
    return WorkerStatus(f"worker {number}", is_ready, 10, number == 11, 200, 2.0)


WORKERS = {
    "none": ([], []),
    "one": ([worker_status(1)], ["worker 1: 10 answered, 100 tokens/s"]),
    "one that starts": ([worker_status(1, is_ready=False)], ["worker 1: starting"]),
    "several more": (
        [worker_status(n) for n in range(1, 12)],
        ["3 more: 30 answered, 1 failed, 300 tokens/s together"],
    ),
    "more that start": (
        [worker_status(n, is_ready=n < 10) for n in range(1, 1001)],
        ["992 more: 991 starting, 10 answered, 100 tokens/s together"],
    ),
}


@pytest.mark.parametrize(("workers", "last"), WORKERS.values(), ids=WORKERS)
def test_a_thousand_workers_take_nine_lines(workers, last):
    lines = worker_lines(workers)
    assert lines[-1:] == last
    assert len(lines) == min(len(workers), 9)


class CountedRun:
    """A run that counts how often it is looked at."""

    looks = 0

    @property
    def worker_statuses(self):
        self.looks += 1
        return [worker_status(1)]

    @property
    def unit_count(self):
        self.looks += 1
        return 200


def test_a_result_costs_no_look_at_the_workers_until_something_is_shown(monkeypatch, capsys):
    now = 0.0
    for module in (cluster_display, batch_display):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    run, progress = CountedRun(), BatchProgress(10)
    display = cluster_display.ClusterProgressDisplay(progress, run, ProgressDisplay(progress, None), None)
    for period in (1, 2):
        now = 30.0 * period - 1
        for _ in range(100):
            display.refresh()
        assert run.looks == 2 * (period - 1)
        now = 30.0 * period
        display.refresh()
        assert len(capsys.readouterr().err.splitlines()) == 2


def write_requests(work, count=24):
    requests = [{"id": f"r{n}", "prompt": f"The sea, for the {n}th time,", "max_tokens": 6} for n in range(count)]
    requests[3]["promt"] = requests[3].pop("prompt")
    requests[5]["json_schema"] = {"type": "boolean"}
    requests[7] = {"id": "r7", "messages": [{"role": "user", "content": "Name a colour."}], "max_tokens": 4}
    requests[9]["prompt"] = "word " * 400
    requests[11] |= {"bans": [{"regex": "[aeo]"}, "th"], "max_tokens": 12}
    (work / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))


def results(path):
    """The results by id, without what names the machine or the run."""
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    kept = {line["id"]: {**line, "worker": None} for line in lines}
    assert len(kept) == len(lines)
    return kept


@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_the_results_are_those_of_one_machine(gen, home, environment):
    work = home / "work"
    (work / "link.gguf").symlink_to(environment["GEN_MODEL"])
    environment["GEN_MODEL"] = "link.gguf"
    write_requests(work)
    (work / "mine.yaml").write_text(
        "phases: [{until: zzz, max_tokens: 2, then: ' and'}, {chain: [{temperature: 0.8}, dist]}]\n"
        "loop_guard: {action: stop, min_tokens: 4, repeats: 2}\n"
    )
    mine = (*SMALL, "-P", "mine.yaml")
    gen("batch", "in.jsonl", "-o", "here.jsonl", *mine, code=1)
    done = gen("batch", "in.jsonl", "-o", "there.jsonl", *mine, *ON_RAY, code=1)
    assert "22 answered, 2 failed" in done.err
    assert "worker 2 on " in done.err
    here, there = results(work / "here.jsonl"), results(work / "there.jsonl")
    assert {name: {**result, "worker": None} for name, result in here.items()} == there
    assert there["r11"]["usage"]["discarded_tokens"] > 0
    assert all(" and" in there[f"r{number}"]["text"] for number in (0, 1, 2))
    settings = [json.loads((work / f"{name}.jsonl.settings.json").read_text()) for name in ("here", "there")]
    assert settings[0] == settings[1]
    assert settings[1]["name"] == "link"
    worker = json.loads((work / "there.jsonl").read_text().splitlines()[-1])["worker"]
    assert worker["threads"] == 1
    assert set(worker) == {"cpu", "build", "threads"}
    again = gen("batch", "in.jsonl", "-o", "there.jsonl", "--resume", *mine, code=1)
    assert "0 answered, 0 failed, 24 already existed, 2 of them failed" in again.err


@pytest.mark.slow
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
    assert " tokens/s" in there.err
    piped = gen("score", "--jsonl", "-", "-c", "256", "-t", "1", *ON_RAY, stdin=json.dumps(lines[0]) + "\n")
    assert piped.out == here.out.splitlines(keepends=True)[0]


@pytest.mark.slow
@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_decisions_are_those_of_one_machine_in_the_order_of_the_table(gen, home):
    rows = [f'{n},"It is number {n}."\n' for n in range(40)]
    rows[7] = "7\n"
    rows[39] = "39\n"
    (home / "work" / "in.csv").write_text("n,text\n" + "".join(rows))
    asked = ("--predicate", "It is odd.", "-c", "256", "-t", "1", "-np", "2")
    arguments = ("decide", "--table", "in.csv", *asked)
    here, there = (gen(*arguments, *on, code=1) for on in ((), ON_RAY))
    tables = [list(csv.DictReader(io.StringIO(result.out))) for result in (here, there)]
    assert [row["n"] for row in tables[1]] == [str(n) for n in range(40)]
    assert [row["error"] for row in tables[1]] == [row["error"] for row in tables[0]]
    assert "38 answered, 2 failed" in there.err
    for one, other in zip(*tables, strict=True):
        assert float(one["answer"] or 0) == pytest.approx(float(other["answer"] or 0), abs=0.01)
    result = gen(*arguments, "-o", "out.csv", *ON_RAY, code=1)
    again = gen(*arguments, "-o", "out.csv", "--resume", code=1)
    assert "38 answered, 2 failed" in result.err
    assert "0 answered, 0 failed, 40 already existed, 2 of them failed" in again.err


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
@pytest.mark.slow
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


PIPES = {
    "batch, to its end": (["batch", "-", *SMALL, *ON_RAY], {"prompt": "The sea", "max_tokens": 2}, None),
    "score, until Ctrl-C": (["score", "--jsonl", "-", "-c", "256", *ON_RAY], {"text": "The sea."}, signal.SIGINT),
}


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "line", "end"), PIPES.values(), ids=PIPES)
@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_a_line_of_a_pipe_is_answered_when_it_comes(home, environment, arguments, line, end):
    command = [sys.executable, "-m", "logitsmith.cli", *arguments]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=home / "work", env=environment, text=True, bufsize=1, **streams) as driver:
        for name in ("first", "second", "third"):
            driver.stdin.write(json.dumps({"id": name, **line}) + "\n")
            assert json.loads(driver.stdout.readline())["id"] == name
        if end is None:
            driver.stdin.close()
        else:
            driver.send_signal(end)
        assert driver.wait(60) == (0 if end is None else 128 + end)
        assert ("being finished" in driver.stderr.read()) == (end is not None)


@pytest.mark.slow
@pytest.mark.usefixtures("ray", "with_pruned_model")
def test_an_adapter_goes_along(gen, home):
    work = home / "work"
    write_adapter(work / "lora.gguf")
    lines = [{"id": f"r{n}", "prompt": f"Sea {n}", "max_tokens": 8} for n in range(8)]
    (work / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    gen("batch", "in.jsonl", "-o", "plain.jsonl", *SMALL)
    gen("batch", "in.jsonl", "-o", "here.jsonl", *SMALL, "--lora", "lora.gguf=4")
    gen("batch", "in.jsonl", "-o", "there.jsonl", *SMALL, "--lora", "lora.gguf=4", *ON_RAY)
    here, there = results(work / "here.jsonl"), results(work / "there.jsonl")
    assert here == there
    plain = results(work / "plain.jsonl")
    assert any(here[name]["text"] != plain[name]["text"] for name in here)


def write_adapter(path):
    """A LoRA adapter of random numbers for the first layer of the bundled model."""
    chance, width, rank = np.random.default_rng(1), 576, 4
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    for name, shape in {"lora_a": (rank, width), "lora_b": (width, rank)}.items():
        writer.add_tensor(f"blk.0.attn_q.weight.{name}", chance.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
