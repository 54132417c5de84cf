"""The reader of recorded ``jsonl`` streams, with their traces. A stream may end in the middle of a line.

A line of a batch's results is read as the events of one run.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import log
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, model_validator

from ..common.errors import problem_message, problem_sentence
from ..common.strict_json import parse_strict_json
from ..common.text import replace_surrogates
from .records import LogprobSource

Byte = Annotated[int, Field(ge=0, le=255)]
Nats = Annotated[float, Field(allow_inf_nan=False)]
# A log-probability in nats; rounding may put it a little above 0.
Logprob = Annotated[float, Field(le=1e-3, allow_inf_nan=False)]
# A probability; rounding may put it a little above 1.
Probability = Annotated[float, Field(ge=0, le=1.001)]


class RecordedStage(BaseModel):
    """A stage of a trace; see `TraceStage`."""

    name: str
    step: int | None = None
    kept: int
    entropy: Nats | None = None
    note: str | None = None
    roll: Nats | None = None


class RecordedCandidate(BaseModel):
    """A candidate of a trace; see `TraceCandidate`."""

    id: int
    data: Annotated[list[Byte], Field(alias="bytes")]
    logits: list[Nats | None]
    probs: list[Probability | None]
    dropped_by: int | None = None


class RecordedDraw(BaseModel):
    """The draw of a trace; see `TraceDraw`."""

    u: Nats
    low: Nats
    high: Nats


class RecordedTrace(BaseModel):
    """The record of how a token was chosen; see `Trace`."""

    stages: Annotated[list[RecordedStage], Field(min_length=1)]
    candidates: list[RecordedCandidate]
    draw: RecordedDraw | None = None
    forced: bool = False

    @model_validator(mode="after")
    def _check_lengths(self) -> RecordedTrace:
        stage_count = len(self.stages)
        for candidate in self.candidates:
            if len(candidate.logits) != stage_count or len(candidate.probs) != stage_count:
                raise ValueError(f"candidate {candidate.id} does not have one logit and one probability per stage")
            if candidate.dropped_by is not None and not 0 <= candidate.dropped_by < stage_count:
                raise ValueError(f"candidate {candidate.id}: dropped_by is not the index of a stage")
        return self

    def candidate(self, token_id: int | None) -> RecordedCandidate | None:
        """Return the candidate with this id; None if the trace does not have one."""
        for candidate in self.candidates:
            if candidate.id == token_id:
                return candidate
        return None

    def top_candidate(self) -> RecordedCandidate | None:
        """Return the most probable candidate of the first stage, the model; None if there are no candidates."""
        return max(self.candidates, key=lambda candidate: candidate.probs[0] or 0.0, default=None)

    def dropped_top_candidate(self) -> RecordedCandidate | None:
        """Return the model's most probable token if a stage dropped it before the draw, otherwise None."""
        top = self.top_candidate()
        return None if top is None or top.dropped_by is None else top


class RecordedToken(BaseModel):
    """A token with its logprob; see `TokenLogprob`."""

    id: int | None = None
    data: Annotated[list[Byte], Field(alias="bytes")]
    logprob: Logprob | None


class RecordedDistribution(BaseModel):
    """The values that a line of a stream records for one distribution. ``entropy`` is in nats."""

    logprob: Logprob | None = None
    top_logprobs: list[RecordedToken] = []
    entropy: Nats | None = None


class RecordedStart(BaseModel, extra="allow"):
    """The first event of a run.

    If the run is a line of a batch's results, ``id`` is the request's id. If it is one of several samples,
    ``sample`` is its number; if it is one of the texts of a beam search, ``beam`` is.
    """

    event: Literal["start"] = "start"
    model: str = "?"
    seed: int | None = None
    id: str | None = None
    sample: int | None = None
    beam: int | None = None

    @property
    def label(self) -> str | None:
        """The name of the run among others of a file; None if the file has no other."""
        if self.id is not None:
            return self.id
        number = self.sample if self.beam is None else self.beam
        return None if number is None else f"text {number + 1}"


