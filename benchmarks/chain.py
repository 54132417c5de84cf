"""A token's choice: our chain against llama.cpp's own, for each sampler, preset and ten chains that people use.

python -m benchmarks.chain [--rounds 60] [--only TEXT] [--sizes 32000,49152,…] [--table FILE]

Ours: `Chain.sample` on the raw logits, to the token. llama.cpp's: its candidates filled from the logits, and
`llama_sampler_apply`, by one ctypes call, whose own cost is printed. They are filled by one copy of an array that
holds them, which costs less than the loop in `llama_sampler_sample`. Both have read the same text before, and take
turns on the same rows; medians. Real rows are the bundled model's, cut or tiled with a little noise to other sizes
of vocabulary; flat rows lie within 2 nats, where few tokens can be left out early. Below 1 ours is faster.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.engine import Model, locate
from logitsmith.presets import load
from logitsmith.samplers import Chain, build
from numpy.typing import NDArray

from tests.oracle.native import ROW, NativeChain
from tests.oracle.test_parity import ALONE, PRESETS

SIZES = (32_000, 49_152, 128_256, 151_936, 262_144)
TEXT = "The lighthouse keeper opened the door and looked at the sea, which was calm. He had not expected that."
SEED = 7
Rows = list[NDArray[np.float32]]
Ratios = dict[str, dict[str, dict[int, float]]]
"""By kind of logits, chain and size."""

PEOPLE = {
    "Llama 3": "temp0.6 > top_p0.9",
    "Qwen 3": "top_k20 > top_p0.95 > temp0.6",
    "Gemma 3": "top_k64 > top_p0.95 > temp1",
    "nucleus alone, hot": "temp1.2 > top_p0.95",
    "min-p, hot": "min_p0.05 > temp1.5",
    "heat before min-p": "temp1.5 > min_p0.1",
    "top-n-sigma, hot": "top_n_sigma1 > temp1.5",
    "chat with penalties": "penalties(repeat=1.1, frequency=0.1, last_n=256) > top_k40 > top_p0.9 > temp0.7",
    "DRY and XTC": (
        "dry(multiplier=0.8, breakers=[]) > min_p0.02 > xtc(probability=0.5, threshold=0.1)"
        " > dynatemp(temperature=1, range=0.5)"
    ),
    "typical, then adaptive-p": "typical0.95 > min_p0.02 > adaptive_p(target=0.4)",
}
"""From model cards and what is passed on among writers."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="our chain against llama.cpp's")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="chains whose name has this text")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--table", help="write the ratios to this file as a Markdown table")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    chains = {**ALONE, "dry, no breakers": "dry(multiplier=0.8, breakers=[])", **PEOPLE}
    chains |= {f"preset {name}": load(name).chain for name in PRESETS}
    with Model.load(locate()[0], n_ctx=512) as model:
        prompt = model.vocabulary.tokenize(TEXT.encode())
        real = list(_real(model, prompt))
        print(f"{options.rounds} rounds; one ctypes call: {_call_cost():.1f} µs")
        print(f"{'logits':6} {'tokens':>8} {'chain':26} {'native µs':>10} {'ours µs':>9} {'ratio':>7}")
        ratios: Ratios = {}
        for kind in ("real", "flat"):
            for size in sizes:
                rows = [_resized(row, size, kind) for row in real]
                for name, steps in chains.items():
                    if options.only not in name or not _fits(name, size, model):
                        continue
                    text = [token % size for token in prompt]
                    native, ours = _measure(model, steps, rows, text, options.rounds)
                    ratios.setdefault(kind, {}).setdefault(name, {})[size] = ours / native
                    print(
                        f"{kind:6} {size:8,} {name:26} {native:10.1f} {ours:9.1f} {ours / native:7.3f}", flush=True
                    )
    _sum_up(ratios)
    if options.table:
        Path(options.table).write_text(_table(ratios, sizes))


