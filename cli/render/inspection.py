"""The output of `gen inspect` for a recorded run: the text tinted by probability, tables of tokens, and means.

The text is printed while the run is read, so that a run can be watched while another process writes it.
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
from ..text import print_wrapped, visible
from .table import Column, print_table
from .trace import token_label

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ...logprobs.recorded import (
        RecordedDistribution,
        RecordedDone,
        RecordedEvent,
        RecordedRewind,
        RecordedStart,
        RecordedTokenLine,
    )
    from ...logprobs.records import LogprobSource

_DROPPED_MARK = "▾"  # the mark after a token that was chosen because a step dropped the most likely token


class RunPrinter:
    """A printer of recorded runs, one after the other."""

    def __init__(
        self, alternative_count: int | None, source: LogprobSource | None, is_colored: bool | None = None
    ) -> None:
        # ``alternative_count``: number of alternatives of each token in the table of all tokens; None: no table.
        # ``source``: the distribution to show if the run has two; None: the first one. ``is_colored``: whether the
        # text is tinted; None: on a terminal, unless NO_COLOR is set.
        self._alternative_count = alternative_count
        self._source = source
        self._console = _console(is_colored)
        self._is_first = True

    def show(self, events: Iterable[RecordedEvent], name: str | None = None) -> None:
        """Print the tokens of a run while they are read, then the tables and the means."""
        # ``name``: the file, for the heading; None if there is only one file.
        run = _InspectedRun()
        try:
            self._print_text(events, run, name)
        finally:
            if run.tokens:
                print("\n")
        if self._alternative_count is not None:
            _print_table(run.tokens, self._alternative_count)
        lacks_distributions = all(token.distribution is None for token in run.tokens)
        if self._source is not None and run.tokens and lacks_distributions:
            print_note(f"this run has no logprobs of the {self._source}")
        _print_surprises(run.tokens)
        _print_drop_counts(run.tokens)
        _print_rewinds(run.rewinds)
        _print_means(run, self._source)

    def _print_text(self, events: Iterable[RecordedEvent], run: _InspectedRun, name: str | None) -> None:
        """Print each token and add it to ``run``, so that a damaged run is shown up to the damaged line."""
        from ...logprobs.recorded import RecordedDone, RecordedRewind, RecordedStart, RecordedTokenLine

        counters = {"prompt": count(), "token": count()}
        for position, event in enumerate(events):
            if isinstance(event, RecordedStart):
                run.start = event
            is_first_event = position == 0
            if is_first_event:
                self._print_heading(run_heading(name, None if run.start is None else run.start.label))
            if isinstance(event, RecordedDone):
                run.done = event
            elif isinstance(event, RecordedRewind):
                run.rewinds.append(event)
            elif isinstance(event, RecordedTokenLine):
                source = self._source or event.logprobs_from or "model"
                number = next(counters[event.event])
                token = _InspectedToken(event, number, event.distribution(source), _dropping_stage(event))
                run.tokens.append(token)
                self._console.print(_tinted_text(token), end="")
                sys.stdout.flush()

    def _print_heading(self, heading: str | None) -> None:
        """Print the heading of a run, if there is one, with an empty line after the previous run."""
        if not self._is_first:
            print()
        if heading is not None:
            print(heading)
        self._is_first = False


def run_heading(file: str | None, request: str | None) -> str | None:
    """Return the heading of a run, in the format of the command `head`; None if no heading is needed."""
    # ``file`` is None if there is only one file, ``request`` if the run is not part of a batch.
    parts = [part for part in (file, request) if part is not None]
    return visible(f"==> {': '.join(parts)} <==") if parts else None


@dataclass
class _InspectedRun:
    """A recorded run, as far as it was read."""

    start: RecordedStart | None = None  # first line of the run; None if it is missing
    done: RecordedDone | None = None  # last line of the run; None if the run was cut off
    tokens: list[_InspectedToken] = field(default_factory=list)
    rewinds: list[RecordedRewind] = field(default_factory=list)  # the returns to earlier tokens


@dataclass(frozen=True)
class _InspectedToken:
    """A token of a recorded run."""

    line: RecordedTokenLine
    number: int  # in the prompt or in the text, counted from 0
    distribution: RecordedDistribution | None  # the one that is shown; None if the run has none
    # the stage that dropped the most likely token; None if no stage did, or without a trace
    dropping_stage: str | None

    @property
    def data(self) -> bytes:
        return bytes(self.line.data)

    @property
    def place(self) -> str:
        """The number of the token as ``--token`` accepts it; ``prompt N`` for a token of the prompt."""
        return f"prompt {self.number}" if self.line.event == "prompt" else str(self.number)

    @property
    def logprob(self) -> float | None:
        """The token's logprob in nats."""
        return None if self.distribution is None else self.distribution.logprob


