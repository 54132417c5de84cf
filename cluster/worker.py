"""A worker as the driver sees it: what it has, what it answers, and whether it is alive."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from .actor import SHARDS_AT_ONCE, THREADS, WorkerActor
from .connection import import_ray
from .errors import ClusterError
from .file_transfer import NeededFiles
from .placement import WorkerNeeds
from .shards import Shard
from .tasks import TaskResult

_PROGRESS_SECONDS = 1.0
"""How often a worker is asked for its progress."""
_NODE_DIED = "its node has died"
"""The words in Ray's message by which the death of a node differs from that of a process."""

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


class WorkerDiedError(Exception):
    """A worker that is gone.

    Attributes: ``with_its_node``: True if the whole node died, for which no task is to blame.
    """

    def __init__(self, reason: str, with_its_node: bool = False) -> None:
        super().__init__(reason)
        self.with_its_node = with_its_node


@dataclass(frozen=True)
class WorkerStatus:
    """How a worker is doing.

    Attributes: ``name``: its number and host; ``is_ready``: True once it takes tasks; ``answered``,
    ``failed``: tasks; ``units``: what it made, such as tokens; ``seconds``: since it was ready.
    """

    name: str
    is_ready: bool
    answered: int
    failed: int
    units: int
    seconds: float


class Worker:
    """A worker, which starts at once.

    Args:
        number: its number in this run, from 1.
        service: the reference of what makes its service.
        files: what that needs.
        needs: what it takes of its node.
    """

    def __init__(self, number: int, service: Any, files: NeededFiles, needs: WorkerNeeds) -> None:
        self._ray = import_ray()
        actor = self._ray.remote(WorkerActor).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory_bytes, max_concurrency=THREADS
        )
        self._actor = actor.remote()
        self._service = service
        self.start(files)
        self._asked: Any = None
        self._asked_at = self._changed_at = self._ready_at = monotonic()
        self._number, self._answered, self._failed, self._units = number, 0, 0, 0
        self._shards: dict[Any, Shard] = {}
        self.facts: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Its number, and its host once that is known."""
        return f"worker {self._number}" + ("" if self.facts is None else f" on {self.facts['host']}")

    @property
    def status(self) -> WorkerStatus:
        """How it is doing."""
        is_ready = self.facts is not None
        seconds = monotonic() - self._ready_at if is_ready else 0.0
        return WorkerStatus(self.name, is_ready, self._answered, self._failed, self._units, seconds)

    @property
    def shards(self) -> list[Shard]:
        """The shards that it has."""
        return list(self._shards.values())

    @property
    def has_room(self) -> bool:
        """True if it takes one more shard."""
        if self.facts is None or any(shard.is_suspect for shard in self._shards.values()):
            return False
        return len(self._shards) < SHARDS_AT_ONCE

    @property
    def references(self) -> list[Any]:
        """What it has still to answer."""
        if self.facts is None:
            return [self._starting]
        return [*self._shards, *([] if self._asked is None else [self._asked])]

    @property
    def stalled_seconds(self) -> float:
        """For how long it has made nothing although it has tasks."""
        return monotonic() - self._changed_at if self._shards else 0.0

    def start(self, files: NeededFiles) -> None:
        """Let it make its service, or try again."""
        self._starting = self._actor.start.remote(self._service, files)

    def give(self, shard: Shard) -> None:
        """Give it a shard."""
        if not self._shards:
            self._changed_at = monotonic()
        self._shards[self._actor.answer.remote(shard.tasks)] = shard

    def ask_for_progress(self) -> None:
        """Ask how far it is, unless it was asked a moment ago."""
        is_time = monotonic() - self._asked_at >= _PROGRESS_SECONDS
        if self.facts is not None and self._asked is None and is_time:
            self._asked, self._asked_at = self._actor.progress.remote(), monotonic()

    def receive(self, reference: Any) -> list[TaskResult]:
        """Take what it answered to one of its references; returns the results of tasks.

        Raises ``WorkerDiedError``; ``MissingFileError`` for a start; and what ended its service.
        """
        value = self._value(reference)
        if reference == self._starting:
            self.facts, self._ready_at = value, monotonic()
            return []
        if reference == self._asked:
            self._asked = None
            if value > self._units:
                self._units, self._changed_at = value, monotonic()
            return []
        del self._shards[reference]
        results, units = value
        failed = sum(result.has_failed for result in results)
        self._failed, self._answered = self._failed + failed, self._answered + len(results) - failed
        self._units, self._changed_at = max(self._units, units), monotonic()
        return list(results)

    def kill(self) -> None:
        """End its process."""
        with suppress(Exception):  # it may be gone, or its node
            self._ray.kill(self._actor)

    def _value(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except errors.OutOfMemoryError:
            raise WorkerDiedError("Ray ended it, because its node was out of memory") from None
        except errors.ActorUnavailableError:
            raise WorkerDiedError("its node cannot be reached", with_its_node=True) from None
        except (errors.ObjectLostError, errors.NodeDiedError):
            raise WorkerDiedError("its node is gone", with_its_node=True) from None
        except (errors.RayActorError, errors.WorkerCrashedError) as error:
            missing = _MISSING_MODULE.search(str(error))
            if missing is not None:
                raise ClusterError(
                    f"a node of the cluster lacks the Python package {missing[1]}; install the same there as here"
                ) from None
            if _NODE_DIED in str(error):
                raise WorkerDiedError("its node is gone", with_its_node=True) from None
            raise WorkerDiedError("its process ended") from None
