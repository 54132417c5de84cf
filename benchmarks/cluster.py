"""A batch on a cluster, compared with one machine; and how much the driver can handle.

python -m benchmarks.cluster [--requests 200] [--rounds 3] [--driver-requests 100000] [--ids 1000000]

Four measurements:

1. `gen batch --on ray` with two workers of one core each, against `gen batch` with two threads, in requests per
   second. The time of a short batch is subtracted from the time of a long one, so that the start does not count.
   Both sides take turns.
2. The driver alone, with few and with many workers that answer immediately. Requests are read, resolved and sent,
   and answers are received and written as those of a model. The peer is a loop that only writes these answers.
3. The processor time that the driver takes for workers that compute, each of which reports its progress once per
   second.
4. The memory that the driver takes per id.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

from logitsmith.cluster.connection import HeadMonitor, connect
from logitsmith.cluster.run import ClusterRun, ClusterRunOptions
from logitsmith.cluster.tasks import FindFile, ServicePlan, Task, TaskResult
from logitsmith.cluster.worker import WorkerNeeds
from logitsmith.engine import versions
from logitsmith.jobs.batch import BatchCounts, BatchRun
from logitsmith.jobs.journal import ExistingResults, ResultJournal
from logitsmith.jobs.lines import read_json_lines
from logitsmith.jobs.workers import AnswerLine, answer_on_cluster, wait_for_model
from logitsmith.requests.recorded_settings import ModelDescription
from logitsmith.requests.resolve import RequestDefaults, RequestResolver

_SECONDS = re.compile(r" in (?:(\d+) min )?([\d.]+) s ")
_WORKERS = (2, 22)
_SLOW_SECONDS = 15.0
_FLAGS = ("--format", "jsonl", "-c", "512")
_HERE = ("-t", "2")
_THERE = ("-t", "1", "--on", "ray", "--workers", "2", "--cpus-per-worker", "1")


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="batches on a cluster")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--driver-requests", type=int, default=100_000)
    parser.add_argument("--ids", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _compare(Path(folder), options.requests, options.rounds)
        _measure_driver(Path(folder), options.driver_requests)
    _measure_memory(options.ids)


def _write_requests(path: Path, count: int) -> Path:
    lines = (
        {"id": f"request-{n}", "prompt": f"Question {n}: what is salt?", "max_tokens": 32} for n in range(count)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _compare(folder: Path, count: int, rounds: int) -> None:
    short, long = _write_requests(folder / "short", count // 5), _write_requests(folder / "long", count)
    rates: dict[str, list[float]] = {"gen batch -t 2": [], "gen batch --on ray, 2 workers": []}
    for turn in range(rounds):
        for name, flags in list(zip(rates, (_HERE, _THERE), strict=True))[:: 1 if turn % 2 else -1]:
            seconds = _seconds(long, flags) - _seconds(short, flags)
            rates[name].append((count - count // 5) / seconds)
    here, there = (statistics.median(rate) for rate in rates.values())
    for name, rate in rates.items():
        print(f"{name:44} {statistics.median(rate):7.2f} requests a second")
    print(f"{'ratio':44} {there / here:7.3f}\n")


def _seconds(requests: Path, flags: Iterable[str]) -> float:
    """Return the duration of a batch, as the command reports it."""
    output = requests.with_suffix(".out")
    output.unlink(missing_ok=True)
    command = (sys.executable, "-m", "logitsmith.cli", "batch", str(requests), "-o", str(output), *_FLAGS, *flags)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    match = _SECONDS.search(done.stderr)
    if match is None:
        raise SystemExit(done.stderr)
    return 60 * int(match[1] or 0) + float(match[2])


@dataclass(frozen=True)
class InstantFactory:
    """Makes a service that answers each request immediately, with a line as long as a short answer."""

    def __call__(self, find_file: FindFile) -> InstantService:
        """Return the service; no file is needed."""
        return InstantService()


class InstantService:
    """Answers each task immediately."""

    def facts(self) -> dict[str, Any]:
        """Return facts about a model that does not exist."""
        return {"model": ModelDescription("none", {"fingerprint": "0"}, {}), "versions": versions()}

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer each task."""
        for task in tasks:
            if task is not None:
                answer(TaskResult(task.key, AnswerLine(_line(task.key, task.content[1].result_id), "exact")))
                progress(32)


