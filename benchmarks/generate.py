"""Tokens a second of our loop against the same loop with llama.cpp's native chain, and the start of `gen`.

python -m benchmarks.generate [--tokens 64] [--rounds 30]

One process, one model, the same threads and the same tokens; the loops take turns. The time of a token is the
median over a run, and the ratio is taken round by round, so that the machine's drift falls on both sides. A
ratio of 1 means as fast as native.
"""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from time import perf_counter

from logitsmith.cli.render import jsonl, text
from logitsmith.engine import Event, Model, Token, generate, locate
from logitsmith.samplers import build

from .native_loop import NativeLoop

PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
DEFAULT = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
SEED = 7

Run = Callable[[], tuple[list[int], list[float]]]
"""Writes some tokens; returns them and the moments at which each was there."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="our loop against llama.cpp's native chain")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    path, _ = locate()
    with Model.load(path) as model:
        _compare(model, options.tokens, options.rounds)
    _start_times(min(options.rounds, 10))


def _compare(model: Model, count: int, rounds: int) -> None:
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    native = NativeLoop(model, SEED)
    sides: dict[str, Run] = {
        "native": lambda: native.run(prompt, count),
        "default": lambda: _ours(model, prompt, count, None, text.render),
        "default, jsonl, 5 logprobs": lambda: _ours(model, prompt, count, 5, jsonl.render),
    }
    tokens = {name: run()[0] for name, run in sides.items()}  # also the warm-up
    same = len({tuple(made) for made in tokens.values()}) == 1
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides) if turn % 2 else reversed(sides):
            moments = sides[name]()[1]
            times[name].append(statistics.median(b - a for a, b in pairwise(moments)))
    native.close()
    print(f"{model.name}, {model.threads} threads, {count} tokens, {rounds} rounds, same tokens: {same}")
    print(f"{'loop':30} {'tokens/s':>9} {'ratio to native':>16}   middle half of the rounds")
    for name, taken in times.items():
        ratios = sorted(base / mine for base, mine in zip(times["native"], taken, strict=True))
        middle = f"{ratios[rounds // 4]:.3f}..{ratios[-1 - rounds // 4]:.3f}"
        speed = 1 / statistics.median(taken)
        print(f"{name:30} {speed:9.1f} {statistics.median(ratios):16.3f}   {middle}")


def _ours(
    model: Model,
    prompt: list[int],
    count: int,
    top: int | None,
    render: Callable[[Iterable[Event], io.StringIO], object],
) -> tuple[list[int], list[float]]:
    chain = build(DEFAULT, seed=SEED, vocab=model.vocabulary)
    tokens: list[int] = []
    moments: list[float] = []

    def watched() -> Iterator[Event]:
        for event in generate(model, prompt, chain, max_tokens=count, top_logprobs=top):
            yield event  # control comes back when it is rendered
            if isinstance(event, Token):
                tokens.append(event.chosen.id)
                moments.append(perf_counter())

    render(watched(), io.StringIO())
    return tokens, moments


def _start_times(rounds: int) -> None:
    """`gen --help` against a bare interpreter and against the import of its two libraries."""
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import typer, rich'": [sys.executable, "-c", "import typer, rich"],
        "gen --help": [sys.executable, "-m", "logitsmith.cli", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            began = perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(perf_counter() - began)
    print(f"\n{'start of':32} {'ms':>6} {'ratio to pass':>14}")
    base = times["python -c pass"]
    for name, taken in times.items():
        ratio = statistics.median(mine / bare for mine, bare in zip(taken, base, strict=True))
        print(f"{name:32} {statistics.median(taken) * 1e3:6.0f} {ratio:14.1f}")


if __name__ == "__main__":
    main()
