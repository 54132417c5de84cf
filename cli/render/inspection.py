"""A recorded run: its text, tinted by probability, and what is below: a table, the most surprising tokens, means.

The text is printed as the run is read, so that a run can be watched while it is written.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import exp, sqrt
from typing import TYPE_CHECKING

from ...common.text import count_noun
from ..messages import print_note
from .run import visible
from .tables import print_table, print_wrapped
from .trace import token_label

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ...logprobs.recorded import (
        RecordedDistribution,
        RecordedDone,
        RecordedEvent,
        RecordedStart,
        RecordedTokenLine,
    )
    from ...logprobs.records import LogprobSource

_FALLEN_MARK = "▾"
"""Behind a token for which a step other than the draw decided: it dropped the likeliest one."""


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
            print_note(f"this run has no logprobs of the {self._source}")
        _print_surprises(run.tokens)
        _print_fallen(run.tokens)
        _print_means(run, self._source)

    def _print_text(self, events: Iterable[RecordedEvent], run: _InspectedRun, name: str | None) -> None:
        """Print each token and add it to ``run``, so that a broken run is shown as far as it goes."""
        from ...logprobs.recorded import RecordedDone, RecordedStart, RecordedTokenLine

        numbers = {"prompt": count(), "token": count()}
        for position, event in enumerate(events):
            if isinstance(event, RecordedStart):
                run.start = event
            if position == 0:
                self._print_heading(run_heading(name, None if run.start is None else run.start.id))
            if isinstance(event, RecordedDone):
                run.done = event
            elif isinstance(event, RecordedTokenLine):
                source = self._source or event.logprobs_from or "model"
                number = next(numbers[event.event])
                token = _InspectedToken(event, number, event.distribution(source), _fallen_stage(event))
                run.tokens.append(token)
                self._console.print(_tinted_text(token), end="")
                sys.stdout.flush()

    def _print_heading(self, heading: str | None) -> None:
        """Print the heading of a run, if it has one, apart from the run before."""
        if not self._is_first:
            print()
        if heading is not None:
            print(heading)
        self._is_first = False


def run_heading(file: str | None, request: str | None) -> str | None:
    """A heading of a run, as `head` writes it above a file; None for the only run of a file without requests.

    ``file``: its name, None if there is only one; ``request``: the id of the request that the run answers.
    """

    parts = [part for part in (file, request) if part is not None]
    return visible(f"==> {': '.join(parts)} <==") if parts else None


@dataclass
class _InspectedRun:
    """A run: its first and its last line, if they are there, and its tokens."""

    start: RecordedStart | None = None
    done: RecordedDone | None = None
    tokens: list[_InspectedToken] = field(default_factory=list)


@dataclass(frozen=True)
class _InspectedToken:
    """A token, and the distribution that is shown of it; None if the run has none.

    ``number``: counted from 0, in the prompt or among the tokens that were written. ``fallen``: the stage that
    dropped the likeliest token; None if that one could be drawn, or without a trace.
    """

    line: RecordedTokenLine
    number: int
    distribution: RecordedDistribution | None
    fallen: str | None

    @property
    def data(self) -> bytes:
        """The token's bytes."""
        return bytes(self.line.data)

    @property
    def place(self) -> str:
        """What ``--token`` takes for it; a token of the prompt says so."""
        return f"prompt {self.number}" if self.line.event == "prompt" else str(self.number)

    @property
    def logprob(self) -> float | None:
        """The token's logprob in nats."""
        return None if self.distribution is None else self.distribution.logprob


def _fallen_stage(line: RecordedTokenLine) -> str | None:
    """The stage that dropped the likeliest token; None if that one could be drawn, or without a trace."""
    fallen = None if line.trace is None else line.trace.dropped_top_candidate()
    if line.trace is None or fallen is None or fallen.dropped_by is None:
        return None
    return line.trace.stages[fallen.dropped_by].name


def _console(is_colored: bool | None) -> Console:
    from .console import OutputConsole

    if is_colored is None:
        return OutputConsole(highlight=False, soft_wrap=True)
    if not is_colored:
        return OutputConsole(highlight=False, soft_wrap=True, color_system=None)
    return OutputConsole(
        highlight=False, soft_wrap=True, force_terminal=True, color_system="truecolor", no_color=False
    )


def _tinted_text(token: _InspectedToken) -> Text:
    """The token in the tint of its probability, with a mark if the likeliest one was dropped."""
    from rich.text import Text

    style = "dim" if token.line.event == "prompt" else ""
    if token.logprob is not None:
        style = _tint_style(min(exp(token.logprob), 1.0))
    return Text(visible(token.line.text), style=style).append(
        "" if token.fallen is None else _FALLEN_MARK, style="not underline"
    )


