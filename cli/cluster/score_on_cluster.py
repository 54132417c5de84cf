"""Lines that the workers of a cluster score. They are printed in the order of the file, as on one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import typer

from ...cluster.tasks import Task, TaskResult
from ...common.errors import UsageError
from ...common.files import input_name, open_input
from ..batch.input_lines import BackgroundItems, as_they_come
from ..batch.parts import stop_of
from ..errors import FAILED, say
from ..inputs.json_lines import number_lines
from ..inputs.model import find_model
from ..inputs.score_lines import count_lines, failed_line
from ..interrupt import Interrupt
from ..options.score import ScoreOptions
from ..render.cluster import report_workers
from ..render.progress import counting
from .admission import Admission
from .model_workers import WorkerLayout, model_for_workers, model_workers, wait_for_model
from .score_service import LineScore, NumberedLine, ScoreServiceSpec

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
