"""A recorded run: tinted text, a table of tokens, and means."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING

from ..errors import note

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


_MEANS_INDENT = 20
"""Where the numbers of a mean begin."""


_LISTED_SURPRISES = 10
_FALLEN_MARK = "▾"
"""Behind a token for which a step other than the draw decided: it dropped the likeliest one."""


@dataclass(frozen=True)
class _InspectedToken:
    """A token, and the distribution that is shown of it; None if the run has none.

    ``fallen``: the stage that dropped the likeliest token; None if that one could be drawn, or without a trace.
    """

    line: RecordedTokenLine
    distribution: RecordedDistribution | None
    fallen: str | None

    @property
    def logprob(self) -> float | None:
        """The token's logprob in nats."""
        return None if self.distribution is None else self.distribution.logprob


@dataclass
class _InspectedRun:
    start: RecordedStart | None = None
    done: RecordedDone | None = None
    tokens: list[_InspectedToken] = field(default_factory=list)


class RunPrinter:
    """Prints runs, one after the other."""

    def __init__(self, top: int | None, source: LogprobSource | None, is_colored: bool | None = None) -> None:
        """Take how runs are shown.

        Args:
            top: alternatives of each token in the table; None: no table.
            source: the distribution to show if the run has two; None: the first.
            is_colored: whether the text is tinted; None: on a terminal, unless NO_COLOR is set.
        """
        self._top = top
        self._source = source
        self._console = _console(is_colored)
        self._is_first = True

    def show(self, events: Iterable[RecordedEvent], name: str | None = None) -> None:
        """Print the tokens of a run as they are read, then a table of them, then what there is to know of all.

        ``name``: that of its file, if there are several.
        """
        run = _InspectedRun()
        try:
            self._print_text(events, run, name)
        finally:
            if run.tokens:
                print("\n")
        if self._top is not None:
            _print_table(run.tokens, self._top)
        if self._source is not None and run.tokens and all(token.distribution is None for token in run.tokens):
            note(f"this run has no logprobs of the {self._source}")
        _print_surprises(run.tokens)
        _print_fallen(run.tokens)
        _print_means(run, self._source)

    def _print_text(self, events: Iterable[RecordedEvent], run: _InspectedRun, name: str | None) -> None:
        """Print each token and add it to ``run``, so that a broken run is shown as far as it goes."""
        from ...logprobs import RecordedDone, RecordedStart, RecordedTokenLine

        for number, event in enumerate(events):
            if isinstance(event, RecordedStart):
                run.start = event
                name = ": ".join(part for part in (name, event.id) if part is not None) or None
            if number == 0:
                self._print_name(name)
            if isinstance(event, RecordedDone):
                run.done = event
            elif isinstance(event, RecordedTokenLine):
                source = self._source or event.logprobs_from or "model"
                token = _InspectedToken(event, event.distribution(source), _fallen_stage(event))
                run.tokens.append(token)
                self._console.print(_tinted_text(token), end="")
                sys.stdout.flush()

    def _print_name(self, name: str | None) -> None:
        """Print the name of a run, if it has one, as `head` does for files."""
        from .text import visible

        if not self._is_first:
            print()
        if name is not None:
            print(visible(f"==> {name} <=="))
        self._is_first = False


def _fallen_stage(line: RecordedTokenLine) -> str | None:
    """The stage that dropped the likeliest token; None if that one could be drawn, or without a trace."""
    fallen = None if line.trace is None else line.trace.fallen_likeliest()
    if line.trace is None or fallen is None or fallen.dropped_by is None:
        return None
    return line.trace.stages[fallen.dropped_by].name


def _console(is_colored: bool | None) -> Console:
    from rich.console import Console

    if is_colored is None:
        return Console(highlight=False, soft_wrap=True)
    if not is_colored:
        return Console(highlight=False, soft_wrap=True, color_system=None)
    return Console(highlight=False, soft_wrap=True, force_terminal=True, color_system="truecolor", no_color=False)