class RecordedTokenLine(RecordedToken, RecordedDistribution):
    """A token of the prompt, or a generated token."""

    event: Literal["prompt", "token"] = "token"
    text: str = ""
    logprobs_from: LogprobSource | None = None
    chain: RecordedDistribution | None = None
    trace: RecordedTrace | None = None

    def distribution(self, source: LogprobSource) -> RecordedDistribution | None:
        """Return the distribution of this source; None if the line does not have it.

        Values that the line lacks are taken from its trace: the model's from the first stage, the chain's from the
        last stage. The logprobs of a line without ``logprobs_from`` are the model's.
        """
        recorded = self._recorded_distribution(source)
        if self.trace is None:
            return recorded
        first_stage, last_stage = 0, -1
        traced = self._traced_distribution(self.trace, first_stage if source == "model" else last_stage)
        if recorded is None or recorded.logprob is None:
            return traced
        if recorded.top_logprobs:
            return recorded
        return RecordedDistribution.model_construct(
            logprob=recorded.logprob, top_logprobs=traced.top_logprobs, entropy=recorded.entropy
        )

    def _traced_distribution(self, trace: RecordedTrace, stage: int) -> RecordedDistribution:
        """Return the distribution after the stage of the trace that has this index."""
        chosen = trace.candidate(self.id)
        remaining_candidates = [candidate for candidate in trace.candidates if candidate.probs[stage] is not None]
        remaining_candidates.sort(key=lambda candidate: -(candidate.probs[stage] or 0.0))
        return RecordedDistribution.model_construct(
            logprob=None if chosen is None else _logprob(chosen.probs[stage]),
            top_logprobs=[
                RecordedToken.model_construct(
                    id=candidate.id, data=candidate.data, logprob=_logprob(candidate.probs[stage])
                )
                for candidate in remaining_candidates
            ],
            entropy=trace.stages[stage].entropy,
        )

    def _recorded_distribution(self, source: LogprobSource) -> RecordedDistribution | None:
        own_source = self.logprobs_from or "model"
        if own_source == source:
            return self
        return self.chain if source == "chain" else None


def _logprob(probability: float | None) -> float | None:
    return log(probability) if probability else None


class RecordedRewind(BaseModel, extra="allow"):
    """A return to an earlier token; see `Rewind`."""

    event: Literal["rewind"] = "rewind"
    index: int
    ban: str | None = None
    text: str = ""
    dropped: list[int] = Field(default_factory=list)
    attempt: int = 1


class RecordedDone(BaseModel, extra="allow"):
    """The last event of a run."""

    event: Literal["done"] = "done"
    finish_reason: str | None = None


RecordedEvent = RecordedStart | RecordedTokenLine | RecordedRewind | RecordedDone
_EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[RecordedEvent, Field(discriminator="event")])


class StreamError(Exception):
    """A line that cannot be read as events. The message has the line's number.

    Attributes:
        request: the request's id, if the line is a batch's result without tokens; otherwise None.
    """

    def __init__(self, message: str, request: str | None = None) -> None:
        super().__init__(message)
        self.request = request


def read_stream(
    lines: Iterable[bytes], on_error: Callable[[StreamError], object] | None = None
) -> Iterator[RecordedEvent]:
    """Read the events of a stream.

    Each line has one event, or is a batch's result, which yields all events of a run. An incomplete last line ends
    the stream.

    Args:
        lines: the lines of the stream.
        on_error: called with the error of each line that cannot be read, which is then skipped; None to raise
            ``StreamError`` instead.
    """
    for line_number, line in enumerate(lines, 1):
        line_data = line.removeprefix(codecs.BOM_UTF8) if line_number == 1 else line
        if not line_data.strip():
            continue
        try:
            yield from _read_line(line_data)
        except ValidationError as error:
            if _is_cut_off(error, line_data):
                return
            problem = _stream_error(error, line_number)
        except StreamError as error:
            problem = StreamError(f"line {line_number}: {error}", error.request)
        else:
            continue
        if on_error is None:
            raise problem from None
        on_error(problem)


