"""Batches, scores and decisions on a cluster: the driver's side, and the services that workers run.

Only the driver writes results. Scores have the order of the file, as on one machine. A worker may join only if it
computes the same as the first worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..cluster.connection import connect
from ..cluster.run import ClusterRun, ClusterRunOptions
from ..cluster.tasks import FindFile, ServiceFactory, ServicePlan, Task, TaskResult
from ..cluster.worker import WorkerNeeds
from ..common.errors import LogitsmithError
from ..common.machine import describe_machine, physical_cores
from ..decide.decider import Decision
from ..engine.generation import versions
from ..engine.model import Model
from ..engine.model_files import estimate_memory
from ..engine.native.devices import llama_cpp_build
from ..models.errors import ModelError
from ..models.names import first_part
from ..requests.errors import InvalidLineError
from ..requests.recorded_settings import ModelDescription, describe_model
from .batch import BatchRun, Failure, InputLines, answer_lines
from .decisions import DecisionPlan, Result, Row, decided_rows
from .lines import BackgroundReader, iterate_available
from .scoring import LineScore, failed_line, scored_line, stride_problem

if TYPE_CHECKING:
    from ..engine.load_options import ModelSpec


_MAX_DEFAULT_CPUS = 2  # a worker gets at most this many processors if no flag sets their number


def model_for_workers(spec: ModelSpec, cpus: int | None) -> ModelSpec:
    """Return the model as workers load it: with absolute paths, and with a worker's threads."""
    # Links are not resolved: a model has the name of its link, and the other parts of a split model are next to
    # the first.
    threads = spec.options.threads or cpus or min(_MAX_DEFAULT_CPUS, physical_cores())
    lora = [(Path(file).absolute(), scale) for file, scale in spec.options.lora]
    options = replace(spec.options, threads=threads, lora=lora)
    return replace(spec, path=first_part(spec.path.absolute()), options=options)


def worker_needs(spec: ModelSpec, sequence_count: int, cpus: int | None, gpus: float) -> WorkerNeeds:
    """Return the resources of a node that a worker needs. Raises ``ModelError``."""
    memory = estimate_memory(spec.path, sequence_count, spec.options)
    return WorkerNeeds(cpus or spec.options.thread_count, gpus, memory)


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
    """Connect to a cluster, and run workers on it."""
    # ``address``: None starts a cluster on this machine. Raises ``ClusterError``, ``ModelError``.
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
    """Wait until a worker has loaded the model, and return the facts about the model."""
    # ``check`` is called repeatedly; its exception ends the waiting.
    while True:
        facts = run.wait_for_worker()
        check()
        if facts is not None:
            model: ModelDescription = facts["model"]
            return model


class Admission:
    """The decision whether a worker may join."""

    # A worker needs the versions of this machine, and the model and maybe the kernels of the first worker.

    def __init__(self, needs_same_kernels: bool) -> None:
        self._needs_same_kernels = needs_same_kernels
        self._first_facts: dict[str, Any] | None = None
        self.has_different_kernels = False  # whether workers have joined whose processors compute different logits

    def __call__(self, facts: dict[str, Any]) -> str | None:
        """Return why a worker with these facts may not join; None if it may."""
        for name, expected_version in versions().items():
            version = facts["versions"].get(name)
            if version != expected_version:
                return (
                    f"it has {name} {version}, but this machine has {expected_version}; "
                    "install the same version there"
                )
        if self._first_facts is None:
            self._first_facts = facts
            return None
        if facts["model"].identity != self._first_facts["model"].identity:
            return "its model file or its settings differ from the first worker's"
        if facts["kernels"] == self._first_facts["kernels"]:
            return None
        if self._needs_same_kernels:
            cpu = facts["worker"]["cpu"]
            first_cpu = self._first_facts["worker"]["cpu"]
            return (
                f"--deterministic: its processor ({cpu}) computes other logits"
                f" than the first worker's ({first_cpu})"
            )
        self.has_different_kernels = True
        return None


def answer_on_cluster(
    batch: BatchRun,
    run: ClusterRun,
    lines: InputLines,
    should_stop: Callable[[], bool],
    on_progress: Callable[[], object],
) -> None:
    """Answer all requests without a result. Raises ``ClusterError``, ``ModelError``, ``JournalError``."""
    for result in run.results(_request_tasks(batch, lines), should_stop):
        if result is not None:
            answer = result.content
            if answer is None:
                answer = Failure("worker_died", "every worker that computed this request crashed")
            batch.write_result(result.key, answer)
        on_progress()


