"""The speeds and counts that `--stats` prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ...common.text import count_noun

if TYPE_CHECKING:
    from ...logprobs.events import Done


def show(done: Done, model_name: str, seed: int) -> None:
    """Print the model's name, speeds and counts to stderr."""
    from .text import terminal_safe

    times = done.timings
    tokens = done.completion_tokens
    chain_share = times.chain / times.generation if times.generation else 0.0
    chain_us = times.chain / tokens * 1e6 if tokens else 0.0
    lines = [
        terminal_safe(f"model       {model_name}", sys.stderr),
        speed_line("prompt", done.prompt_tokens, times.prompt),
        speed_line("generation", tokens, times.generation),
        f"chain       {chain_us:6,.0f} µs a token, {chain_share:.1%} of the generation",
        *_grammar(done),
        *_lookup(done),
        *_context_shifts(done),
        f"finish      {done.finish_reason}{f' at {done.stop!r}' if done.stop is not None else ''}, seed {seed}",
    ]
    print("\n".join(lines), file=sys.stderr)


def speed_line(title: str, tokens: int, seconds: float) -> str:
    """A line on how many tokens there were, and how many of them a second."""
    return f"{title:10}  {_tokens(tokens)}  {_rate(tokens, seconds)}"


def _grammar(done: Done) -> list[str]:
    if done.complete is None:
        return []
    grammar_us = done.timings.grammar / done.completion_tokens * 1e6 if done.completion_tokens else 0.0
    completeness = "complete" if done.complete else "not complete"
    forced = f"{done.forced_tokens} of {count_noun(done.completion_tokens, 'token')} forced"
    return [f"grammar     {grammar_us:6,.0f} µs a token, {forced}, {completeness}"]


def _lookup(done: Done) -> list[str]:
    if done.drafted_tokens is None or done.accepted_tokens is None:
        return []
    share = f", {done.accepted_tokens / done.drafted_tokens:.0%}" if done.drafted_tokens else ""
    return [f"lookup      {_tokens(done.drafted_tokens).rstrip()} guessed, {done.accepted_tokens:,} right{share}"]


def _context_shifts(done: Done) -> list[str]:
    if done.context_shifts is None:
        return []
    times = "once" if done.context_shifts == 1 else f"{done.context_shifts:,} times"
    return [f"context     {f'full {times}: older tokens discarded' if done.context_shifts else 'never full'}"]


def _tokens(count: int) -> str:
    """The number with its noun, as wide for one token as for several."""
    return f"{count:6,} {'token ' if count == 1 else 'tokens'}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"
