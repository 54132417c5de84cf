"""The workers of a run: as many as are wanted, and another for each that dies, as far as the cluster has room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .connection import import_ray
from .errors import ClusterError
from .file_transfer import MissingFileError, needed_files, publish
from .placement import WorkerNeeds, no_room, workers_that_fit
from .poll_clock import PollClock
from .tasks import ServicePlan, TaskResult
from .worker import Worker, WorkerDiedError

_MAX_FAILED_STARTS = 3
"""After so many workers in a row that died while they started, the run ends if none was ever ready."""
_MAX_DEATHS_WITHOUT_RESULT = 24
"""After so many deaths in a row without any result between them, the run ends. To find one bad task of a shard of
eight takes five."""
_LONGEST_DELAY_SECONDS = 60.0
"""Between a worker that died while it started and the next one; the first delay is one second."""
_ROOM_SECONDS = 10.0
"""How often the run looks whether the cluster has room for the workers that are not ready."""


class WorkerPool:
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
