"""A batch: lines of requests in, lines of results out. Each line gets one result, whatever is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from ...common.files import open_input
from ...common.strict_json import encode_json
from ...common.text import count_noun
from ...engine.batch import BatchAnswer, generate_many
from ...engine.generation import GenerationRequest
from ...engine.model import Model
from ...grammars.errors import GrammarError
from ...logprobs.jsonl import failure_line, result_line
from ...logprobs.openai import (
    batch_error,
    batch_id,
    chat_completion,
    openai_failure_line,
    openai_result_line,
    text_completion,
)
from ...models.errors import ModelError
from ...presets.errors import PresetError
from ...samplers.errors import SamplingError
from ..inputs.model import load_model
from ..interrupt import Interrupt
from ..messages import note
from ..options.batch import BatchOptions
from ..render.batch_progress import BatchProgress, ProgressDisplay, show_progress
from .bodies import BatchRequest, find_request_id, line_sentence, parse_request
from .journal import ExistingResults, JournalError, ResultSink, keep_settings, settings_digest
from .lines import BackgroundItems, InputLine, InvalidLineError, PromptTemplate, as_they_come, read_input_lines
from .resolve import (
    BatchDefaults,
    ModelDescription,
    RequestBuilder,
    RequestResolver,
    ResolvedRequest,
    batch_settings,
    describe_model,
)


@dataclass(frozen=True)
class BatchParts:
    """What a batch is made of before its model is known; ``template``: None for JSON lines."""

    options: BatchOptions
    defaults: BatchDefaults
    template: PromptTemplate | None
    results: ResultSink
    progress: BatchProgress

    @property
    def writer(self) -> ResultWriter:
        """What writes the results."""
        return ResultWriter(ResultFormat(self.options.format.value), self.results, self.progress)

    @contextmanager
    def lines(self) -> Iterator[Iterator[InputLine] | BackgroundItems[InputLine]]:
        """Open the input while inside.

        Lines of a pipe may come slowly, and the requests that are being answered should not wait for them.
        """
        with open_input(self.options.requests) as file:
            lines = read_input_lines(file, self.template)
            yield lines if self.options.reads_file else BackgroundItems(lines)

    def make_intake(self, model: ModelDescription) -> RequestIntake:
        """Return what lets requests through. Raises ``JournalError`` if the results are of others."""
        options, existing = self.options, self.results.existing
        resolver = RequestResolver(self.defaults, model.metadata)
        settings = batch_settings(model, self.defaults, resolver, options.answer_form)
        digest = settings_digest(settings)
        intake = RequestIntake(resolver, self.writer, existing, self.progress, digest, keeps_others=options.force)
        if self.results.is_file:
            keep_settings(options.output, settings, has_results=bool(existing), is_forced=options.force)
        untold = sum(isinstance(key, str) and request_id is None for key, request_id in existing.items())
        if untold:
            results = count_noun(untold, "result")
            note(f"{options.output} has {results} without a request_id: what made them cannot be checked")
        if existing and options.reads_file and not options.force:
            with open_input(options.requests) as file:
                intake.check_results(read_input_lines(file, self.template))
        return intake

    def report_unmatched(self, intake: RequestIntake) -> None:
        """Print a note on results that belong to no request of the input."""
        if intake.unmatched_results:
            results = count_noun(intake.unmatched_results, "result")
            note(f"{self.options.output} also holds {results} for requests that are not in this file")


def answer_here(parts: BatchParts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ModelError``, ``JournalError``."""
    options = parts.options
    with load_model(options.model, interrupt) as model:
        intake = parts.make_intake(describe_model(model))
        runner = _BatchRunner(model, intake, parts.writer)
        results_on_terminal = options.prints_results and sys.stdout.isatty()
        with parts.lines() as lines, show_progress(parts.progress, results_on_terminal) as display:
            runner.run(lines, options, stop_of(interrupt), display)
        if not interrupt.requested:
            parts.report_unmatched(intake)