def split_runs(events: Iterable[RecordedEvent]) -> Iterator[Iterator[RecordedEvent]]:
    """Split events into runs. A `RecordedStart` begins a run."""
    # All events of a run must be read before the next run is requested.
    start_count = 0

    def count_starts(event: RecordedEvent) -> int:
        nonlocal start_count
        if isinstance(event, RecordedStart):
            start_count += 1
        return start_count

    for _, run in groupby(events, key=count_starts):
        yield run


def _read_line(data: bytes) -> Sequence[RecordedEvent]:
    """Return the events of a line. Raises ``ValidationError``, or ``StreamError`` for a result without tokens."""
    try:
        return (_EVENT.validate_json(data),)
    except ValidationError as error:
        error_type = error.errors()[0]["type"]
        if error_type == "union_tag_not_found":  # the line has no field `event`
            return _batch_events(_batch_line(data, error))
        may_have_surrogates = error_type == "json_invalid" and _SURROGATE in data
        if not may_have_surrogates:
            raise
        try:
            value = parse_strict_json(data)
        except ValueError:
            raise error from None
        return (_EVENT.validate_python(_replace_surrogates(value)),)


# The beginning of an escaped half of a surrogate pair. Pydantic rejects a half without the other half, but
# Python's json module reads it.
_SURROGATE = b"\\ud"


def _replace_surrogates(value: Any) -> Any:
    """Return the JSON value with U+FFFD for each half of a surrogate pair in its strings."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    return value


class _BatchLine(BaseModel, extra="allow"):
    id: str
    line: int
    model: str = "?"
    seed: int | None = None
    finish_reason: str | None = None
    tokens: list[RecordedTokenLine] | None = None
    error: Any = None


def _batch_line(data: bytes, event_error: ValidationError) -> _BatchLine:
    # Raises ``StreamError`` for wrong tokens, and ``event_error`` for a line that is no result at all. This is the
    # error that the line as an event had.
    try:
        return _BatchLine.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        if problem["loc"][:1] != ("tokens",):
            raise event_error from None
        raise StreamError(problem_sentence(problem["loc"], problem_message(problem))) from None


def _batch_events(result: _BatchLine) -> Sequence[RecordedEvent]:
    if result.error is not None:
        message = result.error.get("message") if isinstance(result.error, dict) else None
        reason = f" ({message})" if message else ""
        raise StreamError(f"request {result.id} has no answer{reason}", result.id)
    if result.tokens is None:
        raise StreamError(
            f"the answer of {result.id} has no tokens; gen batch writes them with --logprobs N", result.id
        )
    start = RecordedStart(id=result.id, model=result.model, seed=result.seed)
    return (start, *result.tokens, RecordedDone(finish_reason=result.finish_reason))


def _is_cut_off(error: ValidationError, line: bytes) -> bool:
    return error.errors()[0]["type"] == "json_invalid" and line.startswith(b"{") and not line.endswith(b"\n")


# pydantic's types of errors for a line that is JSON, but not an event.
_NOT_AN_EVENT_ERRORS = (
    "union_tag_not_found",
    "union_tag_invalid",
    "model_attributes_type",
    "dict_type",
    "model_type",
)


def _stream_error(error: ValidationError, line_number: int) -> StreamError:
    problem = error.errors(include_url=False)[0]
    if problem["type"] in _NOT_AN_EVENT_ERRORS and len(problem["loc"]) == 0:
        return StreamError(f"line {line_number}: it is not an event of a jsonl stream")
    return StreamError(f"line {line_number}: {problem_sentence(problem['loc'][1:], problem_message(problem))}")