def _request_tasks(batch: BatchRun, lines: InputLines) -> Iterator[Task | None]:
    for accepted in batch.iterate_new_requests(lines):
        if accepted is None:
            yield None
        else:
            request, _ = accepted
            yield Task(str(request.id), accepted)


class _ModelService:
    """What the services have in common: a model in a worker's process."""

    def __init__(self, model: ModelSpec) -> None:
        self._model = Model.load(model.path, model.options)

    def facts(self) -> dict[str, Any]:
        """Return the facts by which the driver decides whether this worker may join."""
        return worker_facts(self._model)


@dataclass(frozen=True)
class BatchServiceSpec:
    """The arguments of a `BatchService`, which is made in a worker's process."""

    model: ModelSpec
    # maximum number of requests that are computed at the same time; None: as many as the worker has memory for
    parallel: int | None
    deterministic: bool  # whether each request is computed exactly as it would be alone
    is_openai: bool  # whether results have OpenAI's batch format; otherwise they have logitsmith's
    # returns the message of an error as a line's result shows it; can be pickled
    describe_error: Callable[[Exception], str] = str

    def __call__(self, find_file: FindFile) -> BatchService:
        return BatchService(replace(self, model=self.model.relocated(find_file)))


class BatchService(_ModelService):
    def __init__(self, spec: BatchServiceSpec) -> None:
        super().__init__(spec.model)
        self._spec = spec
        self._worker = worker_description(self._model)

    def serve(
        self,
        tasks: Iterable[Task | None],
        send_result: Callable[[TaskResult], None],
        add_progress: Callable[[int], None],
    ) -> None:
        """Answer requests while more of them arrive, see `Service`. A unit of progress is a generated token."""
        for request_id, result in answer_lines(
            self._model,
            (None if task is None else task.content for task in tasks),
            self._spec.parallel or self._model.default_parallel,
            is_openai=self._spec.is_openai,
            describe_error=self._spec.describe_error,
            worker=self._worker,
            deterministic=self._spec.deterministic,
            progress=add_progress,
        ):
            send_result(TaskResult(str(request_id), result, isinstance(result, Failure)))


# Lines in a shard. A short line takes milliseconds, less than assigning a shard. Larger shards would delay the
# output, because the scores are printed in the order of the file.
LINES_PER_SHARD = 16


def scores_on_cluster(
    run: ClusterRun,
    lines: Iterable[tuple[int, bytes]] | BackgroundReader[tuple[int, bytes]],
    should_stop: Callable[[], bool],
) -> Iterator[LineScore]:
    """Yield the scores of lines in the order of the file. Raises ``ClusterError``, ``ModelError``."""
    tasks = _OrderedTasks(lines, lambda line: line[0])
    for result in run.results(iter(tasks), should_stop):
        for (number, text), score in tasks.results_in_order(result):
            yield score or _crashed_score(number, text)


def _crashed_score(number: int, text: bytes) -> LineScore:
    problem = "every worker that scored this line crashed"
    return LineScore(number, failed_line(text, number, problem, "scoring_failed"), problem)


_Item = TypeVar("_Item")


class _OrderedTasks(Generic[_Item]):
    """The tasks made of a file's lines, and their results in the order of the lines."""

    # Iterating yields the tasks, and None if no further line has arrived yet.

    def __init__(
        self, items: Iterable[_Item | None] | BackgroundReader[_Item], number_of: Callable[[_Item], int]
    ) -> None:
        self._items = items
        self._number_of = number_of
        # the items whose results have not been yielded yet, by number, in the order of the file
        self._unreturned_items: dict[int, _Item] = {}
        # the results that wait for the result of an earlier item, by number
        self._unreturned_results: dict[int, Any] = {}

    def __iter__(self) -> Iterator[Task | None]:
        for item in iterate_available(self._items, self._is_idle):
            if item is None:
                yield None
                continue
            number = self._number_of(item)
            self._unreturned_items[number] = item
            yield Task(str(number), item)

    def _is_idle(self) -> bool:
        return len(self._unreturned_items) == len(self._unreturned_results)

    def results_in_order(self, result: TaskResult | None) -> Iterator[tuple[_Item, Any]]:
        """Record a result, and yield all items that no longer wait for an earlier one, each with its result."""
        # A result is None if every worker that computed it crashed.
        if result is None:
            return
        self._unreturned_results[int(result.key)] = result.content
        while self._unreturned_items:
            first_number = next(iter(self._unreturned_items))
            if first_number not in self._unreturned_results:
                return
            yield self._unreturned_items.pop(first_number), self._unreturned_results.pop(first_number)


