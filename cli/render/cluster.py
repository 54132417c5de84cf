"""The progress of a batch on a cluster: as that of one machine, with a line for each worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from ...cluster.run import ClusterRun
from ...cluster.worker import WorkerStatus
from ..errors import say
from ..options.batch import BatchOptions
from .batch import BatchProgress, ProgressDisplay, show_progress

_LINE_INTERVAL_SECONDS = 30.0
"""Between two reports on the workers in a log."""
_BAR_INTERVAL_SECONDS = 0.2
"""Between two updates of the lines below a bar."""
_MAX_SHOWN_WORKERS = 8
"""Lines of their own; the others share one."""


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
        self._progress.tokens = self._run.units
        self._display.refresh()
        if self._lines_below is not None:
            self._lines_below[:] = worker_lines(self._run.workers)
        elif not sys.stderr.isatty():
            report_workers(self._run.workers)
        self._shown_at = monotonic()  # later than that of the display, which would not show itself the next time


@contextmanager
def show_cluster_progress(
    progress: BatchProgress, run: ClusterRun, options: BatchOptions
) -> Iterator[ClusterProgressDisplay]:
    """Show the progress while inside, and lines on the workers at the end."""
    results_on_terminal = options.prints_results and sys.stdout.isatty()
    has_bar = sys.stderr.isatty() and not results_on_terminal
    lines_below = worker_lines(run.workers) if has_bar else []
    with show_progress(progress, results_on_terminal, lambda: lines_below) as display:
        try:
            yield ClusterProgressDisplay(progress, run, display, lines_below if has_bar else None)
        finally:
            progress.tokens = run.units
    report_workers(run.workers)


def report_workers(workers: Sequence[WorkerStatus]) -> None:
    """Print how the workers are doing."""
    for line in worker_lines(workers):
        say(f"gen: {line}")


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
    failures = sum(worker.failed for worker in workers)
    failed = f", {failures:,} failed" if failures else ""
    speed = sum(worker.units / max(worker.seconds, 1e-9) for worker in workers)
    return f"{sum(worker.answered for worker in workers):,} answered{failed}, {speed:,.0f} tokens/s"
