"""The worker: an actor of Ray's that holds one service. It takes tasks and gives results as they come."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread
from typing import Any

from .file_transfer import NeededFiles
from .tasks import Service, ServiceFactory, Task, TaskResult

THREADS = 2
"""Those of an actor: one waits for results, and one takes tasks meanwhile."""
_WAIT_SECONDS = 0.05
"""How long a service with nothing to do waits for a task."""
_COLLECT_SECONDS, _LINGER_SECONDS, _MAX_RESULTS = 2.0, 0.01, 256
"""How long results are waited for; how long further ones, once there is one; how many are sent at once."""


class WorkerActor:
    """Holds a service. `start` comes first; the other methods may run at the same time."""

    def __init__(self) -> None:
        self._waiting: Queue[Task] = Queue()
        self._results: Queue[TaskResult | None] = Queue()
        self._unanswered: set[str] = set()
        self._progress = 0
        self._failure: BaseException | None = None

    def host(self) -> str:
        """The name of the node. It answers as soon as Ray has placed this worker."""
        return platform.node()

    def start(self, make_service: ServiceFactory, files: NeededFiles) -> dict[str, Any]:
        """Make the service, and return its facts. Raises what it raises, and ``MissingFileError``."""
        service = make_service(files.find)
        facts = service.facts()
        Thread(target=self._serve, args=(service,), daemon=True).start()
        return facts

    def give(self, tasks: Sequence[Task]) -> None:
        """Take tasks; `collect` returns their results."""
        self._unanswered.update(task.key for task in tasks)
        for task in tasks:
            self._waiting.put(task)

    def collect(self) -> tuple[list[TaskResult], int]:
        """Wait a moment for results; returns those since the last call, and the number of units since the start.

        Raises what ended the service.
        """
        results: list[TaskResult] = []
        with suppress(Empty):
            result = self._results.get(timeout=_COLLECT_SECONDS)
            while result is not None:
                results.append(result)
                if len(results) == _MAX_RESULTS:
                    break
                result = self._results.get(timeout=_LINGER_SECONDS)
        if not results and self._failure is not None:
            raise self._failure
        return results, self._progress

    def _serve(self, service: Service) -> None:
        try:
            service.serve(self._tasks(), self._answer, self._count)
        except BaseException as error:
            self._failure = error
            self._results.put(None)

    def _tasks(self) -> Iterator[Task | None]:
        while True:
            try:
                # It waits only where it has nothing to compute: every task that was taken is answered.
                is_idle = len(self._unanswered) == self._waiting.qsize()
                yield self._waiting.get(block=is_idle, timeout=_WAIT_SECONDS)
            except Empty:
                yield None

    def _answer(self, result: TaskResult) -> None:
        self._unanswered.discard(result.key)
        self._results.put(result)

    def _count(self, units: int) -> None:
        self._progress += units