@dataclass(frozen=True)
class ScoreServiceSpec:
    model: ModelSpec
    # if a text exceeds the context, number of tokens by which the scoring window moves; None moves it by half of
    # the context
    stride: int | None
    # whether a prompt that does not fit into the context with its choices is an error
    rejects_long_prompts: bool = False
    # returns the message of an error as a line's output shows it; can be pickled
    describe_error: Callable[[Exception], str] = str

    def __call__(self, find_file: FindFile) -> ScoreService:
        return ScoreService(replace(self, model=self.model.relocated(find_file)))


class ScoreService(_ModelService):
    def __init__(self, spec: ScoreServiceSpec) -> None:
        super().__init__(spec.model)
        self._spec = spec
        problem = stride_problem(spec.stride, self._model)
        if problem is not None:
            raise WrongStrideError(problem)

    def serve(
        self,
        tasks: Iterable[Task | None],
        send_result: Callable[[TaskResult], None],
        add_progress: Callable[[int], None],
    ) -> None:
        """Score lines while more of them arrive, see `Service`. A unit of progress is a token that was read."""
        spec = self._spec
        for task in tasks:
            if task is None:
                continue
            number, line_text = task.content
            try:
                output = scored_line(
                    self._model, line_text, number, spec.stride, add_progress, spec.rejects_long_prompts
                )
                score = LineScore(number, output)
            except (ModelError, InvalidLineError) as error:
                problem = spec.describe_error(error)
                score = LineScore(number, failed_line(line_text, number, problem), problem)
            send_result(TaskResult(task.key, score, score.problem is not None))


def decisions_on_cluster(
    run: ClusterRun, rows: Iterable[Row | None], should_stop: Callable[[], bool]
) -> Iterator[tuple[Row, Result]]:
    """Yield each row with its result, in the order of the rows. Raises ``ClusterError``, ``ModelError``."""
    tasks = _OrderedTasks(rows, lambda row: row.number)
    for task_result in run.results(iter(tasks), should_stop):
        for row, result in tasks.results_in_order(task_result):
            yield row, result or Failure("worker_died", "every worker that computed this row crashed")


@dataclass(frozen=True)
class DecideServiceSpec:
    """The arguments of a `DecideService`, which is made in a worker's process."""

    model: ModelSpec
    plan: DecisionPlan
    parallel: int | None  # see `BatchServiceSpec`
    describe_error: Callable[[Exception], str] = str

    def __call__(self, find_file: FindFile) -> DecideService:
        return DecideService(replace(self, model=self.model.relocated(find_file)))


class DecideService(_ModelService):
    def __init__(self, spec: DecideServiceSpec) -> None:
        super().__init__(spec.model)
        self._spec = spec
        self._decider = spec.plan.decider(self._model)

    def serve(
        self,
        tasks: Iterable[Task | None],
        send_result: Callable[[TaskResult], None],
        add_progress: Callable[[int], None],
    ) -> None:
        """Answer questions about rows while more of them arrive, see `Service`. A unit of progress is a token."""
        rows = (None if task is None else task.content for task in tasks)
        slots = self._spec.parallel or self._model.default_parallel
        for row, result in decided_rows(self._decider, rows, slots, describe_error=self._spec.describe_error):
            if isinstance(result, Decision):
                add_progress(result.usage.computed_tokens)
            send_result(TaskResult(str(row.number), result, isinstance(result, Failure)))


class WrongStrideError(LogitsmithError):
    """A ``--stride`` is not less than the context, which only a worker knows, after it has loaded the model."""

    exit_code = 2


def worker_facts(model: Model) -> dict[str, Any]:
    """Return the facts that the driver compares or shows: model, kernels, processor, versions, and a note."""
    # Raises ``ModelError``.
    return {
        "note": model.placement.note,
        "model": describe_model(model),
        "kernels": model.kernel_digest(),
        "worker": worker_description(model),
        "versions": versions(),
    }


def worker_description(model: Model) -> dict[str, Any]:
    """Return the facts about a worker that its results contain."""
    build = llama_cpp_build()
    return {
        "cpu": describe_machine()["cpu"],
        "build": f"llama-cpp-python {build.binding_version}, {build.system_info}",
        "threads": model.threads,
    }
