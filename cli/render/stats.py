"""The statistics of `--stats`: speeds and counts of a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import exp
from typing import TYPE_CHECKING

from ...common.text import count_noun
from ...logprobs.confidence import join_confidences
from ..text import terminal_safe

if TYPE_CHECKING:
    from ...logprobs.events import Done


def show_stats(done: Done, model_name: str, device: str, seed: int) -> None:
    """Print speeds and counts of a run to stderr."""
    times = done.timings
    token_count = done.completion_tokens
    chain_share = times.chain / times.generation if times.generation else 0.0
    chain_us = times.chain / token_count * 1e6 if token_count else 0.0  # µs per token
    finish = done.finish_reason if done.stop is None else f"{done.finish_reason} at {done.stop!r}"
    lines = [
        *model_lines(model_name, device),
        speed_line("prompt", done.prompt_tokens, times.prompt),
        speed_line("generation", token_count, times.generation),
        f"chain       {chain_us:6,.0f} µs per token, {chain_share:.1%} of the generation",
        *_grammar(done),
        *draft_lines([done]),
        *_context_shifts(done),
        *_discarded(done),
        *confidence_lines([done]),
        *_fields(done),
        f"finish      {finish}, seed {seed}",
    ]
    print("\n".join(lines), file=sys.stderr)


def model_lines(model_name: str, device: str) -> list[str]:
    """Return a line with the model, and one that says where it is computed."""
    return [terminal_safe(line, sys.stderr) for line in (f"model       {model_name}", f"device      {device}")]


def _grammar(done: Done) -> list[str]:
    if done.complete is None:
        return []
    grammar_us = done.timings.grammar / done.completion_tokens * 1e6 if done.completion_tokens else 0.0
    completeness = "complete" if done.complete else "not complete"
    forced = f"{done.forced_tokens} of {count_noun(done.completion_tokens, 'token')} forced"
    return [f"grammar     {grammar_us:6,.0f} µs per token, {forced}, {completeness}"]


def confidence_lines(dones: Sequence[Done]) -> list[str]:
    """Return a line with the confidence of several texts together; none if no token of them was drawn."""
    confidence = join_confidences(done.confidence for done in dones)
    if confidence is None:
        return []
    return [
        f"confidence  perplexity {confidence.perplexity:.4g}, logprobs: mean {confidence.mean_logprob:.4f}, lowest"
        f" {confidence.min_logprob:.4f}"
    ]


def _fields(done: Done) -> list[str]:
    """Return a line with the probability of each value of a JSON answer, if it was measured."""
    lines = (
        f"field       {exp(field.logprob):.4g} {pointer}, {count_noun(field.token_count, 'token')},"
        f" {field.forced_count} forced"
        for pointer, field in (done.fields or {}).items()
    )
    return [terminal_safe(line, sys.stderr) for line in lines]


def draft_lines(dones: Sequence[Done]) -> list[str]:
    """Return a line with the counts of drafts in several texts; none if no text had drafts."""
    drafted_counts = [done.drafted_tokens for done in dones if done.drafted_tokens is not None]
    if not drafted_counts:
        return []
    return [draft_line(sum(drafted_counts), sum(done.accepted_tokens or 0 for done in dones))]


def draft_line(drafted: int, accepted: int) -> str:
    share = f", {accepted / drafted:.0%}" if drafted else ""
    return f"drafts      {_tokens(drafted).rstrip()} drafted, {accepted:,} accepted{share}"


def _context_shifts(done: Done) -> list[str]:
    if done.context_shifts is None:
        return []
    if done.context_shifts == 0:
        return ["context     never full"]
    times = "once" if done.context_shifts == 1 else f"{done.context_shifts:,} times"
    return [f"context     full {times}: older tokens discarded"]


def _discarded(done: Done) -> list[str]:
    if not done.discarded_tokens:
        return []
    return [f"went back   {_tokens(done.discarded_tokens).rstrip()} dropped"]


def speed_line(title: str, token_count: int, seconds: float) -> str:
    return f"{title:10}  {_tokens(token_count)}  {_rate(token_count, seconds)}"


def _tokens(count: int) -> str:
    """Return the number with its noun, padded so that all numbers have the same width."""
    return f"{count:6,} {'token ' if count == 1 else 'tokens'}"


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:8,.1f} tokens/s" if seconds > 0 else "       -"
