"""Output of a recovery: a file, JSONL, or a short table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from math import exp, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.text import count_noun
from ..messages import print_message, print_note

if TYPE_CHECKING:
    from ...recover.cost import CallEstimate
    from ...recover.results import Recovery
    from ...recover.verification import Verification

_TABLE_ROWS = 10  # number of tokens in the table, enough to see whether the recovery is right


def write(recovery: Recovery, output: Path | None, run_info: Mapping[str, Any]) -> None:
    """Write a recovery to a file whose ending determines the format, as JSONL to ``-``, or as a table for None."""
    # The table has the most likely tokens. ``run_info`` is written with the result: endpoint, prompt and request.
    from ...recover.results import recovery_lines, save_recovery

    if output is None:
        _print_table(recovery)
    elif str(output) == "-":
        for line in recovery_lines(recovery, run_info):
            sys.stdout.write(line)
    else:
        save_recovery(recovery, output, run_info)
        print_message(f"gen: {output}: {count_noun(len(recovery.ids), 'logprob')}")


def _print_table(recovery: Recovery) -> None:
    from .table import print_table

    rows = []
    for token in recovery.top_tokens(_TABLE_ROWS):
        logprob = token.logprob or 0.0
        row = [str(token.id), repr(token.text) if token.data else "-", f"{logprob:.6f}"]
        if recovery.is_normalized:  # a logprob relative to the most likely token gives no probability
            row.append(f"{exp(logprob):.6f}")
        row.append(f"{float(recovery.errors[token.id]):.1e}")
        rows.append(row)
    titles = ["id", "token", "logprob", "probability", "error"]
    if not recovery.is_normalized:
        titles = ["id", "token", "relative logprob", "error"]
    print_table(titles, rows)


def summary(recovery: Recovery) -> None:
    """Print notes, method, calls and errors on stderr."""
    for text in recovery.notes:
        print_note(text)
    calls = count_noun(recovery.total_calls, "call")
    if recovery.new_calls != recovery.total_calls:
        calls += f", {recovery.total_calls - recovery.new_calls:,} of them from the checkpoint"
    error = "" if isnan(recovery.max_error_nats) else f", errors up to about {recovery.max_error_nats:.1e} nats"
    relative_note = "" if recovery.is_normalized else ", relative to the most likely token"
    print_message(f"gen: {recovery.method}: {calls}{error}{relative_note}")


def show_verification(verification: Verification) -> None:
    """Print the largest difference between the two measurements on stderr."""
    largest = ""
    if verification.worst_token is not None:
        largest = (
            f": largest difference {verification.max_difference_nats:.1e} nats (token {verification.worst_token})"
        )
    print_message(
        f"gen: verified {count_noun(verification.compared_token_count, 'token')} by {verification.method}, "
        f"{count_noun(verification.total_calls, 'call')}{largest}"
    )


def show_plan(
    estimates: Sequence[CallEstimate], prompt_tokens: int, is_guessed: bool, price: tuple[float, float] | None
) -> None:
    """Print calls, tokens and cost of each method, in the order in which ``auto`` tries them."""
    # ``is_guessed``: whether ``prompt_tokens``, which each call reads, is a guess. ``price``: dollars per million
    # tokens, read and written; None: no cost is printed.
    from .table import print_table

    rows = []
    for estimate in estimates:
        about = "about " if estimate.is_approximate else ""
        row = [
            estimate.method,
            f"{about}{estimate.calls:,}",
            f"{about}{estimate.billed_token_count(prompt_tokens):,}",
        ]
        if price is not None:
            row.append(f"{about}${estimate.price(prompt_tokens, *price):,.4f}")
        rows.append(tuple(row))
    print_table(["method", "calls", "tokens billed", *(["cost"] if price is not None else [])], rows)
    prompt = count_noun(prompt_tokens, "token")
    print(f"\nthe prompt has {'about ' if is_guessed else ''}{prompt}; each call generates one")
    if len(estimates) > 1:
        print("auto uses the first of these methods that works on the endpoint; no token was requested")
