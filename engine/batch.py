"""Batches of requests (continuous batching): requests join and leave at any step, and all advance together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from ..grammars.errors import GrammarError
from ..logprobs.events import (
    EXACT,
    BatchExactness,
    Done,
    Event,
    PromptToken,
    Reading,
    Rewind,
    Start,
    Token,
    events_by_kind,
)
from ..models.errors import AbortedError, ModelError
from ..samplers.errors import SamplingError
from .beams import generate_beams
from .context import Progress, check_prompt
from .decoder import CommonCapacity, DecoderRow, SequenceCapacity
from .generation import RunningRequest
from .guidance import NEGATIVE_PROMPT, guidance_model, guide, guided_exactness
from .model import Model
from .native.context import Logits
from .paths import PathRequest, PathsRead, RunningPaths
from .request import GenerationRequest
from .scoring import scored_tokens
from .slots import SequenceSlot, SequenceSlots, SlotAppend


def _append_each(
    slots: SequenceSlots, appends: Sequence[SlotAppend]
) -> Generator[tuple[SequenceSlot, list[Logits] | ModelError]]:
    """Append tokens to slots as `SequenceSlots.append` does; yield the error of a slot that llama.cpp rejects."""
    # If a decode of several slots fails, such as for lack of memory, each of them is decoded alone.
    remaining = {append.slot.number: append for append in appends}
    with closing(slots.append(appends)) as rows_of_slots:
        # An error of the caller, or of closing, is not one of the decode: only ``next`` may fail here.
        while True:
            try:
                slot, rows = next(rows_of_slots)
            except StopIteration:
                return
            except AbortedError:
                raise
            except ModelError as error:
                failure = error
                break
            del remaining[slot.number]
            yield slot, rows
    if len(appends) == 1:
        yield appends[0].slot, failure
    else:
        for append in remaining.values():
            yield from _append_each(slots, [append])


@dataclass(frozen=True)
class BatchAnswer:
    """The events of a request that was answered.

    Attributes:
        id: id of the request.
        start: the first event.
        tokens: the tokens of the answer.
        done: the last event.
        prompt_tokens: the tokens of the prompt, if the request has an echo.
        rewinds: the returns to earlier tokens.
    """

    id: object
    start: Start
    tokens: tuple[Token, ...]
    done: Done
    prompt_tokens: tuple[PromptToken, ...] = ()
    rewinds: tuple[Rewind, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the run, in order. The returns to earlier tokens precede the tokens that remained."""
        return (self.start, *self.prompt_tokens, *self.rewinds, *self.tokens, self.done)

    @property
    def exactness(self) -> BatchExactness:
        """The promise about this answer, whether other requests can have changed it.

        The length of the answer is known now, so this promise may be stronger than the batch's promise.
        """
        exactness = self.start.batch_exactness or EXACT
        return exactness.for_answer(self.done.prompt_tokens + self.done.completion_tokens)


@dataclass(frozen=True)
class BatchFailure:
    """The reason why a request could not be answered.

    Attributes:
        id: id of the request.
        error: a ``ModelError``, ``SamplingError`` or ``GrammarError``, or an error of a plug-in or a constraint.
        has_begun: False if there was no `Start`, because this model cannot run the request at all.
    """

    id: object
    error: Exception
    has_begun: bool = True


BatchEvent = Event | PathsRead | BatchFailure
LAST_EVENTS = (Done, PathsRead, BatchFailure)  # the types of the last event of a request


class RequestProgress(NamedTuple):
    """The events of one request in one step. A failure is the last one."""

    request: GenerationRequest | PathRequest
    events: list[BatchEvent]
    running: RunningRequest | RunningPaths | None = None  # the running request; None if it could not begin


BatchOutcome = BatchAnswer | BatchFailure
"""The result of a request."""

_FAILURES = (ModelError, SamplingError, GrammarError)
# The minimum number of running requests with which forced tokens are read one by one, in the decodes of the other
# requests. With fewer requests, one separate decode of all forced tokens takes less time.
_MIN_REQUESTS_TO_DIVIDE_RUN = 3


