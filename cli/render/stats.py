"""The speeds and counts that `--stats` prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...engine import Done


def show(done: Done, seed: int) -> None:
    """Print speeds and counts to stderr."""
    times = done.timings
    tokens = done.completion_tokens
    chain_share = times.chain / times.generation if times.generation else 0.0
    chain_us = times.chain / tokens * 1e6 if tokens else 0.0
    lines = [
        f"prompt      {done.prompt_tokens:6,} tokens  {_rate(done.prompt_tokens, times.prompt)}",
        f"generation  {tokens:6,} tokens  {_rate(tokens, times.generation)}",
        f"chain       {chain_us:6,.0f} µs a token, {chain_share:.1%} of the generation",
        *_grammar(done),
        *_lookup(done),
        f"finish      {done.finish_reason}{f' at {done.stop!r}' if done.stop is not None else ''}, seed {seed}",
    ]
    print("\n" + "\n".join(lines), file=sys.stderr)


def _grammar(done: Done) -> list[str]:
    if done.complete is None:
        return []
    grammar_us = done.timings.grammar / done.completion_tokens * 1e6 if done.completion_tokens else 0.0
    completeness = "complete" if done.complete else "not complete"
    forced = f"{done.forced_tokens} of {done.completion_tokens} tokens forced"
    return [f"grammar     {grammar_us:6,.0f} µs a token, {forced}, {completeness}"]


def _lookup(done: Done) -> list[str]:
    if done.drafted_tokens is None or done.accepted_tokens is None:
        return []
    share = f", {done.accepted_tokens / done.drafted_tokens:.0%}" if done.drafted_tokens else ""
    return [f"lookup      {done.drafted_tokens:6,} tokens guessed, {done.accepted_tokens:,} right{share}"]


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"
