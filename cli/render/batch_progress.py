"""The progress of a batch, on stderr: a bar on a terminal, else a line periodically.

On a cluster it is that of one machine, with a line for each worker.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from ...common.text import count_noun
from ...jobs.batch import BatchCounts
from ..interrupt import Interrupt
from ..messages import print_message, print_note, visible_bar
from .progress import make_bar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from ...cluster.run import ClusterRun
    from ...cluster.worker import WorkerStatus

_LINE_INTERVAL_SECONDS = 30.0
"""Between two lines of a log, which somebody may keep: on the batch, or on its workers."""
_BAR_INTERVAL_SECONDS = 0.2
"""Between two updates of the bar and of the lines below: as often as an eye follows."""


class BatchProgress(BatchCounts):
    """What a batch has done so far, in words. ``total``: the number of lines, None if it is not known."""

    def __init__(self, total: int | None) -> None:
        super().__init__()
        self.total = total
        self._started_at = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._started_at

    @property
    def speed(self) -> str:
        """Tokens a second, as text."""
        return f"{self.token_count / max(self.seconds, 1e-9):,.0f} tokens/s"

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the present speed; None if that cannot be known."""
        results = self.answered_count + self.failed_count
        if self.total is None or not results:
            return None
        return (self.total - self.finished_count) * self.seconds / results

    def line(self) -> str:
        """The progress in one line."""
        of_total = "" if self.total is None else f" of {self.total:,}"
        left = "" if not self.seconds_left else f", {_format_duration(self.seconds_left)} left"
        return (
            f"{self.finished_count:,}{of_total} finished, {self.failed_count:,} of them failed, {self.speed}{left}"
        )

    def summary(self) -> str:
        """The whole batch in one line, for its end."""
        failures = f", {self.existing_failure_count:,} of them failed" if self.existing_failure_count else ""
        existing = f", {self.existing_count:,} were there{failures}" if self.existing_count else ""
        return (
            f"{self.answered_count:,} answered, {self.failed_count:,} failed{existing}; "
            f"{count_noun(self.token_count, 'token')} in {_format_duration(self.seconds)} ({self.speed})"
            f"{self._exactness()}"
        )

    def _exactness(self) -> str:
        """What holds for the answers; of several, each is told: it depends on the length of a text."""
        return f"; answers {', some '.join(sorted(self.exactness))}" if self.exactness else ""


def _format_duration(seconds: float) -> str:
    rounded_seconds = round(seconds)
    if rounded_seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{rounded_seconds} s"
    if rounded_seconds < 3600:
        return f"{rounded_seconds // 60} min {rounded_seconds % 60} s"
    return f"{rounded_seconds // 3600} h {rounded_seconds % 3600 // 60} min"


def stop_check_with_note(interrupt: Interrupt) -> Callable[[], bool]:
    """Return what tells a batch to begin no further request; the first time that it does, it prints a note."""
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            print_note("what is begun is being finished; Ctrl-C again stops at once")
        return interrupt.requested

    return should_stop


_BAR_WIDTH = 6