def _dropping_stage(line: RecordedTokenLine) -> str | None:
    """Return the name of the stage that dropped the most likely token; None if there is none, or no trace."""
    if line.trace is None:
        return None
    candidate = line.trace.dropped_top_candidate()
    if candidate is None or candidate.dropped_by is None:
        return None
    return line.trace.stages[candidate.dropped_by].name


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
    """Return the token tinted by its probability, with a mark if the most likely token was dropped."""
    from rich.text import Text

    style = "dim" if token.line.event == "prompt" else ""
    if token.logprob is not None:
        style = _tint_style(min(exp(token.logprob), 1.0))
    return Text(visible(token.line.text), style=style).append(
        "" if token.dropping_stage is None else _DROPPED_MARK, style="not underline"
    )


_LISTED_SURPRISES = 10


def _print_surprises(tokens: Sequence[_InspectedToken]) -> None:
    logprobs_and_tokens = [(token.logprob, token) for token in tokens if token.logprob is not None]
    logprobs_and_tokens.sort(key=lambda logprob_and_token: logprob_and_token[0])
    rows = []
    for logprob, token in logprobs_and_tokens[:_LISTED_SURPRISES]:
        top = "" if token.distribution is None else _top_other_token(token.distribution, token.data)
        rows.append((token.place, token_label(token.data), f"{exp(logprob):.4f}", f"{abs(logprob):.3f}", top))
    if rows:
        print_wrapped("most surprising", 0)
        print_table(["", "token", "probability", "surprise", Column("most likely", is_text=True)], rows)
        print()


def _top_other_token(distribution: RecordedDistribution, data: bytes) -> str:
    """Return the most likely token and its probability; empty if that is the token ``data``, or not recorded."""
    top = max(distribution.top_logprobs, key=lambda other: other.logprob or 0.0, default=None)
    if top is None or bytes(top.data) == data or top.logprob is None:
        return ""
    return f"{token_label(bytes(top.data))} {exp(top.logprob):.4f}"


def _print_drop_counts(tokens: Sequence[_InspectedToken]) -> None:
    """Print how often each stage dropped the most likely token, which explains the marks in the text."""
    stages = Counter(token.dropping_stage for token in tokens if token.dropping_stage is not None)
    if stages:
        counts = ", ".join(f"{name} {count}" for name, count in stages.most_common())
        total = count_noun(stages.total(), "token")
        print_wrapped(
            visible(f"{_DROPPED_MARK} {total} for which a step dropped the most likely one: {counts}"), 2
        )


_MAX_SHOWN_REWINDS = 20


def _print_rewinds(rewinds: Sequence[RecordedRewind]) -> None:
    """Print where the run returned to an earlier token, and what it dropped there."""
    if not rewinds:
        return
    dropped_count = sum(len(rewind.dropped) for rewind in rewinds)
    times = "once" if len(rewinds) == 1 else f"{len(rewinds):,} times"
    print_wrapped(f"went back {times}, {count_noun(dropped_count, 'token')} dropped:", 2)
    for rewind in rewinds[:_MAX_SHOWN_REWINDS]:
        reason = "a loop" if rewind.ban is None else f"ban {rewind.ban!r}"
        print_wrapped(
            visible(f"  to token {rewind.index}: {reason}, attempt {rewind.attempt}, dropped {rewind.text!r}"), 4
        )
    if len(rewinds) > _MAX_SHOWN_REWINDS:
        print_wrapped(f"  and {len(rewinds) - _MAX_SHOWN_REWINDS:,} more", 4)


def _print_table(tokens: Sequence[_InspectedToken], alternative_count: int) -> None:
    rows = [_table_row(token, alternative_count) for token in tokens]
    last_column = Column("alternatives" if alternative_count else "", is_text=True)
    print_table(["", "token", "probability", "surprise", "entropy", last_column], rows)
    print()


