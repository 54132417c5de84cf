"""Batches: lines of requests become lines of results. Each line gets one result, even if it is invalid."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ..common.journal import JournalError
from ..common.strict_json import encode_json
from ..engine.batch import BatchAnswer, BatchFailure, generate_many
from ..engine.request import GenerationRequest
from ..engine.token_records import LogprobRequest
from ..grammars.errors import GrammarError
from ..grammars.spec import GrammarSpec
from ..logprobs.batch_results import (
    batch_error,
    batch_id,
    failure_line,
    openai_failure_line,
    openai_result_line,
    result_line,
)
from ..logprobs.openai import ChatAnswer, OpenAIAnswer, ReasoningFormat, TextAnswer
from ..logprobs.responses import ResponseAnswer
from ..models.errors import ModelError, PromptTooLongError
from ..presets.errors import PresetError
from ..requests.asked import AskedRequest
from ..requests.errors import InvalidLineError
from ..requests.lines import RequestLine, find_request_id, read_request_line
from ..requests.resolve import RequestResolver
from ..requests.sources import report_ignored_schema_paths
from ..requests.story_context import LeftOut
from ..samplers.errors import SamplingError
from .journal import ResultSink
from .lines import BackgroundReader, InputLine, iterate_available
from .samples import sample_requests

if TYPE_CHECKING:
    from ..engine.model import Model

# the lines of the input, which a thread reads if they may arrive slowly
InputLines = Iterable[InputLine] | BackgroundReader[InputLine]


@dataclass
class BatchCounts:
    """Counts of a batch's lines and tokens so far."""

    existing_count: int = 0  # lines of the input that had a result when the run started
    existing_failure_count: int = 0  # lines whose existing result is a failure; included in ``existing_count``
    answered_count: int = 0  # lines that this run has answered
    failed_count: int = 0  # lines for which this run has written a failure
    # number of the first line that this run has written a failure for, and the message
    first_failure: tuple[int, str] | None = None
    token_count: int = 0  # tokens that this run has generated
    # descriptions of the exactness of this run's answers, see `BatchAnswer`
    exactness: set[str] = field(default_factory=set)

    @property
    def finished_count(self) -> int:
        return self.existing_count + self.answered_count + self.failed_count


class AcceptedLine(NamedTuple):
    """The facts about a line that its result contains."""

    number: int  # number of the line in the input, counted from 1
    digest: str
    result_id: str  # digest of the line's text, the model and the flags, see `batch_id`
    is_chat: bool  # whether the request has messages; otherwise it has a prompt
    # the fields of a request of `/v1/responses` that its answer repeats; None for all other requests
    repeated_fields: Mapping[str, Any] | None
    reasoning_format: ReasoningFormat
    choice_count: int  # number of texts that the request asks for


@dataclass(frozen=True)
class Failure:
    code: str
    message: str
    counts: Mapping[str, int] = field(default_factory=dict)


class LineAnswer(NamedTuple):
    line: str  # the result, as JSON on one line
    exactness: frozenset[str]  # descriptions of the exactness of its texts