class BatchEngine:
    """Requests that are computed together, each in a separate slot. A ``with`` statement closes the engine.

    Each request's chain draws its tokens. Whether these are the tokens of the request without the batch depends on
    the tensors of the model and on the processor. This is measured, and ``exactness`` reports it. A slot keeps its
    tokens until another request needs the slot; then only tokens after the common beginning are read. With
    ``exact_reuse=False``, a request also reuses tokens that were generated, and is exact to rounding only.

    A request with ``beams`` is answered by the best text of its search when it begins, and the others wait
    meanwhile.

    Not to be used by several threads at the same time.
    """

    def __init__(  # noqa: PLR0913 - the arguments are public
        self,
        model: Model,
        slots: int,
        *,
        deterministic: bool = False,
        max_idle_tokens: int | None = None,
        note: Callable[[str], object] | None = None,
        reading: Callable[[object, Reading], object] | None = None,
    ) -> None:
        """Make the slots, in a separate context.

        Args:
            model: The model.
            slots: Number of requests that are computed together.
            deterministic: Whether to compute exactly what `generate` computes. That takes as long as running the
                requests one after the other.
            max_idle_tokens: Maximum number of tokens that all free slots together keep for later requests. The
                slots that have been free for the longest time are emptied first. None: no limit.
            note: Function that shows a note to the user: called with a sentence, once for each different sentence,
                if the messages of a chat had to be changed for the template.
            reading: Function that is called with the id of a request and how far its prompt is read.

        Raises ``ModelError``.
        """
        self._model = model
        if deterministic:
            model.check_deterministic()
        self._slots = model.make_slots(slots, deterministic)
        self._unused_slots = list(self._slots.slots)
        self._waiting_requests: deque[_WaitingRequest] = deque()
        self._running_by_slot: dict[int, _SlotTask] = {}
        # The slots of the negative prompts, by the path of the model that reads them. Requests without guidance
        # need none.
        self._negative_slots: dict[Path, SequenceSlots] = {}
        # the slots in which draft models read the texts, by the path of the draft model
        self._draft_slots: dict[Path, SequenceSlots] = {}
        self._is_deterministic = deterministic
        self._max_idle_tokens = max_idle_tokens
        self._show_note = note
        self._shown_notes = set[str]()
        self._show_reading = reading
        self._undelivered: list[tuple[object, BatchEvent]] = []
        self._is_advancing = False
        self._is_closed = False

    @property
    def exactness(self) -> BatchExactness:
        """The promise about the answers."""
        return self._slots.exactness

    @property
    def context_length(self) -> int:
        """The maximum number of tokens of one request, of its prompt and its answer."""
        return self._slots.length

    @property
    def free_slots(self) -> int:
        """The number of requests that can join at the next step; if negative, the number that wait for a slot."""
        return len(self._unused_slots) - len(self._waiting_requests)

    @property
    def is_idle(self) -> bool:
        """True if no request runs or waits."""
        return not self._running_by_slot and not self._waiting_requests

    def add(self, request: GenerationRequest | PathRequest) -> None:
        """Add a request, which joins at the next step, or later when a slot becomes free.

        Its id should be unique. The only event of a `PathRequest` is `PathsRead`.
        """
        self._check_open()
        self._waiting_requests.append(_WaitingRequest(request))

    def cancel(self, request_id: object) -> bool:
        """Remove a request. It has no more events, and its slot is free at the next step.

        Returns False if no request with this id waits or runs. If several have this id, one that waits is removed,
        or else the first.
        """
        for index, waiting in enumerate(self._waiting_requests):
            if waiting.request.id == request_id:
                del self._waiting_requests[index]
                self._drop_undelivered(request_id)
                return True
        for running in self._running_by_slot.values():
            if running.request.id == request_id:
                self._release(running)
                self._drop_undelivered(request_id)
                return True
        return False

    def interrupt(self, request_id: object) -> RequestProgress | None:
        """End a request with the text that it has so far; return its last event, with the reason ``interrupted``.

        A request that still waits for a slot fails. Returns None if no request with this id waits or runs.
        """
        for index, waiting in enumerate(self._waiting_requests):
            if waiting.request.id == request_id:
                del self._waiting_requests[index]
                error = ModelError("the request was stopped before it began")
                return RequestProgress(waiting.request, [BatchFailure(request_id, error, has_begun=False)])
        for running in self._running_by_slot.values():
            if running.request.id == request_id:
                self._release(running)
                if isinstance(running, RunningPaths):
                    failure = BatchFailure(request_id, ModelError("the request was stopped"))
                    return RequestProgress(running.request, [failure], running)
                return RequestProgress(running.request, [*running.release_held(), running.end()], running)
        return None

    def _drop_undelivered(self, request_id: object) -> None:
        self._undelivered = [(other_id, event) for other_id, event in self._undelivered if other_id != request_id]

    def step(self) -> list[tuple[object, BatchEvent]]:
        """Advance all requests; return the new events, each with the id of its request.

        Waiting requests join where a slot is free, and their prompts are read. Then all running requests get the
        logits that they need, and make the next token, or several tokens that the grammar forces.

        An error of one request, such as a prompt that is too long or tokens that llama.cpp cannot decode, is a
        `BatchFailure`. Other errors are raised: ``AbortedError`` after `Model.abort`, and ``ModelError`` if the
        engine is closed. After an ``AbortedError``, the next step continues. An exception such as
        ``KeyboardInterrupt`` ends the request in whose code it was raised; the next step returns its
        `BatchFailure`.
        """
        events = self._undelivered
        self._undelivered = []
        try:
            for advance in (self.begin_waiting, self.advance_running):
                with closing(advance()) as progress_of_requests:
                    for request_progress in progress_of_requests:
                        events += ((request_progress.request.id, event) for event in request_progress.events)
        except BaseException:  # such as AbortedError; the next step returns the events before the error
            self._undelivered = events + self._undelivered
            raise
        return events

    def begin_waiting(self) -> Generator[RequestProgress]:
        """Run the first half of `step`: read the prompts of waiting requests, as long as slots are free.

        Raises ``ModelError`` while an iterator of `advance_running` is not exhausted: a prompt would overwrite its
        logits.
        """
        self._check_open()
        if self._is_advancing:
            raise ModelError("the batch is in a step, whose requests must be advanced first")
        while self._waiting_requests and self._unused_slots:
            yield self._begin_request(self._waiting_requests.popleft())
            self._check_open()

    def advance_running(self) -> Generator[RequestProgress]:
        """Run the second half of `step`, and yield the events of each request as soon as its logits are computed.

        The iterator must be exhausted or closed. A request that is canceled meanwhile is left out.
        """
        self._check_open()
        if self._is_advancing:
            raise ModelError("the batch is in a step, whose requests must be advanced first")
        self._is_advancing = True
        try:
            yield from self._advance_running()
        finally:
            self._is_advancing = False

    def _advance_running(self) -> Generator[RequestProgress]:
        running_by_slot = dict(self._running_by_slot)
        has_enough_requests = len(self._running_by_slot) >= _MIN_REQUESTS_TO_DIVIDE_RUN
        appends = [
            SlotAppend(running.slot, running.next_tokens(self._slots, has_enough_requests), running.is_exact)
            for running in running_by_slot.values()
        ]
        undelivered, failures = self._append_negatives(running_by_slot, appends)
        appends = [append for append in appends if append.slot.number not in failures]
        try:
            for number, error in failures.items():
                if self._running_by_slot.get(number) is running_by_slot[number]:
                    yield self._fail(running_by_slot[number], error)
                    self._check_open()
            with closing(_append_each(self._slots, appends)) as rows_of_slots:
                for slot, rows in rows_of_slots:
                    running = running_by_slot[slot.number]
                    negative_rows = undelivered.pop(slot.number, ())
                    if self._running_by_slot.get(slot.number) is not running:
                        continue
                    if isinstance(rows, ModelError):
                        yield self._fail(running, rows)
                    else:
                        yield self._collect_events(running, running.receive_logits(rows, negative_rows))
                    self._check_open()  # closed meanwhile: the other logits are freed memory
        finally:  # if the step ends early, the next step appends the tokens of these slots again
            for number, negative_rows in undelivered.items():
                _discard_last_negative(running_by_slot[number], len(negative_rows))

    def _fail(self, running: _SlotTask, error: ModelError) -> RequestProgress:
        """End a request whose tokens llama.cpp could not read."""
        self._release(running)
        return RequestProgress(running.request, [BatchFailure(running.request.id, error)], running)

    def _append_negatives(
        self, running_by_slot: Mapping[int, _SlotTask], appends: Sequence[SlotAppend]
    ) -> tuple[dict[int, list[Logits]], dict[int, ModelError]]:
        """Append the same tokens after the negative prompts; return copies of their logits, and the errors."""
        # Both are by slot number.
        appends_by_slots: dict[SequenceSlots, list[SlotAppend]] = {}
        for append in appends:
            running = running_by_slot[append.slot.number]
            negative = running.negative if isinstance(running, _SlotRequest) else None
            if negative is not None:
                appends_by_slots.setdefault(negative.slots, []).append(append._replace(slot=negative.slot))
        rows_by_slot: dict[int, list[Logits]] = {}
        failures: dict[int, ModelError] = {}
        try:
            for slots, negative_appends in appends_by_slots.items():
                with closing(_append_each(slots, negative_appends)) as rows_of_slots:
                    for slot, rows in rows_of_slots:
                        if isinstance(rows, ModelError):
                            failures[slot.number] = rows
                        else:
                            rows_by_slot[slot.number] = [row.copy() for row in rows]
        except BaseException:  # such as AbortedError
            for number, rows in rows_by_slot.items():
                _discard_last_negative(running_by_slot[number], len(rows))
            raise
        return rows_by_slot, failures

    def _slots_of(
        self, model: Model, slots_by_path: dict[Path, SequenceSlots], *, deterministic: bool
    ) -> SequenceSlots:
        """Return as many slots of a model as the batch has, which are made when the first request needs them."""
        if model.path not in slots_by_path:
            slots_by_path[model.path] = model.make_slots(len(self._slots.slots), deterministic)
        return slots_by_path[model.path]

    def _open_negative_slot(self, running: _SlotRequest) -> None:
        """Give a request a slot for its negative prompt, numbered like its own. Raises ``ModelError``."""
        guidance = running.request.rules.guidance
        if guidance is None or running.negative_ids is None:
            return
        model = guidance_model(self._model, guidance)
        slots = self._slots_of(model, self._negative_slots, deterministic=self._is_deterministic)
        running.negative = _NegativeSlot(slots, slots.slots[running.slot.number], guidance.scale)

    def _open_draft_slot(self, running: _SlotRequest) -> None:
        """Give a request with a draft model a slot of that model, with the number of its own slot."""
        model = running.draft_model
        if model is None:
            return
        slots = self._slots_of(model, self._draft_slots, deterministic=True)
        running.draft_with(partial(slots.follow, slots.slots[running.slot.number]))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ModelError("the batch is closed")
        self._model.check_open()

    def _begin_request(self, waiting: _WaitingRequest) -> RequestProgress:
        """Read the prompt in the slot with the longest beginning of it."""
        # A request with ``beams`` is answered immediately.
        request, running = waiting
        if isinstance(request, GenerationRequest) and request.beams is not None:
            return self._search(request)
        try:
            if running is None:
                running = self._run(request)
        except Exception as error:
            return RequestProgress(request, [BatchFailure(request.id, error, has_begun=False)])
        slot = self._slots.best_slot_for(
            running.prompt_ids, self._unused_slots, reuses_answers=running.reuses_answers
        )
        running.slot = slot
        self._unused_slots.remove(slot)
        self._running_by_slot[slot.number] = running
        try:
            return self._collect_events(running, self._read_prompts(running))
        except AbortedError:  # the constraint has read the beginning of the answer, and cannot read it again
            self._waiting_requests.appendleft(_WaitingRequest(request, running))
            raise

    def _run(self, request: GenerationRequest | PathRequest) -> _SlotTask:
        if isinstance(request, PathRequest):
            return RunningPaths(self._model.vocabulary, request)
        if request.keep_on_shift is not None:
            raise ModelError("a batch discards no older tokens when a context is full", origin="keep_on_shift")
        running = _SlotRequest(self._model, request, show_note=self._note_once)
        self._check_open()  # the note may have closed the batch
        return running

    def _search(self, request: GenerationRequest) -> RequestProgress:
        """Return the best text of a beam search, which has a context of its own."""
        try:
            best_text, *_ = generate_beams(
                self._model, request, deterministic=self._is_deterministic, note=self._note_once
            )
        except AbortedError:
            self._waiting_requests.appendleft(_WaitingRequest(request))
            raise
        except Exception as error:
            return RequestProgress(request, [BatchFailure(request.id, error, has_begun=False)])
        return RequestProgress(request, list(best_text))

    def _read_prompts(self, running: _SlotTask) -> Iterator[Event | PathsRead]:
        if isinstance(running, _SlotRequest):
            self._open_negative_slot(running)
            self._open_draft_slot(running)
            yield from running.read_prompt(self._slots, partial(self._tell_reading, running.request.id))
        else:
            yield from running.read_prompt(self._slots)

    def _tell_reading(self, request_id: object, read_tokens: int, prompt_tokens: int) -> None:
        if self._show_reading is not None:
            self._show_reading(request_id, Reading(read_tokens, prompt_tokens))

    def _collect_events(self, running: _SlotTask, new_events: Iterator[Event | PathsRead]) -> RequestProgress:
        """Return the new events of a request, whose slot becomes free if it fails or ends."""
        # An error becomes the failure of the request, so that other requests can continue.
        collected_events: list[BatchEvent] = []
        try:
            collected_events.extend(new_events)
        except AbortedError:
            self._release(running)
            raise
        except Exception as error:
            collected_events.append(
                BatchFailure(running.request.id, error, has_begun=bool(collected_events) or running.has_begun)
            )
        except BaseException:
            self._release(running)
            failure = BatchFailure(running.request.id, ModelError("the request was interrupted"))
            self._undelivered.append((running.request.id, failure))
            raise
        running.has_begun = True
        if collected_events and isinstance(collected_events[-1], LAST_EVENTS):
            self._release(running)
        return RequestProgress(running.request, collected_events, running)

    def _release(self, running: _SlotTask) -> None:
        if self._running_by_slot.get(running.slot.number) is running:
            del self._running_by_slot[running.slot.number]
            self._unused_slots.append(running.slot)
            self._empty_idle_slots()

    def _empty_idle_slots(self) -> None:
        """Empty free slots, the longest free one first, until they keep at most the allowed number of tokens."""
        if self._max_idle_tokens is None:
            return
        excess_token_count = sum(len(slot.tokens) for slot in self._unused_slots) - self._max_idle_tokens
        for slot in self._unused_slots:
            if excess_token_count <= 0:
                return
            excess_token_count -= len(slot.tokens)
            self._slots.discard_last(slot, len(slot.tokens))
            for slots in self._negative_slots.values():
                negative_slot = slots.slots[slot.number]
                slots.discard_last(negative_slot, len(negative_slot.tokens))

    def _note_once(self, sentence: str) -> None:
        if self._show_note is not None and sentence not in self._shown_notes:
            self._shown_notes.add(sentence)
            self._show_note(sentence)

    def close(self) -> None:
        """Free the memory of the slots, and drop all requests. Must be called before the model is closed."""
        self._is_closed = True
        self._running_by_slot.clear()
        self._waiting_requests.clear()
        self._slots.close()
        for slots in (*self._negative_slots.values(), *self._draft_slots.values()):
            slots.close()
        self._negative_slots.clear()
        self._draft_slots.clear()

    def __enter__(self) -> BatchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def generate_many(  # noqa: PLR0913 - the arguments are public
    model: Model,
    requests: Iterable[GenerationRequest | None],
    parallel: int,
    *,
    deterministic: bool = False,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
    note: Callable[[str], object] | None = None,
) -> Iterator[BatchOutcome]:
    """Answer several requests together, and yield each answer as soon as it is complete.

    Each answer has an ``exactness``, which says whether the request would get the same answer without a batch.
    `Model.batch_exactness` says this before the batch, and `BatchEngine` explains it. Raises ``ModelError`` for an
    error that no request causes.

    Args:
        model: The model. The slots have a separate context.
        requests: The next request is taken when a slot is free. None means that there is no request yet; then the
            next one is taken after the next step.
        parallel: Number of requests that are computed together.
        deterministic: See `BatchEngine`.
        should_stop: Called before a request begins. Once it returns True, the running requests are finished, and
            no other request begins.
        progress: Called after each step of a request with the number of tokens that it made.
        note: See `BatchEngine`.
    """
    with BatchEngine(model, parallel, deterministic=deterministic, note=note) as engine:
        request_iterator = iter(requests)
        has_no_more_requests = False
        events_by_request: dict[object, list[Event]] = {}

        def iterate_outcomes(step_results: Iterable[RequestProgress]) -> Iterator[BatchOutcome]:
            for request_progress in step_results:
                if progress is not None:
                    progress(sum(isinstance(event, Token) for event in request_progress.events))
                outcome = _add_events_of_step(request_progress, events_by_request)
                if outcome is not None:
                    yield outcome

        while True:
            while engine.free_slots > 0 and not has_no_more_requests:
                request = _next_request(request_iterator, should_stop)
                if request is None:
                    break
                if isinstance(request, GenerationRequest):
                    engine.add(request)
                    yield from iterate_outcomes(engine.begin_waiting())
                else:
                    has_no_more_requests = True
            if has_no_more_requests and engine.is_idle:
                return
            yield from iterate_outcomes(engine.advance_running())


