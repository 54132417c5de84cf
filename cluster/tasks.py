"""Tasks, the services that answer them on workers, and the shards in which workers get them.

A shard whose worker died returns to the queue, which finds the task that crashes its worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..common.errors import LogitsmithError


@dataclass(frozen=True)
class Task:
    """A piece of work. ``key``: names it; ``content``: whatever the service understands, can be pickled."""

    key: str
    content: Any


class TaskResult(NamedTuple):
    """What became of a task.

    Attributes:
        key: the task's.
        content: what the service made of it; None: it ends every process that it is given to.
        has_failed: True if it was not answered.
    """

    key: str
    content: Any | None
    has_failed: bool = False


class Service(Protocol):
    """What answers tasks in a worker's process, such as a loaded model."""

    def facts(self) -> dict[str, Any]:
        """What the driver wants to know of this worker before it gets a task; can be pickled."""
        ...

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer tasks as they come, in any order.

        Args:
            tasks: None means that there is none yet: the next one is asked for when that suits.
            answer: called with each result.
            progress: called with the number of units, such as tokens, that were made.
        """
        ...


FindFile = Callable[[Path], Path]
"""Returns where the worker's node has a file that the driver named."""

ServiceFactory = Callable[[FindFile], Service]
"""Makes the service in the worker's process; can be pickled."""


@dataclass(frozen=True)
class ServicePlan:
    """What workers run.

    Attributes: ``make``: makes the service; ``files``: what it needs; a node that lacks them gets them.
    """

    make_service: ServiceFactory
    files: Sequence[Path] = ()


_MAX_CRASHES = 2
"""A shard whose workers died so often is split; a task that was alone in it is to blame for one more death."""


@dataclass(frozen=True)
class Shard:
    """Tasks that go to a worker together.

    Attributes:
        tasks: the tasks.
        crash_count: how many workers died with it.
    """

    tasks: tuple[Task, ...]
    crash_count: int = 0

    @property
    def has_crashed_worker(self) -> bool:
        """True if a worker died with it. It goes to a worker that has nothing else, so that blame is certain."""
        return self.crash_count > 0


class ShardQueue:
    """Gives out shards: first what came back, then new ones.

    Args:
        tasks: the tasks, read as they are needed. None: there is none yet.
        size: how many tasks a new shard has at most.
    """

    def __init__(self, tasks: Iterator[Task | None], size: int) -> None:
        self._tasks, self._size = tasks, size
        self._returned: deque[Shard] = deque()
        self._is_read = False

    @property
    def is_exhausted(self) -> bool:
        """True if no shard will come any more, unless one comes back."""
        return self._is_read and not self._returned

    def next(self, *, allows_crashed: bool) -> Shard | None:
        """Return a shard; None if there is none now. ``allows_crashed``: see `Shard.has_crashed_worker`."""
        for index, shard in enumerate(self._returned):
            if allows_crashed or not shard.has_crashed_worker:
                del self._returned[index]
                return shard
        return self._new_shard()

    def requeue(self, shard: Shard) -> None:
        """Take back a shard for whose return no task is to blame."""
        self._returned.append(shard)

    def requeue_after_crash(self, shard: Shard) -> Task | None:
        """Take back a shard whose worker died with it.

        From the second death on it is split. Returns a task that is to blame: it was alone, and more workers died
        with it. It does not come back.
        """
        tasks, crash_count = shard.tasks, shard.crash_count + 1
        if len(tasks) == 1 and crash_count > _MAX_CRASHES:
            return tasks[0]
        half = len(tasks) // 2
        if crash_count < _MAX_CRASHES or not half:
            self._returned.append(Shard(tasks, crash_count))
        else:  # each half has yet to show whether it is to blame
            self._returned.extend((Shard(tasks[:half], crash_count), Shard(tasks[half:], crash_count)))
        return None

    def stop(self) -> None:
        """Read no further tasks."""
        self._is_read = True

    def _new_shard(self) -> Shard | None:
        if self._is_read:
            return None
        tasks = []
        for task in islice(self._tasks, self._size):
            if task is None:
                break
            tasks.append(task)
        else:
            self._is_read = len(tasks) < self._size
        return Shard(tuple(tasks)) if tasks else None


class ClusterError(LogitsmithError, RuntimeError):
    """A cluster that cannot be joined, or cannot do the work. The message says what, where and what to do."""


def first_line(error: Exception) -> str:
    """Return the kind and the first line of an error of Ray's, which may have a page."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".rstrip(": ")
