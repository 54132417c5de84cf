"""The progress of a batch on a cluster: as that of one machine, with a line for each worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from ...cluster import ClusterRun, WorkerStatus
from ..errors import say
from ..options.batch import BatchOptions
from .batch import BatchProgress, ProgressDisplay, show_progress

_LINE_INTERVAL_SECONDS = 30.0
"""Between two reports on the workers in a log."""
_MAX_SHOWN_WORKERS = 8
"""Below the bar of a terminal."""


class ClusterProgressDisplay:
    """Shows the progress from time to time: the bar or a line on the batch, and a line on each worker in a log."""

    def __init__(self, progress: BatchProgress, run: ClusterRun, display: ProgressDisplay) -> None:
        self._progress, self._run, self._display = progress, run, display
        self._shown_at = monotonic()

    def refresh(self) -> None:
        """Show the progress, unless it was shown a moment ago."""
        workers = self._run.workers
        self._progress.tokens = self._run.units
        self._display.refresh()
        if not sys.stderr.isatty() and monotonic() - self._shown_at >= _LINE_INTERVAL_SECONDS:
            self._shown_at = monotonic()
            for worker in workers:
                say(f"gen: {worker_line(worker)}")


@contextmanager
def show_cluster_progress(
    progress: BatchProgress, run: ClusterRun, options: BatchOptions
) -> Iterator[ClusterProgressDisplay]:
    """Show the progress while inside, and a line on each worker at the end."""

    def details() -> list[str]:
        lines = [worker_line(worker) for worker in run.workers]
        further = len(lines) - _MAX_SHOWN_WORKERS
        return lines if further <= 0 else [*lines[:_MAX_SHOWN_WORKERS], f"{further} more"]

    with show_progress(progress, options.prints_results and sys.stdout.isatty(), details) as display:
        shown = ClusterProgressDisplay(progress, run, display)
        try:
            yield shown
        finally:
            shown.refresh()
    for worker in run.workers:
        say(f"gen: {worker_line(worker)}")


def worker_line(worker: WorkerStatus, unit: str = "tokens") -> str:
    """How a worker is doing, in one line; ``unit``: what its progress counts."""
    if not worker.is_ready:
        return f"{worker.name}: starting"
    speed = worker.units / max(worker.seconds, 1e-9)
    failed = f", {worker.failed:,} failed" if worker.failed else ""
    return f"{worker.name}: {worker.answered:,} answered{failed}, {speed:,.0f} {unit}/s"
