"""Grammar masks compared with llama.cpp's grammar sampler, and generation under a JSON Schema with a native loop.

python -m benchmarks.grammar [--steps 40] [--rounds 20]

Masks: along a random path through each grammar, both sides check the entire vocabulary at each step.

Loop: llama.cpp's chain uses the grammar that llama.cpp makes of the schema, as its own tools do: they draw a token
first, and only if the grammar rejects it, mask the entire row and draw again. It is compared with logitsmith's
loop with and without jumping, in the same process, with the same model and settings, in turns. More than 1 means
that logitsmith is faster.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable
from time import perf_counter

import numpy as np
from llama_cpp.llama_grammar import json_schema_to_gbnf
from logitsmith.engine import Done, Model, generate, locate
from logitsmith.grammars import Grammar, compile_grammar, list_grammars
from logitsmith.grammars.tokenizer import tokenizer_of
from logitsmith.samplers import build

from .native_grammar import NativeGrammar
from .native_loop import NativeGrammarLoop

PROMPT = "A user record in JSON: "
CHAIN = "top-k40 > top-p0.95 > min-p0.05 > temp0.8"
FIELDS = {
    "name": {"type": "string", "maxLength": 30},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "email": {"type": "string", "maxLength": 30},
    "city": {"type": "string", "maxLength": 30},
    "married": {"type": "boolean"},
    "role": {"enum": ["admin", "editor", "reader"]},
}
SCHEMA = {"type": "object", "properties": FIELDS, "required": list(FIELDS), "additionalProperties": False}
LONGEST = 300


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="grammars against llama.cpp's")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    path, _ = locate()
    with Model.load(path, n_ctx=1024) as model:
        _first_mask(path)
        _masks(model, options.steps)
        _loops(model, options.rounds)


def _first_mask(path: object) -> None:
    """Print the times of reading the vocabulary and making the tokenizer, for models that were just loaded."""
    times = []
    for _ in range(5):
        with Model.load(str(path), n_ctx=64) as model:
            began = perf_counter()
            tokenizer_of(model.vocabulary)
            times.append(perf_counter() - began)
    best, middle = min(times) * 1e3, statistics.median(times) * 1e3
    print(f"vocabulary and tokenizer: {best:.0f} ms at best, median {middle:.0f}\n")


def _masks(model: Model, steps: int) -> None:
    title = f"mask, {model.vocabulary.size:,} tokens"
    print(f"{title:20} {'compile ms':>10} {'gen µs':>9} {'native µs':>10} {'ratio':>7}")
    ratios = []
    for entry in list_grammars():
        source = entry.path.read_text(encoding="utf-8")
        began = perf_counter()
        grammar = compile_grammar(source, model.vocabulary)
        compiled = perf_counter() - began
        ours, native = _walk(model, grammar, source, steps)
        ratios.append(native / ours)
        print(f"{entry.name:20} {compiled * 1e3:10.1f} {ours * 1e6:9.0f} {native * 1e6:10.0f} {ratios[-1]:7.0f}")
    print(f"{'geometric mean':20} {statistics.geometric_mean(ratios):39.0f}\n")


def _walk(model: Model, grammar: Grammar, source: str, steps: int) -> tuple[float, float]:
    """Return the mean seconds of a mask along random paths: logitsmith's, and llama.cpp's.

    Args:
        model: the model whose vocabulary is used.
        grammar: the grammar, compiled by logitsmith.
        source: the same grammar in GBNF, for llama.cpp.
        steps: number of masks.
    """
    draw = random.Random(1)
    ours, native = [], []
    while len(ours) < steps:
        state = grammar.start()
        with NativeGrammar(model._native.vocabulary.handle, model.vocabulary.size, source) as peer:
            for _ in range(steps - len(ours)):
                ours.append(_timed(state.mask))
                native.append(_timed(peer.mask))
                both = np.flatnonzero(state.mask() & peer.mask())
                tokens = [token for token in both.tolist() if not model.vocabulary.is_eog(token)]
                if not tokens:
                    break
                token = draw.choice(tokens)
                state.accept(token)
                peer.accept(token)
    return statistics.mean(ours), statistics.mean(native)


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def _loops(model: Model, rounds: int) -> None:
    schema = json.dumps(SCHEMA)
    grammar = compile_grammar(schema, model.vocabulary, kind="json_schema")
    prompt = model.vocabulary.tokenize_prompt(PROMPT.encode())
    gbnf = json_schema_to_gbnf(schema)

    def native(seed: int) -> int:
        with NativeGrammarLoop(model, seed, gbnf) as loop:
            return loop.write(prompt, LONGEST)

    def ours(seed: int, jump: bool) -> int:
        chain = build(CHAIN, seed=seed, vocab=model.vocabulary)
        for event in generate(model, prompt, chain, grammar.start(), max_tokens=LONGEST, jump=jump):
            last = event
        assert isinstance(last, Done)
        return last.completion_tokens

    sides: dict[str, Callable[[int], int]] = {
        "native": native,
        "gen, --no-jump": lambda seed: ours(seed, False),
        "gen": lambda seed: ours(seed, True),
    }
    made: dict[str, list[int]] = {name: [] for name in sides}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(-1, rounds):  # the first turn warms up
        for name in list(sides) if turn % 2 else reversed(sides):
            began = perf_counter()
            count = sides[name](turn + 1)
            if turn >= 0:
                taken[name].append(perf_counter() - began)
                made[name].append(count)
    print(f"{'six required fields':20} {'tokens':>7} {'tokens/s':>9} {'records/s':>10} {'ratio of tokens/s':>18}")
    speeds = {name: [n / t for n, t in zip(made[name], taken[name], strict=True)] for name in sides}
    for name, speed in speeds.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(speed, speeds["native"], strict=True))
        records = len(taken[name]) / sum(taken[name])
        print(f"{name:20} {sum(made[name]):7} {statistics.median(speed):9.1f} {records:10.2f} {ratio:18.3f}")


if __name__ == "__main__":
    main()
