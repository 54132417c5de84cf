"""Runs with drafts and runs without, in turns: the prompts, the comparison, and the cost of a batch of tokens.

`benchmarks.lookup` and `benchmarks.drafts` print the same columns:

- the speed ratio, tokens per second with drafts divided by those without: median and quartiles over the seeds
- the number of draft tokens, and the share of them that was accepted
- the number of runs that generated the same tokens as without drafts
- if a run differed, the number of equal tokens of prompt and answer before the first difference: beyond 256
  tokens, llama.cpp computes a single token with a different kernel
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from logitsmith.engine import Done, Model, Start, Token, format_chat, generate
from logitsmith.engine.context import Context
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
CHAT_PROMPTS = {
    "chat": "How do I look after a house plant?",
    "summary": f"Summarise this text in one sentence:\n\n{_ARTICLE}",
    "repetition": f"Repeat this text word for word:\n\n{_ARTICLE}",
}
"""Messages of a user, which the model's chat template formats."""
PLAIN_PROMPTS = {
    "story": "Once upon a time, in a lighthouse by the sea, there lived",
    "code": _CODE,
    "JSON": _RECORDS,
    "JSON, schema": "Users as JSON: ",
}
CHAINS = {"deterministic": "greedy", "default": "top-k40 > top-p0.95 > min-p0.05 > temp0.8"}


class Run(NamedTuple):
    """The outcome of a run: its tokens and their time."""

    prompt_tokens: int
    tokens: list[int]
    done: Done

    @property
    def speed(self) -> float:
        """Tokens per second."""
        return len(self.tokens) / self.done.timings.generation


class Comparison(NamedTuple):
    """The outcome of runs with drafts, compared with the runs without.

    Attributes:
        ratios: the quartiles of the speed ratio.
        drafted: number of draft tokens.
        accepted: number of draft tokens that the chain drew, too.
        draft_count: number of tokens with drafts.
    """

    ratios: Sequence[float]
    drafted: int
    accepted: int


def print_header(title: str) -> None:
    """Print the titles of the columns. ``title``: the title of the column of variants."""
    print(f"{'prompt':14} {'preset':14} {title:>8} {'tokens/s':>8} {'quartiles':>14}", end="")
    print(f" {'drafted':>8} {'right':>6} {'same runs':>10} {'differs after':>14}")


def compare(  # noqa: PLR0913 - what a benchmark chooses
    model: Model,
    name: str,
    preset: str,
    variants: Mapping[str, Mapping[str, Any]],
    *,
    token_count: int,
    seed_count: int,
) -> dict[str, Comparison]:
    """Measure a prompt with a preset, and print a line for each variant.

    Args:
        model: The model.
        name: The prompt's name.
        preset: The name in `CHAINS`.
        variants: The arguments of `generate` for each way to draft.
        token_count: Number of tokens in a text.
        seed_count: Number of texts.
    """
    write = _writer(model, name, preset, token_count)
    arguments: dict[str, Mapping[str, Any]] = {"": {}, **variants}
    runs: dict[str, list[Run]] = {variant: [] for variant in arguments}
    for each in arguments.values():
        write(each, 1)  # warms up
    for seed in range(1, seed_count + 1):
        for variant in list(runs) if seed % 2 else reversed(runs):
            runs[variant].append(write(arguments[variant], seed))
    found = {}
    for variant in variants:
        pairs = list(zip(runs[variant], runs[""], strict=True))
        low, middle, high = quartiles([run.speed / other.speed for run, other in pairs])
        drafted, accepted = (
            sum(getattr(run.done, field) for run in runs[variant])
            for field in ("drafted_tokens", "accepted_tokens")
        )
        share = f"{accepted / drafted:.0%}" if drafted else "-"
        places = [place for run, other in pairs if (place := _first_difference(run, other)) is not None]
        print(
            f"{name:14} {preset:14} {variant:>8} {middle:8.2f} {f'{low:.2f} to {high:.2f}':>14}"
            f" {drafted:8} {share:>6} {f'{len(pairs) - len(places)} of {len(pairs)}':>10}"
            f" {min(places, default='-'):>14}",
            flush=True,
        )
        found[variant] = Comparison((low, middle, high), drafted, accepted)
    return found


def _writer(model: Model, name: str, preset: str, token_count: int) -> Callable[[Mapping[str, Any], int], Run]:
    """Return a function that generates a text with these arguments of `generate` and this seed."""
    chat_prompt = CHAT_PROMPTS.get(name)
    prompt = (
        PLAIN_PROMPTS[name]
        if chat_prompt is None
        else format_chat(model, [{"role": "user", "content": chat_prompt}])
    )
    has_schema = name == "JSON, schema"
    grammar = compile_grammar(json.dumps(_SCHEMA), model.vocabulary, kind="json_schema") if has_schema else None

    def write(arguments: Mapping[str, Any], seed: int) -> Run:
        tokens, prompt_tokens = [], 0
        chain = build(CHAINS[preset], seed=seed, vocab=model.vocabulary)
        constraint: Constraint | None = None if grammar is None else grammar.start()
        for event in generate(model, prompt, chain, constraint, max_tokens=token_count, **arguments):
            if isinstance(event, Start):
                prompt_tokens = event.prompt_tokens
            elif isinstance(event, Token):
                tokens.append(event.id)
            elif isinstance(event, Done):
                return Run(prompt_tokens, tokens, event)
        raise RuntimeError("the run ended without a Done event")

    return write


def _first_difference(run: Run, other: Run) -> int | None:
    """Return how many tokens of prompt and answer precede the first difference; None if the runs are equal."""
    if run.tokens == other.tokens:
        return None
    pairs = enumerate(zip(run.tokens, other.tokens, strict=False))
    shorter = min(len(run.tokens), len(other.tokens))
    return run.prompt_tokens + next((place for place, (one, two) in pairs if one != two), shorter)


def decode_seconds(context: Context, prompt: Sequence[int], counts: Sequence[int]) -> dict[int, float]:
    """Return the median time of batches of these numbers of tokens with all logits, measured in turns."""
    context.read(prompt)
    length, times = len(context.tokens), {count: list[float]() for count in counts}
    token = context.tokens[-1]
    for _ in range(15):
        for count, taken in times.items():
            began = perf_counter()
            context.append_batch([token] * count)
            taken.append(perf_counter() - began)
            context.truncate(length)
    return {count: statistics.median(taken) for count, taken in times.items()}
