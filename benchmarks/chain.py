"""A token's choice: our chain against llama.cpp's own, for each sampler, preset and ten mixed chains.

python -m benchmarks.chain [--rounds 60] [--only TEXT] [--sizes 32000,49152,…] [--misses]

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
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.engine import Model, locate
from logitsmith.presets import load
from logitsmith.samplers import Chain, build
from numpy.typing import NDArray

from tests.oracle.native import ROW, NativeChain
from tests.oracle.test_parity import ALONE, MIXED, PRESETS

SIZES = (32_000, 49_152, 128_256, 151_936, 262_144)
TEXT = "The lighthouse keeper opened the door and looked at the sea, which was calm. He had not expected that."
SEED = 7
Rows = list[NDArray[np.float32]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="our chain against llama.cpp's")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="chains whose name has this text")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--misses", action="store_true", help="print only what is slower than native")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    chains = {**ALONE, **MIXED, **{f"preset {name}": load(name).chain for name in PRESETS}}
    with Model.load(locate()[0], n_ctx=512) as model:
        prompt = model.vocabulary.tokenize(TEXT.encode())
        real = list(_real(model, prompt))
        print(f"{options.rounds} rounds; one ctypes call: {_call_cost():.1f} µs")
        print(f"{'logits':6} {'tokens':>8} {'chain':32} {'native µs':>10} {'ours µs':>9} {'ratio':>7}")
        ratios: dict[str, list[float]] = {}
        for kind in ("real", "flat"):
            for size in sizes:
                rows = [_resized(row, size, kind) for row in real]
                for name, steps in chains.items():
                    if options.only not in name or not _fits(name, size, model):
                        continue
                    native, ours = _measure(model, steps, rows, prompt, options.rounds)
                    ratios.setdefault(kind, []).append(ours / native)
                    if ours > native or not options.misses:
                        print(
                            f"{kind:6} {size:8,} {name:32} {native:10.1f} {ours:9.1f} {ours / native:7.3f}",
                            flush=True,
                        )
    for kind, found in ratios.items():
        above = sum(ratio > 1 for ratio in found)
        print(f"{kind}: geometric mean {_mean(found):.3f} of {len(found)} cells, {above} above 1")
    print(f"all: geometric mean {_mean([ratio for found in ratios.values() for ratio in found]):.3f}")


def _mean(ratios: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def _fits(name: str, size: int, model: Model) -> bool:
    """Samplers that read texts have a text for the model's own tokens only."""
    texts = ("dry", "infill", "llama.cpp's order", "fill in the middle", "preset llama-cpp", "preset xtc-dry")
    return size <= model.vocabulary.size or name not in texts


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
