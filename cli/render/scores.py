"""The output of `gen score`: scores as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...logprobs.events import PromptToken


def show_text_score(tokens: Sequence[PromptToken], show_tokens: bool) -> None:
    """Print the score of a text, after a table of the tokens with ``show_tokens``."""
    from ...logprobs.scores import Score
    from .table import print_table

    if show_tokens:
        rows = [(str(token.index), repr(token.chosen.text), *_numbers(token.chosen.logprob)) for token in tokens]
        print_table(["", "token", "logprob", "probability"], rows)
        print()
    score = Score.of(tokens)
    print(f"tokens         {score.tokens:,} scored of {len(tokens):,}")
    if score.per_token is not None:
        print(f"sum            {score.sum_logprob:.4f} nats")
        print(f"per token      {score.per_token:.4f} nats")
        print(f"perplexity     {score.perplexity:.4f}")
    if score.per_byte is not None:
        print(f"per byte       {score.per_byte:.4f} nats")
        print(f"bits per byte  {score.bits_per_byte:.4f}")


def show_choice_scores(choices: Sequence[dict[str, Any]]) -> None:
    """Print a table with a star at the most likely choice."""
    from .table import print_table

    best_choice = max(choices, key=lambda choice: choice["probability"] or 0.0)
    rows = []
    for choice in choices:
        probability = _number(choice["probability"])
        if choice is best_choice and choice["probability"] is not None:
            probability += " *"
        rows.append(
            (
                repr(choice["text"]),
                probability,
                _number(choice["sum_logprob"]),
                _number(choice["per_token"]),
                _number(choice["per_byte"]),
            )
        )
    print_table(["choice", "probability", "sum, nats", "per token", "per byte"], rows)


def write_text_score(tokens: Sequence[PromptToken], out: TextIO) -> None:
    from ...common.strict_json import json_line
    from ...logprobs.scores import text_score

    out.write(json_line(text_score(tokens)))


def write_score_lines(tokens: Iterable[PromptToken], model: Model, out: TextIO) -> list[PromptToken]:
    """Write a ``start`` line, a ``prompt`` line for each token, and a ``done`` line; return the tokens."""
    from ...common.strict_json import json_line
    from ...engine.generation import versions
    from ...logprobs.jsonl import token_fields
    from ...logprobs.scores import Score

    start = {
        "event": "start",
        "model": model.name,
        "context": model.context.length,
        "logprobs": {"from": "model", "top": 0, "unit": "nats"},
        "versions": versions(),
    }
    out.write(json_line(start))
    written = []
    for token in tokens:
        out.write(json_line({"event": "prompt", **token_fields(token)}))
        out.flush()
        written.append(token)
    out.write(json_line({"event": "done", **Score.of(written).as_json()}))
    out.flush()
    return written


def _numbers(logprob: float | None) -> tuple[str, str]:
    """Return a logprob and its probability."""
    if logprob is None:
        return "-", "-"
    return f"{logprob:.4f}", f"{exp(logprob):.4f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
