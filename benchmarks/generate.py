"""Tokens a second of our loop against the same loop with llama.cpp's native chain, and the start of `gen`.

python -m benchmarks.generate [--tokens 128] [--rounds 12]

One process, one model, the same threads and the same tokens; the loops take turns, and the ratio is taken
round by round, so that the machine's drift falls on both. A ratio of 1 means as fast as native.
"""

from __future__ import annotations

import argparse
import io
import statistics
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from logitsmith.cli.render import jsonl
from logitsmith.engine import Done, Model, Token, generate, locate
from logitsmith.samplers import build

from .native_loop import NativeLoop

PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
DEFAULT = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
SEED = 7


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="our loop against llama.cpp's native chain")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    path, _ = locate()
    with Model.load(path) as model:
        _compare(model, options.tokens, options.rounds)
    _start_times(options.rounds)


def _compare(model: Model, count: int, rounds: int) -> None:
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    # Without this bias the model might end its text early, on both sides.
    native = NativeLoop(model, SEED)
    ours = build(DEFAULT, seed=SEED, vocab=model.vocabulary)

    def plain() -> tuple[list[int], float]:
        return _ours(model, prompt, ours, count, None)

    def with_jsonl() -> tuple[list[int], float]:
        return _jsonl(model, prompt, ours, count)

    sides: dict[str, Callable[[], tuple[list[int], float]]] = {
        "native": lambda: native.run(prompt, count),
        "default": plain,
        "default, jsonl, 5 logprobs": with_jsonl,
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    tokens = {name: run()[0] for name, run in sides.items()}  # also the warm-up
    same = tokens["native"] == tokens["default"]
    count = len(tokens["native"])
    for turn in range(rounds):
        order = list(sides) if turn % 2 else list(reversed(sides))
        for name in order:
            seconds[name].append(sides[name]()[1])
    native.close()
    print(f"{model.name}, {model.threads} threads, {count} tokens, {rounds} rounds, same tokens: {same}")
    print(f"{'loop':30} {'tokens/s':>9} {'ratio to native':>16}   (median; min..max of the rounds)")
    for name, times in seconds.items():
        ratios = sorted(base / mine for base, mine in zip(seconds["native"], times, strict=True))
        speed = count / statistics.median(times)
        spread = f"{ratios[0]:.3f}..{ratios[-1]:.3f}"
        print(f"{name:30} {speed:9.1f} {statistics.median(ratios):16.3f}   {spread}")


def _ours(
    model: Model, prompt: list[int], chain: object, count: int, top: int | None
) -> tuple[list[int], float]:
    tokens = []
    for event in generate(model, prompt, chain, max_tokens=count, top_logprobs=top):  # type: ignore[arg-type]
        if isinstance(event, Token):
            tokens.append(event.chosen.id)
        elif isinstance(event, Done):
            return tokens, event.timings.generation
    raise RuntimeError("no Done")


def _jsonl(model: Model, prompt: list[int], chain: object, count: int) -> tuple[list[int], float]:
    out = io.StringIO()
    events = generate(model, prompt, chain, max_tokens=count, top_logprobs=5)  # type: ignore[arg-type]
    return [], jsonl.render(events, out).timings.generation


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
