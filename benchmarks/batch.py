"""Speed and memory of a batch: rows sampled in one call, and requests computed at the same time.

python -m benchmarks.batch [--requests 48] [--rounds 3] [--parallel 8] [--sampler-rounds 20]

First comes the table of `benchmarks.batch_sampler`, then the engine's.

The same requests with the same seeds are computed in one process in three ways: by `generate_many` with several
slots, one by one with `generate`, and, as the peer of both, one by one with llama.cpp's own chain. The three take
turns. The time for all requests is compared, by the median of the rounds, for short prompts and for prompts with a
common beginning. The memory is the peak above the loaded model; for it, each way runs in a separate process.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from logitsmith.engine import BatchAnswer, GenerationRequest, Model, Token, generate, generate_many, locate
from logitsmith.samplers import build

from .batch_sampler import sampler_table
from .native_loop import NativeLoop

CHAIN = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
RULES = "Answer the question below in one short and friendly sentence, and say so if you do not know. " * 12
ASKED = ["the sea", "a lighthouse", "the weather at noon", "an old ship", "salt", "the keeper", "storms", "birds"]


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="requests in a batch against requests one by one")
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--sampler-rounds", type=int, default=20)
    options = parser.parse_args()
    sampler_table(options.sampler_rounds)
    print()
    path, _ = locate()
    with Model.load(path, n_ctx=1024) as model:
        print(f"{model.name}, {model.threads} threads, {options.requests} requests, {options.rounds} rounds")
        print(f"{'requests':22} {'runner':28} {'a second':>9} {'ratio':>6} {'same tokens':>12}")
        for name, before in (("short prompts", ""), ("prompts begin alike", RULES)):
            _compare(model, name, before, options)
    _memory(str(path), options.parallel)


def _requests(model: Model, before: str, count: int) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            f"{before}Question {number}: what about {ASKED[number % len(ASKED)]}?\nAnswer:",
            build(CHAIN, seed=number, vocab=model.vocabulary),
            max_tokens=24 + number * 7 % 24,
            id=number,
        )
        for number in range(count)
    ]


def _compare(model: Model, name: str, before: str, options: argparse.Namespace) -> None:
    requests = _requests(model, before, options.requests)
    runners: dict[str, Callable[[], dict[object, list[int]]]] = {
        "native chain, one by one": lambda: _native(model, requests),
        "gen, one by one": lambda: _one_by_one(model, requests),
        f"gen, {options.parallel} at a time": lambda: _in_batch(model, requests, options.parallel),
        "the same, --deterministic": lambda: _in_batch(model, requests, options.parallel, True),
    }
    times: dict[str, list[float]] = {runner: [] for runner in runners}
    made: dict[str, dict[object, list[int]]] = {}
    for turn in range(options.rounds):
        for runner in list(runners) if turn % 2 else reversed(runners):
            began = perf_counter()
            made[runner] = runners[runner]()
            times[runner].append(perf_counter() - began)
    base = times["gen, one by one"]
    for runner, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(base, taken, strict=True))
        same = sum(made[runner][key] == ids for key, ids in made["gen, one by one"].items())
        pace = len(requests) / statistics.median(taken)
        print(f"{name:22} {runner:28} {pace:9.2f} {ratio:6.2f} {same:6} of {len(requests)}")


def _native(model: Model, requests: list[GenerationRequest]) -> dict[object, list[int]]:
    tokens_by_key: dict[object, list[int]] = {}
    for request in requests:
        prompt = model.vocabulary.tokenize_prompt(str(request.prompt).encode())
        loop = NativeLoop(model, request.chain.seed)
        tokens_by_key[request.id], _ = loop.run(prompt, request.max_tokens or 0, model.vocabulary.eog)
        loop.close()
    return tokens_by_key


def _one_by_one(model: Model, requests: list[GenerationRequest]) -> dict[object, list[int]]:
    tokens_by_key = {}
    for request in requests:
        model.context.truncate(0)  # so that nothing of an earlier prompt is reused
        events = generate(model, request.prompt, request.chain, max_tokens=request.max_tokens)
        tokens_by_key[request.id] = [event.id for event in events if isinstance(event, Token)]
    return tokens_by_key


def _in_batch(
    model: Model, requests: list[GenerationRequest], parallel: int, deterministic: bool = False
) -> dict[object, list[int]]:
    return {
        outcome.id: [token.id for token in outcome.tokens]
        for outcome in generate_many(model, requests, parallel, deterministic=deterministic)
        if isinstance(outcome, BatchAnswer)
    }


_SCRIPT = r"""
import re, sys
from pathlib import Path
from benchmarks.batch import _in_batch, _one_by_one, _requests
from logitsmith.engine import Model
def peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
path, parallel, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with Model.load(path, n_ctx=length) as model:
    before = peak()
    requests = _requests(model, "", 16)
    _in_batch(model, requests, parallel) if parallel else _one_by_one(model, requests)
    print(peak() - before)
"""


def _memory(path: str, parallel: int) -> None:
    print(f"\n{'peak memory above the model':28} {'-c':>6} {'MB':>9}")
    for length in (1024, 4096):
        for name, count in (("gen, one by one", 0), (f"gen, {parallel} at a time", parallel)):
            done = subprocess.run(
                [sys.executable, "-c", _SCRIPT, path, str(count), str(length)],
                check=True,
                capture_output=True,
                text=True,
            )
            print(f"{name:28} {length:6} {float(done.stdout.split()[-1]):9,.0f}", flush=True)


if __name__ == "__main__":
    main()