class BatchRun:
    """A run of a batch: selects the lines that have no result yet, and writes a result for each."""

    def __init__(
        self,
        resolver: RequestResolver,
        results: ResultSink,
        counts: BatchCounts,
        settings_digest: str,
        *,
        base_seed: int,
        note: Callable[[str], object],
        is_openai: bool,
        keeps_mismatched_results: bool,
        has_strict_fields: bool = False,
        describe_error: Callable[[Exception], str] = str,
        advice: str = "--force keeps the existing results and continues",
    ) -> None:
        # ``base_seed``: the seed of a line that sets none is computed from it, together with the line's id.
        self._resolver = resolver
        self._base_seed = base_seed
        self._notes = _IgnoredPartsNotes(note, resolver.defaults.ignored_schema_paths)
        self._results = results
        self._counts = counts
        self._advice = advice
        self._settings_digest = settings_digest
        self._is_openai = is_openai
        self._keeps_mismatched_results = keeps_mismatched_results
        self._has_strict_fields = has_strict_fields
        self._describe_error = describe_error
        self._line_number_of_id: dict[str, int] = {}
        self._pending_lines: dict[object, AcceptedLine] = {}

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
        """Answer all lines that have no result yet, ``parallel`` at a time."""
        # Raises ``ModelError``, ``JournalError``.
        # ``on_progress`` gets the number of newly generated tokens, and 0 after each result.
        for request_id, result in answer_lines(
            model,
            self.iterate_new_requests(lines),
            parallel,
            is_openai=self._is_openai,
            describe_error=self._describe_error,
            deterministic=deterministic,
            should_stop=should_stop,
            progress=on_progress,
            note=note,
        ):
            self.write_result(request_id, result)
            if on_progress is not None:
                on_progress(0)

    def iterate_new_requests(self, lines: InputLines) -> Iterator[tuple[GenerationRequest, AcceptedLine] | None]:
        """Yield the requests of lines without a result; None means that no further line has arrived yet."""
        # The caller passes each result to `write_result`. The failure of an invalid line is written here.
        for line in iterate_available(lines, is_idle=lambda: not self._pending_lines):
            if line is None:
                yield None
                continue
            accepted = self._accept_line(line)
            if accepted is not None:
                request, accepted_line = accepted
                self._pending_lines[request.id] = accepted_line
                yield accepted

    def write_result(self, request_id: object, result: LineAnswer | Failure) -> None:
        """Write the result of a request that `iterate_new_requests` has yielded."""
        line = self._pending_lines.pop(request_id)
        if isinstance(result, Failure):
            self._write_failure(str(request_id), line.number, line.digest, result)
            return
        self._counts.exactness |= result.exactness
        self._results.add(result.line)
        self._counts.answered_count += 1

    def check_results(self, lines: Iterable[InputLine]) -> None:
        """Raise ``JournalError`` if an existing result was made from another text, or with other settings."""
        first_mismatched_line: InputLine | None = None
        mismatched_count = 0
        checked_ids: set[str] = set()
        for line in lines:
            request_id = _request_id_of(line)
            if request_id not in checked_ids and self._is_result_mismatched(line):
                mismatched_count += 1
                if first_mismatched_line is None:
                    first_mismatched_line = line
            # A later line with the same id is invalid, and has no result under this id.
            checked_ids.add(request_id)
        if first_mismatched_line is not None:
            _reject_mismatched_results(first_mismatched_line, mismatched_count, self._advice)

    @property
    def unmatched_result_count(self) -> int:
        """Number of existing results that belong to no line of this input."""
        return len(self._results.existing_results) - self._counts.existing_count

    def _is_result_mismatched(self, line: InputLine) -> bool:
        """Return whether a line's existing result has another text, model or flags."""
        request_id = _request_id_of(line)
        result_id = self._results.existing_results.get(request_id)
        return result_id is not None and result_id != batch_id(request_id, line.digest, self._settings_digest)

    def _accept_line(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine] | None:
        """Return the request of a line; None if it has a result, or fails here."""
        request_id = _request_id_of(line)
        has_existing_failure = (line.number, line.digest) in self._results.existing_results
        if has_existing_failure:
            self._line_number_of_id.setdefault(request_id, line.number)
            self._counts.existing_count += 1
            self._counts.existing_failure_count += 1
            return None
        try:
            return self._accept_valid_line(line)
        except (InvalidLineError, PresetError, GrammarError, SamplingError, ModelError) as error:
            first_line_number = self._line_number_of_id.setdefault(request_id, line.number)
            if first_line_number != line.number:
                # Under its own id, the failure would replace the result of the earlier line with this id.
                request_id = _default_request_id(line)
            failure = Failure("invalid_request", self._describe_error(error))
            self._write_failure(request_id, line.number, line.digest, failure)
            return None

    def _accept_valid_line(self, line: InputLine) -> tuple[GenerationRequest, AcceptedLine] | None:
        """Return the request of a line; None if the line has a result. Raises an error for an invalid line."""
        if isinstance(line.content, InvalidLineError):
            raise line.content
        request_line = read_request_line(
            line.content, line.number, strict_fields=self._has_strict_fields, model_name=self._resolver.model_name
        )
        request_id = request_line.id
        asked = request_line.asked
        first_line_number = self._line_number_of_id.setdefault(request_id, line.number)
        if first_line_number != line.number:
            raise InvalidLineError(
                f"the id {request_id!r} is already used on line {first_line_number}; give another one"
            )
        if request_id in self._results.existing_results:
            if not self._keeps_mismatched_results and self._is_result_mismatched(line):
                _reject_mismatched_results(line, mismatched_count=1, advice=self._advice)
            self._counts.existing_count += 1
            return None
        if self._is_openai:
            _check_openai(asked)
        elif asked.choice_count > 1:
            raise InvalidLineError("a result of --format jsonl has one text; use --format openai", origin="body.n")
        accepted = AcceptedLine(
            number=line.number,
            digest=line.digest,
            result_id=batch_id(request_id, line.digest, self._settings_digest),
            is_chat=asked.messages is not None,
            repeated_fields=asked.repeated_fields,
            reasoning_format=asked.reasoning_format,
            choice_count=asked.choice_count,
        )
        request = self._make_request(request_line)
        if self._is_openai:
            request = replace(request, logprobs=replace(request.logprobs, lowest=0))
        return request, accepted

    def _make_request(self, line: RequestLine) -> GenerationRequest:
        fields_without_effect = [*line.asked.ignored, *self._resolver.unread_fields(line.asked)]
        fields_without_effect += self._resolver.defaults.flags_without_effect(line.asked)
        settings = self._resolver.settings(line.asked, fields_without_effect)  # adds to the list
        seed = _seed_of_line(self._base_seed, line.id)
        left_out: list[LeftOut] = []
        (request,) = self._resolver.requests(line.asked, settings, seed, line.id, left_out)
        self._notes.note_fields(line.number, fields_without_effect)
        self._notes.note_left_out(line.number, left_out)
        if isinstance(request.constraint, GrammarSpec):
            self._notes.note_schema(request.constraint)
        return request

    def _write_failure(self, request_id: str, number: int, digest: str, failure: Failure) -> None:
        error = batch_error(failure.code, failure.message, number, digest, failure.counts)
        make_line = openai_failure_line if self._is_openai else failure_line
        self._results.add(encode_json(make_line(request_id, error)))
        self._counts.failed_count += 1
        if self._counts.first_failure is None:
            self._counts.first_failure = (number, failure.message)


