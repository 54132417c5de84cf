"""Sides of the batch sampler's benchmark: single chains, llama.cpp's chains, and torch's operators."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.samplers import build

ROWS, HISTORY = 64, 1024
CASES: dict[str, dict[str, float]] = {
    "greedy": {},
    "top_k 40, top_p 0.95": {"temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "penalties, top_k, top_p": {"penalty": 1.1, "temperature": 0.8, "top_k": 40, "top_p": 0.95},
    "top_p 0.95": {"temperature": 0.8, "top_p": 0.95},
    "temperature 0.8": {"temperature": 0.8},
}
ROW = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
Side = Callable[[int], tuple[list[int], float]]
"""Gets the number of a step, and returns its tokens, and the seconds of the step that are not counted."""


class Batch:
    """The input of every side: logits, texts, and sampling settings."""

    def __init__(self, vocabulary: int, style: str, case: str, rounds: int, history: int = HISTORY) -> None:
        rng = np.random.default_rng(5)
        self.vocabulary, self.case, self.history = vocabulary, CASES[case], history
        self.logits = rng.normal(0, 3, (ROWS, vocabulary)).astype(np.float32)
        if style == "peaked":
            likely = rng.integers(0, vocabulary, (ROWS, 50))
            np.put_along_axis(self.logits, likely, rng.normal(12, 3, likely.shape).astype(np.float32), axis=1)
        # Tokens with the frequencies of Zipf's law, as words of a text have them.
        self.texts = np.minimum(rng.zipf(1.2, (ROWS, history + rounds)), vocabulary - 1)

    def new(self, step: int) -> list[int]:
        """Return, for each row, the token that precedes this step."""
        tokens: list[int] = self.texts[:, self.history + step - 1].tolist()
        return tokens


def chains(batch: Batch) -> Side:
    """Return logitsmith's single chains, one per row, as a side."""
    case = batch.case
    flat = 0.1 if "penalty" in case else 0.0
    penalties = {"repeat": case.get("penalty", 1.0), "frequency": flat, "presence": flat}
    steps: list[Any] = [{"penalties": {**penalties, "last_n": -1, "scope": "output"}}]
    steps += [{name: case[name]} for name in ("temperature", "top_k", "top_p") if name in case]
    ours = [build([*steps, "dist" if case else "greedy"], seed=row) for row in range(ROWS)]
    for chain, text in zip(ours, batch.texts.tolist(), strict=True):
        chain.reset(text[: batch.history])

    def run(step: int) -> tuple[list[int], float]:
        for chain, token in zip(ours, batch.new(step), strict=True):
            if step:
                chain.accept(token)
        return [chain.sample(logits) for chain, logits in zip(ours, batch.logits, strict=True)], 0.0

    return run


@contextmanager
def native(batch: Batch) -> Iterator[Side]:
    """Yield llama.cpp's chains, one per row, as a side. Filling their candidates is not counted."""
    samplers = [_native_chain(batch, row) for row in range(ROWS)]
    rows = np.zeros(batch.vocabulary, dtype=ROW)
    pointer = rows.ctypes.data_as(lib.llama_token_data_p)

    def run(step: int) -> tuple[list[int], float]:
        filling, tokens = 0.0, []
        for chain, logits, token in zip(samplers, batch.logits, batch.new(step), strict=True):
            began = perf_counter()
            rows["id"], rows["logit"] = np.arange(batch.vocabulary), logits
            array = lib.llama_token_data_array(data=pointer, size=rows.size, selected=-1, sorted=False)
            filling += perf_counter() - began
            if step:
                lib.llama_sampler_accept(chain, token)
            lib.llama_sampler_apply(chain, ctypes.byref(array))
            tokens.append(array.data[array.selected].id)
        return tokens, filling

    try:
        yield run
    finally:
        for chain in samplers:
            lib.llama_sampler_free(chain)


def _native_chain(batch: Batch, row: int) -> Any:
    case = batch.case
    steps = [lib.llama_sampler_init_dist(row) if case else lib.llama_sampler_init_greedy()]
    if "top_p" in case:
        steps.insert(0, lib.llama_sampler_init_top_p(case["top_p"], 1))
    if "top_k" in case:
        steps.insert(0, lib.llama_sampler_init_top_k(int(case["top_k"])))
    if "temperature" in case:
        steps.insert(0, lib.llama_sampler_init_temp(case["temperature"]))
    if "penalty" in case:
        window = batch.texts.shape[1]
        steps.insert(0, lib.llama_sampler_init_penalties(batch.vocabulary, window, case["penalty"], 0.1, 0.1))
    chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
    for step in steps:
        lib.llama_sampler_chain_add(chain, step)
    for token in batch.texts[row, : batch.history].tolist():
        lib.llama_sampler_accept(chain, token)
    return chain


def torch_side(batch: Batch) -> Side:
    """Return row-wise top-k and top-p as in transformers: `topk` or a sort, a running sum, and a mask."""
    import torch  # noqa: PLC0415 - not a dependency

    logits, case = torch.from_numpy(batch.logits), batch.case

    def run(_: int) -> tuple[list[int], float]:
        if not case:
            return logits.argmax(dim=1).tolist(), 0.0
        scaled, ids = logits / case["temperature"], None
        if "top_k" in case:
            scaled, ids = scaled.topk(int(case["top_k"]), dim=1)
        elif "top_p" in case:
            scaled, ids = scaled.sort(dim=1, descending=True)
        probs = scaled.softmax(dim=1)
        if "top_p" in case:
            probs = probs.masked_fill(probs.cumsum(dim=1) - probs >= case["top_p"], 0)
        places = probs.multinomial(1)
        return (places if ids is None else ids.gather(1, places))[:, 0].tolist(), 0.0

    return run