@contextmanager
def show_progress(
    progress: BatchProgress, results_on_terminal: bool, details: Callable[[], Sequence[str]] = tuple
) -> Iterator[ProgressDisplay]:
    """Show the progress while inside.

    Args:
        progress: what the batch has done so far.
        results_on_terminal: results are printed on the same terminal; then there is no bar.
        details: returns lines to show below the bar.
    """
    if not sys.stderr.isatty() or results_on_terminal:
        yield ProgressDisplay(progress, None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    columns = (
        BarColumn(_BAR_WIDTH),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(compact=True),
    )
    with visible_bar(lambda: 1 + len(details())), make_bar(columns, details) as bar:
        yield ProgressDisplay(progress, bar)


class ProgressDisplay:
    """Shows the progress from time to time."""

    def __init__(self, progress: BatchProgress, bar: Progress | None) -> None:
        self._progress, self._bar = progress, bar
        self._shown_at = monotonic()
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task(
                "Answering", total=progress.total, completed=progress.existing_count, failed=0, speed=""
            )

    def add_tokens(self, count: int) -> None:
        """Count tokens that were made."""
        self._progress.token_count += count
        self.refresh()

    def refresh(self) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = monotonic()
        interval = _LINE_INTERVAL_SECONDS if self._bar is None else _BAR_INTERVAL_SECONDS
        if now - self._shown_at >= interval:
            self._shown_at = now
            self._show()

    def _show(self) -> None:
        progress = self._progress
        if self._bar is None:
            print(f"gen: {progress.line()}", file=sys.stderr, flush=True)
        elif self._task is not None:
            self._bar.update(
                self._task, completed=progress.finished_count, failed=progress.failed_count, speed=progress.speed
            )


@contextmanager
def show_cluster_progress(
    progress: BatchProgress, run: ClusterRun, results_on_terminal: bool
) -> Iterator[ClusterProgressDisplay]:
    """Show the progress while inside, see `show_progress`, and lines on the workers at the end."""
    has_bar = sys.stderr.isatty() and not results_on_terminal
    lines_below = worker_lines(run.worker_statuses) if has_bar else []
    with show_progress(progress, results_on_terminal, lambda: lines_below) as display:
        try:
            yield ClusterProgressDisplay(progress, run, display, lines_below if has_bar else None)
        finally:
            progress.token_count = run.unit_count
    report_workers(run.worker_statuses)


class ClusterProgressDisplay:
    """Shows the progress from time to time: the bar or a line on the batch, and lines on the workers in a log.

    Args:
        progress: of the batch.
        run: its workers.
        display: shows the batch.
        lines_below: the lines on the workers below a bar, which are replaced; None: there is no bar.
    """

    def __init__(
        self, progress: BatchProgress, run: ClusterRun, display: ProgressDisplay, lines_below: list[str] | None
    ) -> None:
        self._progress, self._run, self._display, self._lines_below = progress, run, display, lines_below
        self._interval = _LINE_INTERVAL_SECONDS if lines_below is None else _BAR_INTERVAL_SECONDS
        self._shown_at = monotonic()

    def refresh(self) -> None:
        """Show the progress, unless it was shown a moment ago: this is called for each result."""
        if monotonic() - self._shown_at < self._interval:
            return
        self._progress.token_count = self._run.unit_count
        self._display.refresh()
        if self._lines_below is not None:
            self._lines_below[:] = worker_lines(self._run.worker_statuses)
        elif not sys.stderr.isatty():
            report_workers(self._run.worker_statuses)
        self._shown_at = monotonic()  # later than that of the display, which would not show itself the next time


def report_workers(workers: Sequence[WorkerStatus]) -> None:
    """Print how the workers are doing."""
    for line in worker_lines(workers):
        print_message(f"gen: {line}")


_MAX_SHOWN_WORKERS = 8
"""Lines of their own; the others share one."""


def worker_lines(workers: Sequence[WorkerStatus]) -> list[str]:
    """How each worker is doing, and the further ones together: there may be a thousand."""
    others = workers[_MAX_SHOWN_WORKERS:]
    lines = [_line(worker) for worker in workers[:_MAX_SHOWN_WORKERS]]
    return [*lines, _line_of_several(others)] if others else lines


def _line(worker: WorkerStatus) -> str:
    if not worker.is_ready:
        return f"{worker.name}: starting"
    return f"{worker.name}: {_counts([worker])}"


def _line_of_several(workers: Sequence[WorkerStatus]) -> str:
    ready = [worker for worker in workers if worker.is_ready]
    starting = f"{len(workers) - len(ready):,} starting" if len(ready) < len(workers) else ""
    counts = _counts(ready) + " together" if ready else ""
    return f"{len(workers):,} more: {', '.join(filter(None, (starting, counts)))}"


def _counts(workers: Sequence[WorkerStatus]) -> str:
    """What workers that are ready have done."""
    failures = sum(worker.failed_count for worker in workers)
    failed = f", {failures:,} failed" if failures else ""
    speed = sum(worker.unit_count / max(worker.seconds, 1e-9) for worker in workers)
    return f"{sum(worker.answered_count for worker in workers):,} answered{failed}, {speed:,.0f} tokens/s"
