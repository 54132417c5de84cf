"""Batches and scores on a cluster: what this process does, and what each worker runs.

Only this process writes. Scores are printed in the order of the file, as on one machine. A worker may join only if
it computes what the others compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ...cluster.connection import connected
from ...cluster.run import ClusterRun, ClusterRunOptions
from ...cluster.tasks import FindFile, ServiceFactory, ServicePlan, Task, TaskResult
from ...cluster.worker import WorkerNeeds
from ...common.errors import LogitsmithError, UsageError
from ...common.files import input_name, open_input
from ...common.machine import machine
from ...engine.batch import BatchAnswer, generate_many
from ...engine.generation import GenerationRequest, versions
from ...engine.model import Model
from ...engine.native.binding import llama_cpp_build
from ...engine.native.options import default_slots, estimate_memory, physical_cores
from ...grammars.errors import GrammarError
from ...models.errors import ModelError
from ...models.names import first_part
from ...samplers.errors import SamplingError
from ..inputs.model import ModelSpec, find_model, with_origin
from ..interrupt import Interrupt
from ..messages import BAD_USAGE, FAILED, flag_sentence, note, say
from ..options.model import ClusterOptions
from ..options.score import ScoreOptions
from ..render.batch_progress import report_workers, show_cluster_progress
from ..render.progress import counting
from .batch import AcceptedRequest, BatchParts, ResultFormat, ResultWriter, stop_of
from .bodies import line_sentence
from .lines import BackgroundItems, InvalidLineError, as_they_come, number_lines
from .resolve import ModelDescription, RequestBuilder, describe_model
from .scoring import count_lines, failed_line, scored_line, stride_problem


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


@dataclass(frozen=True)
class BatchServiceSpec:
    """Makes the service in a worker's process.

    Attributes: ``model``; ``parallel``: requests at a time; ``isolated``: see `generate_many`; ``result_format``:
    its name.
    """

    model: ModelSpec
    parallel: int
    isolated: bool
    result_format: str

    def __call__(self, find_file: FindFile) -> BatchService:
        """Load the model. Raises ``ModelError``."""
        return BatchService(replace(self, model=self.model.relocated(find_file)))


class BatchService:
    """A model that answers the requests of a batch."""

    def __init__(self, spec: BatchServiceSpec) -> None:
        self._spec = spec
        self._model = spec.model.load()
        self._builder = RequestBuilder(self._model)
        self._format = ResultFormat(spec.result_format, worker=worker_description(self._model))

    def facts(self) -> dict[str, Any]:
        """The model, what it computes with, and versions."""
        return worker_facts(self._model)

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Answer requests as they come, see `Service`."""
        pending: dict[object, Task] = {}

        def requests() -> Iterator[GenerationRequest | None]:
            for task in tasks:
                if task is None:
                    yield None
                    continue
                try:
                    request = self._builder.build(task.content.resolved)
                except (GrammarError, SamplingError, ModelError) as error:
                    answer(TaskResult(task.key, Failure("invalid_request", line_sentence(error)), True))
                    continue
                pending[request.key] = task
                yield request

        outcomes = generate_many(
            self._model, requests(), self._spec.parallel, isolated=self._spec.isolated, progress=progress
        )
        for outcome in outcomes:
            task = pending.pop(outcome.key)
            if isinstance(outcome, BatchAnswer):
                line = self._format.answer_line(task.content, outcome)
                answer(TaskResult(task.key, AnswerLine(line, str(outcome.exactness))))
            else:
                answer(TaskResult(task.key, Failure("generation_failed", line_sentence(outcome.error)), True))


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


_SHARD_SIZE = 16
"""Lines that a worker gets at once: their scores wait for one another, and a short line takes milliseconds."""


def score_on_cluster(options: ScoreOptions, interrupt: Interrupt) -> None:
    """Print the scores of a file of lines. Raises ``ClusterError``, ``ModelError``."""
    path = options.lines
    if path is None:
        raise UsageError("--on goes with --jsonl")
    spec = model_for_workers(find_model(options.model, interrupt), options.cluster)
    layout = WorkerLayout(options.cluster, spec, 1, _SHARD_SIZE)
    with (
        model_workers(layout, ScoreServiceSpec(spec, options.stride, options.strict), Admission(False)) as run,
        open_input(path) as file,
        counting("Scoring", count_lines(path)) as step,
    ):
        wait_for_model(run, interrupt)
        lines = number_lines(file)
        tasks = _LineTasks(lines if path.is_file() else BackgroundItems(lines))
        failures = 0
        for result in run.results(iter(tasks), stop_of(interrupt)):
            for number, score in [] if result is None else tasks.in_order(result):
                step()
                print(score.output, flush=True)
                if score.problem is not None:
                    failures += 1
                    say(f"gen: {input_name(path)}: line {number}: {score.problem}")
        workers = run.workers
    report_workers(workers)
    if failures and not interrupt.requested:
        raise typer.Exit(FAILED)


