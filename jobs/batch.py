"""A batch: lines of requests in, lines of results out. Each line gets one result, whatever is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..common.strict_json import encode_json
from ..engine.batch import BatchAnswer, BatchFailure, generate_many
from ..engine.request import GenerationRequest
from ..grammars.errors import GrammarError
from ..logprobs.jsonl import failure_line, result_line
from ..logprobs.openai import (
    batch_error,
    batch_id,
    chat_completion,
    openai_failure_line,
    openai_result_line,
    text_completion,
)
from ..models.errors import ModelError
from ..presets.errors import PresetError
from ..samplers.errors import SamplingError
from .bodies import ParsedRequest, find_request_id, parse_request
from .errors import InvalidLineError, JournalError
from .journal import ResultSink
from .lines import BackgroundReader, InputLine, iterate_available
from .resolve import RequestResolver

if TYPE_CHECKING:
    from ..engine.model import Model

Lines = Iterable[InputLine] | BackgroundReader[InputLine]
"""The input: lines that are there, or that may come slowly."""


@dataclass
class BatchCounts:
    """What a batch has done so far.

    Attributes:
        existing: lines that had a result at the start.
        existing_failure_count: those of them whose result is a failure.
        answered: answers of this run.
        failed: failures of this run.
        tokens: tokens made in this run.
        exactness: what holds for its answers, in words.
    """

    existing_count: int = 0
    existing_failure_count: int = 0
    answered_count: int = 0
    failed_count: int = 0
    token_count: int = 0
    exactness: set[str] = field(default_factory=set)

    @property
    def finished_count(self) -> int:
        """Lines with a result, of this run or an earlier one."""
        return self.existing_count + self.answered_count + self.failed_count


class AcceptedLine(NamedTuple):
    """What a result says of its line.

    Attributes:
        number: the line's number, from 1.
        digest: the digest of its text.
        result_id: names this text, model and flags.
        is_chat: True if it is a chat, and not a text to write on from.
    """

    number: int
    digest: str
    result_id: str
    is_chat: bool


class BatchRun:
    """The answering of a batch: lets the requests through that have no result yet, and writes results.

    Args:
        resolver: makes the requests.
        results: takes results, and knows those from before the start.
        counts: counts them.
        settings_digest: the digest of what answers depend on beside their requests.
        is_openai: True for OpenAI's batch output, False for ours.
        keeps_mismatched_results: results stay also where they came from another text, or with other settings.
        describe_error: what is wrong, in words for the record of a line.
    """

    def __init__(
        self,
        resolver: RequestResolver,
        results: ResultSink,
        counts: BatchCounts,
        settings_digest: str,
        *,
        is_openai: bool,
        keeps_mismatched_results: bool,
        describe_error: Callable[[Exception], str] = str,
    ) -> None:
        self._resolver, self._results, self._counts = resolver, results, counts
        self._settings_digest, self._is_openai = settings_digest, is_openai
        self._keeps_mismatched_results = keeps_mismatched_results
        self._describe_error = describe_error
        self._line_of_id: dict[str, int] = {}
        self._pending: dict[object, AcceptedLine] = {}

    def run(
        self,
        model: Model,
        lines: Lines,
        parallel: int,
        *,
        deterministic: bool = False,
        should_stop: Callable[[], bool] | None = None,
        on_progress: Callable[[int], None] | None = None,
        note: Callable[[str], object] | None = None,
    ) -> None:
        """Answer all lines that have no result yet.

        Args:
            model: the model.
            lines: the input.
            parallel: how many requests are computed at a time.
            deterministic: see `generate_many`.
            should_stop: likewise.
            on_progress: called with the number of tokens that were made, also 0 after a result.
            note: see `generate_many`.

        Raises ``ModelError``, ``JournalError``.
        """
        for outcome in generate_many(
            model,
            (None if accepted is None else accepted[0] for accepted in self.iterate_new_requests(lines)),
            parallel,
            deterministic=deterministic,
            should_stop=should_stop,
            progress=on_progress,
            note=note,
        ):
            if isinstance(outcome, BatchAnswer):
                line = answer_line(outcome, self._pending[outcome.id], is_openai=self._is_openai)
                self.write_answer(outcome.id, line, str(outcome.exactness))
            else:
                self.write_failure(outcome.id, failure_code(outcome), self._describe_error(outcome.error))
            if on_progress is not None:
                on_progress(0)

    def iterate_new_requests(self, lines: Lines) -> Iterator[tuple[GenerationRequest, AcceptedLine] | None]:
        """Yield the requests that are to be answered; None: no line has come yet.

        Each gets `write_answer` or `write_failure`. A wrong line gets its failure here.
        """
        for line in iterate_available(lines, is_idle=lambda: not self._pending):
            accepted = None if line is None else self._accept(line)
            if accepted is not None:
                self._pending[accepted[0].id] = accepted[1]
            if line is None or accepted is not None:
                yield accepted

    def write_answer(self, request_id: object, line: str, exactness: str) -> None:
        """Write an answer; ``line``: made by `answer_line`; ``exactness``: what holds for it, in words."""
        del self._pending[request_id]
        self._results.add(line)
        self._counts.answered_count += 1
        self._counts.exactness.add(exactness)

    def write_failure(self, request_id: object, code: str, message: str) -> None:
        """Write why a request has no answer; ``code``: the kind of the failure."""
        line = self._pending.pop(request_id)
        self._write_failure(str(request_id), line.number, line.digest, code, message)

    def check_results(self, lines: Iterable[InputLine]) -> None:
        """Raise ``JournalError`` if a result that was there is not of its line's text or of these settings."""
        first, count = None, 0
        checked: set[str] = set()
        for line in lines:
            name = _name_of(line)
            if name not in checked and self._is_result_mismatched(line):
                first, count = first or line, count + 1
            checked.add(name)  # a second line with this id has no result of its own
        if first is not None:
            _refuse(first, count)

    @property
    def unmatched_result_count(self) -> int:
        """How many of the results that were there belong to no line of this input."""
        return len(self._results.existing) - self._counts.existing_count

    def _is_result_mismatched(self, line: InputLine) -> bool:
        """True if the result that was there for a line is not of its text, or not of these settings."""
        name = _name_of(line)
        result_id = self._results.existing.get(name)
        return result_id is not None and result_id != batch_id(name, line.digest, self._settings_digest)

    def _accept(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine] | None:
        """The request of a line; None if it has a result already, or gets one here because it is invalid."""
        name = _name_of(line)
        if (line.number, line.digest) in self._results.existing:
            self._line_of_id.setdefault(name, line.number)
            self._counts.existing_count += 1
            self._counts.existing_failure_count += 1
            return None
        try:
            return self._accept_valid(line)
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            if self._line_of_id.setdefault(name, line.number) != line.number:
                name = _unnamed(line)  # otherwise the record reads as a result of the line that has the id
            self._write_failure(name, line.number, line.digest, "invalid_request", self._describe_error(error))
            return None

    def _accept_valid(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine] | None:
        if isinstance(line.content, InvalidLineError):
            raise line.content
        parsed = parse_request(line.content, line.number)
        first_line = self._line_of_id.setdefault(parsed.id, line.number)
        if first_line != line.number:
            raise InvalidLineError(f"the id {parsed.id!r} is on line {first_line} already")
        if parsed.id in self._results.existing:
            if not self._keeps_mismatched_results and self._is_result_mismatched(line):
                _refuse(line, 1)
            self._counts.existing_count += 1
            return None
        if self._is_openai:
            _check_openai(parsed)
        result_id = batch_id(parsed.id, line.digest, self._settings_digest)
        accepted = AcceptedLine(line.number, line.digest, result_id, parsed.messages is not None)
        return self._resolver.resolve(parsed), accepted

    def _write_failure(self, name: str, number: int, digest: str, code: str, message: str) -> None:
        error = batch_error(code, message, number, digest)
        self._results.add(encode_json((openai_failure_line if self._is_openai else failure_line)(name, error)))
        self._counts.failed_count += 1


