"""DRY and the penalties, compared with llama.cpp's, by the length of the history that they search.

python -m benchmarks.history [--rounds 200]

A token costs one accept and one apply. Both sides get the same history, the same window, and the same logits with
the bundled model's vocabulary, and take turns; the median of a token is printed. llama.cpp's candidates are filled
before its time starts, and the time of an empty ctypes call is printed, too. ``cost at 64`` is the ratio of the
time to the time with 64 tokens of history. ``first`` is the single search of the prompt, in milliseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.engine import Model, locate
from logitsmith.samplers import BuildContext, Candidates, make_sampler
from numpy.typing import NDArray

LENGTHS = (64, 1024, 32_768)
BREAKERS = ["\n", ":", '"', "*"]
STEPS: dict[str, dict[str, Any]] = {
    "penalties": {"penalties": {"repeat": 1.1, "frequency": 0.1, "presence": 0.1, "last_n": -1}},
    "dry": {"dry": {"multiplier": 0.8, "breakers": BREAKERS}},
}
# Number of tokens after which a text repeats. The smaller it is, the more places match the end of the history.
STYLES: dict[str, int | None] = {"prose": None, "loop of 40": 40, "loop of 2": 2, "loop of 1": 1}
ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="history-based samplers against llama.cpp's")
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    with Model.load(locate()[0], n_ctx=64) as model:
        size = model.vocabulary.size
        logits = np.random.default_rng(1).normal(0, 3, size).astype(np.float32)
        print(f"{size:,} tokens; one ctypes call: {_call_cost():.1f} µs")
        print(
            f"{'sampler':10} {'history':12} {'tokens':>7} {'native µs':>10} {'gen µs':>9} {'ratio':>7}"
            f" {'cost at 64':>11} {'first ms':>9}"
        )
        for name, step in STEPS.items():
            for style, loop in STYLES.items():
                base = 0.0
                for length in LENGTHS:
                    history = _history(loop, length + rounds, size)
                    native, ours, first = _measure(model, step, logits, history, length)
                    base = base or ours
                    print(
                        f"{name:10} {style:12} {length:7,} {native:10.1f} {ours:9.1f} {ours / native:7.3f}"
                        f" {ours / base:11.2f} {first:9.1f}"
                    )


def _history(loop: int | None, length: int, size: int) -> list[int]:
    """Return tokens: ``loop`` tokens repeated many times, or, if it is None, tokens distributed like words."""
    rng = np.random.default_rng(7)
    if loop is not None:
        sentence = rng.integers(1000, size, loop)
        return [int(sentence[place % loop]) for place in range(length)]
    tokens: list[int] = np.minimum(rng.zipf(1.2, length), size - 1).tolist()
    return tokens


def _measure(
    model: Model, step: dict[str, Any], logits: NDArray[np.float32], history: list[int], length: int
) -> tuple[float, float, float]:
    """Return the median microseconds of a token, llama.cpp's and logitsmith's, and those of the first search in
    ms.

    Args:
        model: the model whose vocabulary is used.
        step: the sampler and its parameters, as a chain contains them.
        logits: float32 (V,), the same for each token.
        history: the tokens that are accepted.
        length: number of tokens that count as the prompt; the other tokens are measured one by one.
    """
    native = _native(model, step, logits, history[:length])
    ours, first = _ours(model, step, logits, history[:length])
    times: dict[str, list[float]] = {"native": [], "ours": []}
    for turn, token in enumerate(history[length:]):
        for side, run in (("native", native), ("ours", ours))[:: 1 if turn % 2 else -1]:
            times[side].append(run(token))
    return statistics.median(times["native"]), statistics.median(times["ours"]), first


def _ours(
    model: Model, step: dict[str, Any], logits: NDArray[np.float32], prompt: list[int]
) -> tuple[Callable[[int], float], float]:
    sampler = make_sampler(step, "step")
    sampler.bind(BuildContext(1, model.vocabulary))
    began = perf_counter()
    sampler.reset(prompt)
    sampler.apply(Candidates(logits))
    first = perf_counter() - began

    def run(token: int) -> float:
        began = perf_counter()
        sampler.accept(token)
        sampler.apply(Candidates(logits))
        return (perf_counter() - began) * 1e6

    return run, first * 1e3


def _native(
    model: Model, step: dict[str, Any], logits: NDArray[np.float32], prompt: list[int]
) -> Callable[[int], float]:
    ((name, params),) = step.items()
    size = logits.size
    window = len(prompt) + 10_000
    if name == "dry":
        texts = (ctypes.c_char_p * len(BREAKERS))(*(text.encode() for text in BREAKERS))
        vocab = model.vocabulary._native.handle
        sampler = lib.llama_sampler_init_dry(vocab, params["multiplier"], 1.75, 2, window, texts, len(BREAKERS))
    else:
        repeat, frequency, presence = (params[key] for key in ("repeat", "frequency", "presence"))
        sampler = lib.llama_sampler_init_penalties(size, window, repeat, frequency, presence)
    for token in prompt:
        lib.llama_sampler_accept(sampler, token)
    rows = np.zeros(size, dtype=ROW)
    rows["id"] = np.arange(size)

    def run(token: int) -> float:
        rows["logit"] = logits
        array = lib.llama_token_data_array(
            data=rows.ctypes.data_as(lib.llama_token_data_p), size=size, selected=-1, sorted=False
        )
        began = perf_counter()
        lib.llama_sampler_accept(sampler, token)
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
        return (perf_counter() - began) * 1e6

    return run


def _call_cost() -> float:
    """Return the median microseconds of an almost empty ctypes call."""
    times = []
    for _ in range(1000):
        began = perf_counter()
        lib.llama_max_devices()
        times.append((perf_counter() - began) * 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    main()