def _tinted_text(token: _InspectedToken) -> Text:
    """The token in the tint of its probability, with a mark if the likeliest one was dropped."""
    from rich.text import Text

    from .text import visible
    from .tints import tint_style

    style = "dim" if token.line.event == "prompt" else ""
    if token.logprob is not None:
        style = tint_style(min(exp(token.logprob), 1.0))
    return Text(visible(token.line.text), style=style).append(
        "" if token.fallen is None else _FALLEN_MARK, style="not underline"
    )


def _print_surprises(tokens: Sequence[_InspectedToken]) -> None:
    """List the ten tokens that were the least probable."""
    from .tables import print_wrapped, table

    numbered = [(token.logprob, number, token) for number, token in enumerate(tokens) if token.logprob is not None]
    rows = []
    for logprob, number, token in sorted(numbered, key=lambda item: item[0])[:_LISTED_SURPRISES]:
        likeliest = "" if token.distribution is None else _likeliest_other(token.distribution, token.line.data)
        rows.append(
            (str(number), _quoted_token(token.line.data), f"{exp(logprob):.4f}", f"{abs(logprob):.3f}", likeliest)
        )
    if rows:
        print_wrapped("most surprising", 0)
        table(("", "token", "probability", "surprise", "likeliest"), rows)
        print()


def _likeliest_other(distribution: RecordedDistribution, data: list[int]) -> str:
    """The likeliest token with its probability, if it is recorded and another one."""
    first = max(distribution.top_logprobs, key=lambda other: other.logprob or 0.0, default=None)
    if first is None or first.data == data or first.logprob is None:
        return ""
    return f"{_quoted_token(first.data)} {exp(first.logprob):.4f}"


def _print_fallen(tokens: Sequence[_InspectedToken]) -> None:
    """Say how often each stage dropped the likeliest token, which explains the marks."""
    from ...common import count_noun
    from .tables import print_wrapped
    from .text import visible

    stages = Counter(token.fallen for token in tokens if token.fallen is not None)
    if stages:
        counts = ", ".join(f"{name} {count}" for name, count in stages.most_common())
        total = count_noun(stages.total(), "token")
        print_wrapped(visible(f"{_FALLEN_MARK} {total} for which a step dropped the likeliest one: {counts}"), 2)


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
    from ...common import count_noun
    from ...logprobs import MeanSurprise
    from .tables import print_wrapped
    from .text import visible

    ending = "cut off" if run.done is None else run.done.finish_reason or "whole"
    origin = ""
    if run.start is not None:
        origin = f", {run.start.model}" + ("" if run.start.seed is None else f", seed {run.start.seed}")
    known_tokens = [token for token in run.tokens if token.distribution is not None]
    sources = {token.line.logprobs_from for token in known_tokens if token.line.logprobs_from}
    logprobs_of = f", logprobs of the {source or '/'.join(sorted(sources))}" if sources else ""
    print_wrapped(visible(f"{count_noun(len(run.tokens), 'token')} ({ending}){origin}{logprobs_of}"), 2)
    for event, title in (("prompt", "prompt"), ("token", "written")):
        distributions = [
            token.distribution
            for token in run.tokens
            if token.distribution is not None and token.line.event == event
        ]
        surprise = MeanSurprise.of([-item.logprob for item in distributions if item.logprob is not None])
        entropy = MeanSurprise.of([item.entropy for item in distributions if item.entropy is not None])
        if surprise is not None:
            print_wrapped(
                f"{title:8}  surprise  {surprise.nats:.3f} nats ({surprise.bits:.3f} bits), "
                f"perplexity {surprise.perplexity:.3f}",
                _MEANS_INDENT,
            )
        if entropy is not None:
            print(f"{title:8}  entropy   {entropy.nats:.3f} nats ({entropy.bits:.3f} bits)")
