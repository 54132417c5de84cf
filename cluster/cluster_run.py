"""Tasks in, results out: workers are started, fed, watched and replaced, and no task is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import sleep
from typing import Any

from .connection import HeadWatch, import_ray
from .errors import ClusterError
from .placement import WorkerNeeds
from .shards import ShardQueue
from .tasks import ServicePlan, Task, TaskResult
from .worker import Worker, WorkerDiedError, WorkerStatus
from .worker_pool import WorkerPool

_POLL_SECONDS = 0.5
"""How long the driver waits for news before it looks at its workers."""
_FEW_WORKERS, _GATHER_SECONDS = 16, 0.1
"""With more workers than that, the driver waits so long for further answers after the first."""


@dataclass(frozen=True)
class ClusterRunOptions:
    """How a run uses the cluster.

    Args:
        workers: how many there are; None: as many as fit.
        needs: what each of them takes.
        shard_size: how many tasks a worker gets at once.
        stall_seconds: a worker that has tasks and makes nothing for so long is killed.
    """

    workers: int | None
    needs: WorkerNeeds
    shard_size: int
    stall_seconds: float


class ClusterRun:
    """A run on a cluster that is connected. Its workers start at once.

    Args:
        options: how the cluster is used.
        service: what each worker runs.
        admit: looks at a worker's facts, and returns why it may not join; None: it may.
        report: takes sentences on what goes wrong meanwhile.
        watch: looks at the head.
    """

    def __init__(
        self,
        options: ClusterRunOptions,
        service: ServicePlan,
        admit: Callable[[dict[str, Any]], str | None],
        report: Callable[[str], object],
        watch: HeadWatch,
    ) -> None:
        self._ray = import_ray()
        self._options, self._admit, self._report, self._watch = options, admit, report, watch
        self._pool = WorkerPool(options.workers, options.needs, service, report)

    @property
    def workers(self) -> Sequence[WorkerStatus]:
        """How each worker is doing."""
        return [worker.status for worker in self._pool]

    @property
    def units(self) -> int:
        """What all workers made, those that died included."""
        return self._pool.units

    def wait_for_worker(self) -> dict[str, Any] | None:
        """Wait a moment for a worker to be ready; returns its facts, None if there is none yet.

        Raises ``ClusterError``, and what the start of a service raises.
        """
        list(self._news(None))
        return next((worker.facts for worker in self._pool if worker.facts is not None), None)

    def results(
        self, tasks: Iterator[Task | None], should_stop: Callable[[], bool]
    ) -> Iterator[TaskResult | None]:
        """Yield the results as they come, and now and then None, when there is time to show the progress.

        Args:
            tasks: None: there is none yet.
            should_stop: once it returns True, no further task is begun.

        Raises ``ClusterError``, and what ends a service.
        """
        queue = ShardQueue(tasks, self._options.shard_size)
        while True:
            if should_stop():
                queue.stop()
            self._feed(queue)
            if queue.is_empty and not any(worker.task_count for worker in self._pool):
                return
            yield from self._news(queue)
            yield None

    def close(self) -> None:
        """End all workers."""
        self._pool.close()

    def _feed(self, queue: ShardQueue) -> None:
        """Give a shard to each worker that has none, then one more to each."""
        size, now = self._options.shard_size, self._pool.clock.now
        ready = [worker for worker in self._pool if worker.has_room(size)]
        for is_idle in (True, False):
            for worker in ready:
                if is_idle == (worker.task_count == 0):
                    shard = queue.next(takes_suspects=is_idle)
                    if shard is None:
                        break
                    worker.give(shard, now)

    def _news(self, queue: ShardQueue | None) -> Iterator[TaskResult]:
        """Wait for news of the workers, and yield the results in it; ``queue``: takes the shards of dead ones."""
        if self._watch.is_gone:
            raise ClusterError("the head of the cluster is gone; what was answered is kept")
        self._pool.start_due()
        ready = self._wait()
        self._pool.clock.tick()
        for worker in self._pool:
            try:
                if worker.reference in ready:
                    yield from self._receive(worker)
                if worker.stalled_seconds(self._pool.clock.now) > self._options.stall_seconds:
                    raise WorkerDiedError(f"it made nothing for {self._options.stall_seconds:g} s, and was ended")
            except WorkerDiedError as death:
                yield from self._replace(worker, death, queue)

    def _wait(self) -> set[Any]:
        """Wait a moment for answers of the workers; returns the references of those that are there."""
        references = [worker.reference for worker in self._pool]
        if not references:  # Ray would not wait
            sleep(_POLL_SECONDS)
            return set()
        count = len(references)
        self._ray.wait(references, timeout=_POLL_SECONDS)
        # Of many workers, more answer soon: each look at all of them takes time.
        pause = _GATHER_SECONDS if count > _FEW_WORKERS else 0
        return set(self._ray.wait(references, num_returns=count, timeout=pause)[0])

    def _receive(self, worker: Worker) -> list[TaskResult]:
        was_ready = worker.facts is not None
        try:
            results = self._pool.receive(worker)
            if not was_ready and worker.facts is not None:
                self._admit_or_raise(worker.facts)
                self._pool.note_ready()
        except WorkerDiedError:
            raise
        except Exception as error:
            if was_ready:
                raise
            self._pool.refuse(worker, error)
            return []
        return results

    def _admit_or_raise(self, facts: dict[str, Any]) -> None:
        reason = self._admit(facts)
        if reason is not None:
            raise ClusterError(reason)

    def _replace(self, worker: Worker, death: WorkerDiedError, queue: ShardQueue | None) -> Iterator[TaskResult]:
        """Start another worker for a dead one; its shards go back. Yields the tasks that no worker survives."""
        self._report(f"{worker.name} died ({death}); what it had goes to others")
        self._pool.replace(worker, death)
        if queue is not None:
            yield from _put_back(worker, death, queue)


def _put_back(worker: Worker, death: WorkerDiedError, queue: ShardQueue) -> Iterator[TaskResult]:
    """Give the shards of a dead worker to others; yields the tasks that are to blame."""
    for shard in worker.shards:
        if death.with_its_node:
            queue.put_back(shard)
            continue
        task = queue.put_back_from_dead(shard)
        if task is not None:
            yield TaskResult(task.key, None, True)
