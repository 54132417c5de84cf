"""Batches: lines of requests become lines of results. Each line gets one result, even if it is invalid."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..common.strict_json import encode_json
from ..engine.batch import BatchAnswer, BatchFailure, generate_many
from ..engine.request import GenerationRequest
from ..grammars.errors import GrammarError
from ..logprobs.jsonl import format_failure_line, format_result_line
from ..logprobs.openai import (
    batch_error,
    batch_id,
    chat_completion,
    merge_choices,
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
from .samples import sample_requests

if TYPE_CHECKING:
    from ..engine.model import Model

InputLines = Iterable[InputLine] | BackgroundReader[InputLine]
"""The lines of the input, which a thread reads if they may arrive slowly."""


@dataclass
class BatchCounts:
    """Counts of a batch's lines and tokens so far.

    Attributes:
        existing_count: lines of the input that had a result when the run started.
        existing_failure_count: lines whose existing result is a failure; included in ``existing_count``.
        answered_count: lines that this run has answered.
        failed_count: lines for which this run has written a failure.
        token_count: tokens that this run has generated.
        exactness: descriptions of the exactness of this run's answers, see `BatchAnswer`.
    """

    existing_count: int = 0
    existing_failure_count: int = 0
    answered_count: int = 0
    failed_count: int = 0
    token_count: int = 0
    exactness: set[str] = field(default_factory=set)

    @property
    def finished_count(self) -> int:
        """Number of lines with a result, of this run or an earlier one."""
        return self.existing_count + self.answered_count + self.failed_count


class AcceptedLine(NamedTuple):
    """The facts about a line that its result contains.

    Attributes:
        number: number of the line in the input, counted from 1.
        digest: digest of the line's text.
        result_id: digest of the line's text, the model and the flags, see `batch_id`.
        is_chat: whether the request has messages; otherwise it has a prompt.
    """

    number: int
    digest: str
    result_id: str
    is_chat: bool


@dataclass
class _ChoiceAnswer:
    """The answer of a line that asks for several texts, while they are generated.

    Attributes:
        id: id of the line's request.
        lines: the result of each text, as if it were the only one; None until it is complete.
        has_failed: whether a text failed. Then the line's result is this failure.
    """

    id: object
    lines: list[str | None]
    has_failed: bool = False


class _Choice(NamedTuple):
    """One of several texts of an answer; ``number``: its place among them, counted from 0."""

    answer: _ChoiceAnswer
    number: int


class BatchRun:
    """A run of a batch: selects the lines that have no result yet, and writes a result for each.

    Args:
        resolver: makes the requests.
        results: gets the results, and knows those of earlier runs.
        counts: counts of the batch, which are updated after each line.
        settings_digest: digest of all settings, except those in the lines, that answers depend on.
        is_openai: whether results have OpenAI's batch format; otherwise they have logitsmith's.
        keeps_mismatched_results: whether an existing result is kept although its line's text, the model or the
            flags have changed. Otherwise such a result is an error.
        describe_error: returns the message of an error as a line's result shows it.
        advice: what a user can do if existing results were made from another text or with other settings.
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
        advice: str = "--force keeps the existing results and continues",
    ) -> None:
        self._resolver, self._results, self._counts = resolver, results, counts
        self._advice = advice
        self._settings_digest, self._is_openai = settings_digest, is_openai
        self._keeps_mismatched_results = keeps_mismatched_results
        self._describe_error = describe_error
        self._line_number_of_id: dict[str, int] = {}
        self._pending_lines: dict[object, AcceptedLine] = {}
        self._choices: dict[object, _Choice] = {}

    def run(
        self,
        model: Model,
        lines: InputLines,
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
            lines: the lines of the input.
            parallel: maximum number of requests that are computed at the same time.
            deterministic: whether each request is computed exactly as it would be alone, see `generate_many`.
            should_stop: once it returns True, no more requests are started.
            on_progress: called with the number of newly generated tokens, and with 0 after each result.
            note: called with messages for the user.

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
                line = answer_line(outcome, self._pending_lines[outcome.id], is_openai=self._is_openai)
                self.write_answer(outcome.id, line, str(outcome.exactness))
            else:
                self.write_failure(outcome.id, failure_code(outcome), self._describe_error(outcome.error))
            if on_progress is not None:
                on_progress(0)

    def iterate_new_requests(self, lines: InputLines) -> Iterator[tuple[GenerationRequest, AcceptedLine] | None]:
        """Yield the requests of lines without a result; None means that no further line has arrived yet.

        The caller passes each request's outcome to `write_answer` or `write_failure`. The failure of an invalid
        line is written here.
        """
        for line in iterate_available(lines, is_idle=lambda: not self._pending_lines):
            accepted = None if line is None else self._accept_line(line)
            if line is None:
                yield None
            elif accepted is not None:
                request, accepted_line, choice_count = accepted
                for choice in self._choices_of(request, choice_count):
                    self._pending_lines[choice.id] = accepted_line
                    yield choice, accepted_line

    def _choices_of(self, request: GenerationRequest, count: int) -> list[GenerationRequest]:
        """Return the requests of the texts that a line asks for. Several have ids of their own."""
        if count == 1:
            return [request]
        answer = _ChoiceAnswer(request.id, [None] * count)
        choices = []
        for index, choice in enumerate(sample_requests(request, count)):
            choice_id = f"\0{index}\0{request.id}"
            self._choices[choice_id] = _Choice(answer, index)
            choices.append(replace(choice, id=choice_id))
        return choices

    def write_answer(self, request_id: object, line: str, exactness: str) -> None:
        """Write the result of an answered request.

        Args:
            request_id: id of the request.
            line: the result, as `answer_line` returns it.
            exactness: description of the answer's exactness.
        """
        accepted_line = self._pending_lines.pop(request_id)
        self._counts.exactness.add(exactness)
        choice = self._choices.pop(request_id, None)
        if choice is not None:
            answer = choice.answer
            answer.lines[choice.number] = line
            if answer.has_failed or None in answer.lines:
                return
            line = _merge_choice_lines(answer, accepted_line)
        self._results.add(line)
        self._counts.answered_count += 1

    def write_failure(self, request_id: object, code: str, message: str) -> None:
        """Write the result of a request without an answer.

        Args:
            request_id: id of the request.
            code: code of the error.
            message: message of the error.
        """
        line = self._pending_lines.pop(request_id)
        choice = self._choices.pop(request_id, None)
        if choice is not None:
            if choice.answer.has_failed:
                return
            choice.answer.has_failed = True
            request_id = choice.answer.id
        self._write_failure(str(request_id), line.number, line.digest, code, message)

    def check_results(self, lines: Iterable[InputLine]) -> None:
        """Raise ``JournalError`` if an existing result was made from another text, or with other settings."""
        first_mismatched, mismatched_count = None, 0
        checked_ids: set[str] = set()
        for line in lines:
            request_id = _request_id_of(line)
            if request_id not in checked_ids and self._is_result_mismatched(line):
                first_mismatched, mismatched_count = first_mismatched or line, mismatched_count + 1
            # A later line with the same id is invalid, and has no result under this id.
            checked_ids.add(request_id)
        if first_mismatched is not None:
            _reject_mismatched_results(first_mismatched, mismatched_count, self._advice)

    @property
    def unmatched_result_count(self) -> int:
        """Number of existing results that belong to no line of this input."""
        return len(self._results.existing_results) - self._counts.existing_count

    def _is_result_mismatched(self, line: InputLine) -> bool:
        """Return whether a line's existing result has another text, model or flags."""
        request_id = _request_id_of(line)
        result_id = self._results.existing_results.get(request_id)
        return result_id is not None and result_id != batch_id(request_id, line.digest, self._settings_digest)

    def _accept_line(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine, int] | None:
        """Return the request of a line, and the number of texts that it asks for; None if it has a result.

        An invalid line gets its failure here.
        """
        request_id = _request_id_of(line)
        if (line.number, line.digest) in self._results.existing_results:
            self._line_number_of_id.setdefault(request_id, line.number)
            self._counts.existing_count += 1
            self._counts.existing_failure_count += 1
            return None
        try:
            return self._accept_valid_line(line)
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            if self._line_number_of_id.setdefault(request_id, line.number) != line.number:
                # Under its own id, the failure would replace the result of the earlier line with this id.
                request_id = _default_request_id(line)
            self._write_failure(
                request_id, line.number, line.digest, "invalid_request", self._describe_error(error)
            )
            return None

    def _accept_valid_line(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine, int] | None:
        """Return the same as `_accept_line`. Raises what it catches."""
        if isinstance(line.content, InvalidLineError):
            raise line.content
        parsed = parse_request(line.content, line.number)
        first_line_number = self._line_number_of_id.setdefault(parsed.id, line.number)
        if first_line_number != line.number:
            raise InvalidLineError(
                f"the id {parsed.id!r} is already used on line {first_line_number}; give another one"
            )
        if parsed.id in self._results.existing_results:
            if not self._keeps_mismatched_results and self._is_result_mismatched(line):
                _reject_mismatched_results(line, 1, self._advice)
            self._counts.existing_count += 1
            return None
        if self._is_openai:
            _check_openai(parsed)
        elif parsed.choice_count > 1:
            raise InvalidLineError("body.n: a result of --format jsonl has one text; use --format openai")
        result_id = batch_id(parsed.id, line.digest, self._settings_digest)
        accepted = AcceptedLine(line.number, line.digest, result_id, parsed.messages is not None)
        return self._resolver.resolve(parsed), accepted, parsed.choice_count

    def _write_failure(self, request_id: str, number: int, digest: str, code: str, message: str) -> None:
        error = batch_error(code, message, number, digest)
        make_line = openai_failure_line if self._is_openai else format_failure_line
        self._results.add(encode_json(make_line(request_id, error)))
        self._counts.failed_count += 1


def answer_line(
    answer: BatchAnswer, line: AcceptedLine, *, is_openai: bool, worker: Mapping[str, Any] | None = None
) -> str:
    """Return the result of an answered request, as JSON on one line.

    Args:
        answer: the answer.
        line: the facts about the request's line.
        is_openai: whether the result has OpenAI's batch format; otherwise it has logitsmith's.
        worker: on a cluster, the ``cpu``, ``build`` and ``threads`` of the worker that computed the answer.
    """
    request_id = str(answer.id)
    if not is_openai:
        return format_result_line(
            answer.events,
            request_id,
            line.number,
            answer_id=line.result_id,
            exactness=str(answer.exactness),
            worker=worker,
        )
    body = (chat_completion if line.is_chat else text_completion)(answer.events, line.result_id)
    if worker is not None:
        body["worker"] = worker
    return encode_json(openai_result_line(request_id, line.result_id, body))


def _merge_choice_lines(answer: _ChoiceAnswer, line: AcceptedLine) -> str:
    """Return the result of a line that asks for several texts, as JSON on one line."""
    bodies = [json.loads(text)["response"]["body"] for text in answer.lines if text is not None]
    return encode_json(openai_result_line(str(answer.id), line.result_id, merge_choices(bodies, len(bodies))))


def failure_code(failure: BatchFailure) -> str:
    """Return the code of a failure, which shows whether the generation had begun."""
    return "generation_failed" if failure.has_begun else "invalid_request"


def _check_openai(parsed: ParsedRequest) -> None:
    """Raise ``InvalidLineError`` if a line asks for logprobs or a trace that OpenAI's format does not support."""
    if parsed.top_logprob_count == -1:
        raise InvalidLineError("logprobs: -1 (all tokens) is not supported by OpenAI's format; use --format jsonl")
    if parsed.logprobs_from == "both":
        raise InvalidLineError('logprobs_from: "both" is not supported by OpenAI\'s format; use --format jsonl')
    if parsed.trace_top_count is not None:
        raise InvalidLineError("trace: not supported by OpenAI's format; use --format jsonl")


def _reject_mismatched_results(first_line: InputLine, mismatched_count: int, advice: str) -> NoReturn:
    """Raise ``JournalError`` for existing results that do not match the input.

    Args:
        first_line: the first line whose result does not match.
        mismatched_count: number of such lines.
        advice: what a user can do.
    """
    place = f"{_request_id_of(first_line)!r} (line {first_line.number})"
    results = f"{mismatched_count:,} results, such as the result of {place}, were"
    subject = f"the result of {place} was" if mismatched_count == 1 else results
    raise JournalError(f"{subject} made from another text, with another model or with other flags; {advice}")


def _request_id_of(line: InputLine) -> str:
    """Return the id of a line's request, even if the request is invalid."""
    return find_request_id(line.content) or _default_request_id(line)


def _default_request_id(line: InputLine) -> str:
    """Return the id for a line that has no id, or has the id of another line."""
    return f"line-{line.number}"
