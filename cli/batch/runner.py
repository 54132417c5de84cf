"""Runs a batch: every line gets a result, whatever is wrong with some of the lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NoReturn

from ...engine import BatchAnswer, GenerationRequest, Model, ModelError, generate_many
from ...grammars import GrammarError
from ...logprobs import batch_error
from ...presets import PresetError
from ...samplers import SamplingError
from ..inputs.json_lines import InvalidLineError
from ..render.batch import BatchProgress, ProgressDisplay
from .input_lines import BackgroundLines, InputLine
from .journal import JournalError, ResultSink
from .request import BatchRequest, find_request_id, parse_request
from .request_builder import RequestBuilder
from .request_resolver import RequestResolver
from .result_format import ResultFormat


@dataclass(frozen=True)
class BatchPolicy:
    """How requests are computed, see `generate_many`."""

    parallel: int
    isolated: bool
    should_stop: Callable[[], bool]


class BatchRunner:
    """A batch that runs: it answers, counts and keeps.

    Args:
        resolver: finds out what requests ask for.
        builder: makes the engine's requests of that.
        result_format: makes the records of results.
        results: where they go.
        progress: what is counted.
        keeps_others: results stay also where they came from another text, or with other settings.
    """

    def __init__(
        self,
        resolver: RequestResolver,
        builder: RequestBuilder,
        result_format: ResultFormat,
        results: ResultSink,
        progress: BatchProgress,
        *,
        keeps_others: bool = False,
    ) -> None:
        self._resolver, self._builder, self._format = resolver, builder, result_format
        self._results, self._progress = results, progress
        self._keeps_others = keeps_others
        self._pending: dict[object, tuple[BatchRequest, InputLine]] = {}
        self._line_of_id: dict[str, int] = {}

    def run(
        self,
        model: Model,
        lines: Iterable[InputLine] | BackgroundLines,
        policy: BatchPolicy,
        display: ProgressDisplay,
    ) -> None:
        """Answer all lines that have no result yet.

        Args:
            model: the model.
            lines: the input.
            policy: how the requests are computed.
            display: where the progress is shown.
        """
        outcomes = generate_many(
            model,
            self._requests(lines),
            policy.parallel,
            isolated=policy.isolated,
            should_stop=policy.should_stop,
            progress=display.add_tokens,
        )
        for outcome in outcomes:
            request, line = self._pending.pop(outcome.key)
            if isinstance(outcome, BatchAnswer):
                self._results.add(self._format.answer_record(request, line, outcome))
                self._progress.answered += 1
                self._progress.exactness.add(str(outcome.exactness))
            else:
                self._fail(request.id, line, "generation_failed", str(outcome.error))
            display.refresh()

    def check_results(self, lines: Iterable[InputLine]) -> None:
        """Raise ``JournalError`` if a result that was there is not of its line's text or of these settings."""
        first, count = None, 0
        checked: set[str] = set()
        for line in lines:
            name = _name_of(line)
            if name not in checked and self._is_other(line):
                first, count = first or line, count + 1
            checked.add(name)  # a second line with this id has no result of its own
        if first is not None:
            self._refuse(first, count)

    @property
    def unmatched_results(self) -> int:
        """How many of the results that were there belong to no line of this input."""
        return len(self._results.existing) - self._progress.existing

    def _is_other(self, line: InputLine) -> bool:
        """True if the result that was there for a line is not of its text, or not of these settings."""
        name = _name_of(line)
        request_id = self._results.existing.get(name)
        return request_id is not None and request_id != self._format.request_id(name, line)

    def _refuse(self, line: InputLine, count: int) -> NoReturn:
        results = "the result" if count == 1 else f"{count:,} results, such as that"
        raise JournalError(
            f"{results} of {_name_of(line)!r} (line {line.number}) came from another text, or with another model "
            f"or other flags; --force keeps what is there and goes on"
        )

    def _requests(self, lines: Iterable[InputLine] | BackgroundLines) -> Iterator[GenerationRequest | None]:
        """The requests that have no result yet; an invalid line fails at once. None: no line has come yet."""
        for line in self._wait_for_lines(lines) if isinstance(lines, BackgroundLines) else lines:
            request = None if line is None else self._build_request(line)
            if line is None or request is not None:
                yield request

    def _wait_for_lines(self, lines: BackgroundLines) -> Iterator[InputLine | None]:
        while True:
            try:
                line = lines.next(wait=not self._pending)
            except StopIteration:
                return
            yield line

    def _build_request(self, line: InputLine) -> GenerationRequest | None:
        """The request of a line; None if it has a result already, or gets one here because it is invalid."""
        name = _name_of(line)
        if (line.number, line.digest) in self._results.existing:
            self._line_of_id.setdefault(name, line.number)
            self._progress.existing += 1
            self._progress.existing_failures += 1
            return None
        try:
            if isinstance(line.content, InvalidLineError):
                raise line.content
            batch_request = parse_request(line.content, line.number)
            first_line = self._line_of_id.setdefault(batch_request.id, line.number)
            if first_line != line.number:
                raise InvalidLineError(f"the id {batch_request.id!r} is on line {first_line} already")
            if batch_request.id in self._results.existing:
                if not self._keeps_others and self._is_other(line):
                    self._refuse(line, 1)
                self._progress.existing += 1
                return None
            self._format.check(batch_request)
            request = self._builder.build(self._resolver.resolve(batch_request))
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            self._line_of_id.setdefault(name, line.number)
            self._fail(name, line, "invalid_request", str(error))
            return None
        self._pending[request.key] = batch_request, line
        return request

    def _fail(self, request_id: str, line: InputLine, code: str, message: str) -> None:
        error = batch_error(code, message, line.number, line.digest)
        self._results.add(self._format.failure_record(request_id, error))
        self._progress.failed += 1


def _name_of(line: InputLine) -> str:
    """The id of a line's request, which may be invalid otherwise."""
    return find_request_id(line.content) or f"line-{line.number}"
