"""Lines that the workers of a cluster score. They are printed in the order of the file, as on one machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import typer

from ...cluster import Task
from ..errors import FAILED, say
from ..inputs.files import input_name, open_input
from ..inputs.json_lines import number_lines
from ..inputs.model import find_model
from ..inputs.score_lines import count_lines
from ..interrupt import Interrupt
from ..options.score import ScoreOptions
from ..render.cluster import worker_line
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
        raise typer.BadParameter("--on goes with --jsonl")
    spec = model_for_workers(find_model(options.model, interrupt), options.cluster)
    layout = WorkerLayout(options.cluster, spec, 1, _SHARD_SIZE)
    with (
        model_workers(layout, ScoreServiceSpec(spec, options.stride), Admission(False)) as run,
        open_input(path) as file,
        counting("Scoring", count_lines(path)) as step,
    ):
        wait_for_model(run, interrupt)
        lines = number_lines(file) if path.is_file() else iter(list(number_lines(file)))
        tasks = _Tasks(lines)
        failures, waiting = 0, dict[int, LineScore]()
        printed = 0
        for result in run.results(iter(tasks), lambda: interrupt.requested):
            if result is not None:
                waiting[int(result.key)] = result.content or LineScore(None, "every worker died that scored it")
            while printed in waiting:
                number, score = tasks.numbers.pop(printed), waiting.pop(printed)
                printed += 1
                step()
                if score.output is None:
                    failures += 1
                    say(f"gen: {input_name(path)}: line {number}: {score.problem}")
                else:
                    print(score.output, flush=True)
        workers = run.workers
    for worker in workers:
        say(f"gen: {worker_line(worker, 'lines')}")
    if failures and not interrupt.requested:
        raise typer.Exit(FAILED)


class _Tasks:
    """The lines as tasks; ``numbers``: the number of the line of each that is not printed yet, by its place."""

    def __init__(self, lines: Iterable[tuple[int, bytes]]) -> None:
        self._lines = lines
        self.numbers: dict[int, int] = {}

    def __iter__(self) -> Iterator[Task]:
        for place, (number, text) in enumerate(self._lines):
            self.numbers[place] = number
            yield Task(str(place), NumberedLine(number, text))