def _sum_up(ratios: Ratios) -> None:
    everything: list[float] = []
    for kind, chains in ratios.items():
        found = [ratio for by_size in chains.values() for ratio in by_size.values()]
        everything += found
        above = sum(ratio > 1 for ratio in found)
        print(f"{kind}: geometric mean {_mean(found):.3f} of {len(found)} cells, {above} above 1")
    print(f"all: geometric mean {_mean(everything):.3f}")


def _table(ratios: Ratios, sizes: list[int]) -> str:
    """A row a chain, and for each size the ratio on real and on flat rows."""
    lines = [
        "| chain | " + " | ".join(f"{size:,}" for size in sizes) + " |",
        "|---" + "|---:" * len(sizes) + "|",
    ]
    for name in ratios["real"]:
        cells = [
            [f"{ratios[kind][name][size]:.2f}" for kind in ratios if size in ratios[kind][name]] for size in sizes
        ]
        lines.append(f"| {name} | " + " | ".join(" / ".join(cell) or "-" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def _fits(name: str, size: int, model: Model) -> bool:
    """Samplers that read texts have a text for the model's own vocabulary only."""
    texts = ("dry", "infill", "preset llama-cpp", "preset xtc-dry")
    return size == model.vocabulary.size or name not in texts


def _real(model: Model, prompt: list[int]) -> Iterator[NDArray[np.float32]]:
    """The model's logits at eight places of the text."""
    for place, row in enumerate(model.context.read_each(prompt)):
        if place >= len(prompt) - 8:
            yield row.copy()


def _resized(row: NDArray[np.float32], size: int, kind: str) -> NDArray[np.float32]:
    rng = np.random.default_rng(size)
    if kind == "flat":
        return rng.uniform(0, 2, size).astype(np.float32)
    tiled = np.resize(row, size)
    tiled[row.size :] += rng.normal(-1, 0.1, max(0, size - row.size)).astype(np.float32)
    return tiled


def _measure(model: Model, steps: Any, rows: Rows, prompt: list[int], rounds: int) -> tuple[float, float]:
    """Median µs of a token: native, and ours."""
    size = rows[0].size
    chain = build(steps, seed=SEED, vocab=model.vocabulary)
    chain.reset(prompt)
    with NativeChain(chain.config, vocabulary=size, seed=SEED, vocab=model._native.vocab) as native:
        native.accept(*prompt)
        sides: tuple[Callable[[int], tuple[int, float]], ...] = (_native(native, rows), _ours(chain, rows))
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(-3, rounds):
            token = 0
            for side in (0, 1) if turn % 2 else (1, 0):
                token, seconds = sides[side](turn % len(rows))
                if turn >= 0:  # the first turns are the warm-up
                    times[side].append(seconds * 1e6)
            chain.accept(token)
            native.accept(token)
    return statistics.median(times[0]), statistics.median(times[1])


def _ours(chain: Chain, rows: Rows) -> Callable[[int], tuple[int, float]]:
    def run(place: int) -> tuple[int, float]:
        row = rows[place]
        began = perf_counter()
        token = chain.sample(row)
        return token, perf_counter() - began

    return run


def _native(native: NativeChain, rows: Rows) -> Callable[[int], tuple[int, float]]:
    filled = []
    for row in rows:
        source = np.zeros(row.size, dtype=ROW)
        source["id"], source["logit"] = np.arange(row.size), row
        filled.append(source)
    work = np.zeros(rows[0].size, dtype=ROW)
    data = work.ctypes.data_as(lib.llama_token_data_p)
    apply, chain = lib.llama_sampler_apply, native._chain

    def run(place: int) -> tuple[int, float]:
        array = lib.llama_token_data_array(data=data, size=work.size, selected=-1, sorted=False)
        pointer = ctypes.byref(array)
        source = filled[place]
        began = perf_counter()
        np.copyto(work, source)
        apply(chain, pointer)
        seconds = perf_counter() - began
        return int(array.data[array.selected].id), seconds

    return run


def _call_cost() -> float:
    """µs of a ctypes call that does nothing much."""
    call = lib.llama_max_devices
    began = perf_counter()
    for _ in range(10_000):
        call()
    return (perf_counter() - began) * 100


if __name__ == "__main__":
    main()
