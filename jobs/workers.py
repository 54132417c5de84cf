"""Batches and scores on a cluster: what this process does, and what each worker runs.

Only this process writes. Scores come in the order of the file, as on one machine. A worker may join only if it
computes what the others compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster.connection import connect
from ..cluster.run import ClusterRun, ClusterRunOptions
from ..cluster.tasks import FindFile, ServiceFactory, ServicePlan, Task, TaskResult
from ..cluster.worker import WorkerNeeds
from ..common.errors import LogitsmithError
from ..common.machine import machine
from ..engine.batch import BatchAnswer, generate_many
from ..engine.generation import versions
from ..engine.model import Model
from ..engine.native.binding import llama_cpp_build
from ..engine.native.options import estimate_memory, physical_cores
from ..engine.request import GenerationRequest
from ..models.errors import ModelError
from ..models.names import first_part
from .batch import AcceptedLine, BatchRun, Lines, answer_line, failure_code
from .errors import InvalidLineError
from .lines import BackgroundReader, iterate_available
from .resolve import ModelDescription, describe_model
from .scoring import LineScore, failed_line, scored_line, stride_problem

if TYPE_CHECKING:
    from ..models.names import ModelSpec


_DEFAULT_CPUS = 2


def model_for_workers(spec: ModelSpec, cpus: int | None) -> ModelSpec:
    """Return the model as a worker loads it: by whole paths, with a worker's threads, and mapped.

    The workers of one machine share the memory of a file that is mapped.
    Links are not followed: a model is called by the name of its link, and the parts of one that is split are found
    beside it. ``cpus``: those of a worker; None: not said.
    """
    threads = spec.arguments["threads"] or cpus or min(_DEFAULT_CPUS, physical_cores())
    lora = [(str(Path(file).absolute()), scale) for file, scale in spec.arguments["lora"]]
    is_mapped = spec.arguments.get("mmap") is not False
    arguments = {**spec.arguments, "threads": threads, "lora": lora, "mmap": is_mapped}
    return replace(spec, path=first_part(spec.path.absolute()), arguments=arguments)


def worker_needs(spec: ModelSpec, sequences: int, cpus: int | None, gpus: float) -> WorkerNeeds:
    """Return what a worker takes of its node. Raises ``ModelError``.

    Args:
        spec: the model, see `model_for_workers`.
        sequences: how many the worker decodes at a time.
        cpus: its processors; None: one for each thread.
        gpus: its GPUs.
    """
    threads: int = spec.arguments["threads"]
    memory = estimate_memory(spec.path, sequences, spec.arguments["n_ctx"])
    return WorkerNeeds(cpus or threads, gpus, memory)


@contextmanager
def model_workers(
    address: str | None,
    options: ClusterRunOptions,
    spec: ModelSpec,
    service: ServiceFactory,
    *,
    needs_same_kernels: bool,
    note: Callable[[str], object],
) -> Iterator[ClusterRun]:
    """Connect to the cluster, and start workers, while inside.

    Args:
        address: the head of the cluster; None: a cluster on this machine.
        options: how the run uses the cluster.
        spec: the model of the workers.
        service: makes the service of each.
        needs_same_kernels: refuse a worker whose processor computes other logits than the first one's.
        note: called with what the user should know.

    Raises ``ClusterError``, ``ModelError``.
    """
    admission = Admission(needs_same_kernels)
    with connect(address) as head_monitor:
        run = ClusterRun(options, ServicePlan(service, spec.files), admission, note, head_monitor)
        try:
            yield run
        finally:
            run.close()
    if admission.has_different_kernels:
        note("the workers' processors compute logits that differ in the last bits")


def wait_for_model(run: ClusterRun, check: Callable[[], object]) -> ModelDescription:
    """Wait until a worker has loaded the model, and knows it. ``check``: called meanwhile; may raise."""
    while True:
        facts = run.wait_for_worker()
        check()
        if facts is not None:
            model: ModelDescription = facts["model"]
            return model


class Admission:
    """Compares each worker with this machine's versions, and with the first worker's model and kernels.

    Args:
        needs_same_kernels: refuse a worker whose processor computes other logits than the first one's.
    """

    def __init__(self, needs_same_kernels: bool) -> None:
        self._needs_same_kernels = needs_same_kernels
        self._first: dict[str, Any] | None = None
        self.has_different_kernels = False

    def __call__(self, facts: dict[str, Any]) -> str | None:
        """Return why a worker may not join; None if it may."""
        for name, here in versions().items():
            there = facts["versions"].get(name)
            if there != here:
                return f"it has {name} {there}, and this machine has {here}; install the same there"
        if self._first is None:
            self._first = facts
            return None
        if facts["model"].identity != self._first["model"].identity:
            return "its file of the model is another one, or it computes with other settings"
        if facts["kernels"] == self._first["kernels"]:
            return None
        if self._needs_same_kernels:
            first, this = self._first["worker"]["cpu"], facts["worker"]["cpu"]
            return (
                f"--deterministic: its processor ({this}) computes other logits than the first worker's ({first})"
            )
        self.has_different_kernels = True
        return None


def answer_on_cluster(
    batch: BatchRun,
    run: ClusterRun,
    lines: Lines,
    should_stop: Callable[[], bool],
    on_progress: Callable[[], object],
) -> None:
    """Answer all requests that have no result yet. Raises ``ClusterError``, ``ModelError``, ``JournalError``.

    Args:
        batch: takes the results.
        run: the workers.
        lines: the input.
        should_stop: once it returns True, no other request is begun.
        on_progress: called at short intervals.
    """
    for result in run.results(_request_tasks(batch, lines), should_stop):
        if result is not None:
            content = result.content
            if isinstance(content, AnswerLine):
                batch.write_answer(result.key, content.line, content.exactness)
            else:
                failure = content or Failure("worker_died", "every worker died that computed this request")
                batch.write_failure(result.key, failure.code, failure.message)
        on_progress()


def _request_tasks(batch: BatchRun, lines: Lines) -> Iterator[Task | None]:
    for accepted in batch.iterate_new_requests(lines):
        yield None if accepted is None else Task(str(accepted[0].id), accepted)


@dataclass(frozen=True)
class BatchServiceSpec:
    """Makes the service in a worker's process.

    Attributes:
        model: the model.
        parallel: requests at a time.
        deterministic: see `generate_many`.
        is_openai: see `answer_line`.
        describe_error: what is wrong, in words for the record of a line; a function that can be pickled.
    """

    model: ModelSpec
    parallel: int
    deterministic: bool
    is_openai: bool
    describe_error: Callable[[Exception], str] = str

    def __call__(self, find_file: FindFile) -> BatchService:
        """Load the model. Raises ``ModelError``."""
        return BatchService(replace(self, model=self.model.relocated(find_file)))


class BatchService:
    """A model that answers the requests of a batch."""

    def __init__(self, spec: BatchServiceSpec) -> None:
        self._spec = spec
        self._model = Model.load(spec.model.path, **spec.model.arguments)
        self._worker = worker_description(self._model)

    def facts(self) -> dict[str, Any]:
        """The model, what it computes with, and versions."""
        return worker_facts(self._model)

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer requests as they come, see `Service`."""
        spec, lines = self._spec, dict[object, AcceptedLine]()

        def requests() -> Iterator[GenerationRequest | None]:
            for task in tasks:
                if task is None:
                    yield None
                else:
                    request, lines[request.id] = task.content
                    yield request

        for outcome in generate_many(
            self._model, requests(), spec.parallel, deterministic=spec.deterministic, progress=progress
        ):
            key, line = str(outcome.id), lines.pop(outcome.id)
            if isinstance(outcome, BatchAnswer):
                text = answer_line(outcome, line, is_openai=spec.is_openai, worker=self._worker)
                answer(TaskResult(key, AnswerLine(text, str(outcome.exactness))))
            else:
                failure = Failure(failure_code(outcome), spec.describe_error(outcome.error))
                answer(TaskResult(key, failure, True))


