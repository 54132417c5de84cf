"""Reads a recorded jsonl stream, even one that was cut off."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ..common import problem_message, problem_sentence
from .records import LogprobSource

Byte = Annotated[int, Field(ge=0, le=255)]
Nats = Annotated[float, Field(allow_inf_nan=False)]
Logprob = Annotated[float, Field(le=1e-3, allow_inf_nan=False)]
"""A log-probability in nats; rounding may put it a little above 0."""

_NO_EVENT_ERRORS = (
    "union_tag_not_found",
    "union_tag_invalid",
    "model_attributes_type",
    "dict_type",
    "model_type",
)
"""pydantic's types of errors for a line that is JSON, but not an event."""


class StreamError(Exception):
    """A line that is no event of the format, with its number."""


class RecordedToken(BaseModel):
    """A token by its bytes (``data``), with its logprob in nats; None where there is none."""

    data: Annotated[list[Byte], Field(alias="bytes")]
    logprob: Logprob | None


class RecordedDistribution(BaseModel):
    """What a line holds of one distribution; ``entropy`` in nats."""

    logprob: Logprob | None = None
    top_logprobs: list[RecordedToken] = []
    entropy: Nats | None = None


class RecordedStart(BaseModel, extra="allow"):
    """The first line."""

    event: Literal["start"]
    model: str = "?"
    seed: int | None = None


class RecordedTokenLine(RecordedToken, RecordedDistribution):
    """A token of the prompt, or one that was written."""

    event: Literal["prompt", "token"]
    text: str = ""
    logprobs_from: LogprobSource | None = None
    chain: RecordedDistribution | None = None

    def distribution(self, source: LogprobSource) -> RecordedDistribution | None:
        """The distribution of this source, None if it was not recorded. A line without a source is the model's."""
        if self.logprobs_from == source or (self.logprobs_from is None and source == "model"):
            return self
        return self.chain if source == "chain" else None


class RecordedDone(BaseModel, extra="allow"):
    """The last line."""

    event: Literal["done"]
    finish_reason: str | None = None


RecordedEvent = RecordedStart | RecordedTokenLine | RecordedDone
_EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[RecordedEvent, Field(discriminator="event")])


def read_stream(
    lines: Iterable[bytes], wrong: Callable[[StreamError], object] | None = None
) -> Iterator[RecordedEvent]:
    """Read the events of a stream, one per line. A last line that was cut off ends the stream.

    ``wrong`` is called with the error of any other line that is no event; then reading goes on. Without ``wrong``
    such a line raises ``StreamError``.
    """
    for number, line in enumerate(lines, 1):
        data = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not data.strip():
            continue
        try:
            yield _EVENT.validate_json(data)
        except ValidationError as error:
            if _is_cut_off(error, data):
                return
            if wrong is None:
                raise _stream_error(error, number) from None
            wrong(_stream_error(error, number))


def _is_cut_off(error: ValidationError, line: bytes) -> bool:
    return error.errors()[0]["type"] == "json_invalid" and line.startswith(b"{") and not line.endswith(b"\n")


def _stream_error(error: ValidationError, number: int) -> StreamError:
    problem = error.errors(include_url=False)[0]
    if problem["type"] in _NO_EVENT_ERRORS:
        return StreamError(f"line {number}: it is no event of a jsonl stream")
    return StreamError(f"line {number}: {problem_sentence(problem['loc'][1:], problem_message(problem))}")
