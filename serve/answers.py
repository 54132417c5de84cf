"""Answers: the events of requests become the body of a response, whole or as a stream.

A client that leaves ends its requests. A client that reads slowly delays no other client: the events of its
requests wait in memory, at most those of a full context. `http_protocol` disconnects a client that does not read.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ..common.strict_json import encode_json
from ..common.strict_model import Json
from ..engine.batch import BatchFailure
from ..engine.request import GenerationRequest
from ..grammars.errors import GrammarError
from ..logprobs.events import EXACT, Done, Event, Reading, Rewind, Start
from ..models.errors import ModelError, PromptTooLongError
from ..samplers.errors import SamplingError
from .engine_thread import (
    EngineStoppedError,
    EngineThread,
    EventStream,
    QueueFullError,
    StoppedError,
    StreamEvent,
    TimeOverError,
)
from .errors import (
    ContextLengthError,
    EngineError,
    InvalidRequestError,
    RequestError,
    TimedOutError,
    UnavailableError,
    client_message,
)
from .request_log import CLIENT_LEFT, RequestRecord, record_of
from .resolution import PreparedRequest
from .x_gen import x_gen

_Result = TypeVar("_Result")


class ClientLeftError(Exception):
    """The client has closed the connection."""


class AnswerFormat(ABC):
    """The format of one answer in an API: whole, or as the parts of a stream."""

    media_type = "text/event-stream"
    # Whether `write` gets the events `Rewind`. The dropped tokens were never sent, so most formats ignore them.
    tells_rewinds = False
    # Whether a stream tells how far its prompt is read.
    tells_reading = False

    @abstractmethod
    def whole(self, runs: Sequence[Sequence[Event]], facts: Json) -> Json | list[Json]:
        """Return the answer, given the events of each choice, and the field ``x_gen``."""

    @abstractmethod
    def write(self, index: int, event: Event, facts: Json | None) -> Iterable[str]:
        """Return the parts for an event of the choice ``index``. ``facts``: ``x_gen`` of the last event."""

    def reading(self, event: Reading) -> Iterable[str]:
        """Return the parts that tell how far the prompt is read."""
        return ()

    def end(self) -> Iterable[str]:
        """Return the parts after the last event."""
        return ()

    def failure(self, error: Json) -> str:
        """Return the part that tells an error, after which a stream ends."""
        return f"data: {encode_json(error)}\n\n"


class PreparedFormat(AnswerFormat):
    """The format of a route that answers as `generate` does."""

    # The fields of other APIs for which the answers have no place.
    without_place: ClassVar[Sequence[str]] = ()
    # Whether each part of a stream can have the usage so far.
    has_running_usage: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, prepared: PreparedRequest) -> None: ...


async def answer(
    request: Request,
    engine: EngineThread,
    prepared: PreparedRequest,
    form: AnswerFormat,
    on_submit: Callable[[EventStream], object] | None = None,
) -> Response:
    """Answer a request."""
    # ``on_submit``: called with the stream of the answer before its first event. Raises ``RequestError``, and
    # ``ClientLeftError`` if the client leaves first.
    record = record_of(request.scope)
    record.ignored = prepared.ignored
    stream = _submit(engine, [choice.request for choice in prepared.choices])
    if on_submit is not None:
        on_submit(stream)
    if prepared.fields.stream:
        stream.tells_reading = form.tells_reading
        return await _start_stream(request, engine, prepared, form, stream)
    runs = await _collect(request, engine, stream)
    first_event = runs[0][0]
    assert isinstance(first_event, Start)  # noqa: S101 - a run without a failure begins so
    promises = [_exactness(run[0], run[-1]) for run in runs]
    weakest_promise = max(promises, key=len)  # a weaker promise has a longer text
    facts = x_gen(prepared, prepared.choices[0], first_event, weakest_promise)
    return JSONResponse(form.whole(runs, facts))


async def run_requests(
    request: Request, engine: EngineThread, requests: Sequence[GenerationRequest]
) -> list[list[Event]]:
    """Return the events of each request. Raises ``RequestError``, or ``ClientLeftError`` if the client leaves."""
    return await _collect(request, engine, _submit(engine, requests))


def _submit(engine: EngineThread, requests: Sequence[GenerationRequest]) -> EventStream:
    with refusals_told():
        return engine.submit(requests)


@contextmanager
def refusals_told() -> Iterator[None]:
    """Tell the client why the engine takes no request."""
    try:
        yield
    except QueueFullError:
        raise UnavailableError("too many requests are waiting; try again later") from None
    except EngineStoppedError:
        raise UnavailableError("the server is stopping") from None


async def until_client_leaves(receive: Receive, work: Awaitable[_Result]) -> _Result:
    """Return the result of ``work``, unless the client leaves first. Raises ``ClientLeftError``."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientLeftError
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _collect(request: Request, engine: EngineThread, stream: EventStream) -> list[list[Event]]:
    """Return the events of each choice. Ends the requests if one fails, or if the client leaves."""
    return await until_client_leaves(request.receive, collect(engine, stream, record_of(request.scope)))