_NO_MORE_REQUESTS = object()


def _next_request(
    requests: Iterator[GenerationRequest | None], should_stop: Callable[[], bool] | None
) -> GenerationRequest | object | None:
    """Return the next request; None if there is none yet; `_NO_MORE_REQUESTS` after the last one."""
    if should_stop is not None and should_stop():
        return _NO_MORE_REQUESTS
    return next(requests, _NO_MORE_REQUESTS)


def _add_events_of_step(
    request_progress: RequestProgress, events_by_request: dict[object, list[Event]]
) -> BatchOutcome | None:
    """Add a request's new events to its earlier ones; return the outcome after the last event, otherwise None."""
    # Raises an error that is not one of `_FAILURES`: a fault of a plug-in, a constraint or this program.
    events = events_by_request.setdefault(request_progress.running, [])
    for event in request_progress.events:
        if isinstance(event, BatchFailure):
            del events_by_request[request_progress.running]
            if not isinstance(event.error, _FAILURES):
                raise event.error
            return event
        if not isinstance(event, PathsRead):
            events.append(event)
    if not events or not isinstance(events[-1], Done):
        return None
    run_events = events_by_request.pop(request_progress.running)
    run = events_by_kind(run_events)
    rewinds = tuple(event for event in run_events if isinstance(event, Rewind))
    return BatchAnswer(request_progress.request.id, run.start, run.tokens, run.done, run.prompt_tokens, rewinds)


