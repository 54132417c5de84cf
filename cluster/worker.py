"""Workers of a cluster, in the driver and in Ray, and how many of them fit on the cluster's nodes.

`Worker` is the driver's side: it knows the worker's tasks, receives the results, and notices the worker's loss.
`WorkerActor` is the Ray actor that runs a service: it gets tasks, and returns results as soon as they are ready.
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
from .tasks import ClusterError, Service, ServiceFactory, Shard, Task, TaskResult, first_error_line


@dataclass(frozen=True)
class WorkerNeeds:
    """The resources of a node that one worker needs."""

    cpus: int
    gpus: float  # number of GPUs, which may be a fraction
    memory_bytes: int  # amount of memory

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus} CPU{gpus} and {self.memory_bytes / 1e9:.1f} GB"


def workers_that_fit(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> int:
    """Return how many workers fit on these nodes; each node is given by its resources, under Ray's names."""
    return sum(_fitting_worker_count(node, needs) for node in nodes)


def _fitting_worker_count(node: Mapping[str, float], needs: WorkerNeeds) -> int:
    fitting_counts = [node.get("CPU", 0) // needs.cpus, node.get("memory", 0) // needs.memory_bytes]
    if needs.gpus:
        fitting_counts.append(node.get("GPU", 0) // needs.gpus)
    return int(min(fitting_counts))  # the scarcest resource decides


def no_capacity_error(nodes: Iterable[Mapping[str, float]], needs: WorkerNeeds) -> ClusterError:
    largest_node = max((_describe_resources(node) for node in nodes), default="none")
    return ClusterError(
        f"a worker needs {needs}, and no node of the cluster has that (the largest has {largest_node}); "
        f"see --cpus-per-worker, --parallel and -c"
    )


def _describe_resources(node: Mapping[str, float]) -> str:
    return f"{node.get('CPU', 0):g} CPU and {node.get('memory', 0) / 1e9:.1f} GB"


@dataclass(frozen=True)
class WorkerStatus:
    """The progress of a worker."""

    name: str  # number and host of the worker, for messages
    is_ready: bool  # whether the worker has loaded its service and accepts tasks
    answered_count: int  # number of tasks that were answered
    failed_count: int  # number of tasks that got an error instead of an answer
    unit_count: int  # number of units, such as tokens, that the worker has generated
    ready_seconds: float  # time since the worker was ready; 0 before that


class WorkerLostError(Exception):
    """A worker crashed, stopped responding, or cannot be reached any more. The message says why."""

    def __init__(self, reason: str, is_node_failure: bool = False) -> None:
        super().__init__(reason)
        # whether the entire node was lost, so that no task can be the cause
        self.is_node_failure = is_node_failure


# Part of Ray's message that distinguishes the loss of a node from the crash of a process
_NODE_DIED_MESSAGE = "its node has died"

_MISSING_MODULE = re.compile(r"No module named '([\w.]+)'")


class Worker:
    """A worker, as the driver sees it."""

    # Ray places the worker on a node, then it is started, then it accepts tasks.

    # One call of the actor is pending at any time; its result is fetched by `receive`. All times are those of a
    # `PollClock`.

    def __init__(self, number: int, service: Any, needs: WorkerNeeds, now: float) -> None:
        self._ray = import_ray()
        actor = self._ray.remote(WorkerActor).options(
            num_cpus=needs.cpus, num_gpus=needs.gpus, memory=needs.memory_bytes, max_concurrency=_ACTOR_THREADS
        )
        self._actor = actor.remote()
        self._service = service
        self.reference = self._actor.host.remote()  # Ray's reference of the pending call
        self._last_progress_time = now
        self._ready_time = monotonic()
        self._number = number
        self._answered_count = 0
        self._failed_count = 0
        self._unit_count = 0
        self._shards: list[_AssignedShard] = []
        self._shard_of_task: dict[str, _AssignedShard] = {}
        self.host: str | None = None  # name of the worker's node; None until Ray has placed the worker
        # the description that `Service.facts` returns; None until the worker accepts tasks
        self.facts: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"worker {self._number}" if self.host is None else f"worker {self._number} on {self.host}"

    @property
    def status(self) -> WorkerStatus:
        is_ready = self.facts is not None
        ready_seconds = monotonic() - self._ready_time if is_ready else 0.0
        return WorkerStatus(
            name=self.name,
            is_ready=is_ready,
            answered_count=self._answered_count,
            failed_count=self._failed_count,
            unit_count=self._unit_count,
            ready_seconds=ready_seconds,
        )

    @property
    def shards(self) -> list[Shard]:
        """The shards that the worker has, without the tasks that it has finished."""
        return [Shard(tuple(shard.tasks.values()), shard.crash_count) for shard in self._shards]

    @property
    def task_count(self) -> int:
        return len(self._shard_of_task)

    def can_take_shard(self, shard_size: int) -> bool:
        """Return whether the worker should get one more shard."""
        # A worker gets the next shard before it has finished the last one, so that its slots stay full. A shard
        # that has crashed a worker is computed alone.
        has_crashed_shard = any(shard.crash_count for shard in self._shards)
        return self.facts is not None and not has_crashed_shard and self.task_count <= shard_size

    def seconds_without_host(self, now: float) -> float:
        """Return how long Ray has searched for a node for the worker; 0 once Ray has found one."""
        return now - self._last_progress_time if self.host is None else 0.0

    def seconds_without_progress(self, now: float) -> float:
        """Return how long the worker, while it starts or has tasks, has made no progress; 0 if it is idle."""
        is_starting = self.host is not None and self.facts is None
        is_busy = is_starting or self.task_count > 0
        return now - self._last_progress_time if is_busy else 0.0

    def start(self, files: NeededFiles, now: float) -> None:
        self.reference = self._actor.start.remote(self._service, files)
        self._last_progress_time = now

    def assign(self, shard: Shard, now: float) -> None:
        if not self.task_count:
            self._last_progress_time = now
        assigned = _AssignedShard({task.key: task for task in shard.tasks}, shard.crash_count)
        self._shards.append(assigned)
        self._shard_of_task.update(dict.fromkeys(assigned.tasks, assigned))
        self._actor.add_tasks.remote(shard.tasks)

    def receive(self, now: float) -> list[TaskResult]:
        """Fetch the result of the actor's pending call, begin the next call, and return the task results."""
        # The actor's first call returns its host and no task results. The caller of this method then calls
        # `start`.
        # Raises ``WorkerLostError``, ``ClusterError``, the exception that ended the service, and, after `start`,
        # ``MissingFileError``.
        call_result = self._fetch_result(self.reference)
        if self.host is None:
            self.host = call_result
            return []
        results: list[TaskResult] = []
        if self.facts is None:
            self.facts = call_result
            self._ready_time = monotonic()
            self._last_progress_time = now
        else:
            results, unit_count = call_result
            if results or unit_count > self._unit_count:
                self._unit_count = unit_count
                self._last_progress_time = now
            self._record_results(results)
        self.reference = self._actor.collect.remote()
        return results

    def _record_results(self, results: list[TaskResult]) -> None:
        for result in results:
            if result.has_failed:
                self._failed_count += 1
            else:
                self._answered_count += 1
            shard = self._shard_of_task.pop(result.key)
            del shard.tasks[result.key]
            if not shard.tasks:
                self._shards.remove(shard)

    def kill(self) -> None:
        with suppress(Exception):  # the process or its node may not exist any more
            self._ray.kill(self._actor)

    def _fetch_result(self, reference: Any) -> Any:
        """Return the result of a call. Raises ``WorkerLostError``, ``ClusterError`` or what the method raised."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise _cause_of_task_error(error, errors) from None
        except errors.OutOfMemoryError:
            raise WorkerLostError("Ray killed it because its node was out of memory") from None
        except errors.ActorUnavailableError:
            raise WorkerLostError("its node cannot be reached", is_node_failure=True) from None
        except (errors.ObjectLostError, errors.NodeDiedError):
            raise WorkerLostError("its node failed", is_node_failure=True) from None
        except (errors.RayActorError, errors.WorkerCrashedError) as error:
            missing_module = _MISSING_MODULE.search(str(error))
            if missing_module is not None:
                package = missing_module[1]
                raise ClusterError(
                    f"the node lacks the Python package {package}; install the same version there as here"
                ) from None
            if _NODE_DIED_MESSAGE in str(error):
                raise WorkerLostError("its node failed", is_node_failure=True) from None
            raise WorkerLostError("its process ended") from None
        except errors.RayError as error:
            raise WorkerLostError(first_error_line(error)) from None


@dataclass
class _AssignedShard:
    """A shard that a worker has."""

    tasks: dict[str, Task]  # the unfinished tasks by their keys
    crash_count: int


def _cause_of_task_error(error: Any, errors: Any) -> Exception:
    """Return the exception that an actor's method raised; ``WorkerLostError`` for one of Ray's own errors."""
    cause = error.cause
    if isinstance(cause, errors.RayError):
        return WorkerLostError(first_error_line(cause))
    return cause if isinstance(cause, Exception) else ClusterError(first_error_line(error))


_ACTOR_THREADS = 2  # Threads of an actor: one waits in `collect`, and one accepts tasks meanwhile
_MAX_TASK_WAIT_SECONDS = 0.05  # maximum time that a service without tasks waits for one before it gets None
_MAX_FIRST_RESULT_SECONDS = 2.0  # maximum time that `collect` waits for a first result
_MAX_NEXT_RESULT_SECONDS = 0.01  # maximum time that `collect` waits for each result after the first
_MAX_RESULTS_PER_CALL = 256  # maximum number of results that one call of `collect` returns


class WorkerActor:
    """The actor that runs a service in a worker's process."""

    # `add_tasks` and `collect` may run concurrently, after `start`.

    def __init__(self) -> None:
        self._queued_tasks: Queue[Task] = Queue()
        self._results: Queue[TaskResult | None] = Queue()
        self._unanswered_keys: set[str] = set()
        self._unit_count = 0
        self._service_error: BaseException | None = None

    def host(self) -> str:
        """Return the name of the node. Ray runs this as soon as it has placed the worker."""
        return platform.node()

    def start(self, make_service: ServiceFactory, files: NeededFiles) -> dict[str, Any]:
        """Make the service and return its facts. Raises ``MissingFileError``, and what the service raises."""
        service = make_service(files.find)
        facts = service.facts()
        Thread(target=self._serve, args=(service,), daemon=True).start()
        return facts

    def add_tasks(self, tasks: Sequence[Task]) -> None:
        """Queue tasks; `collect` returns their results."""
        self._unanswered_keys.update(task.key for task in tasks)
        for task in tasks:
            self._queued_tasks.put(task)

    def collect(self) -> tuple[list[TaskResult], int]:
        """Wait for results, and return those since the last call and the number of units since the start."""
        # Raises the exception that ended the service, once all results have been returned.
        results: list[TaskResult] = []
        with suppress(Empty):
            result = self._results.get(timeout=_MAX_FIRST_RESULT_SECONDS)
            while result is not None:
                results.append(result)
                if len(results) == _MAX_RESULTS_PER_CALL:
                    break
                result = self._results.get(timeout=_MAX_NEXT_RESULT_SECONDS)
        if not results and self._service_error is not None:
            raise self._service_error
        return results, self._unit_count

    def _serve(self, service: Service) -> None:
        try:
            service.serve(self._iterate_tasks(), self._send_result, self._add_progress)
        except BaseException as error:
            self._service_error = error
            self._results.put(None)

    def _iterate_tasks(self) -> Iterator[Task | None]:
        while True:
            try:
                # Wait only if the service has answered every task that it got. Otherwise, waiting would delay it.
                is_idle = len(self._unanswered_keys) == self._queued_tasks.qsize()
                yield self._queued_tasks.get(block=is_idle, timeout=_MAX_TASK_WAIT_SECONDS)
            except Empty:
                yield None

    def _send_result(self, result: TaskResult) -> None:
        self._unanswered_keys.discard(result.key)
        self._results.put(result)

    def _add_progress(self, unit_count: int) -> None:
        self._unit_count += unit_count
