"""Recoveries: as files, as JSONL, and as a few lines for people."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import exp, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import note, say

if TYPE_CHECKING:
    from ...recover import CallEstimate, Recovery, Verification

_SHOWN = 10


def write(found: Recovery, output: Path | None, about: Mapping[str, Any]) -> None:
    """Write to a file by its ending, as JSONL to stdout (-), or print the likeliest tokens (None)."""
    from ...recover import recovery_lines, save_recovery

    if output is None:
        _table(found)
    elif str(output) == "-":
        for line in recovery_lines(found, about):
            sys.stdout.write(line)
    else:
        save_recovery(found, output, about)
        known = int((found.logprobs == found.logprobs).sum())
        say(f"gen: {output}: {known:,} logprobs")


def _table(found: Recovery) -> None:
    from ...recover import likeliest_tokens
    from .tables import table

    rows = []
    for token in likeliest_tokens(found, _SHOWN):
        value = token.logprob or 0.0
        shown = repr(token.text) if token.data else "-"
        # What is relative to the likeliest token is no probability.
        probability = (f"{exp(value):.6f}",) if found.normalised else ()
        rows.append((str(token.id), shown, f"{value:.6f}", *probability, f"{float(found.errors[token.id]):.1e}"))
    heads = ("logprob", "probability") if found.normalised else ("relative logprob",)
    table(("id", "token", *heads, "error"), rows)


def summary(found: Recovery) -> None:
    """What was found out and what it took, on stderr."""
    for text in found.notes:
        note(text)
    calls = f"{found.queries:,} calls"
    if found.sent != found.queries:
        calls += f", {found.queries - found.sent:,} of them from the checkpoint"
    error = "" if isnan(found.error) else f", errors up to about {found.error:.1e} nats"
    relative = "" if found.normalised else ", relative to the likeliest token"
    say(f"gen: {found.method}: {calls}{error}{relative}")


def show_verification(found: Verification) -> None:
    """Say how far a second look was from the first."""
    largest = "" if found.token is None else f": largest difference {found.largest:.1e} nats (token {found.token})"
    say(f"gen: verified {found.tokens:,} tokens by {found.method}, {found.queries:,} calls{largest}")


def show_plan(
    estimates: Sequence[CallEstimate], prompt_tokens: int, guessed: bool, price: tuple[float, float] | None
) -> None:
    """Print calls, tokens and cost of each method, in the order in which auto would take them."""
    from .tables import table

    rows = []
    for one in estimates:
        sign = "about " if one.about else ""
        row = [one.method, f"{sign}{one.calls:,}", f"{sign}{one.billed(prompt_tokens):,}"]
        if price is not None:
            cost = (one.calls * prompt_tokens * price[0] + one.calls * price[1]) / 1e6
            row.append(f"{sign}${cost:,.4f}")
        rows.append(tuple(row))
    heads = ("method", "calls", "tokens billed", *(("cost",) if price is not None else ()))
    table(heads, rows)
    print(f"\nthe prompt has {'about ' if guessed else ''}{prompt_tokens:,} tokens; each call writes one")
    if len(estimates) > 1:
        print("auto takes the first of these that the endpoint allows; no token was asked for")
