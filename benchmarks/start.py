"""The time and memory that `gen` takes to start, compared with plain processes that load the same libraries.

python -m benchmarks.start [--rounds 20]

Each command and its peer are started in turns; the medians of the rounds' ratios are printed, for wall time and
processor time. The peers of `gen --help` and of a completion in a shell import the two libraries that they need.
The peer of `gen -n 1` imports llama-cpp-python and loads the same model with the same context. Memory is the
maximum resident set while 64 tokens are generated in a context of 2,048.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

from logitsmith.engine import locate

LOAD = "from llama_cpp import Llama; model = Llama({path!r}, n_ctx=2048, n_batch=512, verbose=False)"
WRITE = "; ids = model.tokenize(b'Hello'); [token for token, _ in zip(model.generate(ids), range(64))]"
# The same without `Llama`, which also copies the weights to a new layout; gen does not.
PLAIN = """
import llama_cpp as lib
lib.llama_backend_init()
of_model, of_context = lib.llama_model_default_params(), lib.llama_context_default_params()
of_model.use_extra_bufts = False
of_context.n_ctx, of_context.n_batch = 2048, 512
context = lib.llama_init_from_model(lib.llama_model_load_from_file({path!r}, of_model), of_context)
greedy, token = lib.llama_sampler_init_greedy(), (lib.llama_token * 1)(1)
for _ in range(64):
    lib.llama_decode(context, lib.llama_batch_get_one(token, 1))
    token[0] = lib.llama_sampler_sample(greedy, context, -1)
"""
GEN = [sys.executable, "-m", "logitsmith.cli"]
COMPLETION = [
    *("env", "_GEN_COMPLETE=complete_fish", "_TYPER_COMPLETE_FISH_ACTION=get-args"),
    "_TYPER_COMPLETE_ARGS=gen Hello -P ",
]
"""The command that a shell runs when Tab is pressed."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Modules are compiled at the first start, as for a user."""
PROMPT = ["Hello", "-c", "2048"]


class Cost(NamedTuple):
    """The cost of a process: wall seconds, processor seconds, and maximum resident bytes."""

    clock: float
    processor: float
    memory: int


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="the start of gen, and its memory")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    path = str(locate()[0])
    load = LOAD.format(path=path)
    pairs = {
        "gen --help / import typer, rich": ([*GEN, "--help"], _python("import typer, rich")),
        "a completion / import typer, rich": ([*COMPLETION, *GEN], _python("import typer, rich")),
        "gen -n 1 / llama_cpp, loaded": ([*GEN, *PROMPT, "-n", "1"], _python(load)),
    }
    print(f"{'start':34} {'ms':>6} {'peer':>6} {'ratio':>6} {'processor ms':>13} {'peer':>6} {'ratio':>6}")
    for name, (ours, peer) in pairs.items():
        _cost(ours), _cost(peer)  # so that bytecode is written, and files are in the page cache
        costs = [(_cost(ours), _cost(peer)) for _ in range(rounds)]
        line = f"{name:34}"
        for side, width in (("clock", 6), ("processor", 13)):
            times = [(getattr(mine, side), getattr(other, side)) for mine, other in costs]
            ms = [statistics.median(column) * 1e3 for column in zip(*times, strict=True)]
            ratio = statistics.median(mine / other for mine, other in times)
            line += f" {ms[0]:{width}.0f} {ms[1]:6.0f} {ratio:6.2f}"
        print(line)
    ours = _cost([*GEN, *PROMPT, "-n", "64"]).memory / 2**20
    print(f"\npeak memory: gen {ours:,.0f} MiB")
    for name, program in {"Llama": load + WRITE, "plain": PLAIN.format(path=path.encode())}.items():
        peer = _cost(_python(program)).memory / 2**20
        print(f"bare llama-cpp-python, {name}: {peer:,.0f} MiB, so that gen takes {ours - peer:+,.0f} MiB")


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def _cost(command: Sequence[str]) -> Cost:
    began = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit)


if __name__ == "__main__":
    main()