class _LineTasks:
    """The lines as tasks, and their scores in the same order. None among the tasks: no line has come yet."""

    def __init__(self, lines: Iterable[tuple[int, bytes]] | BackgroundItems[tuple[int, bytes]]) -> None:
        self._lines = lines
        self._texts: dict[int, bytes] = {}
        """The lines whose scores were not yielded yet, by number, in the order of the file."""
        self._waiting: dict[int, LineScore] = {}
        """Scores that wait for one before them, by the line's number."""

    def __iter__(self) -> Iterator[Task | None]:
        for line in as_they_come(self._lines, self._is_idle):
            if line is None:
                yield None
                continue
            number, text = line
            self._texts[number] = text
            yield Task(str(number), NumberedLine(number, text))

    def _is_idle(self) -> bool:
        """True if no line is being scored."""
        return len(self._texts) == len(self._waiting)

    def in_order(self, result: TaskResult) -> Iterator[tuple[int, LineScore]]:
        """Take a result, and yield the numbers and scores of the lines whose turn has come."""
        number = int(result.key)
        score = result.content
        if score is None:
            problem = "every worker that scored it crashed"
            score = LineScore(failed_line(self._texts[number], number, problem, "scoring_failed"), problem)
        self._waiting[number] = score
        while (first := next(iter(self._texts), None)) in self._waiting:
            del self._texts[first]
            yield first, self._waiting.pop(first)


@dataclass(frozen=True)
class ScoreServiceSpec:
    """Makes the service in a worker's process. ``stride`` and ``is_strict``: see `score_lines`."""

    model: ModelSpec
    stride: int | None
    is_strict: bool = False

    def __call__(self, find_file: FindFile) -> ScoreService:
        """Load the model. Raises ``ModelError``, ``WrongStrideError``."""
        return ScoreService(replace(self, model=self.model.relocated(find_file)))


class ScoreService:
    """A model that scores lines, one after the other."""

    def __init__(self, spec: ScoreServiceSpec) -> None:
        self._model, self._stride, self._is_strict = spec.model.load(), spec.stride, spec.is_strict
        problem = stride_problem(self._stride, self._model)
        if problem is not None:
            raise WrongStrideError(problem)

    def facts(self) -> dict[str, Any]:
        """The model, what it computes with, and versions."""
        return worker_facts(self._model)

    def serve(
        self, tasks: Iterable[Task | None], answer: Callable[[TaskResult], None], progress: Callable[[int], None]
    ) -> None:
        """Score lines as they come, see `Service`. A unit of progress is a token that was read."""
        for task in tasks:
            if task is None:
                continue
            line: NumberedLine = task.content
            try:
                output = scored_line(self._model, line.text, line.number, self._stride, progress, self._is_strict)
                score = LineScore(output)
            except (ModelError, InvalidLineError) as error:
                problem = flag_sentence(error)
                score = LineScore(failed_line(line.text, line.number, problem), problem)
            answer(TaskResult(task.key, score, score.problem is not None))


class WrongStrideError(LogitsmithError):
    """A ``--stride`` that the model's context is too short for: only who has loaded the model knows that."""

    exit_code = BAD_USAGE


@dataclass(frozen=True)
class NumberedLine:
    """A line to score; ``number``: in its file, from 1."""

    number: int
    text: bytes


@dataclass(frozen=True)
class LineScore:
    """The outcome of a line.

    Attributes:
        output: the line with its scores, or with its error, as JSON.
        problem: why the line has no score; None if it has one.
    """

    output: str
    problem: str | None = None


@dataclass(frozen=True)
class WorkerLayout:
    """How the workers of a run are laid out.

    Attributes: ``options``: the flags; ``model``: as a worker loads it; ``sequences``: how many it decodes at a
    time; ``shard_size``: how many tasks it gets at once.
    """

    options: ClusterOptions
    model: ModelSpec
    sequences: int
    shard_size: int

    @property
    def needs(self) -> WorkerNeeds:
        """What a worker takes of its node. Raises ``ModelError``."""
        threads: int = self.model.arguments["threads"]
        memory = estimate_memory(self.model.path, self.sequences, self.model.arguments["n_ctx"])
        return WorkerNeeds(self.options.worker_cpus or threads, self.options.worker_gpus, memory)


_DEFAULT_CPUS = 2


def model_for_workers(spec: ModelSpec, options: ClusterOptions) -> ModelSpec:
    """Return the model as a worker loads it: by whole paths, with a worker's threads, and mapped.

    The workers of one machine share the memory of a file that is mapped.
    Links are not followed: a model is called by the name of its link, and the parts of one that is split are found
    beside it.
    """
    threads = spec.arguments["threads"] or options.worker_cpus or min(_DEFAULT_CPUS, physical_cores())
    lora = [(str(Path(file).absolute()), scale) for file, scale in spec.arguments["lora"]]
    is_mapped = spec.arguments.get("mmap") is not False
    arguments = {**spec.arguments, "threads": threads, "lora": lora, "mmap": is_mapped}
    return replace(spec, path=first_part(spec.path.absolute()), arguments=arguments)


@contextmanager
def model_workers(layout: WorkerLayout, service: ServiceFactory, admission: Admission) -> Iterator[ClusterRun]:
    """Connect to the cluster, and start workers, while inside.

    Raises ``ClusterError``, ``ModelError``.

    Args:
        layout: how they are laid out.
        service: makes the service of each.
        admission: says which of them may join.
    """
    flags = layout.options
    options = ClusterRunOptions(flags.workers, layout.needs, layout.shard_size, flags.stall_seconds)
    with connected(flags.address) as watch:
        run = ClusterRun(options, ServicePlan(service, layout.model.files), admission, note, watch)
        try:
            yield run
        except ModelError as error:
            raise with_origin(error, layout.model.origin) from None
        finally:
            run.close()
    if admission.has_other_kernels:
        note("the workers' processors compute logits that differ in the last bits")


def wait_for_model(run: ClusterRun, interrupt: Interrupt) -> ModelDescription:
    """Wait until a worker has loaded the model, and knows it."""
    while True:
        facts = run.wait_for_worker()
        interrupt.raise_if_requested()
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
        self.has_other_kernels = False

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
        self.has_other_kernels = True
        return None


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
