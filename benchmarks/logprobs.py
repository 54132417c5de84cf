"""The cost of logprobs, while generating and for a prompt, where llama-cpp-python is the peer.

python -m benchmarks.logprobs [--tokens 65] [--rounds 20] [--prompt 2000] [--memory]

Generating: `--logprobs 20` as jsonl, compared in turns with the same run without logprobs; decodes are timed
separately, as in `benchmarks.generate`. Prompt: tokens per second of scoring, compared with reading the same
prompt without logits, in chunks of the same size and of the usual size. Memory: the peak above the loaded model,
in separate processes; llama-cpp-python runs `Llama(logits_all=True).create_completion(echo=True, logprobs=5)`.
"""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from time import perf_counter

from logitsmith.engine import Event, LogprobRequest, Model, Token, generate, locate, score_prompt
from logitsmith.logprobs.jsonl import stream_lines
from logitsmith.samplers import build

from .native_loop import DecodeClock

PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
CHAIN = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="the cost of logprobs")
    parser.add_argument("--tokens", type=int, default=65)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--prompt", type=int, default=2000)
    parser.add_argument("--memory", action="store_true", help="only the memory")
    options = parser.parse_args()
    path, _ = locate()
    if options.memory:
        _memory(str(path), options.prompt)
        return
    with Model.load(path, n_ctx=max(4096, options.prompt)) as model:
        _writing(model, options.tokens, options.rounds)
        _reading(model, options.prompt, max(3, options.rounds // 4))
    _memory(str(path), options.prompt)


def _writing(model: Model, count: int, rounds: int) -> None:
    kinds: dict[str, dict[str, object]] = {
        "no logprobs": {},
        "jsonl, --logprobs 20": {"top_logprobs": 20},
        "jsonl, --logprobs 20, both": {"top_logprobs": 20, "logprobs_from": "both"},
    }
    decodes: list[float] = []
    between: dict[str, list[float]] = {name: [] for name in kinds}
    totals: dict[str, list[float]] = {name: [] for name in kinds}
    for turn in range(rounds + 1):
        for name in list(kinds) if turn % 2 else reversed(kinds):
            with DecodeClock() as clock:
                moments = _write(model, count, kinds[name])
            if turn:  # the first round warms up
                taken = [b - a for a, b in pairwise(moments)]
                decoding = clock.seconds[-len(taken) :]
                decodes += decoding
                between[name] += [all_ - part for all_, part in zip(taken, decoding, strict=True)]
                totals[name].append(sum(taken))
    decode = statistics.median(decodes)
    base = decode + statistics.median(between["no logprobs"])
    print(f"{model.name}, {model.threads} threads, {count} tokens, {rounds} rounds, decode {decode * 1e6:,.0f} µs")
    print(f"{'writing':28} {'µs between decodes':>18} {'tokens/s ratio':>15} {'plain ratio':>12}")
    for name, gaps in between.items():
        gap = statistics.median(gaps)
        plain = statistics.median(a / b for a, b in zip(totals["no logprobs"], totals[name], strict=True))
        print(f"{name:28} {gap * 1e6:18,.0f} {base / (decode + gap):15.3f} {plain:12.3f}")


def _write(model: Model, count: int, request: dict[str, object]) -> list[float]:
    moments = []
    chain = build(CHAIN, seed=7, vocab=model.vocabulary)

    def watched() -> Iterator[Event]:
        for event in generate(model, PROMPT, chain, max_tokens=count, **request):  # type: ignore[arg-type]
            yield event
            if isinstance(event, Token):
                moments.append(perf_counter())

    io.StringIO().writelines(stream_lines(watched(), PROMPT, "gen"))
    return moments


def _reading(model: Model, count: int, rounds: int) -> None:
    ids = [1000 + i * 7919 % 40000 for i in range(count)]
    context = model.context

    def plain(small: bool) -> None:
        context.truncate(0)
        context.read(ids, small_batches=small)

    runs: dict[str, Callable[[], object]] = {
        "reading, no logits": lambda: plain(False),
        "the same, in small chunks": lambda: plain(True),
        "scoring, chosen only": lambda: list(score_prompt(model, ids)),
        "scoring, top 5": lambda: list(score_prompt(model, ids, LogprobRequest(5))),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            began = perf_counter()
            run()
            times[name].append(perf_counter() - began)
    base = times["reading, no logits"]
    print(f"\n{'prompt of ' + format(count, ',') + ' tokens':28} {'tokens/s':>9} {'ratio':>7}")
    for name, taken in times.items():
        ratio = statistics.median(a / b for a, b in zip(base, taken, strict=True))
        print(f"{name:28} {count / statistics.median(taken):9,.0f} {ratio:7.3f}")


_OURS = """
from logitsmith.engine import LogprobRequest, Model, score_prompt
model = Model.load(path, n_ctx=n); model.context; model.context.read([1]); before = peak()
ids = model.vocabulary.tokenize_prompt(b" sea" * (n - 2))
sum(len(step.top) for step in score_prompt(model, ids, LogprobRequest(5)))
"""
_THEIRS = """
from llama_cpp import Llama, llama_cpp
defaults = llama_cpp.llama_model_default_params
def without_amx():  # as our own engine: its kernels crash where some compilers made them
    params = defaults()
    params.use_extra_bufts = False
    return params
llama_cpp.llama_model_default_params = without_amx
model = Llama(path, n_ctx=n, logits_all=True, verbose=False); model.eval([1]); model.reset(); before = peak()
model.create_completion(" sea" * (n - 2), max_tokens=1, echo=True, logprobs=5)  # it echoes texts only
"""
_PEAK = r"""
import re, sys
from pathlib import Path
path, n = sys.argv[1], int(sys.argv[2])
def peak():
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024
"""


def _memory(path: str, count: int) -> None:
    print(f"\n{'peak memory above the model':28} {'MB':>9}")
    for name, program in (("logitsmith", _OURS), ("llama-cpp-python", _THEIRS)):
        script = f"{_PEAK}{program}\nprint(peak() - before)"
        done = subprocess.run(
            [sys.executable, "-c", script, path, str(count)], check=True, capture_output=True, text=True
        )
        print(f"{name:28} {float(done.stdout.split()[-1]):9,.0f}", flush=True)


if __name__ == "__main__":
    main()
