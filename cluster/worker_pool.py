"""The workers of a run: as many as are wanted, and another for each that dies, as far as the cluster has room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

from .connection import import_ray
from .errors import ClusterError
from .file_transfer import needed_files, publish
from .placement import WorkerNeeds, no_room, workers_that_fit
from .tasks import ServicePlan
from .worker import Worker, WorkerDiedError

_MAX_FAILED_STARTS = 3
"""After so many workers in a row that died while they started, the run ends if no other worker is ready."""
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

    Raises ``ClusterError`` if not one fits.
    """

    def __init__(
        self, wanted: int | None, needs: WorkerNeeds, service: ServicePlan, report: Callable[[str], object]
    ) -> None:
        self._ray = import_ray()
        self._needs, self._report = needs, report
        self._service, self._files = self._ray.put(service.make), needed_files(service.files)
        fitting = workers_that_fit(self._nodes(), needs)
        if not fitting:
            raise no_room(self._nodes(), needs)
        self._wanted = self._room = wanted or fitting
        self._failed_starts = self._started = self._units_of_dead = 0
        self._workers: list[Worker] = []
        self._due = [monotonic()] * self._wanted
        self._looked_at = monotonic()
        self._report_room(fitting)
        self.start_due()

    def __iter__(self) -> Iterator[Worker]:
        """The workers, ready or not; some may be removed meanwhile."""
        return iter(tuple(self._workers))

    @property
    def is_empty(self) -> bool:
        """True if there is no worker, and none will be started."""
        return not self._workers and not self._due

    @property
    def units(self) -> int:
        """What all workers made, those that died included."""
        return self._units_of_dead + sum(worker.status.units for worker in self._workers)

    def start_due(self) -> None:
        """Start the workers whose time has come, and say so if the cluster has lost the room for them."""
        now = monotonic()
        due = [time for time in self._due if time <= now]
        self._due = [time for time in self._due if time > now]
        for _ in due:
            self._started += 1
            self._workers.append(Worker(self._started, self._service, self._files, self._needs))
        if now - self._looked_at >= _ROOM_SECONDS and any(worker.facts is None for worker in self._workers):
            self._looked_at = now
            self._report_room(workers_that_fit(self._nodes(), self._needs))

    def note_start(self) -> None:
        """Note that a worker has started."""
        self._failed_starts = 0

    def send_files(self, worker: Worker) -> None:
        """Let a worker start again whose node lacks a file. Raises ``ClusterError``."""
        if self._files.published is None:
            self._report("the model is sent to the nodes that lack it")
            self._files = publish(self._files)
        worker.start(self._files)

    def remove(self, worker: Worker) -> None:
        """End a worker, without another in its place."""
        worker.kill()
        self._workers.remove(worker)
        self._units_of_dead += worker.status.units

    def replace(self, worker: Worker, death: WorkerDiedError) -> None:
        """Start another worker for one that died. Raises ``ClusterError`` if none stays alive."""
        self.remove(worker)
        if worker.facts is None and not death.with_its_node:
            self._failed_starts += 1
            if self._failed_starts >= _MAX_FAILED_STARTS and all(other.facts is None for other in self._workers):
                raise ClusterError(f"{self._failed_starts} workers in a row died while they started: {death}")
        delay = 0.0 if not self._failed_starts else min(_LONGEST_DELAY_SECONDS, 2.0 ** (self._failed_starts - 1))
        self._due.append(monotonic() + delay)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.kill()

    def _nodes(self) -> list[dict[str, float]]:
        """What each node that is alive has."""
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _report_room(self, fitting: int) -> None:
        room = min(fitting, self._wanted)
        if room < self._room:
            self._report(f"the cluster has room for {room} of {self._wanted} workers; the others wait for it")
        self._room = room