_SEED_BYTES = 4  # a seed has 32 bits


def _seed_of_line(base_seed: int, request_id: str) -> int:
    """Return the seed of a line that sets none. An id always gets the same seed."""
    digest = sha256(f"{base_seed}:{request_id}".encode()).digest()
    return int.from_bytes(digest[:_SEED_BYTES], "little")


_MAX_NOTED_FIELDS = 1_000


class _IgnoredPartsNotes:
    """Notes about fields, parts of JSON Schemas and parts of stories without effect, each once for all lines."""

    def __init__(self, note: Callable[[str], object], reported_schema_paths: tuple[str, ...]) -> None:
        self._note = note
        self._noted_fields: set[str] = set()
        self._noted_kinds: set[str] = set()
        # without ignored paths (the empty tuple) there is nothing to report
        self._reported_schema_paths = {reported_schema_paths, ()}

    def note_fields(self, line_number: int, paths: Iterable[str]) -> None:
        """Report the fields of a line that have no effect and were not reported for an earlier line."""
        for path in paths:
            field_name = re.sub(r"\[\d+\]", "", path)  # such as ``messages[].name``
            if field_name not in self._noted_fields and len(self._noted_fields) < _MAX_NOTED_FIELDS:
                self._noted_fields.add(field_name)
                self._note(f"line {line_number}: {path} has no effect, nor has it in other lines")

    def note_left_out(self, line_number: int, left_out: Iterable[LeftOut]) -> None:
        """Report what has no room of a story, once for each kind of part."""
        for part in left_out:
            if part.kind not in self._noted_kinds:
                self._noted_kinds.add(part.kind)
                self._note(f"line {line_number}: {part.kind}: {part.message}; only this line is named")

    def note_schema(self, grammar: GrammarSpec) -> None:
        if grammar.ignored_schema_paths not in self._reported_schema_paths:
            self._reported_schema_paths.add(grammar.ignored_schema_paths)
            report_ignored_schema_paths(grammar, self._note)


@dataclass
class _LineInWork:
    """A line whose texts are being generated."""

    request_id: object
    facts: AcceptedLine
    answers: list[BatchAnswer | None]  # one for each text; None until the text is complete
    has_failed: bool = False


class _TextOfLine(NamedTuple):
    line: _LineInWork
    text_index: int  # place of the text among the texts of the line


