"""The progress of a batch on stderr: a bar on a terminal, otherwise a line every 30 seconds.

On a cluster, there is also a line for each worker.
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

# Time between two progress lines if stderr is not a terminal. Logs are often kept, so the lines are few.
_LINE_INTERVAL_SECONDS = 30.0
_BAR_INTERVAL_SECONDS = 0.2  # time between two updates of the bar and of the lines below the bar


class BatchProgress(BatchCounts):
    """The counts of a batch, with their description in words."""

    def __init__(self, total: int | None) -> None:
        super().__init__()
        self.total = total  # number of lines in the input; None if unknown
        self._started_at = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._started_at

    @property
    def speed(self) -> str:
        return f"{self.token_count / max(self.seconds, 1e-9):,.0f} tokens/s"

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None before the first result, or if the total is unknown."""
        result_count = self.answered_count + self.failed_count
        if self.total is None or not result_count:
            return None
        return (self.total - self.finished_count) * self.seconds / result_count

    def line(self) -> str:
        finished = (
            f"{self.finished_count:,}" if self.total is None else f"{self.finished_count:,} of {self.total:,}"
        )
        parts = [f"{finished} finished", f"{self.failed_count:,} of them failed", self.speed]
        if self.seconds_left:
            parts.append(f"{_format_duration(self.seconds_left)} left")
        return ", ".join(parts)

    def summary(self) -> str:
        """Return the line at the end of the batch."""
        counts = [f"{self.answered_count:,} answered", f"{self.failed_count:,} failed"]
        if self.existing_count:
            counts.append(f"{self.existing_count:,} already existed")
            if self.existing_failure_count:
                counts.append(f"{self.existing_failure_count:,} of them failed")
        tokens = f"{count_noun(self.token_count, 'token')} in {_format_duration(self.seconds)} ({self.speed})"
        parts = [", ".join(counts), tokens]
        if self.exactness:  # long answers may be less reproducible than short ones
            parts.append(f"answers {', some '.join(sorted(self.exactness))}")
        return "; ".join(parts)


def _format_duration(seconds: float) -> str:
    rounded_seconds = round(seconds)
    if rounded_seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{rounded_seconds} s"
    if rounded_seconds < 3600:
        return f"{rounded_seconds // 60} min {rounded_seconds % 60} s"
    return f"{rounded_seconds // 3600} h {rounded_seconds % 3600 // 60} min"


def stop_check_with_note(interrupt: Interrupt) -> Callable[[], bool]:
    """Return a function that returns True after Ctrl-C, when a batch must start no more requests."""
    # The first call that returns True prints a note.
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            print_note("requests that have started are being finished; press Ctrl-C again to stop immediately")
        return interrupt.requested

    return should_stop


_BAR_WIDTH = 6


@contextmanager
def show_progress(
    progress: BatchProgress, prints_results: bool, get_lines_below: Callable[[], Sequence[str]] = tuple
) -> Iterator[ProgressDisplay]:
    """Show the progress in the context."""
    # ``prints_results``: whether results are printed on the same terminal, where a bar would disturb them.
    # ``get_lines_below`` is called at each refresh.
    if not sys.stderr.isatty() or prints_results:
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
    with visible_bar(lambda: 1 + len(get_lines_below())), make_bar(columns, get_lines_below) as bar:
        yield ProgressDisplay(progress, bar)


class ProgressDisplay:
    """A display of a batch's progress: a bar, or a line every 30 seconds."""

    def __init__(self, progress: BatchProgress, bar: Progress | None) -> None:
        self._progress = progress
        self._bar = bar
        self._shown_at = monotonic()
        self._task: TaskID | None = None
        if bar is not None:
            self._task = bar.add_task(
                "Answering", total=progress.total, completed=progress.existing_count, failed=0, speed=""
            )

    def add_tokens(self, count: int) -> None:
        self._progress.token_count += count
        self.refresh()

    def refresh(self) -> None:
        """Show the progress if the last update is old enough."""
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
    progress: BatchProgress, run: ClusterRun, prints_results: bool
) -> Iterator[ClusterProgressDisplay]:
    """Show the progress of a batch on a cluster in the context, and print a line for each worker at the end."""
    # ``prints_results``: whether results are printed on the same terminal, where a bar would disturb them.
    has_bar = sys.stderr.isatty() and not prints_results
    lines_below = worker_lines(run.worker_statuses) if has_bar else []
    with show_progress(progress, prints_results, lambda: lines_below) as display:
        try:
            yield ClusterProgressDisplay(progress, run, display, lines_below if has_bar else None)
        finally:
            progress.token_count = run.unit_count
    report_workers(run.worker_statuses)


class ClusterProgressDisplay:
    """A display of a batch's progress on a cluster: a bar or a line for the batch, and a line for each worker."""

    # ``display`` shows the batch without its workers. ``lines_below`` are the lines below the bar, updated in
    # place; None without a bar.

    def __init__(
        self, progress: BatchProgress, run: ClusterRun, display: ProgressDisplay, lines_below: list[str] | None
    ) -> None:
        self._progress = progress
        self._run = run
        self._display = display
        self._lines_below = lines_below
        self._interval = _LINE_INTERVAL_SECONDS if lines_below is None else _BAR_INTERVAL_SECONDS
        self._shown_at = monotonic()

    def refresh(self) -> None:
        """Show the progress if the last update is old enough. Called for each result."""
        if monotonic() - self._shown_at < self._interval:
            return
        self._progress.token_count = self._run.unit_count
        self._display.refresh()
        if self._lines_below is not None:
            self._lines_below[:] = worker_lines(self._run.worker_statuses)
        elif not sys.stderr.isatty():
            report_workers(self._run.worker_statuses)
        # Read after the display has read its own clock. An earlier time would skip an update.
        self._shown_at = monotonic()


def report_workers(workers: Sequence[WorkerStatus]) -> None:
    for line in worker_lines(workers):
        print_message(f"gen: {line}")


_MAX_WORKER_LINES = 8  # Number of workers that get separate lines. All other workers share one line.


def worker_lines(workers: Sequence[WorkerStatus]) -> list[str]:
    """Return a line for each of the first workers, and one line for all others."""
    other_workers = workers[_MAX_WORKER_LINES:]
    lines = [_worker_line(worker) for worker in workers[:_MAX_WORKER_LINES]]
    return [*lines, _summary_line(other_workers)] if other_workers else lines


def _worker_line(worker: WorkerStatus) -> str:
    if not worker.is_ready:
        return f"{worker.name}: starting"
    return f"{worker.name}: {_counts([worker])}"


def _summary_line(workers: Sequence[WorkerStatus]) -> str:
    ready_workers = [worker for worker in workers if worker.is_ready]
    starting_count = len(workers) - len(ready_workers)
    parts = []
    if starting_count:
        parts.append(f"{starting_count:,} starting")
    if ready_workers:
        parts.append(f"{_counts(ready_workers)} together")
    return f"{len(workers):,} more: {', '.join(parts)}"


def _counts(workers: Sequence[WorkerStatus]) -> str:
    """Return the summed counts of workers that are ready."""
    answered_count = sum(worker.answered_count for worker in workers)
    failed_count = sum(worker.failed_count for worker in workers)
    speed = sum(worker.unit_count / max(worker.ready_seconds, 1e-9) for worker in workers)
    parts = [f"{answered_count:,} answered"]
    if failed_count:
        parts.append(f"{failed_count:,} failed")
    parts.append(f"{speed:,.0f} tokens/s")
    return ", ".join(parts)
