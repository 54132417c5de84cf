"""Shards, the handfuls of tasks that workers get, and what becomes of those whose worker died."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from .tasks import Task

_MAX_DEATHS = 2
"""A shard whose workers died so often is split."""


@dataclass(frozen=True)
class Shard:
    """Tasks that go to a worker together.

    Attributes:
        tasks: the tasks.
        deaths: how many workers died with it.
    """

    tasks: tuple[Task, ...]
    deaths: int = 0

    @property
    def is_suspect(self) -> bool:
        """True if a worker died with it. It goes to a worker that has nothing else, so that blame is certain."""
        return self.deaths > 0


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
    def is_empty(self) -> bool:
        """True if no shard will come any more, unless one comes back."""
        return self._is_read and not self._returned

    def next(self, *, takes_suspects: bool) -> Shard | None:
        """Return a shard; None if there is none now. ``takes_suspects``: see `Shard.is_suspect`."""
        for index, shard in enumerate(self._returned):
            if takes_suspects or not shard.is_suspect:
                del self._returned[index]
                return shard
        return self._new_shard()

    def put_back(self, shard: Shard) -> None:
        """Take back a shard that nobody began."""
        self._returned.append(shard)

    def put_back_from_dead(self, shard: Shard) -> Task | None:
        """Take back a shard whose worker died with it.

        From the second death on it is split. Returns a task that was alone then, and so is to blame: it does not
        come back.
        """
        deaths = shard.deaths + 1
        if deaths < _MAX_DEATHS:
            self._returned.append(Shard(shard.tasks, deaths))
            return None
        if len(shard.tasks) == 1:
            return shard.tasks[0]
        half = len(shard.tasks) // 2
        # Each half has yet to show whether it is to blame: it is suspect, and one more death splits it again.
        self._returned.extend(Shard(tasks, 1) for tasks in (shard.tasks[:half], shard.tasks[half:]))
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
