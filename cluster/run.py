"""A run on a cluster: tasks in, results out. Workers are started, watched and replaced, and no task is lost.

A pool has as many workers as are wanted, as far as the cluster has room for them. A worker that dies is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from .connection import HeadMonitor, import_ray
from .files import MissingFileError, needed_files, publish
from .tasks import ClusterError, ServicePlan, ShardQueue, Task, TaskResult
from .worker import Worker, WorkerLostError, WorkerNeeds, WorkerStatus, no_capacity_error, workers_that_fit


@dataclass(frozen=True)
class ClusterRunOptions:
    """How a run uses the cluster.

    Args:
        workers: how many there are; None: as many as fit.
        needs: what each of them takes.
        shard_size: how many tasks a worker gets at once.
        stall_seconds: a worker that has tasks and makes nothing for so long is killed.
    """

    worker_count: int | None
    needs: WorkerNeeds
    shard_size: int
    max_stall_seconds: float


_POLL_SECONDS = 0.5
"""How long the driver waits for news before it looks at its workers."""
_MAX_WORKERS_WITHOUT_GATHERING, _GATHER_SECONDS = 16, 0.1
"""With more workers than that, the driver waits so long for further answers after the first."""


class ClusterRun:
    """A run on a cluster that is connect. Its workers start at once.

    Args:
        options: how the cluster is used.
        service: what each worker runs.
        get_rejection_reason: looks at a worker's facts, and returns why it may not join; None: it may.
        report: takes sentences on what goes wrong meanwhile.
        head_monitor: looks at the head.
    """

    def __init__(
        self,
        options: ClusterRunOptions,
        service: ServicePlan,
        get_rejection_reason: Callable[[dict[str, Any]], str | None],
        report: Callable[[str], object],
        head_monitor: HeadMonitor,
    ) -> None:
        self._ray = import_ray()
        self._options, self._report = options, report
        self._get_rejection_reason, self._head_monitor = get_rejection_reason, head_monitor
        self._pool = _WorkerPool(options.worker_count, options.needs, service, report)

    @property
    def worker_statuses(self) -> Sequence[WorkerStatus]:
        """How each worker is doing."""
        return [worker.status for worker in self._pool]

    @property
    def unit_count(self) -> int:
        """What all workers made, those that died included."""
        return self._pool.unit_count

    def wait_for_worker(self) -> dict[str, Any] | None:
        """Wait a moment for a worker to be ready; returns its facts, None if there is none yet.

        Raises ``ClusterError``, and what the start of a service raises.
        """
        list(self._poll_workers(None))
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
            self._assign_shards(queue)
            if queue.is_exhausted and not any(worker.task_count for worker in self._pool):
                return
            yield from self._poll_workers(queue)
            yield None

    def close(self) -> None:
        """End all workers."""
        self._pool.close()

    def _assign_shards(self, queue: ShardQueue) -> None:
        """Give a shard to each worker that has none, then one more to each."""
        size, now = self._options.shard_size, self._pool.clock.now
        ready = [worker for worker in self._pool if worker.can_take_shard(size)]
        for is_idle in (True, False):
            for worker in ready:
                if is_idle == (worker.task_count == 0):
                    shard = queue.next(allows_crashed=is_idle)
                    if shard is None:
                        break
                    worker.assign(shard, now)

    def _poll_workers(self, queue: ShardQueue | None) -> Iterator[TaskResult]:
        """Wait for news of the workers, and yield the results in it; ``queue``: takes the shards of dead ones."""
        if self._head_monitor.is_unreachable:
            raise ClusterError("the head of the cluster is gone; what was answered is kept")
        self._pool.start_due()
        ready = self._wait()
        self._pool.clock.tick()
        for worker in self._pool:
            try:
                if worker.reference in ready:
                    yield from self._receive(worker)
                if worker.seconds_without_progress(self._pool.clock.now) > self._options.max_stall_seconds:
                    raise WorkerLostError(
                        f"it made nothing for {self._options.max_stall_seconds:g} s, and was ended"
                    )
            except WorkerLostError as death:
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
        pause = _GATHER_SECONDS if count > _MAX_WORKERS_WITHOUT_GATHERING else 0
        return set(self._ray.wait(references, num_returns=count, timeout=pause)[0])

    def _receive(self, worker: Worker) -> list[TaskResult]:
        was_ready = worker.facts is not None
        try:
            results = self._pool.receive(worker)
            if not was_ready and worker.facts is not None:
                self._raise_if_rejected(worker.facts)
                self._pool.note_ready()
        except WorkerLostError:
            raise
        except Exception as error:
            if was_ready:
                raise
            self._pool.reject(worker, error)
            return []
        return results

    def _raise_if_rejected(self, facts: dict[str, Any]) -> None:
        reason = self._get_rejection_reason(facts)
        if reason is not None:
            raise ClusterError(reason)

    def _replace(self, worker: Worker, death: WorkerLostError, queue: ShardQueue | None) -> Iterator[TaskResult]:
        """Start another worker for a dead one; its shards go back. Yields the tasks that no worker survives."""
        self._report(f"{worker.name} died ({death}); what it had goes to others")
        self._pool.replace(worker, death)
        if queue is None:
            return
        for shard in worker.shards:
            if death.is_node_failure:
                queue.requeue(shard)
                continue
            task = queue.requeue_after_crash(shard)
            if task is not None:
                yield TaskResult(task.key, None, True)


_MAX_FAILED_STARTS = 3
"""After so many workers in a row that died while they started, the run ends if none was ever ready."""
_MAX_CRASHES_WITHOUT_RESULT = 24
"""After so many deaths in a row without any result between them, the run ends. To find one bad task of a shard of
eight takes five."""
_MAX_RESTART_DELAY_SECONDS = 60.0
"""Between a worker that died while it started and the next one; the first delay is one second."""
_CAPACITY_SECONDS = 10.0
"""How often the run looks whether the cluster has room for the workers that are not ready."""


class _WorkerPool:
    """Workers, which start at once.

    Args:
        worker_count: how many there are; None: as many as fit.
        needs: what each of them takes.
        service: what each runs.
        report: takes sentences on what goes wrong meanwhile.

    Attributes: ``clock``: the time of the workers.

    Raises ``ClusterError`` if not one fits.
    """

    def __init__(
        self, worker_count: int | None, needs: WorkerNeeds, service: ServicePlan, report: Callable[[str], object]
    ) -> None:
        self._ray = import_ray()
        self.clock = PollClock()
        self._needs, self._report = needs, report
        self._service, self._files = self._ray.put(service.make_service), needed_files(service.files)
        fitting = workers_that_fit(self._nodes(), needs)
        if not fitting:
            raise no_capacity_error(self._nodes(), needs)
        self._worker_count = self._fitting_worker_count = worker_count or fitting
        self._failed_start_count = self._started_count = self._units_of_removed_workers = (
            self._crashes_without_result
        ) = 0
        self._unplaced_count = 0
        self._was_ready = False
        self._rejections: list[str] = []
        self._workers: list[Worker] = []
        self._start_times = [self.clock.now] * self._worker_count
        self._checked_at = self.clock.now
        self._report_fitting_count(fitting)
        self.start_due()

    def __iter__(self) -> Iterator[Worker]:
        """The workers, ready or not; some may be removed meanwhile."""
        return iter(tuple(self._workers))

    @property
    def unit_count(self) -> int:
        """What all workers made, those that died included."""
        return self._units_of_removed_workers + sum(worker.status.unit_count for worker in self._workers)

    def start_due(self) -> None:
        """Start the workers whose time has come, and say so if the cluster has no room for them now."""
        now = self.clock.now
        due = [time for time in self._start_times if time <= now]
        self._start_times = [time for time in self._start_times if time > now]
        for _ in due:
            self._started_count += 1
            self._workers.append(Worker(self._started_count, self._service, self._needs, now))
        if now - self._checked_at >= _CAPACITY_SECONDS:
            self._checked_at = now
            self._report_rejections()
            self._check_capacity()

    def receive(self, worker: Worker) -> list[TaskResult]:
        """Take what a worker answers; returns the results of tasks. One that is placed starts.

        Raises ``WorkerLostError``, ``ClusterError``, and what ended its service.
        """
        was_placed, now = worker.host is not None, self.clock.now
        try:
            results = worker.receive(now)
        except MissingFileError:
            if self._files.published is None:
                self._report("the model is sent to the nodes that lack it")
                self._files = publish(self._files)
            worker.start(self._files, now)
            return []
        if not was_placed:
            worker.start(self._files, now)
        if results:
            self._crashes_without_result = 0
        return results

    def note_ready(self) -> None:
        """Note that a worker has started and may join; tells which others may not."""
        self._failed_start_count, self._was_ready = 0, True
        self._report_rejections()

    def reject(self, worker: Worker, reason: Exception) -> None:
        """End a worker that cannot start or may not join. There is no other in its place: it would be the same.

        Raises the reason if there is no other worker at all, with the worker's name if it is a ``ClusterError``.
        """
        self._remove(worker)
        if not self._workers and not self._start_times:
            if isinstance(reason, ClusterError):
                raise ClusterError(f"{worker.name} does not join, and there is no other: {reason}") from None
            raise reason
        self._rejections.append(f"{worker.name} does not join: {reason}")
        if any(other.facts is not None for other in self._workers):
            self._report_rejections()

    def replace(self, worker: Worker, death: WorkerLostError) -> None:
        """Start another worker for one that died. Raises ``ClusterError`` if none stays alive."""
        self._remove(worker)
        if not death.is_node_failure:
            self._count_death(worker, death)
        delay = (
            0.0
            if not self._failed_start_count
            else min(_MAX_RESTART_DELAY_SECONDS, 2.0 ** (self._failed_start_count - 1))
        )
        self._start_times.append(self.clock.now + delay)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.kill()

    def _remove(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)
        self._units_of_removed_workers += worker.status.unit_count

    def _report_rejections(self) -> None:
        """Tell which workers do not join. If none does, the run ends soon, and its error says why."""
        for refusal in self._rejections:
            self._report(refusal)
        self._rejections.clear()

    def _count_death(self, worker: Worker, death: WorkerLostError) -> None:
        self._crashes_without_result += 1
        if self._crashes_without_result >= _MAX_CRASHES_WITHOUT_RESULT:
            raise ClusterError(f"{self._crashes_without_result} workers in a row died without a result: {death}")
        if worker.facts is None:
            self._failed_start_count += 1
            if self._failed_start_count >= _MAX_FAILED_STARTS and not self._was_ready:
                raise ClusterError(f"{self._failed_start_count} workers in a row died while they started: {death}")

    def _check_capacity(self) -> None:
        if all(worker.facts is not None for worker in self._workers):
            return
        self._report_fitting_count(workers_that_fit(self._nodes(), self._needs))
        waiting = sum(worker.seconds_without_host(self.clock.now) >= _CAPACITY_SECONDS for worker in self._workers)
        if waiting > max(self._unplaced_count, self._worker_count - self._fitting_worker_count):
            verb = "waits" if waiting == 1 else "wait"
            self._report(f"{waiting} of {self._worker_count} workers {verb}: the cluster is busy with other work")
        self._unplaced_count = waiting

    def _nodes(self) -> list[dict[str, float]]:
        """What each node that is alive has."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _report_fitting_count(self, fitting: int) -> None:
        room = min(fitting, self._worker_count)
        if room < self._fitting_worker_count:
            self._report(
                f"the cluster has room for {room} of {self._worker_count} workers; the others wait for it"
            )
        self._fitting_worker_count = room


_MAX_STEP_SECONDS = 2.0
"""More than lies between two looks of a driver that is not held up."""


class PollClock:
    """Seconds in which the driver looked at its workers.

    A driver that was suspended, or waited for a full pipe, has read no news meanwhile: no worker hangs for that.

    Args:
        time: the clock that it follows.
    """

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self._checked_at = time()
        self.now = 0.0

    def tick(self) -> None:
        """Go on: the driver looks now."""
        time = self._time()
        self.now += min(time - self._checked_at, _MAX_STEP_SECONDS)
        self._checked_at = time
