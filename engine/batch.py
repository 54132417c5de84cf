"""Many requests at once (continuous batching): a request joins or leaves at any step, and all advance together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from ..common.renamed import supports_old_names
from ..grammars.errors import GrammarError
from ..logprobs.events import EXACT, BatchExactness, Done, Event, PromptToken, Start, Token, split_events
from ..models.errors import AbortedError, ModelError
from ..samplers.errors import SamplingError
from .generation import RunningRequest
from .model import Model
from .native.context import Logits
from .request import GenerationRequest
from .scoring import scored_tokens
from .slots import SequenceSlot, SequenceSlots, SlotAppend


@dataclass(frozen=True)
class BatchAnswer:
    """The events of a request that was answered. ``id``: the request's; ``prompt_tokens``: those of an echo."""

    id: object
    start: Start
    tokens: tuple[Token, ...]
    done: Done
    prompt_tokens: tuple[PromptToken, ...] = ()

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the run, in order."""
        return (self.start, *self.prompt_tokens, *self.tokens, self.done)

    @property
    def exactness(self) -> BatchExactness:
        """What holds for this answer, whose length is known now."""
        exactness = self.start.batch_exactness or EXACT
        return exactness.for_answer(self.done.prompt_tokens + self.done.completion_tokens)


@dataclass(frozen=True)
class BatchFailure:
    """The reason why a request could not be answered.

    Attributes:
        id: the request's.
        error: a ``ModelError``, ``SamplingError`` or ``GrammarError``, or what a plug-in or a constraint raised.
        has_begun: False if there was no `Start`: the request itself cannot be carried out with this model.
    """

    id: object
    error: Exception
    has_begun: bool = True


class RequestProgress(NamedTuple):
    """What a step made of one request.

    Attributes:
        request: the request.
        events: in order; a failure is the last one.
        running: what carries it out; None if it could not begin.
    """

    request: GenerationRequest
    events: list[Event | BatchFailure]
    running: RunningRequest | None = None


BatchOutcome = BatchAnswer | BatchFailure
"""What becomes of a request."""

_FAILURES = (ModelError, SamplingError, GrammarError)
_MIN_REQUESTS_TO_DIVIDE_RUN = 3
"""From so many running requests on, a row more in a decode that is made anyway costs less than a decode."""


class BatchEngine:
    """Requests that are computed side by side, each in a slot of its own; a context manager that closes itself.

    Each request's tokens are drawn by its own chain. Whether they are those that it gets alone depends on the
    model's tensors and the processor; it is measured, and ``exactness`` says it. A slot keeps its tokens until
    another request needs it, which then reads only what its prompt does not begin with.

    Not to be used by several threads at once.
    """

    @supports_old_names
    def __init__(
        self,
        model: Model,
        slots: int,
        *,
        deterministic: bool = False,
        note: Callable[[str], object] | None = None,
    ) -> None:
        """Make the slots, in a context of their own.

        Args:
            model: The model.
            slots: How many requests are computed at a time.
            deterministic: Whether to compute exactly what `generate` computes. That takes as long as running the
                requests one after the other.
            note: Called with a sentence, once each, if the messages of a chat had to be changed for the template.

        Raises ``ModelError``.
        """
        self._model = model
        self._slots = model.make_slots(slots, deterministic)
        self._free = list(self._slots.slots)
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[int, _SlotRequest] = {}
        self._note, self._noted = note, set[str]()
        self._undelivered: list[tuple[object, Event | BatchFailure]] = []
        self._is_closed = False

    @property
    def exactness(self) -> BatchExactness:
        """What holds for the answers."""
        return self._slots.exactness

    @property
    def free_slots(self) -> int:
        """How many requests can join at the next step; below 0: so many wait for a slot."""
        return len(self._free) - len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """True if no request runs or waits."""
        return not self._running and not self._waiting

    def add(self, request: GenerationRequest) -> None:
        """Let a request join at the next step, or as soon as a slot is free then. Its id should be its own."""
        self._check_open()
        self._waiting.append(request)

    def cancel(self, request_id: object) -> bool:
        """Let a request leave: no event of it comes after this, and its slot is free at the next step.

        Returns False if no request of this id waits or runs; of several, one leaves that waits, or else the first.
        """
        for index, waiting in enumerate(self._waiting):
            if waiting.id == request_id:
                del self._waiting[index]
                return True
        for running in self._running.values():
            if running.request.id == request_id:
                self._release(running.slot)
                return True
        return False

    def step(self) -> list[tuple[object, Event | BatchFailure]]:
        """Advance all requests, and return what happened, each event with the id of its request.

        Requests that wait join where a slot is free: their prompts are read. Then all running requests get the
        logits that they need, and make their next token, or several that the grammar forces.
        """
        events, self._undelivered = self._undelivered, []
        try:
            for half in (self.begin_waiting, self.advance_running):
                for moved in half():
                    events += ((moved.request.id, event) for event in moved.events)
        except BaseException:  # such as AbortedError: what happened before it comes with the next step
            self._undelivered = events
            raise
        return events

    def begin_waiting(self) -> Iterator[RequestProgress]:
        """Do the first half of `step`: read the prompts of requests that wait, as far as slots are free."""
        self._check_open()
        while self._waiting and self._free:
            yield self._begin(self._waiting.popleft())

    def advance_running(self) -> Iterator[RequestProgress]:
        """Do the second half of `step`, and yield the events of each request as soon as they are there.

        Must be taken to its end. A request that is cancelled meanwhile is left out.
        """
        self._check_open()
        has_enough_requests = len(self._running) >= _MIN_REQUESTS_TO_DIVIDE_RUN
        appends = [
            SlotAppend(running.slot, running.next_tokens(self._slots, has_enough_requests))
            for running in self._running.values()
        ]
        for slot, rows in self._slots.append(appends):
            running = self._running.get(slot.number)
            if running is not None:
                yield self._moved(running, running.take(rows))

    def _check_open(self) -> None:
        if self._is_closed:
            raise ModelError("the batch is closed")
        self._model.check_open()

    def _begin(self, request: GenerationRequest) -> RequestProgress:
        """Put a request into the slot that holds most of its prompt, and read the prompt."""
        try:
            if request.keep_on_shift is not None:
                raise ModelError("keep_on_shift: a batch discards no older tokens when a context is full")
            running = _SlotRequest(self._model, request, note=self._note_once)
        except Exception as error:
            return RequestProgress(request, [BatchFailure(request.id, error, has_begun=False)])
        running.slot = slot = self._slots.best_slot_for(running.prompt_ids, self._free)
        self._free.remove(slot)
        self._running[slot.number] = running
        try:
            return self._moved(running, running.read_prompt(self._slots))
        except AbortedError:
            self._waiting.appendleft(request)
            raise

    def _moved(self, running: _SlotRequest, made: Iterator[Event]) -> RequestProgress:
        """Return what a request makes; one that fails, or ends, leaves its slot.

        Whatever is raised for one request becomes its failure, so that the others go on.
        """
        events: list[Event | BatchFailure] = []
        try:
            events.extend(made)
        except AbortedError:
            self._release(running.slot)
            raise
        except Exception as error:
            events.append(BatchFailure(running.request.id, error, has_begun=bool(events) or running.has_begun))
        except BaseException:
            self._release(running.slot)
            raise
        running.has_begun = True
        if events and isinstance(events[-1], (Done, BatchFailure)):
            self._release(running.slot)
        return RequestProgress(running.request, events, running)

    def _release(self, slot: SequenceSlot) -> None:
        if self._running.pop(slot.number, None) is not None:  # else it was cancelled meanwhile
            self._free.append(slot)

    def _note_once(self, sentence: str) -> None:
        if self._note is not None and sentence not in self._noted:
            self._noted.add(sentence)
            self._note(sentence)

    def close(self) -> None:
        """Free the memory of the slots, and drop all requests. Do so before the model is closed."""
        self._is_closed = True
        self._running.clear()
        self._waiting.clear()
        self._slots.close()

    def __enter__(self) -> BatchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@supports_old_names
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
    """Answer requests, several at a time, and yield each answer as soon as it is complete.

    Whether an answer is what the request gets alone: see `BatchEngine`. Each answer's ``exactness`` says it
    (before the batch: `Model.batch_exactness`). Raises ``ModelError`` for an error that no request causes.

    Args:
        model: The model. The slots have a context of their own.
        requests: The next request is taken when a slot is free. None means that there is none yet: the next one is
            asked for after the next step.
        parallel: How many requests are computed at a time.
        deterministic: See `BatchEngine`.
        should_stop: Called before a request is begun. Once it returns True, the running requests are finished and
            no other is begun.
        progress: Called after each step of a request with the number of tokens that it made.
        note: See `BatchEngine`.
    """
    with BatchEngine(model, parallel, deterministic=deterministic, note=note) as engine:
        waiting, is_over = iter(requests), False
        gathered: dict[RunningRequest | None, list[Event]] = {}

        def outcomes(moves: Iterable[RequestProgress]) -> Iterator[BatchOutcome]:
            for moved in moves:
                if progress is not None:
                    progress(sum(isinstance(event, Token) for event in moved.events))
                outcome = _gather(moved, gathered)
                if outcome is not None:
                    yield outcome

        while True:
            while engine.free_slots > 0 and not is_over:
                is_over = should_stop is not None and should_stop()
                request = None if is_over else next(waiting, _NO_MORE_REQUESTS)
                if request is None:
                    break
                if isinstance(request, GenerationRequest):
                    engine.add(request)
                    yield from outcomes(engine.begin_waiting())
                else:
                    is_over = True
            if is_over and engine.is_idle:
                return
            yield from outcomes(engine.advance_running())


_NO_MORE_REQUESTS = object()


def _gather(moved: RequestProgress, gathered: dict[RunningRequest | None, list[Event]]) -> BatchOutcome | None:
    """Keep a request's new events until its last one; returns its outcome then, else None.

    Raises an error that is none of the engine's: it is a fault of a plug-in, a constraint or this program.
    """
    whole = gathered.setdefault(moved.running, [])
    for event in moved.events:
        if isinstance(event, BatchFailure):
            del gathered[moved.running]
            if not isinstance(event.error, _FAILURES):
                raise event.error
            return event
        whole.append(event)
    if not whole or not isinstance(whole[-1], Done):
        return None
    start, prompt_tokens, tokens, done = split_events(gathered.pop(moved.running))
    return BatchAnswer(moved.request.id, start, tokens, done, prompt_tokens)


class _SlotRequest(RunningRequest):
    """A request in its slot."""

    slot: SequenceSlot

    has_begun = False

    def read_prompt(self, slots: SequenceSlots) -> Iterator[Event]:
        """Read the prompt, and make the tokens that its logits give."""
        self._rows: list[Logits] = []
        """Of the needed tokens, those that were read already."""
        slot, prompt_ids, logprobs = self.slot, self.prompt_ids, self.request.logprobs
        has_echo = self.request.echo
        began = perf_counter()
        echo: list[PromptToken] = []
        if has_echo:
            echo = list(scored_tokens(self.model, prompt_ids, slots.read_each(slot, prompt_ids), logprobs))
        cached_tokens = 0
        if not has_echo or len(prompt_ids) > slot.max_rows:  # else tokens would depend on the echo
            cached_tokens = slots.read(slot, prompt_ids)
        self._began = perf_counter()
        self._prompt_seconds = self._began - began
        yield self.begin(slot, 0 if has_echo else cached_tokens, slot.length, exactness=slots.exactness)
        yield from echo
        yield from self.resume()
        yield from self._tokens_and_end(slots.prompt_rows() if self.finish_reason is None else None)

    def next_tokens(self, slots: SequenceSlots, has_enough_requests: bool) -> Sequence[int]:
        """Return the tokens that are to be read next; drops those that are in the slot in vain.

        Several tokens are read one by one beside those of other requests if that gives the same logits; guesses
        are not, since they are read in the hope that they all come at once.
        """
        needed = self.needed_tokens
        if not self._rows:
            slots.discard_last(self.slot, self.drop_count)
            self.drop_count = 0
            is_divided = (
                len(needed) > 1
                and has_enough_requests
                and not self.request.lookup
                and slots.is_run_exact(len(needed))
            )
            if not is_divided:
                return needed
        return needed[len(self._rows) : len(self._rows) + 1]

    def take(self, rows: Sequence[Logits]) -> Iterator[Event]:
        """Take the logits of the tokens that were read, and make the tokens that they give."""
        if len(self._rows) + len(rows) < len(self.needed_tokens):
            self._rows += [row.copy() for row in rows]
            return
        rows, self._rows = [*self._rows, *rows], []
        yield from self._tokens_and_end(rows)

    def _tokens_and_end(self, rows: Sequence[Logits] | None) -> Iterator[Event]:
        """Yield the tokens that these logits give, and the last event if the text ends."""
        if rows is not None:
            yield from self.resume(rows)
        if self.finish_reason is not None:
            yield self.done(self._prompt_seconds, perf_counter() - self._began)
