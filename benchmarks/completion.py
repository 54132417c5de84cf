"""`gen` compared with llama-completion: the speed of generation, and the time of a start.

python -m benchmarks.completion [--rounds 8] [--tokens 256]

Both programs run the bundled model with the same chain, seed and threads, and generate the same number of tokens.
They take turns. The speed is computed from the difference between a long and a short run, so that the start does
not count. The start is a run of one token. Build the peer with `python -m benchmarks.build_llama_cpp`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from logitsmith.engine import locate

from .build_llama_cpp import program
from .quartiles import quartiles
from .start import ENVIRONMENT

_SHORT_TOKENS = 16
_PROMPT = "The lighthouse keeper wrote in his journal that the storm"
_COMMON = ("-s", "7", "-t", "2", "-c", "2048", "--ignore-eos")
_GEN = (sys.executable, "-m", "logitsmith.cli", _PROMPT, *_COMMON)
_VARIANTS = {
    "text": (),
    "jsonl with 5 logprobs": ("--format", "jsonl", "--logprobs", "5"),
}


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="gen against llama-completion")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    model = str(locate()[0])
    peer = (str(program("llama-completion")), "-m", model, "-p", _PROMPT, "-no-cnv", *_COMMON)
    own = {name: (*_GEN, "-m", model, *flags) for name, flags in _VARIANTS.items()}
    commands = {"llama-completion": peer, **own}
    starts: dict[str, list[float]] = {name: [] for name in commands}
    writing: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        timed_run(command, 1)  # so that modules are compiled, and files are in the page cache
    for turn in range(options.rounds):
        for name in list(commands)[:: 1 if turn % 2 else -1]:
            starts[name].append(timed_run(commands[name], 1).seconds)
            short, long = (timed_run(commands[name], count).seconds for count in (_SHORT_TOKENS, options.tokens))
            writing[name].append((long - short) / (options.tokens - _SHORT_TOKENS))
    _print("tokens/s, against llama-completion", writing, is_speed=True)
    _print("wall time of one token, against llama-completion", starts, is_speed=False)


class Run(NamedTuple):
    """The wall time of a run, and what it printed."""

    seconds: float
    output: str


def timed_run(command: Sequence[str], tokens: int) -> Run:
    """Run a command that generates this many tokens."""
    began = perf_counter()
    words = (*command, "-n", str(tokens))
    done = subprocess.run(words, check=True, capture_output=True, stdin=subprocess.DEVNULL, env=ENVIRONMENT)
    return Run(perf_counter() - began, done.stdout.decode(errors="replace"))


def _print(title: str, times: dict[str, list[float]], *, is_speed: bool) -> None:
    """Print the median of the ratios of each round."""
    (_, peer), *others = times.items()
    print(f"{title} ({1e3 * statistics.median(peer):.2f} ms)")
    for name, own in others:
        ratios = [b / a if is_speed else a / b for a, b in zip(own, peer, strict=True)]
        low, middle, high = quartiles(ratios)
        print(f"  gen, {name:24} {middle:6.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
