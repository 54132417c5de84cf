"""The worker: an actor of Ray's that holds one service and answers shards, several of them at once."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, Queue
from threading import Lock, Thread
from typing import Any

from .file_transfer import NeededFiles
from .tasks import Service, ServiceFactory, Task, TaskResult

SHARDS_AT_ONCE = 2
"""How many shards a worker has: the second fills the slots that become free at the end of the first."""
THREADS = SHARDS_AT_ONCE + 1
"""Those of an actor: one for each shard, and one that tells the progress."""
_WAIT_SECONDS = 0.05
"""How long a service with nothing to do waits for a task."""


class WorkerActor:
    """Holds a service. Each method may run in a thread of its own; `start` comes first."""

    def __init__(self) -> None:
        self._waiting: Queue[Task] = Queue()
        self._results: dict[str, Future[TaskResult]] = {}
        self._lock = Lock()
        self._progress = 0
        self._failure: BaseException | None = None

    def start(self, make_service: ServiceFactory, files: NeededFiles) -> dict[str, Any]:
        """Make the service, and return its facts. Raises what it raises, and ``MissingFileError``."""
        service = make_service(files.find)
        facts = {"host": platform.node(), **service.facts()}
        Thread(target=self._serve, args=(service,), daemon=True).start()
        return facts

    def answer(self, tasks: Sequence[Task]) -> tuple[list[TaskResult], int]:
        """Answer tasks; returns the results and the `progress`. Raises what ended the service."""
        with self._lock:
            if self._failure is not None:
                raise self._failure
            futures = [self._results.setdefault(task.key, Future()) for task in tasks]
        for task in tasks:
            self._waiting.put(task)
        return [future.result() for future in futures], self._progress

    def progress(self) -> int:
        """How many units were made since the start."""
        return self._progress

    def _serve(self, service: Service) -> None:
        try:
            service.serve(self._tasks(), self._answer, self._count)
        except BaseException as error:
            with self._lock:
                self._failure = error
                futures = list(self._results.values())
            for future in futures:
                future.set_exception(error)

    def _tasks(self) -> Iterator[Task | None]:
        while True:
            try:
                yield self._waiting.get(block=not self._results, timeout=_WAIT_SECONDS)
            except Empty:
                yield None

    def _answer(self, result: TaskResult) -> None:
        with self._lock:
            future = self._results.pop(result.key)
        future.set_result(result)

    def _count(self, units: int) -> None:
        self._progress += units
