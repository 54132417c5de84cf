"""A run on a cluster: tasks in, results out. Workers are started, watched and replaced, and no task is lost.

A pool has as many workers as are wanted, as far as the cluster has room for them. A worker that dies is replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from .connection import HeadWatch, import_ray
from .files import MissingFileError, needed_files, publish
from .tasks import ClusterError, ServicePlan, ShardQueue, Task, TaskResult
from .worker import Worker, WorkerDiedError, WorkerNeeds, WorkerStatus, no_room, workers_that_fit


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


_POLL_SECONDS = 0.5
"""How long the driver waits for news before it looks at its workers."""
_FEW_WORKERS, _GATHER_SECONDS = 16, 0.1
"""With more workers than that, the driver waits so long for further answers after the first."""


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
        self._pool = _WorkerPool(options.workers, options.needs, service, report)

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
        if queue is None:
            return
        for shard in worker.shards:
            if death.with_its_node:
                queue.put_back(shard)
                continue
            task = queue.put_back_from_dead(shard)
            if task is not None:
                yield TaskResult(task.key, None, True)


_MAX_FAILED_STARTS = 3
"""After so many workers in a row that died while they started, the run ends if none was ever ready."""
_MAX_DEATHS_WITHOUT_RESULT = 24
"""After so many deaths in a row without any result between them, the run ends. To find one bad task of a shard of
eight takes five."""
_LONGEST_DELAY_SECONDS = 60.0
"""Between a worker that died while it started and the next one; the first delay is one second."""
_ROOM_SECONDS = 10.0
"""How often the run looks whether the cluster has room for the workers that are not ready."""


class _WorkerPool:
    """Workers, which start at once.

    Args:
        wanted: how many there are; None: as many as fit.
        needs: what each of them takes.
        service: what each runs.
        report: takes sentences on what goes wrong meanwhile.

    Attributes: ``clock``: the time of the workers.

    Raises ``ClusterError`` if not one fits.
    """

    def __init__(
        self, wanted: int | None, needs: WorkerNeeds, service: ServicePlan, report: Callable[[str], object]
    ) -> None:
        self._ray = import_ray()
        self.clock = PollClock()
        self._needs, self._report = needs, report
        self._service, self._files = self._ray.put(service.make), needed_files(service.files)
        fitting = workers_that_fit(self._nodes(), needs)
        if not fitting:
            raise no_room(self._nodes(), needs)
        self._wanted = self._room = wanted or fitting
        self._failed_starts = self._started = self._units_of_dead = self._deaths_without_result = 0
        self._waiting = 0
        self._was_ready = False
        self._refusals: list[str] = []
        self._workers: list[Worker] = []
        self._due = [self.clock.now] * self._wanted
        self._looked_at = self.clock.now
        self._report_room(fitting)
        self.start_due()

    def __iter__(self) -> Iterator[Worker]:
        """The workers, ready or not; some may be removed meanwhile."""
        return iter(tuple(self._workers))

    @property
    def units(self) -> int:
        """What all workers made, those that died included."""
        return self._units_of_dead + sum(worker.status.units for worker in self._workers)

    def start_due(self) -> None:
        """Start the workers whose time has come, and say so if the cluster has no room for them now."""
        now = self.clock.now
        due = [time for time in self._due if time <= now]
        self._due = [time for time in self._due if time > now]
        for _ in due:
            self._started += 1
            self._workers.append(Worker(self._started, self._service, self._needs, now))
        if now - self._looked_at >= _ROOM_SECONDS:
            self._looked_at = now
            self._tell_refusals()
            self._look_for_room()

    def receive(self, worker: Worker) -> list[TaskResult]:
        """Take what a worker answers; returns the results of tasks. One that is placed starts.

        Raises ``WorkerDiedError``, ``ClusterError``, and what ended its service.
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
            self._deaths_without_result = 0
        return results

    def note_ready(self) -> None:
        """Note that a worker has started and may join; tells which others may not."""
        self._failed_starts, self._was_ready = 0, True
        self._tell_refusals()

    def refuse(self, worker: Worker, reason: Exception) -> None:
        """End a worker that cannot start or may not join. There is no other in its place: it would be the same.

        Raises the reason if there is no other worker at all, with the worker's name if it is a ``ClusterError``.
        """
        self._remove(worker)
        if not self._workers and not self._due:
            if isinstance(reason, ClusterError):
                raise ClusterError(f"{worker.name} does not join, and there is no other: {reason}") from None
            raise reason
        self._refusals.append(f"{worker.name} does not join: {reason}")
        if any(other.facts is not None for other in self._workers):
            self._tell_refusals()

    def replace(self, worker: Worker, death: WorkerDiedError) -> None:
        """Start another worker for one that died. Raises ``ClusterError`` if none stays alive."""
        self._remove(worker)
        if not death.with_its_node:
            self._count_death(worker, death)
        delay = 0.0 if not self._failed_starts else min(_LONGEST_DELAY_SECONDS, 2.0 ** (self._failed_starts - 1))
        self._due.append(self.clock.now + delay)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.kill()

    def _remove(self, worker: Worker) -> None:
        worker.kill()
        self._workers.remove(worker)
        self._units_of_dead += worker.status.units

    def _tell_refusals(self) -> None:
        """Tell which workers do not join. If none does, the run ends soon, and its error says why."""
        for refusal in self._refusals:
            self._report(refusal)
        self._refusals.clear()

    def _count_death(self, worker: Worker, death: WorkerDiedError) -> None:
        self._deaths_without_result += 1
        if self._deaths_without_result >= _MAX_DEATHS_WITHOUT_RESULT:
            raise ClusterError(f"{self._deaths_without_result} workers in a row died without a result: {death}")
        if worker.facts is None:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS and not self._was_ready:
                raise ClusterError(f"{self._failed_starts} workers in a row died while they started: {death}")

    def _look_for_room(self) -> None:
        if all(worker.facts is not None for worker in self._workers):
            return
        self._report_room(workers_that_fit(self._nodes(), self._needs))
        waiting = sum(worker.unplaced_seconds(self.clock.now) >= _ROOM_SECONDS for worker in self._workers)
        if waiting > max(self._waiting, self._wanted - self._room):
            verb = "waits" if waiting == 1 else "wait"
            self._report(f"{waiting} of {self._wanted} workers {verb}: the cluster is busy with other work")
        self._waiting = waiting

    def _nodes(self) -> list[dict[str, float]]:
        """What each node that is alive has."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _report_room(self, fitting: int) -> None:
        room = min(fitting, self._wanted)
        if room < self._room:
            self._report(f"the cluster has room for {room} of {self._wanted} workers; the others wait for it")
        self._room = room


_LONGEST_STEP_SECONDS = 2.0
"""More than lies between two looks of a driver that is not held up."""


class PollClock:
    """Seconds in which the driver looked at its workers.

    A driver that was suspended, or waited for a full pipe, has read no news meanwhile: no worker hangs for that.

    Args:
        time: the clock that it follows.
    """

    def __init__(self, time: Callable[[], float] = monotonic) -> None:
        self._time = time
        self._looked_at = time()
        self.now = 0.0

    def tick(self) -> None:
        """Go on: the driver looks now."""
        time = self._time()
        self.now += min(time - self._looked_at, _LONGEST_STEP_SECONDS)
        self._looked_at = time