class _WaitingRequest(NamedTuple):
    request: GenerationRequest | PathRequest
    # the request with its chain and constraint, if an abort ended the reading of its prompt
    running: _SlotTask | None = None


class _NegativeSlot(NamedTuple):
    """The place of a negative prompt."""

    slots: SequenceSlots  # the slots of all negative prompts that one model reads
    slot: SequenceSlot
    scale: float


class _SlotRequest(RunningRequest):
    """A running request in its slot."""

    slot: SequenceSlot

    negative: _NegativeSlot | None = None  # the slot of the negative prompt; None without guidance
    has_begun = False  # whether there was a `Start`
    is_exact = True  # False if the prompt reused generated tokens, so that the answer is exact to rounding only

    @property
    def reuses_answers(self) -> bool:
        """True if the prompt may reuse generated tokens. If the request does not say so, it may not in a batch."""
        return self.request.exact_reuse is False

    def read_prompt(self, slots: SequenceSlots, progress: Progress) -> Iterator[Event]:
        # The logits after those of the needed tokens that were already read
        self._collected_rows: list[DecoderRow] = []
        slot = self.slot
        prompt_ids = self.prompt_ids
        has_echo = self.request.echo
        start_seconds = perf_counter()
        echoed_tokens: list[PromptToken] = []
        if has_echo:
            prompt_rows = slots.read_each(slot, prompt_ids)
            echoed_tokens = list(scored_tokens(self.model, prompt_ids, prompt_rows, self.request.logprobs))
        cached_tokens = 0
        exactness = slots.exactness
        # The echo reads a long prompt in small batches, whose logits differ. The text must not depend on the echo.
        if not has_echo or len(prompt_ids) > slot.max_rows:
            read = slots.read(slot, prompt_ids, progress, reuses_answers=self.reuses_answers and not has_echo)
            exactness = read.exactness
            self.is_exact = exactness == slots.exactness
            if not has_echo:
                cached_tokens = read.kept_count
        capacity: SequenceCapacity = slot
        rows: Sequence[DecoderRow] = slots.prompt_rows()
        if self.negative is not None and self.negative_ids is not None:
            capacity = CommonCapacity(slot, self.negative.slot)
            extra_token_count = len(self.negative_ids) - len(prompt_ids)
            negative_exactness = self._read_negative_prompt(self.negative, self.negative_ids)
            rows = self.guide_rows(slots.prompt_rows(), self.negative.slots.prompt_rows())
            exactness = guided_exactness(exactness, negative_exactness, self.negative.scale, extra_token_count)
        self._generation_start = perf_counter()
        self._prompt_seconds = self._generation_start - start_seconds
        yield self.begin(capacity, cached_tokens, slot.length, exactness=exactness)
        yield from echoed_tokens
        yield from self.resume()
        has_ended = self.finish_reason is not None
        yield from self._iterate_tokens_and_end(None if has_ended else rows)

    def _read_negative_prompt(self, negative: _NegativeSlot, negative_ids: Sequence[int]) -> BatchExactness:
        check_prompt(negative_ids, negative.slot.length, NEGATIVE_PROMPT)
        read = negative.slots.read(negative.slot, negative_ids, reuses_answers=self.reuses_answers)
        if read.exactness != negative.slots.exactness:
            self.is_exact = False
        return read.exactness

    def guide_rows(self, rows: Sequence[Logits], negative_rows: Sequence[Logits]) -> Sequence[DecoderRow]:
        """Return the logits under guidance; without guidance, the rows themselves."""
        if self.negative is None:
            return rows
        scale = self.negative.scale
        return [guide(row, negative, scale) for row, negative in zip(rows, negative_rows, strict=True)]

    def discard_last_negative(self, count: int) -> None:
        if self.negative is not None:
            self.negative.slots.discard_last(self.negative.slot, count)

    def next_tokens(self, slots: SequenceSlots, has_enough_requests: bool) -> Sequence[int]:
        """Return the tokens to be read next, and remove wrong draft tokens from the slot."""
        # Several forced tokens are read one by one, together with tokens of other requests, if that gives the same
        # logits. A draft is always read in one call, because only that can save time.
        needed_tokens = self.needed_tokens
        read_count = len(self._collected_rows)
        if read_count == 0:
            slots.discard_last(self.slot, self.drop_count)
            self.discard_last_negative(self.drop_count)
            self.drop_count = 0
            is_divided = (
                len(needed_tokens) > 1
                and has_enough_requests
                and not self.is_drafting
                and slots.is_one_call_exact(len(needed_tokens))
            )
            if not is_divided:
                return needed_tokens
        return needed_tokens[read_count : read_count + 1]

    def receive_logits(self, rows: Sequence[Logits], negative_rows: Sequence[Logits]) -> Iterator[Event]:
        guided_rows = self.guide_rows(rows, negative_rows)
        if len(self._collected_rows) + len(rows) < len(self.needed_tokens):
            self._collected_rows += [row.copy() for row in guided_rows]
            return
        all_rows = [*self._collected_rows, *guided_rows]
        self._collected_rows = []
        yield from self._iterate_tokens_and_end(all_rows)

    def _iterate_tokens_and_end(self, rows: Sequence[DecoderRow] | None) -> Iterator[Event]:
        """Yield the tokens that these logits determine, and the last event if the text ends."""
        if rows is not None:
            yield from self.resume(rows)
        if self.finish_reason is not None:
            yield self.end()

    def end(self) -> Done:
        return self.finish(self._prompt_seconds, perf_counter() - self._generation_start)


_SlotTask = _SlotRequest | RunningPaths  # what runs in a slot


def _discard_last_negative(running: _SlotTask, count: int) -> None:
    if isinstance(running, _SlotRequest):
        running.discard_last_negative(count)
