"""The batch sampler, compared with single chains, llama.cpp's chains, and torch's operators if torch is installed.

python -m benchmarks.batch_sampler [--rounds 15]

A round is one step of a generation. All sides get the same logits, (64, V), and the same texts, and take turns.
The medians of the times of a step for the entire batch, and of the ratios of a step, are printed. The batch
sampler's time includes building its arguments from arrays. Filling llama.cpp's candidates is not timed. torch has
the usual row-wise top-k and top-p, and no penalties. ``same`` is the share of tokens that logitsmith's single
chains choose, too. The logits are random: ``flat`` ones have a standard deviation of 3; ``peaked`` ones have fifty
likely tokens above that, as a model's logits do. The second table shows a step with penalties, and the time of
counting tokens in it, with and without the counts that `request_ids` keeps.
"""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from logitsmith.samplers.batch import SamplingData, SamplingParam, sample
from logitsmith.samplers.batch.penalties import TokenCountCache, count_tokens
from numpy.typing import NDArray

from .batch_sampler_peers import CASES, ROWS, Batch, Side, chains, native, torch_side

VOCABULARIES = (49_152, 152_064)
PEERS = ("llama.cpp", "chains", "torch")
Floats = NDArray[np.float64]
LENGTHS = (256, 4096, 32_768)


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="the batch sampler against chains one by one")
    parser.add_argument("--rounds", type=int, default=15)
    sampler_table(parser.parse_args().rounds)


def sampler_table(rounds: int) -> None:
    """Print the tables; ``rounds``: number of steps of each kind."""
    if find_spec("torch") is None:
        print("torch is not installed, and left out")
    print(f"{ROWS} rows, {rounds} rounds; ms a step; a ratio below 1 is in the batch sampler's favor")
    print(f"{'vocabulary':>10} {'logits':7} {'case':24}", end="")
    print(
        *(f" {side:>9}" for side in (*PEERS, "batch")),
        *(f" {'/ ' + side:>11}" for side in PEERS),
        "   same",
        sep="",
    )
    for vocabulary in VOCABULARIES:
        for style in ("peaked", "flat"):
            for case in CASES:
                print(f"{vocabulary:10,} {style:7} {case:24}", end="")
                _compare(Batch(vocabulary, style, case, rounds), rounds)
    print(f"\n{'':7} {'a step, ms':^26}  {'its counting, ms':^26}")
    print(f"{'tokens':>7}" + f" {'uncached':>9} {'kept':>8} {'ratio':>7} " * 2)
    for length in LENGTHS:
        _cache(Batch(VOCABULARIES[-1], "peaked", "penalties, top_k, top_p", rounds, length), rounds)


def _take_turns(sides: dict[str, Side], rounds: int) -> tuple[dict[str, Floats], list[dict[str, list[int]]]]:
    """Return the milliseconds of each side and step, and the tokens."""
    times = {side: np.zeros(rounds) for side in sides}
    tokens: list[dict[str, list[int]]] = []
    for step in range(rounds):
        tokens.append({})
        for side in list(sides)[:: 1 if step % 2 else -1]:
            began = perf_counter()
            tokens[-1][side], left_out = sides[side](step)
            times[side][step] = (perf_counter() - began - left_out) * 1e3
    return times, tokens


def _compare(batch: Batch, rounds: int) -> None:
    with native(batch) as llama_cpp:
        sides: dict[str, Side] = {"llama.cpp": llama_cpp, "chains": chains(batch), "batch": _ours(batch)}
        if find_spec("torch") is not None and "penalty" not in batch.case:
            sides["torch"] = torch_side(batch)
        ms, tokens = _take_turns(sides, rounds)
    same = np.mean([np.equal(step["batch"], step["chains"]).mean() for step in tokens])
    shown = [f" {np.median(ms[side]):9.2f}" if side in ms else f" {'-':>9}" for side in (*PEERS, "batch")]
    ratios = [f" {np.median(ms['batch'] / ms[side]):11.2f}" if side in ms else f" {'-':>11}" for side in PEERS]
    print(*shown, *ratios, f" {same:6.1%}", sep="")


def _cache(batch: Batch, rounds: int) -> None:
    everything, own, requests = batch.texts, TokenCountCache(), np.arange(ROWS)

    def counting(step: int, kept: bool) -> tuple[list[int], float]:
        texts = everything[:, : batch.history + step], everything[:, batch.history : batch.history + step]
        if kept:
            own.step(requests, texts, batch.vocabulary, step == 0)
        else:
            count_tokens(*texts, batch.vocabulary)
        return [], 0.0

    sides = {
        "uncached": _ours(batch, cached=False),
        "kept": _ours(batch),
        "all counted": lambda step: counting(step, False),
        "counts kept": lambda step: counting(step, True),
    }
    ms, _ = _take_turns(sides, rounds)
    print(f"{batch.history:7,}", end="")
    for uncached, kept in (("uncached", "kept"), ("all counted", "counts kept")):
        ratio = np.median(ms[kept] / ms[uncached])
        print(f" {np.median(ms[uncached]):9.2f} {np.median(ms[kept]):8.2f} {ratio:7.2f} ", end="")
    print()


def _ours(batch: Batch, *, cached: bool = True) -> Side:
    """Return the batch sampler as a side. The seed of a row is its number."""
    case, rows = batch.case, np.arange(ROWS)

    def vector(name: str, dtype: type[np.generic] = np.float32) -> NDArray[Any] | None:
        return np.full(ROWS, case[name], dtype) if name in case else None

    def run(step: int) -> tuple[list[int], float]:
        texts = batch.texts[:, : batch.history + step]
        data = SamplingData.from_numpy(
            texts, texts[:, batch.history :], np.asarray, step == 0, rows if cached else None
        )
        flat = np.full(ROWS, 0.1, np.float32) if "penalty" in case else None
        sampling = vector("temperature"), vector("top_k", np.int64), vector("top_p"), rows if case else None
        drawn = np.full(ROWS, bool(case))
        param = SamplingParam.from_numpy(vector("penalty"), flat, flat, *sampling, drawn, np.asarray)
        return sample(batch.logits, data, param)[0].tolist(), 0.0

    return run


if __name__ == "__main__":
    main()
