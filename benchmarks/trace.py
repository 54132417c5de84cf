"""The cost of a trace per token: `generate(…, trace=N)` compared with the same run without, and a chain on its
own.

python -m benchmarks.trace [--tokens 65] [--rounds 10] [--top 20] [--only TEXT]

Runs with and without a trace take turns, with the same seed, and generate the same tokens. The time between two
tokens is divided into llama.cpp's decoding and everything else. The cost is the median of everything else, with a
trace minus without. ``+ JSON`` includes the cost of the longer lines of ``--format jsonl``. Then chains are
measured on one row of 49,152 logits, without a model: `Chain.sample` compared with what the engine does for a
trace. All times are processor time of the sampling thread, so that other programs have less influence.
"""

from __future__ import annotations

import argparse
import io
import statistics
from collections.abc import Callable, Iterator
from itertools import pairwise
from time import thread_time

import numpy as np
from logitsmith.engine import Event, Model, Token, generate, locate
from logitsmith.engine.token_records import TraceReader
from logitsmith.logprobs.jsonl import stream_lines
from logitsmith.samplers import build

from .native_loop import DecodeClock

PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
CHAINS = {
    "default": "penalties > top_k40 > top_p0.95 > min_p0.05 > temp0.8",
    "temperature alone": "temp0.8",
    "greedy": "greedy",
    "heat before min-p": "temp1.5 > min_p0.1",
    "penalties and DRY": "penalties(repeat=1.1, last_n=-1) > dry0.8 > top_p0.9 > temp0.7",
    "nothing is cut": "penalties(repeat=1.1) > dry0.8 > temp0.9 > quadratic0.2",
    "top-n-sigma": "top_n_sigma1 > temp1.5",
    "six truncations": "top_k200 > tfs0.98 > typical0.98 > top_p0.95 > min_p0.02 > top_h0.9 > temp1",
}


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="the cost of a trace")
    parser.add_argument("--tokens", type=int, default=65)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--only", default="", help="chains whose name has this text")
    options = parser.parse_args()
    chains = {name: steps for name, steps in CHAINS.items() if options.only in name}
    with Model.load(locate()[0], n_ctx=1024) as model:
        size = f"{options.tokens} tokens, {options.rounds} rounds, N = {options.top}"
        print(f"{model.name}, {model.threads} threads, {size}")
        titles = f"{'µs plain':>9} {'µs traced':>10} {'ms more':>8}"
        print(f"{'generate':22} {titles} {'+ JSON':>7} {'tokens/s ratio':>15}")
        for name, steps in chains.items():
            _run(model, name, steps, options)
        model.context.read(model.vocabulary.tokenize(PROMPT.encode()))
        row = model.context.logits().copy()
        print(f"\n{'one row':22} {titles} {'ratio':>7}")
        for name, steps in chains.items():
            _row(model, name, steps, row, options)


def _run(model: Model, name: str, steps: str, options: argparse.Namespace) -> None:
    kinds: dict[str, tuple[int | None, bool]] = {
        "plain": (None, False),
        "traced": (options.top, False),
        "plain json": (None, True),
        "traced json": (options.top, True),
    }
    between: dict[str, list[float]] = {kind: [] for kind in kinds}
    decodes: list[float] = []
    for turn in range(options.rounds + 1):
        texts = set()
        for kind in list(kinds) if turn % 2 else reversed(kinds):
            with DecodeClock(thread_time) as clock:
                moments, text = _generate(model, steps, options.tokens, *kinds[kind])
            texts.add(text)
            if turn:  # the first round warms up
                taken = [b - a for a, b in pairwise(moments)]
                decoding = clock.seconds[-len(taken) :]
                decodes += decoding
                between[kind] += [all_ - part for all_, part in zip(taken, decoding, strict=True)]
        if len(texts) != 1:
            raise SystemExit(f"{name}: a trace changed the text")
    medians = {kind: statistics.median(gaps) * 1e6 for kind, gaps in between.items()}
    decode = statistics.median(decodes) * 1e6
    more = (medians["traced"] - medians["plain"]) / 1e3
    more_json = (medians["traced json"] - medians["plain json"]) / 1e3
    ratio = (decode + medians["plain"]) / (decode + medians["traced"])
    print(
        f"{name:22} {medians['plain']:9,.0f} {medians['traced']:10,.0f} {more:8.3f} {more_json:7.3f} {ratio:15.3f}"
    )


def _generate(model: Model, steps: str, count: int, top: int | None, as_json: bool) -> tuple[list[float], str]:
    moments = []
    ids = []
    chain = build(steps, seed=7, vocab=model.vocabulary)

    def watched() -> Iterator[Event]:
        for event in generate(model, PROMPT, chain, max_tokens=count, trace=top):
            yield event
            if isinstance(event, Token):
                moments.append(thread_time())
                ids.append(event.id)

    if as_json:
        io.StringIO().writelines(stream_lines(watched(), PROMPT, "gen"))
    else:
        for _ in watched():
            pass
    return moments, str(ids)


def _row(model: Model, name: str, steps: str, row: np.ndarray, options: argparse.Namespace) -> None:
    prompt = model.vocabulary.tokenize(PROMPT.encode())
    plain, traced = (build(steps, seed=7, vocab=model.vocabulary) for _ in range(2))
    for chain in (plain, traced):
        chain.reset(prompt)
    reader = TraceReader(model.vocabulary, traced, options.top)

    def sample() -> None:
        plain.accept(plain.sample(row))

    def trace() -> None:
        token = reader.sample(row, None)
        reader.read(token)
        traced.accept(token)

    times: dict[Callable[[], None], list[float]] = {sample: [], trace: []}
    for turn in range(-5, 20 * options.rounds):
        for side in (sample, trace) if turn % 2 else (trace, sample):
            began = thread_time()
            side()
            if turn >= 0:
                times[side].append((thread_time() - began) * 1e6)
    before, after = statistics.median(times[sample]), statistics.median(times[trace])
    print(f"{name:22} {before:9,.0f} {after:10,.0f} {(after - before) / 1e3:8.3f} {after / before:7.2f}")


if __name__ == "__main__":
    main()
