"""How far a batch is: a bar on a terminal, else a line now and then; on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

# Seconds between two lines, where there is no terminal.
_SILENCE = 30.0
# And between two looks of the bar.
_BLINK = 0.2


class Tally:
    """What a run has done so far; ``total``: how many lines there are, None if not known.

    ``before``: those that had a result already, and ``old_failures`` those of them that had failed.
    """

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.before = self.old_failures = self.done = self.failed = self.tokens = 0
        self._began = monotonic()

    @property
    def finished(self) -> int:
        """Requests with a result, whenever that was made."""
        return self.before + self.done + self.failed

    @property
    def seconds(self) -> float:
        """Since the start."""
        return monotonic() - self._began

    @property
    def pace(self) -> str:
        """Tokens a second."""
        return f"{self.tokens / max(self.seconds, 1e-9):,.0f} tokens/s"

    @property
    def left(self) -> float | None:
        """Seconds until the end, if it goes on like this."""
        made = self.done + self.failed
        if self.total is None or not made:
            return None
        return (self.total - self.finished) * self.seconds / made

    def line(self) -> str:
        """How far it is, in a line."""
        of = "" if self.total is None else f" of {self.total:,}"
        left = "" if not self.left else f", {_span(self.left)} left"
        return f"{self.finished:,}{of} finished, {self.failed:,} of them failed, {self.pace}{left}"

    def summary(self) -> str:
        """What was done, in a line."""
        old = f", {self.old_failures:,} of them failed" if self.old_failures else ""
        kept = f", {self.before:,} were there{old}" if self.before else ""
        return (
            f"{self.done:,} answered, {self.failed:,} failed{kept}; "
            f"{self.tokens:,} tokens in {_span(self.seconds)} ({self.pace})"
        )


class Watch:
    """Shows a tally when it is time to."""

    def __init__(self, tally: Tally, bar: Progress | None) -> None:
        self._tally, self._bar = tally, bar
        self._shown = monotonic()
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task("Answering", total=tally.total, completed=tally.before, failed=0, pace="")

    def made(self, tokens: int) -> None:
        """Some more tokens."""
        self._tally.tokens += tokens
        self.look()

    def look(self) -> None:
        """Show how far it is, if the last look is long ago."""
        now = monotonic()
        if now - self._shown < (_SILENCE if self._bar is None else _BLINK):
            return
        self._shown = now
        self._show()

    def _show(self) -> None:
        tally = self._tally
        if self._bar is None:
            print(f"gen: {tally.line()}", file=sys.stderr, flush=True)
        elif self._task is not None:
            self._bar.update(self._task, completed=tally.finished, failed=tally.failed, pace=tally.pace)


@contextmanager
def watching(tally: Tally, piped_to_a_terminal: bool) -> Iterator[Watch]:
    """While inside, the tally is shown; without a bar where the results go to the terminal too."""
    if not sys.stderr.isatty() or piped_to_a_terminal:
        yield Watch(tally, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TextColumn("{task.fields[pace]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        yield Watch(tally, bar)


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
