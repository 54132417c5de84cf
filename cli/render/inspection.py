"""A recorded run: tinted text, a table of tokens, and means."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ...logprobs import (
        LogprobSource,
        RecordedDistribution,
        RecordedDone,
        RecordedEvent,
        RecordedStart,
        RecordedTokenLine,
    )


@dataclass(frozen=True)
class _InspectedToken:
    """A token, and the distribution that is shown of it; None if the run has none."""

    line: RecordedTokenLine
    distribution: RecordedDistribution | None


@dataclass
class _InspectedRun:
    start: RecordedStart | None = None
    done: RecordedDone | None = None
    tokens: list[_InspectedToken] = field(default_factory=list)


def show(
    events: Iterable[RecordedEvent], top: int | None, source: LogprobSource | None, is_colored: bool | None = None
) -> bool:
    """Print tokens as they are read, then a table of them, then the means.

    Args:
        events: a recorded run.
        top: alternatives of each token in the table; None: no table.
        source: the distribution to show if the run has two; None: the first.
        is_colored: whether the text is tinted; None: on a terminal, unless NO_COLOR is set.

    Returns whether the run has an event.
    """
    from ..errors import note

    run = _InspectedRun()
    try:
        _print_text(events, source, run, _console(is_colored))
    finally:
        if run.tokens:
            print("\n")
    if top is not None:
        _print_table(run.tokens, top)
    if source is not None and run.tokens and all(token.distribution is None for token in run.tokens):
        note(f"this run has no logprobs of the {source}")
    if run.start is None and run.done is None and not run.tokens:
        return False
    _print_means(run, source)
    return True


def _console(is_colored: bool | None) -> Console:
    from rich.console import Console

    if is_colored is None:
        return Console(highlight=False, soft_wrap=True)
    if not is_colored:
        return Console(highlight=False, soft_wrap=True, color_system=None)
    return Console(highlight=False, soft_wrap=True, force_terminal=True, color_system="truecolor", no_color=False)


def _print_text(
    events: Iterable[RecordedEvent], source: LogprobSource | None, run: _InspectedRun, console: Console
) -> None:
    """Print each token and add it to ``run``, so that a broken run is shown as far as it goes."""
    from ...logprobs import RecordedDone, RecordedStart, RecordedTokenLine

    for event in events:
        if isinstance(event, RecordedStart):
            run.start = event
        elif isinstance(event, RecordedDone):
            run.done = event
        elif isinstance(event, RecordedTokenLine):
            token = _InspectedToken(event, event.distribution(source or event.logprobs_from or "model"))
            run.tokens.append(token)
            console.print(_tinted_text(token), end="")
            sys.stdout.flush()


def _tinted_text(token: _InspectedToken) -> Text:
    """The token on a background from red (improbable) over yellow to green (certain)."""
    from rich.text import Text

    from .text import visible

    text = visible(token.line.text)
    logprob = None if token.distribution is None else token.distribution.logprob
    if logprob is None:
        return Text(text, style="dim" if token.line.event == "prompt" else "")
    probability = min(exp(logprob), 1.0)
    red = 255 if probability < 0.5 else round(255 * 2 * (1 - probability))
    green = 255 if probability > 0.5 else round(255 * 2 * probability)
    return Text(text, style=f"black on rgb({(red + 160) // 2},{(green + 160) // 2},120)")


def _print_table(tokens: Sequence[_InspectedToken], top: int) -> None:
    from .tables import table

    rows = []
    for number, token in enumerate(tokens):
        distribution = token.distribution
        logprob = None if distribution is None else distribution.logprob
        entropy = None if distribution is None else distribution.entropy
        alternatives = [] if distribution is None else distribution.top_logprobs[:top]
        rows.append(
            (
                str(number),
                _quoted_token(token.line.data),
                "-" if logprob is None else f"{exp(logprob):.4f}",
                "-" if logprob is None else f"{abs(logprob):.3f}",
                "-" if entropy is None else f"{entropy:.3f}",
                "  ".join(
                    f"{_quoted_token(other.data)} {exp(other.logprob):.3f}"
                    for other in alternatives
                    if other.logprob is not None
                ),
            )
        )
    table(("", "token", "probability", "surprise", "entropy", "alternatives" if top else ""), rows)
    print()


def _quoted_token(data: list[int]) -> str:
    from ...logprobs import display_text

    return repr(display_text(bytes(data)))


def _print_means(run: _InspectedRun, source: LogprobSource | None) -> None:
    """Print a line on the run, then the mean surprise and entropy of the prompt and of the new tokens."""
    from ...logprobs import MeanSurprise
    from .text import visible

    ending = "cut off" if run.done is None else run.done.finish_reason or "whole"
    origin = ""
    if run.start is not None:
        origin = f", {run.start.model}" + ("" if run.start.seed is None else f", seed {run.start.seed}")
    known_tokens = [token for token in run.tokens if token.distribution is not None]
    sources = {token.line.logprobs_from for token in known_tokens if token.line.logprobs_from}
    logprobs_of = f", logprobs of the {source or '/'.join(sorted(sources))}" if sources else ""
    print(visible(f"{len(run.tokens):,} tokens ({ending}){origin}{logprobs_of}"))
    for event, title in (("prompt", "prompt"), ("token", "written")):
        distributions = [
            token.distribution
            for token in run.tokens
            if token.distribution is not None and token.line.event == event
        ]
        surprise = MeanSurprise.of([-item.logprob for item in distributions if item.logprob is not None])
        entropy = MeanSurprise.of([item.entropy for item in distributions if item.entropy is not None])
        if surprise is not None:
            print(
                f"{title:8}  surprise  {surprise.nats:.3f} nats ({surprise.bits:.3f} bits), "
                f"perplexity {surprise.perplexity:.3f}"
            )
        if entropy is not None:
            print(f"{title:8}  entropy   {entropy.nats:.3f} nats ({entropy.bits:.3f} bits)")
