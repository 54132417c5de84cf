"""The time of a token if the weights are in huge pages, compared with weights in a mapped file.

python -m benchmarks.huge_pages [-m FILE] [--rounds 20] [--tokens 20]

Both models are loaded in one process, and take turns in generating tokens; the medians of the rounds are compared.
Then the times of loading both are compared, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import perf_counter

from logitsmith.engine import Model, locate
from logitsmith.engine.native.options import plan_load

from .quartiles import quartiles

_PROMPT = "The lighthouse keeper wrote in his journal that the storm"
_TOKEN = 253
"""Token that is decoded again and again; the time does not depend on it."""


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description="weights in huge pages against a mapped file")
    parser.add_argument("-m", "--model", type=Path, default=locate()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=20)
    options = parser.parse_args()
    if plan_load(options.model).options.mmap:
        sys.exit(f"{options.model}: this file is mapped here: its size does not suit, or Linux has no huge pages")
    tokens: dict[str, list[float]] = {"mapped": [], "read": []}
    with _load(options.model, "mapped") as mapped, _load(options.model, "read") as read:
        models = {"mapped": mapped, "read": read}
        for model in models.values():
            seconds_per_token(model, options.tokens)
        for turn in range(options.rounds):
            for name in list(models)[:: 1 if turn % 2 else -1]:
                tokens[name].append(seconds_per_token(models[name], options.tokens))
    loads: dict[str, list[float]] = {"mapped": [], "read": []}
    for turn in range(options.rounds):
        for name in list(loads)[:: 1 if turn % 2 else -1]:
            began = perf_counter()
            with _load(options.model, name):
                loads[name].append(perf_counter() - began)
    _print("a token", tokens)
    _print("loading", loads)


def seconds_per_token(model: Model, count: int) -> float:
    """Return the mean time of a token after the prompt; ``count``: number of tokens."""
    context = model.context
    context.read(model.vocabulary.tokenize_prompt(_PROMPT.encode()))
    began = perf_counter()
    for _ in range(count):
        context.append(_TOKEN)
        context.logits()
    return (perf_counter() - began) / count


def _load(path: Path, name: str) -> Model:
    return Model.load(path, n_ctx=512, mmap=name == "mapped")


def _print(title: str, seconds: dict[str, list[float]]) -> None:
    ratios = [read / mapped for mapped, read in zip(seconds["mapped"], seconds["read"], strict=True)]
    low, middle, high = quartiles(ratios)
    times = ", ".join(f"{name} {statistics.median(times) * 1e3:.2f} ms" for name, times in seconds.items())
    print(f"{title:8} read / mapped {middle:.3f} ({low:.3f} to {high:.3f}); {times}")


if __name__ == "__main__":
    main()
