"""Time to choose a token, compared with llama.cpp's chain, for each sampler, each preset and ten common chains.

python -m benchmarks.chain [--rounds 60] [--only TEXT] [--sizes 32000,49152,…] [--table FILE] [--cold]

llama.cpp's time is one call of `llama_sampler_sample`: it fills the candidates from the logits, runs the chain and
accepts the token. The time of an empty ctypes call is printed. Logitsmith's time is `Chain.sample` on the same
logits, and `Chain.accept`. Both sides have read the same text before, and take turns on the same rows; the medians
are compared. Real rows are logits of the bundled model, cut, or tiled with a little noise, to other vocabulary
sizes. Flat rows lie within 2 nats, so that few tokens can be dropped early. Other vocabularies are those of models
with random weights, whose logits are overwritten. A ratio below 1 means that logitsmith is faster.

In a run, a decode has read the whole model before each token, so that most code and data must come from memory
again. With `--cold`, a copy of the bundled model's file is read before each call of both sides.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.engine import Model, locate
from logitsmith.presets import load_preset
from logitsmith.samplers import build
from numpy.typing import NDArray

from tests.engine.big_model import write_model
from tests.oracle.native import NativeChain
from tests.oracle.test_parity import ALONE, PRESETS

SIZES = (32_000, 49_152, 128_256, 151_936, 262_144)
TEXT = "The lighthouse keeper opened the door and looked at the sea, which was calm. He had not expected that."
SEED = 7
Rows = list[NDArray[np.float32]]
Ratios = dict[str, dict[str, dict[int, float]]]
"""Ratios by kind of logits, chain and vocabulary size."""

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
"""Chains from model cards, and chains that writers share."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="our chain against llama.cpp's")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--only", default="", help="chains whose name has this text")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--table", help="write the ratios to this file as a Markdown table")
    parser.add_argument("--cold", action="store_true", help="read other memory before each call, as a decode does")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    chains = {**ALONE, "dry, no breakers": "dry(multiplier=0.8, breakers=[])", **PEOPLE}
    chains |= {f"preset {name}": load_preset(name).chain for name in PRESETS}
    if not any(options.only in name for name in chains):
        parser.error(f"--only: no chain has {options.only!r} in its name; there are {', '.join(chains)}")
    path, _ = locate()
    empty_caches = _reader(path) if options.cold else _do_nothing
    with Model.load(path, n_ctx=512) as model:
        prompt = model.vocabulary.tokenize(TEXT.encode())
        real = list(_real(model, prompt))
        print(f"{options.rounds} rounds; one ctypes call: {_call_cost():.1f} µs")
        print(f"{'logits':6} {'tokens':>8} {'chain':26} {'native µs':>10} {'gen µs':>9} {'ratio':>7}")
        ratios: Ratios = {}
        for kind in ("real", "flat"):
            for size in sizes:
                rows = _resized(real, size, kind)
                text = [token % size for token in prompt]
                chosen = {
                    name: chains[name] for name in chains if options.only in name and _fits(name, size, model)
                }
                with _stage(model, size) as staged:
                    for name, steps in chosen.items():
                        native, ours = _measure(
                            staged, steps, rows, text, options.rounds, empty_caches=empty_caches
                        )
                        ratios.setdefault(kind, {}).setdefault(name, {})[size] = ours / native
                        line = f"{kind:6} {size:8,} {name:26} {native:10.1f} {ours:9.1f} {ours / native:7.3f}"
                        print(line, flush=True)
    _sum_up(ratios)
    if options.table:
        Path(options.table).write_text(_table(ratios, sizes))


def _sum_up(ratios: Ratios) -> None:
    everything: list[float] = []
    for kind, chains in ratios.items():
        cells = [ratio for by_size in chains.values() for ratio in by_size.values()]
        everything += cells
        above = sum(ratio > 1 for ratio in cells)
        print(f"{kind}: geometric mean {_mean(cells):.3f} of {len(cells)} cells, {above} above 1")
    print(f"all: geometric mean {_mean(everything):.3f}")


