"""Check which computations have bit-identical results on this processor, for each data type that llama.cpp writes.

python -m benchmarks.exactness [--vocabulary 32000] [Q4_K_M F16 …]

The models have random weights, which llama.cpp's own function quantizes. The columns of the table:

- batch: the exactness of `gen batch`, see `logitsmith.engine.BatchExactness`
- rows: number of tokens of different requests that a batch of this exactness decodes together
- together: number of tokens of one text that can be decoded together with the same logits as one by one. This many
  tokens may be forced by a grammar, or guessed by `--lookup`, together with the token before them
- small batches: whether 2 to 63 tokens decoded together have the same logits however a text is divided (`gen
score`) - chunks: whether a prompt of 200 tokens has the same logits if it is read in chunks of 64 or more tokens,
which end at multiples of 16
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp.llama_cpp as lib
import numpy as np
from logitsmith.engine import Model
from logitsmith.engine.context import Context
from numpy.typing import NDArray

from tests.engine.quantized_models import QUANTIZATIONS, QuantizedModels

PARALLEL = 8
TEXT_TOKENS = 200
START_TOKENS = 5
MAX_TOGETHER = 16
DIVISIONS = ((63, 63), (2, 61, 63), (7, 8, 48, 3, 60), (9, 5, 4, 3, 42, 63))
"""Ways to divide 126 tokens into small batches."""

Rows = list[NDArray[np.float32]]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="what is bit-identical on this processor")
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("quantizations", nargs="*", metavar="Q", help=f"of {' '.join(QUANTIZATIONS)}")
    options = parser.parse_args()
    print(f"{_processor()}; llama.cpp's kernels for {_instructions()}; {options.vocabulary:,} tokens\n")
    print("| data type | batch | rows | together | small batches | chunks |")
    print("|---|---|---:|---:|---|---|")
    with TemporaryDirectory() as folder:
        models = QuantizedModels(Path(folder))
        for name in options.quantizations or QUANTIZATIONS:
            with Model.load(models.path(name, options.vocabulary), n_ctx=256) as model:
                print(f"| {name} | {' | '.join(measure(model))} |", flush=True)


def measure(model: Model) -> list[str]:
    """Return the cells of one model."""
    tokens = [(7919 * number + 13) % model.vocabulary.size for number in range(TEXT_TOKENS)]
    exactness = model.batch_exactness(PARALLEL)
    slots = model.make_slots(PARALLEL)
    rows = slots.group_sizes
    slots.close()
    return [
        str(exactness),
        " + ".join(map(str, rows)),
        _max_together(model.context, tokens),
        _yes(_small_batches_agree(model.context, tokens)),
        _yes(_chunks_agree(model.context, tokens)),
    ]


def _max_together(context: Context, tokens: Sequence[int]) -> str:
    """Return the maximum number of tokens that can be decoded together with the same logits as one by one."""
    start, rest = tokens[:START_TOKENS], tokens[START_TOKENS : START_TOKENS + MAX_TOGETHER]
    alone = _divided(context, start, rest, [1] * len(rest))
    for count in range(2, len(rest) + 1):
        if not _are_equal(_divided(context, start, rest[:count], [count]), alone[:count]):
            return str(count - 1)
    return f"{len(rest)} and more"


def _small_batches_agree(context: Context, tokens: Sequence[int]) -> bool:
    start, rest = tokens[:START_TOKENS], tokens[START_TOKENS : START_TOKENS + sum(DIVISIONS[0])]
    first, *others = (_divided(context, start, rest, division) for division in DIVISIONS)
    return all(_are_equal(first, rows) for rows in others)


def _chunks_agree(context: Context, tokens: Sequence[int]) -> bool:
    """Compare the logits after the prompt and after one more token; the latter depend on all keys and values."""
    found = []
    for ends in ((len(tokens),), (64, 128, len(tokens)), (80, len(tokens)), (112, len(tokens))):
        context.truncate(0)
        for start, end in pairwise((0, *ends)):
            assert context.read(tokens[:end]) == start
        found.append([context.logits().copy(), context.append_batch(tokens[:2])[-1].copy()])
    return all(_are_equal(found[0], rows) for rows in found[1:])


def _divided(context: Context, start: Sequence[int], tokens: Sequence[int], sizes: Sequence[int]) -> Rows:
    """Return the logits after each token, read after ``start`` in batches of these sizes."""
    context.truncate(0)
    context.read(start)
    rows: Rows = []
    for size in sizes:
        rows += [row.copy() for row in context.append_batch(tokens[len(rows) : len(rows) + size])]
    return rows


def _are_equal(first: Rows, second: Rows) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def _yes(agrees: bool) -> str:
    return "yes" if agrees else "no"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "this processor"


def _instructions() -> str:
    """Return the widest vector instructions that this build of llama.cpp uses."""
    info = lib.llama_print_system_info().decode()
    return next((name for name in ("AVX512", "AVX2", "SVE", "NEON") if f"{name} = 1" in info), "no vectors")


if __name__ == "__main__":
    main()
