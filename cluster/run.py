"""A run on a cluster, which turns tasks into results. Lost workers are replaced, and no task is lost.

A pool starts the requested number of workers. Workers that do not fit on the cluster wait until they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from .connection import HeadMonitor, import_ray
from .files import MissingFileError, needed_files, publish_files
from .tasks import ClusterError, ServicePlan, ShardQueue, Task, TaskResult
from .worker import Worker, WorkerLostError, WorkerNeeds, WorkerStatus, no_capacity_error, workers_that_fit


@dataclass(frozen=True)
class ClusterRunOptions:
    """Settings of a run on a cluster."""

    worker_count: int | None
    needs: WorkerNeeds  # resources that each worker needs
    shard_size: int  # maximum number of tasks that a worker gets in one shard
    max_stall_seconds: float  # a worker that has tasks and makes no progress for longer is killed and replaced


_MAX_POLL_SECONDS = 0.5  # maximum time that the driver waits for results before it checks all workers for stalls
_MAX_WORKERS_WITHOUT_BATCHING = 16
# With more workers than `_MAX_WORKERS_WITHOUT_BATCHING`, the driver waits this long after the first result, so
# that one poll collects the results of many workers
_RESULT_BATCHING_SECONDS = 0.1


class ClusterRun:
    """A run on a connected cluster. It starts its workers immediately."""

    # ``get_rejection_reason``: returns why a worker with these facts may not join the run; None if the worker may
    # join

    def __init__(
        self,
        options: ClusterRunOptions,
        service: ServicePlan,
        get_rejection_reason: Callable[[dict[str, Any]], str | None],
        report: Callable[[str], object],
        head_monitor: HeadMonitor,
    ) -> None:
        self._ray = import_ray()
        self._options = options
        self._report = report
        self._get_rejection_reason = get_rejection_reason
        self._head_monitor = head_monitor
        self._pool = _WorkerPool(options.worker_count, options.needs, service, report)

    @property
    def worker_statuses(self) -> Sequence[WorkerStatus]:
        """The progress of each worker that exists now."""
        return [worker.status for worker in self._pool]

    @property
    def unit_count(self) -> int:
        """Number of units, such as tokens, that all workers generated, including lost workers."""
        return self._pool.unit_count

    def wait_for_worker(self) -> dict[str, Any] | None:
        """Wait briefly for a worker to be ready. Return the facts of a ready worker; None if there is none yet."""
        # Raises ``ClusterError``, and what the service raises when it is made.
        list(self._poll_workers(None))
        return next((worker.facts for worker in self._pool if worker.facts is not None), None)

    def results(
        self, tasks: Iterator[Task | None], should_stop: Callable[[], bool]
    ) -> Iterator[TaskResult | None]:
        """Yield each result when it arrives, and None periodically, so that the caller can show the progress."""
        # Once ``should_stop`` returns True, no more tasks are read; those that were assigned are finished. Raises
        # ``ClusterError``, and the exception that ends a service.
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
        self._pool.close()

    def _assign_shards(self, queue: ShardQueue) -> None:
        """Assign a shard to each worker without tasks, then a second one to each worker that can take it."""
        shard_size = self._options.shard_size
        now = self._pool.clock.now
        available_workers = [worker for worker in self._pool if worker.can_take_shard(shard_size)]
        for is_idle in (True, False):
            for worker in available_workers:
                if is_idle == (worker.task_count == 0):
                    shard = queue.next(may_have_crashed_worker=is_idle)
                    if shard is None:
                        break
                    worker.assign(shard, now)

    def _poll_workers(self, queue: ShardQueue | None) -> Iterator[TaskResult]:
        """Wait briefly for results of the workers, yield them, and replace lost workers."""
        if self._head_monitor.is_unreachable:
            raise ClusterError("the head of the cluster cannot be reached; all results so far are kept")
        self._pool.start_due_workers()
        finished_calls = self._wait_for_calls()
        self._pool.clock.tick()
        for worker in self._pool:
            try:
                if worker.reference in finished_calls:
                    yield from self._receive_results(worker)
                if worker.seconds_without_progress(self._pool.clock.now) > self._options.max_stall_seconds:
                    raise WorkerLostError(
                        f"it made no progress for {self._options.max_stall_seconds:g} s, and was killed"
                    )
            except WorkerLostError as loss:
                yield from self._replace_worker(worker, loss, queue)

    def _wait_for_calls(self) -> set[Any]:
        """Wait briefly for the pending calls of the workers, and return the references of the finished calls."""
        references = [worker.reference for worker in self._pool]
        if not references:  # ray.wait([]) returns immediately, and the caller's loop would spin
            sleep(_MAX_POLL_SECONDS)
            return set()
        call_count = len(references)
        self._ray.wait(references, timeout=_MAX_POLL_SECONDS)
        # With many workers, more results arrive soon. A poll for each result would check all workers every time.
        batching_seconds = _RESULT_BATCHING_SECONDS if call_count > _MAX_WORKERS_WITHOUT_BATCHING else 0
        finished, _unfinished = self._ray.wait(references, num_returns=call_count, timeout=batching_seconds)
        return set(finished)

    def _receive_results(self, worker: Worker) -> list[TaskResult]:
        """Return the results that a worker has sent. A worker that cannot start or may not join is removed."""
        was_ready = worker.facts is not None
        try:
            results = self._pool.receive(worker)
            if not was_ready and worker.facts is not None:
                self._raise_if_rejected(worker.facts)
                self._pool.record_ready_worker()
                if worker.facts.get("note"):
                    self._report(f"{worker.name}: {worker.facts['note']}")
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

    def _replace_worker(
        self, worker: Worker, loss: WorkerLostError, queue: ShardQueue | None
    ) -> Iterator[TaskResult]:
        """Replace a lost worker, requeue its shards, and yield failures of tasks that crashed too many workers."""
        self._report(f"{worker.name} was lost ({loss}); its tasks are reassigned to other workers")
        self._pool.replace(worker, loss)
        if queue is None:
            return
        for shard in worker.shards:
            if loss.is_node_failure:
                queue.requeue(shard)
                continue
            task_to_give_up = queue.requeue_after_crash(shard)
            if task_to_give_up is not None:
                yield TaskResult(task_to_give_up.key, content=None, has_failed=True)


# After this many crashes in a row during the start, the run ends if no worker has ever been ready
_MAX_FAILED_STARTS = 3
# After this many crashes in a row without a result between them, the run ends. Five crashes are enough to find the
# task in a shard of eight that crashes workers.
_MAX_CRASHES_WITHOUT_RESULT = 24
# Maximum time between a crash during the start and the next start. The first delay is one second, and it doubles
# with each crash.
_MAX_RESTART_DELAY_SECONDS = 60.0
# time between two checks whether the cluster has resources for the workers that are not ready
_SECONDS_BETWEEN_CAPACITY_CHECKS = 10.0


class _WorkerPool:
    """The workers of a run, started immediately. Raises ``ClusterError`` if none fits on the cluster."""

    def __init__(
        self, worker_count: int | None, needs: WorkerNeeds, service: ServicePlan, report: Callable[[str], object]
    ) -> None:
        self._ray = import_ray()
        self.clock = PollClock()  # clock whose times the workers get
        self._needs = needs
        self._report = report
        self._service_reference = self._ray.put(service.make_service)
        self._needed_files = needed_files(service.files)
        fitting_count = workers_that_fit(self._node_resources(), needs)
        if not fitting_count:
            raise no_capacity_error(self._node_resources(), needs)
        self._worker_count = worker_count or fitting_count
        self._fitting_worker_count = self._worker_count
        self._started_count = 0
        self._failed_start_count = 0  # number of crashes during the start, since a worker was last ready
        self._crashes_without_result = 0
        self._unit_count_of_removed_workers = 0
        self._unplaced_count = 0  # number of workers that waited for a node at the last check
        self._was_any_ready = False
        self._rejection_messages: list[str] = []
        self._workers: list[Worker] = []
        self._start_times = [self.clock.now] * self._worker_count
        self._capacity_checked_at = self.clock.now
        self._report_fitting_count(fitting_count)
        self.start_due_workers()

    def __iter__(self) -> Iterator[Worker]:
        """Iterate over the workers, ready or not. The caller may remove workers during the iteration."""
        return iter(tuple(self._workers))

    @property
    def unit_count(self) -> int:
        return self._unit_count_of_removed_workers + sum(worker.status.unit_count for worker in self._workers)

    def start_due_workers(self) -> None:
        """Start the workers whose start time has been reached. Periodically report workers that do not fit."""
        now = self.clock.now
        due_times = [start_time for start_time in self._start_times if start_time <= now]
        self._start_times = [start_time for start_time in self._start_times if start_time > now]
        for _ in due_times:
            self._started_count += 1
            self._workers.append(Worker(self._started_count, self._service_reference, self._needs, now))
        if now - self._capacity_checked_at >= _SECONDS_BETWEEN_CAPACITY_CHECKS:
            self._capacity_checked_at = now
            self._report_rejections()
            self._check_capacity()

    def receive(self, worker: Worker) -> list[TaskResult]:
        """Return the results that a worker has sent. A worker that Ray has just placed is started."""
        # If a file is missing on the worker's node, the file is put into the object store and the start is
        # repeated.
        # Raises ``WorkerLostError``, ``ClusterError``, and the exception that ended the service.
        was_placed = worker.host is not None
        now = self.clock.now
        try:
            results = worker.receive(now)
        except MissingFileError:
            if self._needed_files.published_files is None:
                self._report("the model is sent to the nodes that do not have it")
                self._needed_files = publish_files(self._needed_files)
            worker.start(self._needed_files, now)
            return []
        if not was_placed:
            worker.start(self._needed_files, now)
        if results:
            self._crashes_without_result = 0
        return results

    def record_ready_worker(self) -> None:
        """Record that a worker has joined the run, and report rejected workers."""
        self._failed_start_count = 0
        self._was_any_ready = True
        self._report_rejections()

    def reject(self, worker: Worker, error: Exception) -> None:
        """Remove a worker that cannot start or may not join. A replacement would fail in the same way."""
        # If no worker is left, raises the error, with the worker's name if the error is a ``ClusterError``.
        self._remove(worker)
        if not self._workers and not self._start_times:
            if isinstance(error, ClusterError):
                raise ClusterError(f"{worker.name} cannot join, and no other worker is left: {error}") from None
            raise error
        self._rejection_messages.append(f"{worker.name} cannot join: {error}")
        if any(other.facts is not None for other in self._workers):
            self._report_rejections()

    def replace(self, worker: Worker, loss: WorkerLostError) -> None:
        """Schedule the start of a replacement for a worker. Raises ``ClusterError`` after too many crashes."""
        self._remove(worker)
        if not loss.is_node_failure:
            self._count_crash(worker, loss)
        delay = 0.0
        if self._failed_start_count:
            delay = min(_MAX_RESTART_DELAY_SECONDS, 2.0 ** (self._failed_start_count - 1))
        self._start_times.append(self.clock.now + delay)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _remove(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)
        self._unit_count_of_removed_workers += worker.status.unit_count

    def _report_rejections(self) -> None:
        """Report workers that cannot join."""
        # This is called only after a worker was ready. If no worker can join, the run ends with an error instead.
        for message in self._rejection_messages:
            self._report(message)
        self._rejection_messages.clear()

    def _count_crash(self, worker: Worker, loss: WorkerLostError) -> None:
        """Count a crash. Raises ``ClusterError`` after too many crashes in a row."""
        self._crashes_without_result += 1
        if self._crashes_without_result >= _MAX_CRASHES_WITHOUT_RESULT:
            raise ClusterError(f"{self._crashes_without_result} workers in a row crashed without a result: {loss}")
        if worker.facts is None:
            self._failed_start_count += 1
            if self._failed_start_count >= _MAX_FAILED_STARTS and not self._was_any_ready:
                raise ClusterError(
                    f"{self._failed_start_count} workers in a row crashed while they started: {loss}"
                )

    def _check_capacity(self) -> None:
        """Report if workers wait for resources of the cluster."""
        if all(worker.facts is not None for worker in self._workers):
            return
        self._report_fitting_count(workers_that_fit(self._node_resources(), self._needs))
        now = self.clock.now
        unplaced_count = sum(
            worker.seconds_without_host(now) >= _SECONDS_BETWEEN_CAPACITY_CHECKS for worker in self._workers
        )
        # Workers that do not fit on the cluster are reported already.
        reported_count = max(self._unplaced_count, self._worker_count - self._fitting_worker_count)
        if unplaced_count > reported_count:
            verb = "waits" if unplaced_count == 1 else "wait"
            self._report(
                f"{unplaced_count} of {self._worker_count} workers {verb}: the cluster is busy with other work"
            )
        self._unplaced_count = unplaced_count

    def _node_resources(self) -> list[dict[str, float]]:
        """Return the resources of each node that is alive, under Ray's names."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _report_fitting_count(self, fitting_count: int) -> None:
        """Report if fewer workers fit on the cluster than at the last check."""
        fitting_count = min(fitting_count, self._worker_count)
        if fitting_count < self._fitting_worker_count:
            self._report(
                f"{fitting_count} of {self._worker_count} workers fit on the cluster;"
                " the others wait for resources"
            )
        self._fitting_worker_count = fitting_count


# maximum time by which one check of the workers advances the clock; longer than the usual time between checks
_MAX_TICK_SECONDS = 2.0


class PollClock:
    """A clock, in seconds, that runs only while the driver checks its workers."""

    # A driver that was suspended, or waited for a full pipe, has not read the workers' results meanwhile. This
    # time must not count as time in which a worker made no progress.

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._read_time = time
        self._last_tick_time = time()
        self.now = 0.0  # time since the start, in seconds, without the time in which no workers were checked

    def tick(self) -> None:
        """Advance the clock; called at each check of the workers."""
        current_time = self._read_time()
        self.now += min(current_time - self._last_tick_time, _MAX_TICK_SECONDS)
        self._last_tick_time = current_time
