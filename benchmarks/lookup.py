"""Generating with draft tokens from the text so far (`lookup`), compared with generating without.

python -m benchmarks.lookup [--tokens 120] [--seeds 5] [PROMPT ...]

The same prompts, presets and seeds run with and without `lookup`, in turns. The columns of the table:

- the speed ratio, tokens per second with `lookup` divided by those without: median and quartiles over the seeds
- the number of draft tokens, and the share of them that was accepted
- the number of runs that generated the same tokens as without `lookup`
- if a run differed, the number of equal tokens of prompt and answer before the first difference: beyond 256
  tokens, llama.cpp computes a single token with a different kernel

Below the table, the time of a batch of tokens is given as the number of tokens that could be decoded one by one.
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
_CHAT_PROMPTS = {
    "chat": "How do I look after a house plant?",
    "summary": f"Summarise this text in one sentence:\n\n{_ARTICLE}",
    "repetition": f"Repeat this text word for word:\n\n{_ARTICLE}",
}
"""Messages of a user, which the model's chat template formats."""
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
    """The outcome of a run: its tokens and their time."""

    prompt_tokens: int
    tokens: list[int]
    done: Done

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.done.timings.generation


def main() -> None:
    """Measure, and print the table."""
    names = (*_PLAIN, *_CHAT_PROMPTS)
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
    """Measure a prompt with a preset, and print a line for each draft length."""
    write = _writer(model, name, preset, options.tokens)
    runs: dict[int, list[_Run]] = {most: [] for most in (0, *_GUESSES)}
    write(0, 1)  # warms up
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
    """Return a function that generates a text with this draft length and this seed."""
    chat_prompt = _CHAT_PROMPTS.get(name)
    prompt = (
        _PLAIN[name] if chat_prompt is None else format_chat(model, [{"role": "user", "content": chat_prompt}])
    )
    has_schema = name == "JSON, schema"
    grammar = compile_grammar(json.dumps(_SCHEMA), model.vocabulary, kind="json_schema") if has_schema else None

    def write(max_draft_tokens: int, seed: int) -> _Run:
        tokens, prompt_tokens = [], 0
        chain = build(_CHAINS[preset], seed=seed, vocab=model.vocabulary)
        constraint: Constraint | None = None if grammar is None else grammar.start()
        for event in generate(model, prompt, chain, constraint, max_tokens=count, lookup=max_draft_tokens):
            if isinstance(event, Start):
                prompt_tokens = event.prompt_tokens
            elif isinstance(event, Token):
                tokens.append(event.id)
            elif isinstance(event, Done):
                return _Run(prompt_tokens, tokens, event)
        raise RuntimeError("the run ended without a Done event")

    return write


def _first_difference(run: _Run, other: _Run) -> int | None:
    """Return how many tokens of prompt and answer precede the first difference; None if the runs are equal."""
    if run.tokens == other.tokens:
        return None
    pairs = enumerate(zip(run.tokens, other.tokens, strict=False))
    shorter = min(len(run.tokens), len(other.tokens))
    return run.prompt_tokens + next((place for place, (one, two) in pairs if one != two), shorter)


def _batch_costs(model: Model) -> str:
    """Return, for several batch sizes, the time of a batch with all logits divided by the time of a token."""
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