def answer_lines(
    model: Model,
    requests: Iterable[tuple[GenerationRequest, AcceptedLine] | None],
    parallel: int,
    *,
    is_openai: bool,
    describe_error: Callable[[Exception], str],
    worker: Mapping[str, Any] | None = None,
    deterministic: bool = False,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    note: Callable[[str], object] | None = None,
) -> Iterator[tuple[object, LineAnswer | Failure]]:
    """Answer the requests of lines together. Yield each request's id and result when the result is complete."""
    # Each text of a line is generated by a request of its own. If one of them fails, its failure is the result of
    # the line. ``worker`` describes the machine of a cluster; each result contains it. For the other arguments see
    # `generate_many`.
    unfinished_texts: dict[object, _TextOfLine] = {}

    def text_requests() -> Iterator[GenerationRequest | None]:
        for accepted in requests:
            if accepted is None:
                yield None
                continue
            request, facts = accepted
            line = _LineInWork(request.id, facts, [None] * facts.choice_count)
            for index, text_request in enumerate(_requests_of_texts(request, facts.choice_count)):
                text_id = (request.id, index)
                unfinished_texts[text_id] = _TextOfLine(line, index)
                yield replace(text_request, id=text_id)

    for outcome in generate_many(
        model,
        text_requests(),
        parallel,
        deterministic=deterministic,
        should_stop=should_stop,
        progress=progress,
        note=note,
    ):
        line, text_index = unfinished_texts.pop(outcome.id)
        if line.has_failed:
            continue
        if isinstance(outcome, BatchFailure):
            line.has_failed = True
            yield line.request_id, describe_failure(outcome, describe_error)
            continue
        line.answers[text_index] = outcome
        complete_answers = [answer for answer in line.answers if answer is not None]
        if len(complete_answers) == len(line.answers):
            result = _result_line(line, complete_answers, is_openai=is_openai, worker=worker)
            exactness = frozenset(str(answer.exactness) for answer in complete_answers)
            yield line.request_id, LineAnswer(result, exactness)


def _requests_of_texts(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    return [request] if count == 1 else sample_requests(request, count)


def _result_line(
    line: _LineInWork, answers: Sequence[BatchAnswer], *, is_openai: bool, worker: Mapping[str, Any] | None
) -> str:
    request_id = str(line.request_id)
    facts = line.facts
    if not is_openai:
        (answer,) = answers
        fields = result_line(
            answer.events,
            request_id,
            facts.number,
            answer_id=facts.result_id,
            exactness=str(answer.exactness),
            worker=worker,
        )
        return encode_json(fields)
    answer_format = _answer_format(facts)
    chunks_of_texts = (answer_format.chunks(answer.events, index) for index, answer in enumerate(answers))
    body = answer_format.whole(chain.from_iterable(chunks_of_texts))
    if worker is not None:
        body["worker"] = worker
    return encode_json(openai_result_line(request_id, facts.result_id, body))


def _answer_format(facts: AcceptedLine) -> OpenAIAnswer | ResponseAnswer:
    if facts.repeated_fields is not None:
        return ResponseAnswer(facts.result_id, dict(facts.repeated_fields))
    if facts.is_chat:
        return ChatAnswer(facts.result_id, reasoning_format=facts.reasoning_format)
    return TextAnswer(facts.result_id)


def describe_failure(failure: BatchFailure, describe_error: Callable[[Exception], str]) -> Failure:
    """Return the reason of a failure as a result shows it. The code shows whether the generation had begun."""
    code = "generation_failed" if failure.has_begun else "invalid_request"
    return failure_of(failure.error, describe_error, code)


def failure_of(
    error: Exception, describe_error: Callable[[Exception], str], code: str = "invalid_request"
) -> Failure:
    """Return the reason of a failure as a result shows it. ``code``: of most errors."""
    message = describe_error(error)
    if isinstance(error, PromptTooLongError):
        counts = {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.context_tokens}
        return Failure("context_length_exceeded", message, counts)
    return Failure(code, message)


def _check_openai(asked: AskedRequest) -> None:
    """Raise ``InvalidLineError`` if a line asks for logprobs or a trace that OpenAI's format does not support."""
    logprobs = asked.logprobs or LogprobRequest()
    if logprobs.top_count == -1:
        raise InvalidLineError(
            "-1 (all tokens) is not supported by OpenAI's format; use --format jsonl",
            origin=f"{asked.place}logprobs",
        )
    if logprobs.source == "both":
        raise InvalidLineError(
            '"both" is not supported by OpenAI\'s format; use --format jsonl', origin=f"{asked.place}logprobs_from"
        )
    if asked.trace_top_count is not None:
        raise InvalidLineError(
            "not supported by OpenAI's format; use --format jsonl", origin=f"{asked.place}trace"
        )


def _reject_mismatched_results(first_line: InputLine, mismatched_count: int, advice: str) -> NoReturn:
    """Raise ``JournalError`` for existing results that do not match the input."""
    first_result = f"the result of {_request_id_of(first_line)!r} (line {first_line.number})"
    if mismatched_count == 1:
        subject = f"{first_result} was"
    else:
        subject = f"{mismatched_count:,} results, such as {first_result}, were"
    raise JournalError(f"{subject} made from another text, with another model or with other flags; {advice}")


def _request_id_of(line: InputLine) -> str:
    return find_request_id(line.content) or _default_request_id(line)


def _default_request_id(line: InputLine) -> str:
    """Return the id for a line that has no id, or has the id of another line."""
    return f"line-{line.number}"