@dataclass(frozen=True)
class AnswerLine:
    """An answer, as the line of the journal.

    Attributes: ``line``: JSON; ``exactness``: what holds for it, in words.
    """

    line: str
    exactness: str


@dataclass(frozen=True)
class Failure:
    """Why a request was not answered. ``code``: the kind; ``message``: a sentence."""

    code: str
    message: str


LINES_PER_SHARD = 16
"""Lines that a worker gets at once: their scores wait for one another, and a short line takes milliseconds."""


def scores_on_cluster(
    run: ClusterRun,
    lines: Iterable[tuple[int, bytes]] | BackgroundReader[tuple[int, bytes]],
    should_stop: Callable[[], bool],
) -> Iterator[LineScore]:
    """Yield the scores of numbered lines in the order of the file. Raises ``ClusterError``, ``ModelError``.

    Args:
        run: the workers.
        lines: the lines, numbered from 1.
        should_stop: once it returns True, no other line is begun.
    """
    tasks = _LineTasks(lines)
    for result in run.results(iter(tasks), should_stop):
        if result is not None:
            yield from tasks.in_order(result)


class _LineTasks:
    """The lines as tasks, and their scores in the same order. None among the tasks: no line has come yet."""

    def __init__(self, lines: Iterable[tuple[int, bytes]] | BackgroundReader[tuple[int, bytes]]) -> None:
        self._lines = lines
        self._texts: dict[int, bytes] = {}
        """The lines whose scores were not yielded yet, by number, in the order of the file."""
        self._waiting: dict[int, LineScore] = {}
        """Scores that wait for one before them, by the line's number."""

    def __iter__(self) -> Iterator[Task | None]:
        for line in iterate_available(self._lines, self._is_idle):
            if line is None:
                yield None
                continue
            number, text = line
            self._texts[number] = text
            yield Task(str(number), line)

    def _is_idle(self) -> bool:
        """True if no line is being scored."""
        return len(self._texts) == len(self._waiting)

    def in_order(self, result: TaskResult) -> Iterator[LineScore]:
        """Take a result, and yield the scores of the lines whose turn has come."""
        number = int(result.key)
        score = result.content
        if score is None:
            problem = "every worker that scored it crashed"
            output = failed_line(self._texts[number], number, problem, "scoring_failed")
            score = LineScore(number, output, problem)
        self._waiting[number] = score
        while (first := next(iter(self._texts), None)) in self._waiting:
            del self._texts[first]
            yield self._waiting.pop(first)


