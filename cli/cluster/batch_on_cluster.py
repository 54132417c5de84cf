"""A batch that the workers of a cluster compute. Only this process writes."""

from __future__ import annotations

from collections.abc import Iterator

from ...cluster.run import ClusterRun
from ...cluster.tasks import Task, TaskResult
from ...engine.native.options import default_slots
from ..batch.accepted_request import AcceptedRequest
from ..batch.parts import BatchParts, stop_of
from ..batch.result_writer import ResultWriter
from ..inputs.model import find_model
from ..interrupt import Interrupt
from ..render.cluster import show_cluster_progress
from .admission import Admission
from .batch_service import AnswerLine, BatchServiceSpec, Failure
from .model_workers import WorkerLayout, model_for_workers, model_workers, wait_for_model


def answer_on_cluster(parts: BatchParts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ClusterError``, ``ModelError``, ``JournalError``."""
    options = parts.options
    spec = model_for_workers(find_model(options.model, interrupt), options.cluster)
    parallel = options.parallel or default_slots(spec.arguments["threads"])
    service = BatchServiceSpec(spec, parallel, options.deterministic, options.format.value)
    layout = WorkerLayout(options.cluster, spec, parallel, shard_size=parallel)
    with model_workers(layout, service, Admission(options.deterministic)) as run:
        ClusterBatch(parts, run, interrupt).answer()


class ClusterBatch:
    """A batch that runs on a cluster.

    Args:
        parts: what it is made of.
        run: its workers.
        interrupt: Ctrl-C, after which no further request is begun.
    """

    def __init__(self, parts: BatchParts, run: ClusterRun, interrupt: Interrupt) -> None:
        self._parts, self._run, self._interrupt = parts, run, interrupt
        self._writer: ResultWriter = parts.writer
        self._pending: dict[str, AcceptedRequest] = {}

    def answer(self) -> None:
        """Answer all requests that have no result yet, see `answer_on_cluster`."""
        parts, run = self._parts, self._run
        model = wait_for_model(run, self._interrupt)
        intake = parts.make_intake(model)
        should_stop = stop_of(self._interrupt)
        with parts.lines() as lines, show_cluster_progress(parts.progress, run, parts.options) as display:
            accepted = intake.accepted(lines, is_idle=lambda: not self._pending)
            for result in run.results(self._tasks(accepted), should_stop):
                if result is not None:
                    self._keep(result)
                display.refresh()
        if not self._interrupt.requested:
            parts.report_unmatched(intake)

    def _tasks(self, accepted: Iterator[AcceptedRequest | None]) -> Iterator[Task | None]:
        for request in accepted:
            if request is not None:
                self._pending[request.id] = request
            yield None if request is None else Task(request.id, request)

    def _keep(self, result: TaskResult) -> None:
        request, content = self._pending.pop(result.key), result.content
        if isinstance(content, AnswerLine):
            self._writer.answer_line(content.line, content.exactness)
            return
        failure = content or Failure("worker_died", "every worker died that computed this request")
        self._writer.failure(request.id, request.line, request.digest, failure.code, failure.message)