def _table(ratios: Ratios, sizes: list[int]) -> str:
    """Return a table with a row per chain, and the ratios on real and on flat rows for each vocabulary size."""
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
    """Return whether a chain can run at this size: samplers that read texts need the model's own vocabulary."""
    texts = ("dry", "infill", "preset llama-cpp", "preset xtc-dry")
    return size == model.vocabulary.size or name not in texts


def _real(model: Model, prompt: list[int]) -> Iterator[NDArray[np.float32]]:
    """Yield the model's logits at eight positions of the text."""
    for place, row in enumerate(model.context.read_each(prompt)):
        if place >= len(prompt) - 8:
            yield row.copy()


def _resized(rows: Rows, size: int, kind: str) -> Rows:
    rng = np.random.default_rng(size)
    if kind == "flat":
        return [rng.uniform(0, 2, size).astype(np.float32) for _ in rows]
    made = [np.resize(row, size) for row in rows]
    for row in made:
        row[rows[0].size :] += rng.normal(0, 0.1, max(0, size - rows[0].size)).astype(np.float32)
    return made


@contextmanager
def _stage(bundled: Model, size: int) -> Iterator[Model]:
    """Yield a model with a vocabulary of this size, which has read a token."""
    if size == bundled.vocabulary.size:
        bundled.context.read([5])
        yield bundled
        return
    with TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        write_model(path, size)
        with Model.load(path, n_ctx=64) as model:
            model.context.read([5])
            yield model


def _reader(path: Path) -> Callable[[], object]:
    """Return a function that reads as many bytes as a file has, from pages of the usual size."""
    data = path.read_bytes()
    memory = np.frombuffer(data, np.uint64, len(data) // 8)
    return partial(np.maximum.reduce, memory)


def _do_nothing() -> None:
    pass


def _measure(  # noqa: PLR0913 - a measurement has this many parts
    model: Model, steps: Any, rows: Rows, prompt: list[int], rounds: int, *, empty_caches: Callable[[], object]
) -> tuple[float, float]:
    """Return the median times of a token in microseconds: llama.cpp's, and logitsmith's.

    Args:
        model: a model that has read a token, and whose vocabulary has the size of the rows.
        steps: the chain, as a preset contains it.
        rows: logits, float32 (V,), used in turn.
        prompt: tokens that both chains accept first.
        rounds: number of measured tokens, after three tokens that are not measured.
        empty_caches: called before each call of both sides.
    """
    size = rows[0].size
    context: Any = model.context._native
    address = lib.llama_get_logits_ith(context.handle, -1)
    shown = np.ctypeslib.as_array(address, (size,))
    vocabulary = model.vocabulary
    chain = build(steps, seed=SEED, vocab=vocabulary)
    chain.reset(prompt)
    with NativeChain(chain.config, vocabulary=size, seed=SEED, vocab=vocabulary._native.handle) as native:
        native.accept(*prompt)

        def theirs() -> None:
            lib.llama_sampler_sample(native._chain, context.handle, -1)

        def ours() -> None:
            chain.accept(chain.sample(shown))

        times: dict[Callable[[], None], list[float]] = {theirs: [], ours: []}
        for turn in range(-3, rounds):
            for side in (theirs, ours) if turn % 2 else (ours, theirs):
                empty_caches()
                shown[:] = rows[turn % len(rows)]  # as at the end of a decode
                began = perf_counter()
                side()
                if turn >= 0:  # the first turns are the warm-up
                    times[side].append((perf_counter() - began) * 1e6)
    return statistics.median(times[theirs]), statistics.median(times[ours])


def _call_cost() -> float:
    """Return the time of an almost empty ctypes call in microseconds."""
    call = lib.llama_max_devices
    began = perf_counter()
    for _ in range(10_000):
        call()
    return (perf_counter() - began) * 100


if __name__ == "__main__":
    main()