def stop_of(interrupt: Interrupt) -> Callable[[], bool]:
    """Return what tells a batch to begin no further request; the first time that it does, it prints a note."""
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            note("what is begun is being finished; Ctrl-C again stops at once")
        return interrupt.requested

    return should_stop


class _BatchRunner:
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
        options: BatchOptions,
        should_stop: Callable[[], bool],
        display: ProgressDisplay,
    ) -> None:
        """Answer all lines that have no result yet.

        Args:
            lines: the input.
            options: how many requests are computed at a time, and whether apart from each other.
            should_stop: see `generate_many`.
            display: where the progress is shown.
        """
        outcomes = generate_many(
            self._model,
            self._requests(lines),
            options.parallel or self._model.default_parallel,
            isolated=options.deterministic,
            should_stop=should_stop,
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


@dataclass(frozen=True)
class AcceptedRequest:
    """A request that has no result yet.

    Attributes:
        line: the number of its line, from 1.
        digest: the digest of the line's text.
        request_id: tells that an answer belongs to this text, model and flags.
        is_chat: True if it is a chat, and not a text to write on from.
        resolved: all that it asks for.
    """

    line: int
    digest: str
    request_id: str
    is_chat: bool
    resolved: ResolvedRequest

    @property
    def id(self) -> str:
        """The request's id."""
        return self.resolved.id


class RequestIntake:
    """Takes lines and lets the requests through that have no result yet; a wrong line gets its failure here.

    Args:
        resolver: finds out what requests ask for.
        writer: writes failures.
        existing: the results from before the start.
        progress: counts them.
        settings_digest: the digest of what answers depend on beside their requests.
        keeps_others: results stay also where they came from another text, or with other settings.
    """

    def __init__(
        self,
        resolver: RequestResolver,
        writer: ResultWriter,
        existing: ExistingResults,
        progress: BatchProgress,
        settings_digest: str,
        *,
        keeps_others: bool,
    ) -> None:
        self._resolver, self._writer, self._existing, self._progress = resolver, writer, existing, progress
        self._settings_digest, self._keeps_others = settings_digest, keeps_others
        self._line_of_id: dict[str, int] = {}

    def accepted(
        self, lines: Iterable[InputLine] | BackgroundItems[InputLine], is_idle: Callable[[], bool]
    ) -> Iterator[AcceptedRequest | None]:
        """Yield the requests that are to be answered; None: no line has come yet.

        ``is_idle``: True if nothing is being answered, so that a line may be waited for.
        """
        for line in as_they_come(lines, is_idle):
            request = None if line is None else self._accept(line)
            if line is None or request is not None:
                yield request

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
            _refuse(first, count)

    @property
    def unmatched_results(self) -> int:
        """How many of the results that were there belong to no line of this input."""
        return len(self._existing) - self._progress.existing

    def _is_other(self, line: InputLine) -> bool:
        """True if the result that was there for a line is not of its text, or not of these settings."""
        name = _name_of(line)
        request_id = self._existing.get(name)
        return request_id is not None and request_id != batch_id(name, line.digest, self._settings_digest)

    def _accept(self, line: InputLine) -> AcceptedRequest | None:
        """The request of a line; None if it has a result already, or gets one here because it is invalid."""
        name = _name_of(line)
        if (line.number, line.digest) in self._existing:
            self._line_of_id.setdefault(name, line.number)
            self._progress.existing += 1
            self._progress.existing_failures += 1
            return None
        try:
            return self._accept_valid(line)
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            if self._line_of_id.setdefault(name, line.number) != line.number:
                name = _unnamed(line)  # otherwise the record reads as a result of the line that has the id
            self._writer.failure(name, line.number, line.digest, "invalid_request", line_sentence(error))
            return None

    def _accept_valid(self, line: InputLine) -> AcceptedRequest | None:
        if isinstance(line.content, InvalidLineError):
            raise line.content
        request = parse_request(line.content, line.number)
        first_line = self._line_of_id.setdefault(request.id, line.number)
        if first_line != line.number:
            raise InvalidLineError(f"the id {request.id!r} is on line {first_line} already")
        if request.id in self._existing:
            if not self._keeps_others and self._is_other(line):
                _refuse(line, 1)
            self._progress.existing += 1
            return None
        self._writer.format.check(request)
        return AcceptedRequest(
            line=line.number,
            digest=line.digest,
            request_id=batch_id(request.id, line.digest, self._settings_digest),
            is_chat=request.messages is not None,
            resolved=self._resolver.resolve(request),
        )


def _refuse(line: InputLine, count: int) -> NoReturn:
    results = "the result" if count == 1 else f"{count:,} results, such as that"
    raise JournalError(
        f"{results} of {_name_of(line)!r} (line {line.number}) came from another text, or with another model "
        f"or other flags; --force keeps what is there and goes on"
    )


def _name_of(line: InputLine) -> str:
    """The id of a line's request, which may be invalid otherwise."""
    return find_request_id(line.content) or _unnamed(line)


def _unnamed(line: InputLine) -> str:
    """The id of a request that has none, or the id of another line."""
    return f"line-{line.number}"


class ResultWriter:
    """Writes results in their format.

    Args:
        result_format: makes the records of results.
        results: where they go.
        progress: where they are counted.
    """

    def __init__(self, result_format: ResultFormat, results: ResultSink, progress: BatchProgress) -> None:
        self.format = result_format
        self._results, self._progress = results, progress

    def answer(self, request: AcceptedRequest, answer: BatchAnswer) -> None:
        """Write an answer."""
        self.answer_line(self.format.answer_line(request, answer), str(answer.exactness))

    def answer_line(self, line: str, exactness: str) -> None:
        """Write an answer that is JSON already; ``exactness``: what holds for it, in words."""
        self._results.add(line)
        self._progress.answered += 1
        self._progress.exactness.add(exactness)

    def failure(self, request_id: str, line: int, digest: str, code: str, message: str) -> None:
        """Write why a line has no answer.

        Args:
            request_id: the id of its request.
            line: its number, from 1.
            digest: the digest of its text.
            code: the kind of the failure.
            message: a sentence.
        """
        record = self.format.failure_record(request_id, batch_error(code, message, line, digest))
        self._results.add(encode_json(record))
        self._progress.failed += 1


class ResultFormat:
    """The format of results.

    Args:
        name: ``openai`` (OpenAI's batch output) or ``jsonl`` (ours).
        worker: what computed the answers, on a cluster: ``cpu``, ``build`` and ``threads``.
    """

    def __init__(self, name: str, worker: Mapping[str, Any] | None = None) -> None:
        self._is_openai = name == "openai"
        self._worker = worker

    def check(self, request: BatchRequest) -> None:
        """Raise ``InvalidLineError`` for logprobs or a trace that the format has no room for."""
        if self._is_openai and (request.logprobs == -1 or request.logprobs_from == "both"):
            raise InvalidLineError("OpenAI's format has no room for these logprobs; --format jsonl has")
        if self._is_openai and request.trace is not None:
            raise InvalidLineError("trace: OpenAI's format has no room for it; --format jsonl has")

    def answer_line(self, request: AcceptedRequest, answer: BatchAnswer) -> str:
        """The result of an answer, as JSON on one line."""
        if not self._is_openai:
            return result_line(
                answer.events,
                request.id,
                request.line,
                answer_id=request.request_id,
                exactness=str(answer.exactness),
                worker=self._worker,
            )
        make_body = chat_completion if request.is_chat else text_completion
        body = make_body(answer.events, request.request_id)
        if self._worker is not None:
            body["worker"] = self._worker
        return encode_json(openai_result_line(request.id, request.request_id, body))

    def failure_record(self, request_id: str, error: dict[str, Any]) -> dict[str, Any]:
        """The record of a line without an answer; ``error`` is made by `logprobs.batch_error`."""
        make_line = openai_failure_line if self._is_openai else failure_line
        return make_line(request_id, error)
