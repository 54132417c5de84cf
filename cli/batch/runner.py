"""Answers the requests of a batch with a model of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...engine.batch import BatchAnswer, generate_many
from ...engine.generation import GenerationRequest
from ...engine.model import Model
from ...grammars.errors import GrammarError
from ...models.errors import ModelError
from ...samplers.errors import SamplingError
from ..render.batch import ProgressDisplay
from .accepted_request import AcceptedRequest
from .input_lines import BackgroundItems, InputLine
from .request import line_sentence
from .request_builder import RequestBuilder
from .request_intake import RequestIntake
from .result_writer import ResultWriter


@dataclass(frozen=True)
class BatchPolicy:
    """How requests are computed, see `generate_many`."""

    parallel: int
    isolated: bool
    should_stop: Callable[[], bool]


class BatchRunner:
    """A batch that runs.

    Args:
        model: the model.
        intake: lets the requests through that are to be answered.
        writer: writes the results.
    """

    def __init__(self, model: Model, intake: RequestIntake, writer: ResultWriter) -> None:
        self._model, self._intake, self._writer = model, intake, writer
        self._builder = RequestBuilder(model)
        self._pending: dict[object, AcceptedRequest] = {}

    def run(
        self,
        lines: Iterable[InputLine] | BackgroundItems[InputLine],
        policy: BatchPolicy,
        display: ProgressDisplay,
    ) -> None:
        """Answer all lines that have no result yet.

        Args:
            lines: the input.
            policy: how the requests are computed.
            display: where the progress is shown.
        """
        outcomes = generate_many(
            self._model,
            self._requests(lines),
            policy.parallel,
            isolated=policy.isolated,
            should_stop=policy.should_stop,
            progress=display.add_tokens,
        )
        for outcome in outcomes:
            request = self._pending.pop(outcome.key)
            if isinstance(outcome, BatchAnswer):
                self._writer.answer(request, outcome)
            else:
                self._fail(request, "generation_failed", outcome.error)
            display.refresh()

    def _requests(
        self, lines: Iterable[InputLine] | BackgroundItems[InputLine]
    ) -> Iterator[GenerationRequest | None]:
        """The engine's requests. None: no line has come yet."""
        for accepted in self._intake.accepted(lines, is_idle=lambda: not self._pending):
            if accepted is None:
                yield None
                continue
            try:
                request = self._builder.build(accepted.resolved)
            except (GrammarError, SamplingError, ModelError) as error:
                self._fail(accepted, "invalid_request", error)
                continue
            self._pending[request.key] = accepted
            yield request

    def _fail(self, request: AcceptedRequest, code: str, error: Exception) -> None:
        self._writer.failure(request.id, request.line, request.digest, code, line_sentence(error))