@dataclass(frozen=True)
class ScoreServiceSpec:
    """Makes the service in a worker's process.

    Attributes:
        model: the model.
        stride: see `scored_lines`.
        is_strict: likewise.
        describe_error: what is wrong, in words for the record of a line; a function that can be pickled.
    """

    model: ModelSpec
    stride: int | None
    is_strict: bool = False
    describe_error: Callable[[Exception], str] = str

    def __call__(self, find_file: FindFile) -> ScoreService:
        """Load the model. Raises ``ModelError``, ``WrongStrideError``."""
        return ScoreService(replace(self, model=self.model.relocated(find_file)))


class ScoreService:
    """A model that scores lines, one after the other."""

    def __init__(self, spec: ScoreServiceSpec) -> None:
        self._spec = spec
        self._model = Model.load(spec.model.path, **spec.model.arguments)
        problem = stride_problem(spec.stride, self._model)
        if problem is not None:
            raise WrongStrideError(problem)

    def facts(self) -> dict[str, Any]:
        """The model, what it computes with, and versions."""
        return worker_facts(self._model)

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Score lines as they come, see `Service`. A unit of progress is a token that was read."""
        spec = self._spec
        for task in tasks:
            if task is None:
                continue
            number, text = task.content
            try:
                output = scored_line(self._model, text, number, spec.stride, progress, spec.is_strict)
                score = LineScore(number, output)
            except (ModelError, InvalidLineError) as error:
                problem = spec.describe_error(error)
                score = LineScore(number, failed_line(text, number, problem), problem)
            answer(TaskResult(task.key, score, score.problem is not None))


class WrongStrideError(LogitsmithError):
    """A ``--stride`` that the model's context is too short for: only who has loaded the model knows that."""

    exit_code = 2


def worker_facts(model: Model) -> dict[str, Any]:
    """What a worker tells the driver: its model, what it computes with, and versions. Raises ``ModelError``."""
    return {
        "model": describe_model(model),
        "kernels": model.kernel_digest(),
        "worker": worker_description(model),
        "versions": versions(),
    }


def worker_description(model: Model) -> dict[str, Any]:
    """What results say of the worker that computed them."""
    build = llama_cpp_build()
    return {
        "cpu": machine()["cpu"],
        "build": f"llama-cpp-python {build.binding_version}, {build.system_info}",
        "threads": model.threads,
    }
