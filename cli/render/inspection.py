"""A recorded run: its tinted text, and what stands below it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import count
from math import exp
from typing import TYPE_CHECKING

from ..errors import note
from .inspected_run import InspectedRun, InspectedToken, run_heading
from .run_lists import FALLEN_MARK, print_fallen, print_means, print_surprises, print_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ...logprobs.recorded import RecordedEvent, RecordedTokenLine
    from ...logprobs.records import LogprobSource


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
        run = InspectedRun()
        try:
            self._print_text(events, run, name)
        finally:
            if run.tokens:
                print("\n")
        if self._top is not None:
            print_table(run.tokens, self._top)
        if self._source is not None and run.tokens and all(token.distribution is None for token in run.tokens):
            note(f"this run has no logprobs of the {self._source}")
        print_surprises(run.tokens)
        print_fallen(run.tokens)
        print_means(run, self._source)

    def _print_text(self, events: Iterable[RecordedEvent], run: InspectedRun, name: str | None) -> None:
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
                token = InspectedToken(event, number, event.distribution(source), _fallen_stage(event))
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


def _fallen_stage(line: RecordedTokenLine) -> str | None:
    """The stage that dropped the likeliest token; None if that one could be drawn, or without a trace."""
    fallen = None if line.trace is None else line.trace.fallen_likeliest()
    if line.trace is None or fallen is None or fallen.dropped_by is None:
        return None
    return line.trace.stages[fallen.dropped_by].name


def _console(is_colored: bool | None) -> Console:
    from .output_console import OutputConsole

    if is_colored is None:
        return OutputConsole(highlight=False, soft_wrap=True)
    if not is_colored:
        return OutputConsole(highlight=False, soft_wrap=True, color_system=None)
    return OutputConsole(
        highlight=False, soft_wrap=True, force_terminal=True, color_system="truecolor", no_color=False
    )


def _tinted_text(token: InspectedToken) -> Text:
    """The token in the tint of its probability, with a mark if the likeliest one was dropped."""
    from rich.text import Text

    from .text import visible
    from .tints import tint_style

    style = "dim" if token.line.event == "prompt" else ""
    if token.logprob is not None:
        style = tint_style(min(exp(token.logprob), 1.0))
    return Text(visible(token.line.text), style=style).append(
        "" if token.fallen is None else FALLEN_MARK, style="not underline"
    )
