"""A run that was read back: tinted text, a table of tokens, and means."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import exp
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

    from ...logprobs import (
        LogprobSource,
        RecordedDistribution,
        RecordedDone,
        RecordedEvent,
        RecordedStart,
        RecordedTokenLine,
    )

Found = list[tuple["RecordedTokenLine", "RecordedDistribution | None"]]


def show(events: Iterable[RecordedEvent], top: int | None, source: LogprobSource | None) -> bool:
    """Print tokens as they are read, then a table with ``top`` alternatives each (None: no table) and the means.

    ``source``: which distribution, where the stream has two; None: the first. Returns whether there was an event.
    """
    from rich.console import Console

    from ...logprobs import RecordedDone, RecordedStart, RecordedTokenLine
    from ..errors import note

    console = Console(highlight=False, soft_wrap=True)
    found: Found = []
    start: RecordedStart | None = None
    done: RecordedDone | None = None
    try:
        for event in events:
            if isinstance(event, RecordedStart):
                start = event
            elif isinstance(event, RecordedDone):
                done = event
            elif isinstance(event, RecordedTokenLine):
                known = event.known(source or event.logprobs_from or "model")
                found.append((event, known))
                console.print(_tinted(event, known), end="")
                sys.stdout.flush()
    finally:
        if found:
            print("\n")
    if top is not None:
        _table(found, top)
    if source is not None and found and all(known is None for _, known in found):
        note(f"this run has no logprobs of the {source}")
    if start is not None or done is not None or found:
        _means(found, start, done, source)
        return True
    return False


def _tinted(step: RecordedTokenLine, known: RecordedDistribution | None) -> Text:
    """The token on a ground from red, improbable, over yellow to green, certain."""
    from rich.text import Text

    from .text import visible

    text = visible(step.text)
    if known is None or known.logprob is None:
        return Text(text, style="dim" if step.event == "prompt" else "")
    probability = min(exp(known.logprob), 1.0)
    red = 255 if probability < 0.5 else round(255 * 2 * (1 - probability))
    green = 255 if probability > 0.5 else round(255 * 2 * probability)
    return Text(text, style=f"black on rgb({(red + 160) // 2},{(green + 160) // 2},120)")


def _table(found: Found, top: int) -> None:
    from .tables import table

    rows = []
    for number, (step, known) in enumerate(found):
        logprob = None if known is None else known.logprob
        others = [] if known is None else known.top_logprobs[:top]
        rows.append(
            (
                str(number),
                _named(step.data),
                "-" if logprob is None else f"{exp(logprob):.4f}",
                "-" if logprob is None else f"{abs(logprob):.3f}",
                "-" if known is None or known.entropy is None else f"{known.entropy:.3f}",
                "  ".join(f"{_named(o.data)} {exp(o.logprob):.3f}" for o in others if o.logprob is not None),
            )
        )
    table(("", "token", "probability", "surprise", "entropy", "alternatives" if top else ""), rows)
    print()


def _named(data: list[int]) -> str:
    from ...logprobs import display_text

    return repr(display_text(bytes(data)))


def _means(
    found: Found, start: RecordedStart | None, done: RecordedDone | None, source: LogprobSource | None
) -> None:
    from ...logprobs import MeanSurprise
    from .text import visible

    ended = "cut off" if done is None else done.finish_reason or "whole"
    who = "" if start is None else f", {start.model}" + ("" if start.seed is None else f", seed {start.seed}")
    sources = {step.logprobs_from for step, known in found if known is not None and step.logprobs_from}
    whose = f", logprobs of the {source or '/'.join(sorted(sources))}" if sources else ""
    print(visible(f"{len(found):,} tokens ({ended}){who}{whose}"))
    for event, title in (("prompt", "prompt"), ("token", "written")):
        known = [known for step, known in found if known is not None and step.event == event]
        surprises = [-one.logprob for one in known if one.logprob is not None]
        entropies = [one.entropy for one in known if one.entropy is not None]
        surprise, entropy = MeanSurprise.of(surprises), MeanSurprise.of(entropies)
        if surprise is not None:
            told = f"{surprise.nats:.3f} nats ({surprise.bits:.3f} bits), perplexity {surprise.perplexity:.3f}"
            print(f"{title:8}  surprise  {told}")
        if entropy is not None:
            print(f"{title:8}  entropy   {entropy.nats:.3f} nats ({entropy.bits:.3f} bits)")
