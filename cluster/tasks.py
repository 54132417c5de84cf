"""Tasks, the services that answer tasks on workers, and the shards in which tasks are assigned to workers.

A shard whose worker crashed is put back into the queue, and split until the task that crashes workers is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..common.errors import LogitsmithError


@dataclass(frozen=True)
class Task:
    key: str  # name of the task, unique in a run
    content: Any  # data that the service understands; can be pickled


class TaskResult(NamedTuple):
    key: str
    # what the service made of the task; None if the task crashed every worker that computed it
    content: Any | None
    has_failed: bool = False  # whether the task was not answered


class Service(Protocol):
    """Code that answers tasks in a worker's process, such as a loaded model."""

    def facts(self) -> dict[str, Any]:
        """Return a description of this worker, which the driver reads before it assigns tasks; can be pickled."""
        # ``note``: a sentence about this worker that is shown to the user; None or missing if there is none.
        ...

    def serve(
        self,
        tasks: Iterable[Task | None],
        send_result: Callable[[TaskResult], None],
        add_progress: Callable[[int], None],
    ) -> None:
        """Answer tasks while more of them arrive. The results may have another order."""
        # None means that no further task has arrived yet: the service continues with the tasks that it has, and
        # asks for the next task later. ``add_progress`` gets the number of units, such as tokens, generated since
        # the last call.
        ...


# Returns the path on the worker's node of a file, given its path on the driver's machine
FindFile = Callable[[Path], Path]

ServiceFactory = Callable[[FindFile], Service]  # Makes the service in the worker's process; can be pickled


@dataclass(frozen=True)
class ServicePlan:
    """The service that each worker runs."""

    make_service: ServiceFactory
    files: Sequence[Path] = ()  # files that the service needs. They are sent to nodes that do not have them.


# A shard that has crashed this many workers is split. A single task is given up after one more crash.
_MAX_CRASHES = 2


@dataclass(frozen=True)
class Shard:
    """Tasks that are assigned to a worker together."""

    tasks: tuple[Task, ...]
    crash_count: int = 0  # number of workers that crashed while they had this shard

    @property
    def has_crashed_worker(self) -> bool:
        """True if a worker crashed while it had this shard."""
        # Such a shard is assigned only to a worker without other tasks, so that the next crash has a certain
        # cause.
        return self.crash_count > 0


class ShardQueue:
    """A queue of shards. Shards that lost workers had precede new shards."""

    def __init__(self, tasks: Iterator[Task | None], max_shard_size: int) -> None:
        self._tasks = tasks
        self._max_shard_size = max_shard_size
        self._returned_shards: deque[Shard] = deque()
        self._are_tasks_read = False

    @property
    def is_exhausted(self) -> bool:
        """True if the queue will give no more shards, unless a worker that has one is lost."""
        return self._are_tasks_read and not self._returned_shards

    def next(self, *, may_have_crashed_worker: bool) -> Shard | None:
        """Return a shard; None if there is no shard now."""
        for index, shard in enumerate(self._returned_shards):
            if may_have_crashed_worker or not shard.has_crashed_worker:
                del self._returned_shards[index]
                return shard
        return self._new_shard()

    def requeue(self, shard: Shard) -> None:
        """Put back a shard that did not cause the loss of its worker."""
        self._returned_shards.append(shard)

    def requeue_after_crash(self, shard: Shard) -> Task | None:
        """Put back a shard whose worker crashed. Return a task that has crashed too many workers, or None."""
        # From the second crash on, the shard is split. A task that has crashed too many workers on its own is
        # returned, and not put back.
        tasks = shard.tasks
        crash_count = shard.crash_count + 1
        if len(tasks) == 1 and crash_count > _MAX_CRASHES:
            return tasks[0]
        if len(tasks) <= 1 or crash_count < _MAX_CRASHES:
            self._returned_shards.append(Shard(tasks, crash_count))
            return None
        # Only one half may contain the task that crashes workers.
        middle = len(tasks) // 2
        self._returned_shards.append(Shard(tasks[:middle], crash_count))
        self._returned_shards.append(Shard(tasks[middle:], crash_count))
        return None

    def stop(self) -> None:
        """Make no new shards: read no more tasks."""
        self._are_tasks_read = True

    def _new_shard(self) -> Shard | None:
        if self._are_tasks_read:
            return None
        tasks: list[Task] = []
        while len(tasks) < self._max_shard_size:
            try:
                task = next(self._tasks)
            except StopIteration:
                self._are_tasks_read = True
                break
            if task is None:  # no further task has arrived yet
                break
            tasks.append(task)
        return Shard(tuple(tasks)) if tasks else None


class ClusterError(LogitsmithError, RuntimeError):
    """A cluster cannot be joined, or cannot do the work. The message says what failed, where, and what to do."""


def first_error_line(error: Exception) -> str:
    """Return the type and the first line of one of Ray's errors, whose message may fill a page."""
    lines = str(error).splitlines()
    first_line = lines[0] if lines else ""
    return f"{type(error).__name__}: {first_line}".rstrip(": ")