def _line(name: str, request_id: str) -> str:
    return json.dumps({"id": name, "request_id": request_id, "text": "salt " * 32, "error": None})


def _measure_driver(folder: Path, count: int) -> None:
    requests = _write_requests(folder / "requests", count)
    began = perf_counter()
    journal = ResultJournal(folder / "written", should_resume=False, is_openai=False)
    for number in range(count):
        journal.add(_line(f"request-{number}", "0" * 24))
    journal.close()
    written = perf_counter() - began
    print(f"{'only writing the lines':44} {count / written:7,.0f} a second")
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - sets environment variables of its own

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": max(_WORKERS)})
    try:
        with connect(cluster.address) as head_monitor:
            for workers in _WORKERS:
                _answer_immediately(requests, count, workers, head_monitor)
            few, many = (_driver_share(head_monitor, workers) for workers in _WORKERS)
    finally:
        cluster.shutdown()
    each = (many - few) / (_WORKERS[1] - _WORKERS[0])
    print(f"{'the driver, per worker and second':44} {1e6 * each:7,.0f} microseconds of a processor\n")


def _answer_immediately(requests: Path, count: int, workers: int, head_monitor: HeadMonitor) -> None:
    """Print how many requests per second the driver handles, and its processor time for each."""
    output = requests.with_name(f"results-{workers}")
    results = ResultJournal(output, should_resume=False, is_openai=False)
    resolver = RequestResolver(RequestDefaults(), {}, print)
    batch = BatchRun(
        resolver,
        results,
        BatchCounts(),
        "0" * 64,
        base_seed=0,
        note=print,
        is_openai=False,
        keeps_mismatched_results=False,
    )
    run = _run(workers, 64, ServicePlan(InstantFactory()), head_monitor)
    wait_for_model(run, lambda: None)
    began, used = perf_counter(), process_time()
    with requests.open("rb") as file:
        answer_on_cluster(batch, run, read_json_lines(file), lambda: False, lambda: None)
    taken, used = perf_counter() - began, process_time() - used
    run.close()
    results.close()
    print(f"{f'the driver, with {workers} workers':44} {count / taken:7,.0f} requests a second")
    print(f"{'per request':44} {1e6 * used / count:7,.0f} microseconds of a processor")


def _run(workers: int, shard_size: int, service: ServicePlan, head_monitor: HeadMonitor) -> ClusterRun:
    """Return a run whose workers are all ready."""
    needs = WorkerNeeds(cpus=1, gpus=0, memory_bytes=10**8)
    options = ClusterRunOptions(workers, needs, shard_size, 10 * _SLOW_SECONDS)
    run = ClusterRun(options, service, lambda facts: None, print, head_monitor)
    while not all(worker.is_ready for worker in run.worker_statuses):
        run.wait_for_worker()
    return run


@dataclass(frozen=True)
class SlowFactory:
    """Makes a service that answers after some seconds."""

    def __call__(self, find_file: FindFile) -> SlowService:
        """Return the service; no file is needed."""
        return SlowService()


class SlowService(InstantService):
    """Answers each task after some seconds."""

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer each task; all workers do so at the same time."""
        for task in tasks:
            if task is not None:
                sleep(_SLOW_SECONDS)
                answer(TaskResult(task.key, None))


def _driver_share(head_monitor: HeadMonitor, workers: int) -> float:
    """Return the share of a processor that the driver takes while its workers compute."""
    run = _run(workers, 1, ServicePlan(SlowFactory()), head_monitor)
    began, used = perf_counter(), process_time()
    for _ in run.results((Task(str(number), None) for number in range(workers)), lambda: False):
        pass
    share = (process_time() - used) / (perf_counter() - began)
    run.close()
    return share


def _measure_memory(count: int) -> None:
    before = _resident_bytes()
    existing: ExistingResults = {f"request-{n}": f"{n:024x}" for n in range(count)}
    line_of_id = {f"request-{n}": n for n in range(count)}
    each = (_resident_bytes() - before) / len(existing)
    print(f"{'memory of the driver per id':44} {each:7.0f} bytes ({len(line_of_id):,} ids)")
    print(f"{'for ten million ids':44} {each * 1e7 / 1e9:7.1f} GB")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