def answer_line(
    answer: BatchAnswer, line: AcceptedLine, *, is_openai: bool, worker: Mapping[str, Any] | None = None
) -> str:
    """Return the result of an answer, as JSON on one line.

    Args:
        answer: the answer.
        line: its line.
        is_openai: True for OpenAI's batch output, False for ours.
        worker: what computed the answer, on a cluster: ``cpu``, ``build`` and ``threads``.
    """
    name = str(answer.id)
    if not is_openai:
        return result_line(
            answer.events,
            name,
            line.number,
            answer_id=line.result_id,
            exactness=str(answer.exactness),
            worker=worker,
        )
    body = (chat_completion if line.is_chat else text_completion)(answer.events, line.result_id)
    if worker is not None:
        body["worker"] = worker
    return encode_json(openai_result_line(name, line.result_id, body))


def failure_code(failure: BatchFailure) -> str:
    """Return the kind of a failure: whether the request is wrong, or its generation failed."""
    return "generation_failed" if failure.has_begun else "invalid_request"


def _check_openai(parsed: ParsedRequest) -> None:
    """Raise ``InvalidLineError`` for logprobs or a trace that OpenAI's format has no room for."""
    if parsed.top_logprob_count == -1 or parsed.logprobs_from == "both":
        raise InvalidLineError("OpenAI's format has no room for these logprobs; --format jsonl has")
    if parsed.trace_top_count is not None:
        raise InvalidLineError("trace: OpenAI's format has no room for it; --format jsonl has")


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
