"""Reads a jsonl stream back, also one that was cut off."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from .records import LogprobSource

Byte = Annotated[int, Field(ge=0, le=255)]
Nats = Annotated[float, Field(allow_inf_nan=False)]
Logprob = Annotated[float, Field(le=1e-3, allow_inf_nan=False)]

_NO_EVENT = ("union_tag_not_found", "union_tag_invalid", "model_attributes_type", "dict_type", "model_type")


class StreamError(Exception):
    """A line that is no event of the format, with its number."""


class RecordedToken(BaseModel):
    """A token by its bytes (``data``), with its logprob in nats; None where there is none."""

    data: Annotated[list[Byte], Field(alias="bytes")]
    logprob: Logprob | None


class RecordedDistribution(BaseModel):
    """What a line says of one distribution; ``entropy`` in nats."""

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

    def known(self, source: LogprobSource) -> RecordedDistribution | None:
        """What is known of the distribution of this source; where a line names none, it is taken for the model."""
        if self.logprobs_from == source or (self.logprobs_from is None and source == "model"):
            return self
        return self.chain if source == "chain" else None


class RecordedDone(BaseModel, extra="allow"):
    """The last line."""

    event: Literal["done"]
    finish_reason: str | None = None


RecordedEvent = RecordedStart | RecordedTokenLine | RecordedDone
_LINE: TypeAdapter[Any] = TypeAdapter(Annotated[RecordedEvent, Field(discriminator="event")])


def read_stream(
    lines: Iterable[bytes], wrong: Callable[[StreamError], object] | None = None
) -> Iterator[RecordedEvent]:
    """Read the lines of a stream, one event after the other.

    A last line that was cut off ends the stream. Any other line that is no event goes to ``wrong``, and reading
    goes on; without ``wrong``, it raises ``StreamError``.
    """
    for number, line in enumerate(lines, 1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        try:
            yield _LINE.validate_json(text)
        except ValidationError as error:
            if _is_cut_off(error, text):
                return
            if wrong is None:
                raise _about(error, number) from None
            wrong(_about(error, number))


def _is_cut_off(error: ValidationError, text: bytes) -> bool:
    return error.errors()[0]["type"] == "json_invalid" and text.startswith(b"{") and not text.endswith(b"\n")


def _about(error: ValidationError, number: int) -> StreamError:
    problem = error.errors(include_url=False)[0]
    if problem["type"] in _NO_EVENT:
        return StreamError(f"line {number}: it is no event of a jsonl stream")
    where = ".".join(map(str, problem["loc"][1:]))
    return StreamError(
        f"line {number}: {where}: {problem['msg']}" if where else f"line {number}: {problem['msg']}"
    )
