"""What scores lines in a worker's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...cluster.tasks import FindFile, Task, TaskResult
from ...common.errors import LogitsmithError
from ...models.errors import ModelError
from ..errors import BAD_USAGE, flag_sentence
from ..inputs.json_lines import InvalidLineError
from ..inputs.model import ModelSpec
from ..inputs.score_lines import failed_line, scored_line, stride_problem
from .model_workers import worker_facts


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
class ScoreServiceSpec:
    """Makes the service in a worker's process. ``stride`` and ``is_strict``: see `score_lines`."""

    model: ModelSpec
    stride: int | None
    is_strict: bool = False

    def __call__(self, find_file: FindFile) -> ScoreService:
        """Load the model. Raises ``ModelError``, ``WrongStrideError``."""
        return ScoreService(replace(self, model=self.model.relocated(find_file)))


class WrongStrideError(LogitsmithError):
    """A ``--stride`` that the model's context is too short for: only who has loaded the model knows that."""

    exit_code = BAD_USAGE


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
