"""A batch that the workers of a cluster compute. Only this process writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ... import cluster
from ...cluster import ClusterRun, Task, TaskResult, WorkerNeeds
from ...engine import estimate_memory, physical_cores
from ...engine.errors import ModelError
from ...engine.model_files.parts import first_part
from ..batch.accepted_request import AcceptedRequest
from ..batch.batch_settings import ModelDescription
from ..batch.parts import BatchParts, stop_of
from ..batch.result_writer import ResultWriter
from ..errors import note
from ..inputs.model import ModelSpec, find_model, with_origin
from ..interrupt import Interrupt
from ..options.batch import BatchOptions
from ..render.cluster import show_cluster_progress
from .admission import Admission
from .batch_service import AnswerLine, BatchServiceSpec, Failure

_DEFAULT_CPUS = 2
_SLOTS_PER_THREAD, _MAX_SLOTS = 4, 8
"""How many requests a worker computes at a time, unless --parallel says it: as on one machine."""


def answer_on_cluster(parts: BatchParts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ClusterError``, ``ModelError``, ``JournalError``."""
    options = parts.options
    spec = find_model(options.model, interrupt)
    needs, service = _plan(options, spec)
    run_options = cluster.ClusterRunOptions(
        options.cluster.workers, needs, service.parallel, options.cluster.stall_seconds
    )
    admission = Admission(options.deterministic)
    with cluster.connected(options.cluster.address) as watch:
        run = ClusterRun(run_options, cluster.ServicePlan(service, service.model.files), admission, note, watch)
        try:
            _BatchOnCluster(parts, run, interrupt).answer()
        except ModelError as error:
            raise with_origin(error, spec.origin) from None
        finally:
            run.close()
    if admission.has_other_kernels:
        note("the workers' processors compute logits that differ in the last bits; --deterministic refuses that")


def _plan(options: BatchOptions, spec: ModelSpec) -> tuple[WorkerNeeds, BatchServiceSpec]:
    """What a worker needs, and what it runs."""
    cpus = options.cluster.worker_cpus or options.model.threads or min(_DEFAULT_CPUS, physical_cores())
    threads = options.model.threads or cpus
    parallel = options.parallel or min(_MAX_SLOTS, _SLOTS_PER_THREAD * threads)
    memory = estimate_memory(spec.path, parallel, options.model.context_size)
    needs = WorkerNeeds(cpus, options.cluster.worker_gpus, memory)
    lora = [(str(Path(file).resolve()), scale) for file, scale in spec.arguments["lora"]]
    arguments = {**spec.arguments, "threads": threads, "lora": lora}
    model = replace(spec, path=first_part(spec.path.resolve()), arguments=arguments)
    return needs, BatchServiceSpec(model, parallel, options.deterministic, options.format.value)


class _BatchOnCluster:
    def __init__(self, parts: BatchParts, run: ClusterRun, interrupt: Interrupt) -> None:
        self._parts, self._run, self._interrupt = parts, run, interrupt
        self._writer: ResultWriter = parts.writer
        self._pending: dict[str, AcceptedRequest] = {}

    def answer(self) -> None:
        parts, run = self._parts, self._run
        model = self._wait_for_model()
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

    def _wait_for_model(self) -> ModelDescription:
        """Wait until a worker has loaded the model, and knows it."""
        while True:
            facts = self._run.wait_for_worker()
            self._interrupt.raise_if_requested()
            if facts is not None:
                model: ModelDescription = facts["model"]
                return model

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