def _table_row(token: _InspectedToken, alternative_count: int) -> tuple[str, ...]:
    distribution = token.distribution
    if distribution is None:
        return token.place, token_label(token.data), "-", "-", "-", ""
    logprob = distribution.logprob
    alternatives = [
        f"{token_label(bytes(other.data))} {exp(other.logprob):.3f}"
        for other in distribution.top_logprobs[:alternative_count]
        if other.logprob is not None
    ]
    return (
        token.place,
        token_label(token.data),
        "-" if logprob is None else f"{exp(logprob):.4f}",
        "-" if logprob is None else f"{abs(logprob):.3f}",
        "-" if distribution.entropy is None else f"{distribution.entropy:.3f}",
        "  ".join(alternatives),
    )


_MEANS_INDENT = 20  # columns before the numbers of a mean


def _print_means(run: _InspectedRun, source: LogprobSource | None) -> None:
    """Print how the run ended and its model, then mean surprise and entropy of the prompt and of the text."""
    from ...logprobs.scores import MeanSurprise

    ending = "cut off" if run.done is None else run.done.finish_reason or "complete"
    facts = [f"{count_noun(len(run.tokens), 'token')} ({ending})"]
    if run.start is not None:
        facts.append(str(run.start.model))
        if run.start.seed is not None:
            facts.append(f"seed {run.start.seed}")
    sources = {token.line.logprobs_from for token in run.tokens if token.distribution is not None}
    recorded_sources = sorted(each for each in sources if each)
    if recorded_sources:
        facts.append(f"logprobs of the {source or '/'.join(recorded_sources)}")
    print_wrapped(visible(", ".join(facts)), 2)
    for event, title in (("prompt", "prompt"), ("token", "written")):
        distributions = [
            token.distribution
            for token in run.tokens
            if token.distribution is not None and token.line.event == event
        ]
        surprise = MeanSurprise.of([-each.logprob for each in distributions if each.logprob is not None])
        entropy = MeanSurprise.of([each.entropy for each in distributions if each.entropy is not None])
        if surprise is not None:
            print_wrapped(
                f"{title:8}  surprise  {surprise.nats:.3f} nats ({surprise.bits:.3f} bits), "
                f"perplexity {surprise.perplexity:.3f}",
                _MEANS_INDENT,
            )
        if entropy is not None:
            print(f"{title:8}  entropy   {entropy.nats:.3f} nats ({entropy.bits:.3f} bits)")


# Background colors at the probabilities 0, 1/16, 1/4, 9/16 and 1, as red, green and blue. Each color is brighter
# than the one before, so that readers who are blind to red and green can distinguish them. Between these
# probabilities, the color is interpolated by the square root of the probability, because most tokens have a small
# probability.
_TINTS = ((64, 18, 92), (52, 86, 140), (46, 144, 140), (112, 200, 104), (250, 232, 96))
_DARK_LUMINANCE = 0.18  # luminance below which white text has more contrast than black text
_LUMINANCE_WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue
# Improbable tokens are underlined, and very improbable ones are also bold, for terminals without colors.
_MAX_UNDERLINED_PROBABILITY = 0.05
_MAX_BOLD_PROBABILITY = 0.01


def _tint_style(probability: float) -> str:
    """Return the style of a token for rich: a background from dark (improbable) to bright, and marks."""
    color = _background(probability)
    luminance = sum(weight * (part / 255) ** 2.2 for weight, part in zip(_LUMINANCE_WEIGHTS, color, strict=True))
    styles = []
    if probability < _MAX_BOLD_PROBABILITY:
        styles.append("bold")
    if probability < _MAX_UNDERLINED_PROBABILITY:
        styles.append("underline")
    styles.append("bright_white" if luminance < _DARK_LUMINANCE else "black")
    red, green, blue = color
    styles.append(f"on rgb({red},{green},{blue})")
    return " ".join(styles)


def _background(probability: float) -> tuple[int, int, int]:
    position = sqrt(probability) * (len(_TINTS) - 1)
    lower_index = min(int(position), len(_TINTS) - 2)
    share = position - lower_index
    red, green, blue = (
        round(dark + (bright - dark) * share)
        for dark, bright in zip(_TINTS[lower_index], _TINTS[lower_index + 1], strict=True)
    )
    return red, green, blue
