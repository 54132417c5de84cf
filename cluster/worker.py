"""A worker, as the driver sees it and as Ray runs it, and the room that a cluster has for workers.

`Worker` is the driver's side: what the worker has, what it answers, and whether it is alive. `WorkerActor` is the
actor of Ray's that holds one service. It takes tasks and returns results as they are ready.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Thread
from time import monotonic
from typing import Any

from .connection import import_ray
from .files import NeededFiles
from .tasks import ClusterError, Service, ServiceFactory, Shard, Task, TaskResult, first_line


@dataclass(frozen=True)
class WorkerNeeds:
    """What a worker takes of its node: processors, GPUs, and bytes of memory."""

    cpus: int
    gpus: float
    memory_bytes: int

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus} CPU{gpus} and {self.memory_bytes / 1e9:.1f} GB"


def workers_that_fit(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> int:
    """Return how many workers fit on nodes, each given by its resources under Ray's names."""
    return sum(_fit_on(node, needs) for node in nodes)


def _fit_on(node: Mapping[str, float], needs: WorkerNeeds) -> int:
    room = [node.get("CPU", 0) // needs.cpus, node.get("memory", 0) // needs.memory_bytes]
    if needs.gpus:
        room.append(node.get("GPU", 0) // needs.gpus)
    return int(min(room))


def no_capacity_error(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> ClusterError:
    """Return the error for nodes on which not one worker fits."""
    largest = max((_describe(node) for node in nodes), default="none")
    return ClusterError(
        f"a worker needs {needs}, and no node of the cluster has that (there is {largest}); "
        f"see --cpus-per-worker, --parallel and -c"
    )


def _describe(node: Mapping[str, float]) -> str:
    return f"{node.get('CPU', 0):g} CPU and {node.get('memory', 0) / 1e9:.1f} GB"


@dataclass(frozen=True)
class WorkerStatus:
    """How a worker is doing.

    Attributes: ``name``: its number and host; ``is_ready``: True once it takes tasks; ``answered``,
    ``failed``: tasks; ``units``: what it made, such as tokens; ``seconds``: since it was ready.
    """

    name: str
    is_ready: bool
    answered_count: int
    failed_count: int
    unit_count: int
    seconds: float


class WorkerLostError(Exception):
    """A worker that is gone.

    Attributes: ``is_node_failure``: True if the whole node died, for which no task is to blame.
    """

    def __init__(self, reason: str, is_node_failure: bool = False) -> None:
        super().__init__(reason)
        self.is_node_failure = is_node_failure


_NODE_DIED_MESSAGE = "its node has died"
"""The words in Ray's message by which the death of a node differs from that of a process."""

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


class Worker:
    """A worker: Ray places it, it starts, and takes tasks then.

    It has one question to answer at any time, whose reference is ``reference``. Times are those of a `PollClock`.
    Attributes: ``host``, None until it is placed; ``facts``, its service's, None until it takes tasks.

    Args:
        number: its number in this run, from 1.
        service: the reference of what makes its service.
        needs: what it takes of its node.
        now: the time.
    """

    def __init__(self, number: int, service: Any, needs: WorkerNeeds, now: float) -> None:
        self._ray = import_ray()
        actor = self._ray.remote(WorkerActor).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory_bytes, max_concurrency=_THREADS
        )
        self._actor = actor.remote()
        self._service = service
        self.reference = self._actor.host.remote()
        self._changed_at, self._ready_at = now, monotonic()
        self._number, self._answered, self._failed, self._unit_count = number, 0, 0, 0
        self._shards: list[_AssignedShard] = []
        self._shard_of_task: dict[str, _AssignedShard] = {}
        self.host: str | None = None
        self.facts: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Its number, and its host once that is known."""
        return f"worker {self._number}" + ("" if self.host is None else f" on {self.host}")

    @property
    def status(self) -> WorkerStatus:
        """How it is doing."""
        is_ready = self.facts is not None
        seconds = monotonic() - self._ready_at if is_ready else 0.0
        return WorkerStatus(self.name, is_ready, self._answered, self._failed, self._unit_count, seconds)

    @property
    def shards(self) -> list[Shard]:
        """What is left of the shards that it has."""
        return [Shard(tuple(shard.tasks.values()), shard.crash_count) for shard in self._shards]

    @property
    def task_count(self) -> int:
        """How many tasks it has."""
        return len(self._shard_of_task)

    def can_take_shard(self, shard_size: int) -> bool:
        """True if it takes one more shard: its slots stay full when the last ones come to their end."""
        is_alone = any(shard.crash_count for shard in self._shards)
        return self.facts is not None and not is_alone and self.task_count <= shard_size

    def seconds_without_host(self, now: float) -> float:
        """For how long Ray has found no place for it; 0 once it has."""
        return now - self._changed_at if self.host is None else 0.0

    def seconds_without_progress(self, now: float) -> float:
        """For how long it has made nothing although it starts, or has tasks."""
        is_at_work = self.task_count > 0 if self.facts is not None else self.host is not None
        return now - self._changed_at if is_at_work else 0.0

    def start(self, files: NeededFiles, now: float) -> None:
        """Let it make its service, or try again."""
        self.reference, self._changed_at = self._actor.start.remote(self._service, files), now

    def assign(self, shard: Shard, now: float) -> None:
        """Give it a shard."""
        if not self.task_count:
            self._changed_at = now
        given = _AssignedShard({task.key: task for task in shard.tasks}, shard.crash_count)
        self._shards.append(given)
        self._shard_of_task.update(dict.fromkeys(given.tasks, given))
        self._actor.add_tasks.remote(shard.tasks)

    def receive(self, now: float) -> list[TaskResult]:
        """Take the answer that is there; returns the results of tasks. `start` follows once it is placed.

        Raises ``WorkerLostError``, ``ClusterError``; ``MissingFileError`` for a start; and what ended its service.
        """
        value = self._value(self.reference)
        if self.host is None:
            self.host = value
            return []
        results: list[TaskResult] = []
        if self.facts is None:
            self.facts, self._ready_at, self._changed_at = value, monotonic(), now
        else:
            results, units = value
            if results or units > self._unit_count:
                self._unit_count, self._changed_at = units, now
            self._take(results)
        self.reference = self._actor.collect.remote()
        return results

    def _take(self, results: list[TaskResult]) -> None:
        for result in results:
            self._failed += result.has_failed
            self._answered += not result.has_failed
            shard = self._shard_of_task.pop(result.key)
            del shard.tasks[result.key]
            if not shard.tasks:
                self._shards.remove(shard)

    def kill(self) -> None:
        """End its process."""
        with suppress(Exception):  # it may be gone, or its node
            self._ray.kill(self._actor)

    def _value(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise _cause(error, errors) from None
        except errors.OutOfMemoryError:
            raise WorkerLostError("Ray ended it, because its node was out of memory") from None
        except errors.ActorUnavailableError:
            raise WorkerLostError("its node cannot be reached", is_node_failure=True) from None
        except (errors.ObjectLostError, errors.NodeDiedError):
            raise WorkerLostError("its node is gone", is_node_failure=True) from None
        except (errors.RayActorError, errors.WorkerCrashedError) as error:
            missing = _MISSING_MODULE.search(str(error))
            if missing is not None:
                reason = f"the node lacks the Python package {missing[1]}; install the same there as here"
                raise ClusterError(reason) from None
            if _NODE_DIED_MESSAGE in str(error):
                raise WorkerLostError("its node is gone", is_node_failure=True) from None
            raise WorkerLostError("its process ended") from None
        except errors.RayError as error:
            raise WorkerLostError(first_line(error)) from None


@dataclass
class _AssignedShard:
    """A shard at work. ``tasks``: those without a result, by their keys; ``crash_count``: see `Shard`."""

    tasks: dict[str, Task]
    crash_count: int


def _cause(error: Any, errors: Any) -> Exception:
    """What a method of the actor raised; an error of Ray's in it is the worker's death."""
    cause = error.cause
    if isinstance(cause, errors.RayError):
        return WorkerLostError(first_line(cause))
    return cause if isinstance(cause, Exception) else ClusterError(first_line(error))


_THREADS = 2
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

    def add_tasks(self, tasks: Sequence[Task]) -> None:
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
