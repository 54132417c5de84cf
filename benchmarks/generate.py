"""Tokens per second of logitsmith's loop, compared with the same loop around llama.cpp's native chain.

python -m benchmarks.generate [--tokens 33] [--rounds 60]

The loops run in one process with the same model, threads and tokens, and take turns. All call the same
llama_decode, whose time drifts by more than the difference between the loops. So a token's time is computed as the
median decode of all loops plus the loop's median time between two decodes, and the ratio compares these sums. The
ratio of the measured times is printed as well. 1 means as fast as the native chain. The last column compares with
logitsmith's loop that also writes text.
"""

from __future__ import annotations

import argparse
import io
import statistics
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from time import perf_counter

from logitsmith.cli.render.answers import render_text
from logitsmith.engine import Event, Model, Token, generate, locate
from logitsmith.logprobs.jsonl import stream_lines
from logitsmith.samplers import build

from .native_loop import DecodeClock, NativeLoop

PROMPT = "Once upon a time, in a lighthouse by the sea, there lived"
DEFAULT = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
SEED = 7

Run = Callable[[], tuple[list[int], list[float]]]
"""Generates tokens; returns the tokens and the times at which each was generated."""


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="our loop against llama.cpp's native chain")
    parser.add_argument("--tokens", type=int, default=33)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    path, _ = locate()
    with Model.load(path) as model:
        _compare(model, options.tokens, options.rounds)


def _compare(model: Model, count: int, rounds: int) -> None:
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    native = NativeLoop(model, SEED)
    sides: dict[str, Run] = {
        "native": lambda: native.run(prompt, count),
        "default": lambda: _ours(model, prompt, count, None, render_text),
        "default, jsonl, 5 logprobs": lambda: _ours(model, prompt, count, 5, _render_jsonl),
    }
    tokens = {name: run()[0] for name, run in sides.items()}  # this also warms up
    same = len({tuple(made) for made in tokens.values()}) == 1
    decodes: list[float] = []
    between: dict[str, list[float]] = {name: [] for name in sides}
    totals: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name in list(sides) if turn % 2 else reversed(sides):
            with DecodeClock() as clock:
                moments = sides[name]()[1]
            taken = [b - a for a, b in pairwise(moments)]
            decoding = clock.seconds[-len(taken) :]  # without the decodes of the prompt
            decodes += decoding
            between[name] += [all_ - part for all_, part in zip(taken, decoding, strict=True)]
            totals[name].append(sum(taken))
    native.close()
    decode = statistics.median(decodes)
    print(f"{model.name}, {model.threads} threads, {count} tokens, {rounds} rounds, same tokens: {same}")
    print(f"decode: median {decode * 1e6:,.0f} µs a token")
    print(f"{'loop':28} {'µs between decodes':>18} {'tokens/s':>9} {'ratio':>7} {'plainly':>8} {'to text':>8}")
    base, own = (decode + statistics.median(between[name]) for name in ("native", "default"))
    for name, gaps in between.items():
        token = decode + statistics.median(gaps)
        plain = statistics.median(a / b for a, b in zip(totals["native"], totals[name], strict=True))
        gap, pace = (token - decode) * 1e6, 1 / token
        print(f"{name:28} {gap:18,.0f} {pace:9.1f} {base / token:7.3f} {plain:8.3f} {own / token:8.3f}")


def _render_jsonl(events: Iterable[Event], out: io.StringIO) -> object:
    return out.writelines(stream_lines(events, "", "gen"))


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
            yield event  # the caller renders it before this continues
            if isinstance(event, Token):
                tokens.append(event.chosen.id)
                moments.append(perf_counter())

    render(watched(), io.StringIO())
    return tokens, moments


if __name__ == "__main__":
    main()
