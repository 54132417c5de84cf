"""The cost of sampling with many slots and a large vocabulary, where the forward pass is short, as on a GPU.

python -m benchmarks.scale [--slots 32] [--vocabulary 151936] [--rounds 3]

A model with random weights and two narrow layers is written. First `gen batch` and llama-server take turns, as in
`benchmarks.server`. Then such requests run in this process, and the wall time of their steps is divided into
llama.cpp's decodes, the chains, and everything else (events, text, Python).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

from logitsmith.engine import BatchEngine, Done, GenerationRequest, Model
from logitsmith.engine.native.context import NativeContext

from tests.engine.big_model import write_model

from .server import running_batch, running_server
from .server_requests import CHAIN, Request, make_requests

_WIDTH, _HEADS, _LAYERS = 32, 2, 2
_THREADS = 2


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="the cost of sampling at scale")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "random.gguf")
        write_model(path, options.vocabulary, _WIDTH, _HEADS, _LAYERS, False, _WIDTH**-0.5, 0)
        _compare(str(path), options.slots, options.rounds)
        _divide(path, _requests(99, 2 * options.slots), options.slots)


def _requests(number: int, total: int) -> list[Request]:
    """Return requests with prompts of token ids, because the model has no words."""
    return [
        request._replace(prompt=[(7919 * number + 31 * index + 977 * place) % 30_000 for place in range(20)])
        for index, request in enumerate(make_requests("short", number, total))
    ]


def _compare(model: str, slots: int, rounds: int) -> None:
    speeds, processor = [], []
    with running_server(model, slots) as server, running_batch(model, slots) as batch:
        for number in range(rounds + 1):  # the first round warms up
            requests = _requests(number, 2 * slots)
            turns = [(server, 0), (batch, 1)][:: 1 if number % 2 else -1]
            peer, own = (turn for _, turn in sorted((order, runner.answer(requests)) for runner, order in turns))
            speeds.append(own.speed / peer.speed)
            processor.append((own.processor_ms, peer.processor_ms))
    own_ms, peer_ms = (statistics.median(values) for values in zip(*processor[1:], strict=True))
    print(f"tokens/s against llama-server           {statistics.median(speeds[1:]):.3f}")
    print(f"processor ms a token, and llama-server's {own_ms:.3f} / {peer_ms:.3f}: {own_ms / peer_ms:.3f}")


def _divide(path: Path, requests: list[Request], slots: int) -> None:
    """Print the parts of a batch's wall time."""
    decoding = 0.0
    run = NativeContext._decode_batch

    def timed(native: NativeContext, count: int) -> None:
        nonlocal decoding
        began = perf_counter()
        run(native, count)
        decoding += perf_counter() - began

    NativeContext._decode_batch = timed  # type: ignore[method-assign]
    chains, tokens = 0.0, 0
    with Model.load(path, n_ctx=1024, threads=_THREADS) as model, BatchEngine(model, slots) as engine:
        decoding, began = 0.0, perf_counter()
        for asked in requests:
            chain = f"ignore_eos > {CHAIN}"
            engine.add(GenerationRequest(asked.prompt, chain, seed=asked.seed, max_tokens=asked.max_tokens))
        while not engine.is_idle:
            for _, event in engine.step():
                if isinstance(event, Done):
                    chains += event.timings.chain
                    tokens += event.completion_tokens
        seconds = perf_counter() - began
    rest = seconds - decoding - chains
    for name, part in (("llama.cpp", decoding), ("chains", chains), ("all else", rest)):
        print(f"{name:12} {1e3 * part / tokens:7.3f} ms a token, {part / seconds:.1%} of the wall time")


if __name__ == "__main__":
    main()