async def collect(engine: EngineThread, stream: EventStream, record: RequestRecord) -> list[list[Event]]:
    """Return the events of each choice. Ends the requests if one fails."""
    runs: list[list[Event]] = [[] for _ in stream.ids]
    try:
        while new_events := await stream.take():
            for index, event in new_events:
                record.push(event)
                if isinstance(event, BatchFailure):
                    raise as_request_error(event)
                if isinstance(event, Reading):
                    continue
                runs[index].append(_public_start(event) if isinstance(event, Start) else event)
    finally:
        engine.cancel(stream)
    return runs


def as_request_error(failure: BatchFailure) -> RequestError:
    error = failure.error
    if isinstance(error, EngineStoppedError):
        return UnavailableError("the server is stopping")
    if isinstance(error, StoppedError):
        return UnavailableError(str(error))
    if isinstance(error, TimeOverError):
        return TimedOutError("the request took longer than this server allows; lower max_tokens")
    if isinstance(error, PromptTooLongError):
        return ContextLengthError(str(error), "prompt", error.prompt_tokens, error.context_tokens)
    if isinstance(error, (ModelError, SamplingError, GrammarError)):
        is_of_one_request = failure.id is not None
        error_type = InvalidRequestError if is_of_one_request else EngineError
        return error_type(client_message(error))
    return EngineError(f"{type(error).__name__}: {client_message(error)}")


def _public_start(start: Start) -> Start:
    """Return the event for clients. Instead of the path of the guidance model, it has the name of the file."""
    guidance = start.text_rules.get("guidance", {})
    if "model" not in guidance:
        return start
    public_guidance = {**guidance, "model": Path(guidance["model"]).stem}
    return replace(start, text_rules={**start.text_rules, "guidance": public_guidance})


def _exactness(start: Event, done: Event) -> str:
    """Return the promise about one text, in words."""
    if not isinstance(start, Start) or not isinstance(done, Done):
        return str(EXACT)
    exactness = start.batch_exactness or EXACT
    return str(exactness.for_answer(done.prompt_tokens + done.completion_tokens))


async def _start_stream(
    request: Request, engine: EngineThread, prepared: PreparedRequest, form: AnswerFormat, stream: EventStream
) -> Response:
    """Return the response of a stream. Failures before the first token have a status of their own."""
    try:
        first_events = await until_client_leaves(request.receive, stream.take())
        begun_choices = {index for index, event in first_events if isinstance(event, Start)}
        for index, event in first_events:
            if isinstance(event, BatchFailure) and index not in begun_choices:
                raise as_request_error(event)
    except BaseException:
        engine.cancel(stream)
        raise
    parts = _stream_parts(prepared, form, stream, first_events, record_of(request.scope))
    return StreamResponse(parts, lambda: engine.cancel(stream), form.media_type)


async def _stream_parts(
    prepared: PreparedRequest,
    form: AnswerFormat,
    stream: EventStream,
    new_events: list[tuple[int, StreamEvent]],
    record: RequestRecord,
) -> AsyncIterator[str]:
    """Yield the parts of a stream. ``new_events``: the first events, which were already taken from the stream."""
    starts: dict[int, Start] = {}
    while new_events:
        parts: list[str] = []
        for index, event in new_events:
            record.push(event)
            if isinstance(event, BatchFailure):
                error = as_request_error(event)
                record.status = error.status
                parts.append(form.failure(error.as_json()))
                yield "".join(parts)
                return
            if isinstance(event, Rewind) and not form.tells_rewinds:
                continue
            if isinstance(event, Reading):
                parts += form.reading(event)
            elif isinstance(event, Start):
                starts[index] = _public_start(event)
                parts += form.write(index, starts[index], None)
            elif isinstance(event, Done):
                start = starts[index]
                facts = x_gen(prepared, prepared.choices[index], start, _exactness(start, event))
                parts += form.write(index, event, facts)
            else:
                parts += form.write(index, event, None)
        if parts:
            yield "".join(parts)
        new_events = await stream.take()
    yield "".join(form.end())


class StreamResponse(StreamingResponse):
    """A response whose parts are sent as they are made."""

    # ``on_end`` is called at the end, also if the client leaves.

    def __init__(self, parts: AsyncIterator[str], on_end: Callable[[], object], media_type: str) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(parts, headers=headers, media_type=media_type)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, until it ends or the client leaves."""
        try:
            await until_client_leaves(receive, self.stream_response(send))
        except ClientLeftError:
            record_of(scope).status = CLIENT_LEFT
        finally:
            self._on_end()
