"""What answers the requests of a batch in a worker's process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...cluster.tasks import FindFile, Task, TaskResult
from ...engine.batch import BatchAnswer, generate_many
from ...engine.generation import GenerationRequest
from ...grammars.errors import GrammarError
from ...models.errors import ModelError
from ...samplers.errors import SamplingError
from ..batch.request import line_sentence
from ..batch.request_builder import RequestBuilder
from ..batch.result_format import ResultFormat
from ..inputs.model import ModelSpec
from .model_workers import worker_description, worker_facts


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
