"""The thread that owns the model: it takes requests from a queue, and hands out the events of each of them.

A batch may be used by one thread only. The event loop of the server adds and cancels requests here, and never
waits for the model.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import cast

from ..engine.batch import BatchEngine, BatchEvent, BatchFailure, RequestProgress
from ..engine.model import Model
from ..engine.paths import PathRequest, PathsRead
from ..engine.request import GenerationRequest
from ..logprobs.events import BatchExactness, Done, Event, Reading
from ..models.errors import AbortedError, ModelError


class QueueFullError(Exception):
    """Too many requests wait for a slot."""


class EngineStoppedError(Exception):
    """The server stops, and takes no more requests."""


class TimeOverError(Exception):
    """A request took longer than the limit."""


class StoppedError(Exception):
    """Another request has stopped a request, which has no answer. The message says when."""


StreamEvent = Event | Reading | BatchFailure


class EventStream:
    """The events of the choices of one answer, as they arrive."""

    # A stream belongs to one event loop. If nobody reads it to its end, it must be canceled with
    # `EngineThread.cancel`.

    def __init__(self, ids: Sequence[int]) -> None:
        # The index of each choice, by the id of its request. Requests that have ended are removed.
        self.ids = {request_id: index for index, request_id in enumerate(ids)}
        self._events: list[tuple[int, StreamEvent]] = []
        self._has_news = asyncio.Event()
        # Gets the index of a choice and its new events.
        self.listener: Callable[[int, Sequence[StreamEvent]], object] | None = None
        # Whether the answer tells how far the prompts are read.
        self.tells_reading = False
        # Ends the answer when its time is over.
        self.timer: asyncio.TimerHandle | None = None

    def push(self, request_id: int, events: Sequence[StreamEvent]) -> None:
        """Append events of one choice. Only the thread of the event loop may call this."""
        index = self.ids[request_id]
        self._events += ((index, event) for event in events)
        if self.listener is not None:
            self.listener(index, events)
        if isinstance(events[-1], (Done, BatchFailure)):
            del self.ids[request_id]
        self._has_news.set()

    async def take(self) -> list[tuple[int, StreamEvent]]:
        """Wait for events, and return them with the index of their choice. After the last event, return none."""
        if not self.ids and not self._events:
            return []
        await self._has_news.wait()
        self._has_news.clear()
        new_events = self._events
        self._events = []
        return new_events


@dataclass(frozen=True)
class EngineCounts:
    """The numbers of requests at one moment; ``slots`` is the number that can run at a time."""

    slots: int
    running: int
    waiting: int


class EngineThread:
    """A thread that runs requests on one model, several at a time."""

    # ``max_idle_tokens``: how many tokens free slots keep for later requests. ``max_seconds``: how long an answer
    # may take, with the time in the queue. None: no limit.

    def __init__(  # noqa: PLR0913 - a parameter for each flag
        self,
        slots: int | None,
        *,
        max_waiting: int,
        deterministic: bool = False,
        max_idle_tokens: int | None = None,
        max_seconds: float | None = None,
        note: Callable[[str], object] | None = None,
    ) -> None:
        self.max_seconds = max_seconds
        self._takes_requests = True
        self._slots = slots or 0
        self._max_waiting = max_waiting
        self._deterministic = deterministic
        self._max_idle_tokens = max_idle_tokens
        self._note = note
        self._ids = count()
        self._streams: dict[int, EventStream] = {}
        self._path_results: dict[int, asyncio.Future[PathsRead | BatchFailure]] = {}
        self._commands: deque[Callable[[BatchEngine], object]] = deque()
        self._wakes = threading.Condition()
        self._is_stopping = False
        self._undelivered: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._delivery: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # None before `start`.
        self.exactness: BatchExactness | None = None
        # The maximum number of tokens of one request; 0 before `start`.
        self.context_length = 0
        # The error that ended the thread.
        self.failure: BaseException | None = None

    def start(self, model: Model, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread, which makes the slots; return when they are made. Raises ``ModelError``."""
        self._loop = loop
        self._slots = self._slots or model.default_parallel
        is_ready: Future[BatchExactness] = Future()
        self._thread = threading.Thread(target=self._run, args=(model, is_ready), name="engine", daemon=True)
        self._thread.start()
        self._delivery = threading.Thread(target=self._call_loop, args=(loop,), name="events", daemon=True)
        self._delivery.start()
        self.exactness = is_ready.result()

    def submit(self, requests: Sequence[GenerationRequest], *, is_next: bool = False) -> EventStream:
        """Add the requests of one answer; return their events."""
        # ``is_next``: whether the answer has begun with other requests, so that these are taken though many wait.
        # Raises ``QueueFullError`` if too many requests wait, and ``EngineStoppedError`` after `stop`.
        self._check_takes(len(requests), is_next=is_next)
        numbered = [replace(request, id=next(self._ids)) for request in requests]
        ids = [cast("int", request.id) for request in numbered]
        stream = EventStream(ids)
        self._streams.update(dict.fromkeys(ids, stream))
        if self.max_seconds is not None and self._loop is not None:
            stream.timer = self._loop.call_later(self.max_seconds, self._fail, stream, TimeOverError())
        for request in numbered:
            self._send(partial(BatchEngine.add, request=request))
        return stream

    def _check_takes(self, count: int, *, is_next: bool) -> None:
        if not self._takes_requests or self._is_stopping or self.failure is not None:
            raise EngineStoppedError
        # An idle server accepts a request for any number of choices. Otherwise a large n could never be answered.
        is_too_many = self._request_count + count > self._slots + self._max_waiting
        if is_too_many and not is_next and not self.is_idle:
            raise QueueFullError

    async def read_paths(self, request: PathRequest, *, is_next: bool = False) -> PathsRead | BatchFailure:
        """Read texts after a prompt. ``is_next``, and errors: see `submit`."""
        self._check_takes(1, is_next=is_next)
        request_id = next(self._ids)
        result: asyncio.Future[PathsRead | BatchFailure] = asyncio.get_running_loop().create_future()
        self._path_results[request_id] = result
        self._send(partial(BatchEngine.add, request=replace(request, id=request_id)))
        try:
            return await result
        finally:
            del self._path_results[request_id]
            self._send(partial(BatchEngine.cancel, request_id=request_id))

    def cancel(self, stream: EventStream) -> None:
        """End the requests of an answer that no client reads any more."""
        if stream.timer is not None:
            stream.timer.cancel()
        ids = list(stream.ids)
        stream.ids.clear()
        for request_id in ids:
            self._streams.pop(request_id, None)
            self._send(partial(BatchEngine.cancel, request_id=request_id))

    def interrupt_all(self) -> None:
        """End all answers. A text that has begun ends early; a request that waits gets an error."""
        for stream in set(self._streams.values()):
            self.interrupt(stream)
        for request_id in self._path_results:
            self._send(partial(self._interrupt, request_id=request_id))

    def interrupt(self, stream: EventStream) -> None:
        """End the requests of an answer early. Each gets a last event with the text that it has so far."""
        for request_id in list(stream.ids):
            self._send(partial(self._interrupt, request_id=request_id))

    def _fail(self, stream: EventStream, error: Exception) -> None:
        """End the requests of an answer by an error, which its client gets."""
        ids = list(stream.ids)
        for request_id in ids:
            stream.push(request_id, [BatchFailure(request_id, error)])
            self._streams.pop(request_id, None)
            self._send(partial(BatchEngine.cancel, request_id=request_id))

    def end_requests(self) -> None:
        """End all answers by an error, and take no more requests. Only the thread of the loop may call this."""
        self._takes_requests = False
        for stream in set(self._streams.values()):
            self._fail(stream, EngineStoppedError())
        for request_id in list(self._path_results):
            self._finish_paths(request_id, BatchFailure(request_id, EngineStoppedError()))

    @property
    def is_full(self) -> bool:
        """True if no request can wait for a slot."""
        return self._request_count >= self._slots + self._max_waiting

    @property
    def _request_count(self) -> int:
        return len(self._streams) + len(self._path_results)

    @property
    def counts(self) -> EngineCounts:
        total = self._request_count
        running = min(total, self._slots)
        return EngineCounts(self._slots, running, total - running)

    @property
    def is_idle(self) -> bool:
        return self._request_count == 0

    def stop(self) -> None:
        """End all requests, and the thread."""
        with self._wakes:
            self._is_stopping = True
            self._wakes.notify()
        if self._thread is not None and self._delivery is not None:
            self._thread.join()
            self._undelivered.put(None)
            self._delivery.join()

    def _interrupt(self, engine: BatchEngine, request_id: int) -> None:
        progress = engine.interrupt(request_id)
        if progress is None:
            return
        failure = progress.events[-1]
        if isinstance(failure, BatchFailure):
            progress = progress._replace(events=[replace(failure, error=StoppedError(str(failure.error)))])
        self._deliver([progress])

    def _send(self, command: Callable[[BatchEngine], object]) -> None:
        with self._wakes:
            self._commands.append(command)
            self._wakes.notify()

    def _run(self, model: Model, is_ready: Future[BatchExactness]) -> None:
        try:
            engine = BatchEngine(
                model,
                self._slots,
                deterministic=self._deterministic,
                max_idle_tokens=self._max_idle_tokens,
                note=self._note,
                reading=self._deliver_reading,
            )
        except Exception as error:
            is_ready.set_exception(error)
            return
        with engine:
            self.context_length = engine.context_length
            is_ready.set_result(engine.exactness)
            reason: Exception = EngineStoppedError()
            try:
                while self._execute_commands(engine):
                    self._step(engine)
            except Exception as error:  # an error that no request caused ends the server, not only the thread
                self.failure = error
                if not isinstance(error, AbortedError):  # a second signal ends the server now
                    reason = ModelError(f"the engine failed: {error}")
            self._undelivered.put(partial(self._push_to_all, BatchFailure(None, reason)))

    def _execute_commands(self, engine: BatchEngine) -> bool:
        """Execute the commands that have arrived; wait for one if nothing runs. Returns False to stop."""
        with self._wakes:
            while engine.is_idle and not self._commands and not self._is_stopping:
                self._wakes.wait()
            commands = self._commands
            self._commands = deque()
        for command in commands:
            command(engine)
        return not self._is_stopping

    def _step(self, engine: BatchEngine) -> None:
        # Events of a prompt that was read are delivered before the next prompt is read.
        for progress in engine.begin_waiting():
            self._deliver([progress])
        self._deliver(list(engine.advance_running()))

    def _deliver(self, steps: list[RequestProgress]) -> None:
        if steps:
            events_by_id = [(cast("int", step.request.id), step.events) for step in steps]
            self._undelivered.put(partial(self._push, events_by_id))

    def _deliver_reading(self, request_id: object, reading: Reading) -> None:
        self._undelivered.put(partial(self._push_reading, cast("int", request_id), reading))

    def _push_reading(self, request_id: int, reading: Reading) -> None:
        stream = self._streams.get(request_id)
        if stream is not None and stream.tells_reading:
            stream.push(request_id, [reading])

    def _call_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Hand new events to the event loop, until `stop`."""
        # Only this thread wakes the event loop, so that the loop runs while llama.cpp decodes. If the thread of
        # the model woke it, the event loop would keep the interpreter until all answers are written.
        while (delivery := self._undelivered.get()) is not None:
            loop.call_soon_threadsafe(delivery)

    def _push(self, events_by_id: list[tuple[int, list[BatchEvent]]]) -> None:
        for request_id, new_events in events_by_id:
            if request_id in self._path_results and new_events:
                self._finish_paths(request_id, new_events[-1])
            stream = self._streams.get(request_id)
            events = [event for event in new_events if not isinstance(event, PathsRead)]
            if stream is None or not events:
                continue
            stream.push(request_id, events)
            if request_id not in stream.ids:
                del self._streams[request_id]

    def _finish_paths(self, request_id: int, event: BatchEvent) -> None:
        result = self._path_results[request_id]
        if isinstance(event, (PathsRead, BatchFailure)) and not result.done():
            result.set_result(event)

    def _push_to_all(self, failure: BatchFailure) -> None:
        self._push([(request_id, [failure]) for request_id in (*self._streams, *self._path_results)])