_LISTED_SURPRISES = 10


def _print_surprises(tokens: Sequence[_InspectedToken]) -> None:
    """List the ten tokens that were the least probable."""

    known = [(token.logprob, token) for token in tokens if token.logprob is not None]
    rows = []
    for logprob, token in sorted(known, key=lambda item: item[0])[:_LISTED_SURPRISES]:
        likeliest = "" if token.distribution is None else _likeliest_other(token.distribution, token.data)
        rows.append(
            (token.place, token_label(token.data), f"{exp(logprob):.4f}", f"{abs(logprob):.3f}", likeliest)
        )
    if rows:
        print_wrapped("most surprising", 0)
        print_table(("", "token", "probability", "surprise", "likeliest"), rows)
        print()


def _likeliest_other(distribution: RecordedDistribution, data: bytes) -> str:
    """The likeliest token with its probability, if it is recorded and another one."""

    first = max(distribution.top_logprobs, key=lambda other: other.logprob or 0.0, default=None)
    if first is None or bytes(first.data) == data or first.logprob is None:
        return ""
    return f"{token_label(bytes(first.data))} {exp(first.logprob):.4f}"


def _print_fallen(tokens: Sequence[_InspectedToken]) -> None:
    """Say how often each stage dropped the likeliest token, which explains the marks."""

    stages = Counter(token.fallen for token in tokens if token.fallen is not None)
    if stages:
        counts = ", ".join(f"{name} {count}" for name, count in stages.most_common())
        total = count_noun(stages.total(), "token")
        print_wrapped(visible(f"{_FALLEN_MARK} {total} for which a step dropped the likeliest one: {counts}"), 2)


def _print_table(tokens: Sequence[_InspectedToken], top: int) -> None:
    """Print a row for each token, with ``top`` alternatives."""

    rows = []
    for token in tokens:
        distribution = token.distribution
        logprob = None if distribution is None else distribution.logprob
        entropy = None if distribution is None else distribution.entropy
        alternatives = [] if distribution is None else distribution.top_logprobs[:top]
        rows.append(
            (
                token.place,
                token_label(token.data),
                "-" if logprob is None else f"{exp(logprob):.4f}",
                "-" if logprob is None else f"{abs(logprob):.3f}",
                "-" if entropy is None else f"{entropy:.3f}",
                "  ".join(
                    f"{token_label(bytes(other.data))} {exp(other.logprob):.3f}"
                    for other in alternatives
                    if other.logprob is not None
                ),
            )
        )
    print_table(("", "token", "probability", "surprise", "entropy", "alternatives" if top else ""), rows)
    print()


_MEANS_INDENT = 20
"""Where the numbers of a mean begin."""


def _print_means(run: _InspectedRun, source: LogprobSource | None) -> None:
    """Print a line on the run, then the mean surprise and entropy of the prompt and of the new tokens."""
    from ...logprobs.scores import MeanSurprise

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


_TINTS = ((64, 18, 92), (52, 86, 140), (46, 144, 140), (112, 200, 104), (250, 232, 96))
"""The background at probabilities 0, 1/16, 1/4, 9/16 and 1: each is brighter than the one before.

So they differ also to those who cannot tell red from green. In between they go by the root of the probability,
since most tokens have a small one."""
_DARK_LUMINANCE = 0.18
"""White text has more contrast than black on a background that is darker."""
_LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)
_UNDERLINED, _BOLD = 0.05, 0.01
"""Tokens that are less probable are underlined, and bold: marks that need no colour."""


def _tint_style(probability: float) -> str:
    """The style of a token, as rich names it: a background from dark (improbable) to bright, and marks."""
    red, green, blue = color = _background(probability)
    luminance = sum(weight * (part / 255) ** 2.2 for weight, part in zip(_LUMINANCE_WEIGHTS, color, strict=True))
    styles = [
        "bold" if probability < _BOLD else "",
        "underline" if probability < _UNDERLINED else "",
        "bright_white" if luminance < _DARK_LUMINANCE else "black",
        f"on rgb({red},{green},{blue})",
    ]
    return " ".join(filter(None, styles))


def _background(probability: float) -> tuple[int, int, int]:
    position = sqrt(probability) * (len(_TINTS) - 1)
    lower = min(int(position), len(_TINTS) - 2)
    share = position - lower
    red, green, blue = (
        round(dark + (bright - dark) * share)
        for dark, bright in zip(_TINTS[lower], _TINTS[lower + 1], strict=True)
    )
    return red, green, blue
