"""Writing with guesses from the text so far against writing without.

python -m benchmarks.lookup [--tokens 120] [--seeds 5] [PROMPT ...]

The same prompts, presets and seeds run with and without `lookup`, in turns. The table has the speed ratio (tokens
per second with `lookup` over those without, the median and the quartiles over the seeds), how many tokens were
guessed, the share of these that was right, how many runs gave the same tokens as without, and after how many
tokens of prompt and answer the first of the others differed: beyond 256 tokens llama.cpp computes a single token
with a different kernel. At the end, what a batch of so many tokens costs, in tokens that are read one by one.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from logitsmith.engine import Done, Model, Start, Token, format_chat, generate, locate
from logitsmith.grammars import Constraint, compile_grammar
from logitsmith.samplers import build

from .quartiles import quartiles

_CODE = """class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def add(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def sub(self, other):
        return Point(self.x - other.x, self.y - other.y)

    def mul("""
_ARTICLE = (
    "The lighthouse on the northern cape was built in 1874 and is 41 metres high. Its lamp can be seen from "
    "30 kilometres away. The keeper of the lighthouse lives in a small stone house beside the tower."
)
_RECORDS = """Users as JSON:
[{"name": "Ann Lee", "age": 31, "email": "ann@example.org", "city": "Oslo"},
 {"name": "Bob Ray", "age": 45, "email": "bob@example.org", "city": "Rome"},
 """
_FIELDS = {
    "name": {"type": "string", "maxLength": 30},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "email": {"type": "string", "maxLength": 30},
    "city": {"type": "string", "maxLength": 30},
}
_RECORD = {"type": "object", "properties": _FIELDS, "required": list(_FIELDS), "additionalProperties": False}
_SCHEMA = {"type": "array", "items": _RECORD, "minItems": 6, "maxItems": 6}
_ASKED = {
    "chat": "How do I look after a house plant?",
    "summary": f"Summarise this text in one sentence:\n\n{_ARTICLE}",
    "repetition": f"Repeat this text word for word:\n\n{_ARTICLE}",
}
"""Questions, which the model's chat template formats."""
_PLAIN = {
    "story": "Once upon a time, in a lighthouse by the sea, there lived",
    "code": _CODE,
    "JSON": _RECORDS,
    "JSON, schema": "Users as JSON: ",
}
_CHAINS = {"deterministic": "greedy", "default": "top-k40 > top-p0.95 > min-p0.05 > temp0.8"}
_GUESSES = (4, 8, 16)
_BATCHES = (2, 3, 4, 5, 8, 12, 16)


class _Run(NamedTuple):
    """What a run wrote, and how fast."""

    prompt_tokens: int
    tokens: list[int]
    done: Done

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.done.timings.generation


def main() -> None:
    """Measure and print."""
    names = (*_PLAIN, *_ASKED)
    parser = argparse.ArgumentParser(description="prompt lookup against none")
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help=f"{', '.join(names)} [all]")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    with Model.load(locate()[0], n_ctx=1024) as model:
        print(f"{model.name}, {model.threads} threads, {options.tokens} tokens, {options.seeds} seeds")
        print(f"{'prompt':14} {'preset':14} {'lookup':>6} {'tokens/s':>8} {'quartiles':>14}", end="")
        print(f" {'guessed':>8} {'right':>6} {'same runs':>10} {'differs after':>14}")
        for name in options.prompts or names:
            for preset in _CHAINS:
                _compare(model, name, preset, options)
        print("\ncost of a batch, in single tokens:", _batch_costs(model))


def _compare(model: Model, name: str, preset: str, options: argparse.Namespace) -> None:
    """Measure a prompt with a preset, and print a line for each length of guesses."""
    write = _writer(model, name, preset, options.tokens)
    runs: dict[int, list[_Run]] = {most: [] for most in (0, *_GUESSES)}
    write(0, 1)  # the warm-up
    for seed in range(1, options.seeds + 1):
        for most in list(runs) if seed % 2 else reversed(runs):
            runs[most].append(write(most, seed))
    plain = runs[0]
    for most in _GUESSES:
        pairs = list(zip(runs[most], plain, strict=True))
        low, middle, high = quartiles([run.speed / other.speed for run, other in pairs])
        guessed, right = (
            sum(getattr(run.done, field) for run in runs[most]) for field in ("drafted_tokens", "accepted_tokens")
        )
        share = f"{right / guessed:.0%}" if guessed else "-"
        places = [place for run, other in pairs if (place := _first_difference(run, other)) is not None]
        print(
            f"{name:14} {preset:14} {most:6} {middle:8.2f} {f'{low:.2f} to {high:.2f}':>14} {guessed:8} {share:>6}"
            f" {f'{len(pairs) - len(places)} of {len(pairs)}':>10} {min(places, default='-'):>14}",
            flush=True,
        )


def _writer(model: Model, name: str, preset: str, count: int) -> Callable[[int, int], _Run]:
    """What writes a text, with this length of guesses and this seed."""
    asked = _ASKED.get(name)
    prompt = _PLAIN[name] if asked is None else format_chat(model, [{"role": "user", "content": asked}])
    has_schema = name == "JSON, schema"
    grammar = compile_grammar(json.dumps(_SCHEMA), model.vocabulary, kind="json_schema") if has_schema else None

    def write(most: int, seed: int) -> _Run:
        tokens, prompt_tokens = [], 0
        chain = build(_CHAINS[preset], seed=seed, vocab=model.vocabulary)
        constraint: Constraint | None = None if grammar is None else grammar.start()
        for event in generate(model, prompt, chain, constraint, max_tokens=count, lookup=most):
            if isinstance(event, Start):
                prompt_tokens = event.prompt_tokens
            elif isinstance(event, Token):
                tokens.append(event.id)
            elif isinstance(event, Done):
                return _Run(prompt_tokens, tokens, event)
        raise RuntimeError("the run ended without a Done event")

    return write


def _first_difference(run: _Run, other: _Run) -> int | None:
    """How many tokens of prompt and answer are equal before the first that differs; None without one."""
    if run.tokens == other.tokens:
        return None
    pairs = enumerate(zip(run.tokens, other.tokens, strict=False))
    shorter = min(len(run.tokens), len(other.tokens))
    return run.prompt_tokens + next((place for place, (one, two) in pairs if one != two), shorter)


def _batch_costs(model: Model) -> str:
    """The time of a batch with all its logits, divided by that of one token, for several numbers of tokens."""
    context = model.context
    context.read(model.vocabulary.tokenize_prompt(_CODE.encode()))
    length, times = len(context.tokens), {count: list[float]() for count in (1, *_BATCHES)}
    token = context.tokens[-1]
    for _ in range(15):
        for count, taken in times.items():
            began = perf_counter()
            context.append_batch([token] * count)
            taken.append(perf_counter() - began)
            context.truncate(length)
    single = statistics.median(times[1])
    return ", ".join(f"{count}: {statistics.median(times[count]) / single:.2f}" for count in _BATCHES)


if __name__ == "__main__":
    main()
