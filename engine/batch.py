"""Many requests at once (continuous batching): a request joins or leaves at any step, and all advance together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from ..grammars.errors import GrammarError
from ..logprobs.events import EXACT, BatchExactness, Done, Event, PromptToken, Start, Token, split_events
from ..models.errors import AbortedError, ModelError
from ..samplers.errors import SamplingError
from .generation import RunningRequest
from .model import Model
from .native.context import Logits
from .request import GenerationRequest
from .scoring import scored_tokens
from .slots import NewTokens, SequenceSlot, SequenceSlots


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
        return exactness.of_text(self.done.prompt_tokens + self.done.completion_tokens)


@dataclass(frozen=True)
class BatchFailure:
    """The reason why a request could not be answered; ``id`` is the request's.

    ``has_begun``: False if the request itself cannot be carried out with this model, before anything is read.
    """

    id: object
    error: ModelError | SamplingError | GrammarError
    has_begun: bool = True


BatchOutcome = BatchAnswer | BatchFailure
"""What becomes of a request."""

_FAILURES = (ModelError, SamplingError, GrammarError)
_COMPANY = 3
"""From so many running requests on, a row more in a decode that is made anyway costs less than a decode."""


class BatchEngine:
    """Requests that are computed side by side, each in a slot of its own; a context manager that closes itself.

    Each request's tokens are drawn by its own chain. Whether they are those that it gets alone depends on the
    model's tensors and the processor; it is measured, and ``exactness`` says it. A slot keeps its tokens until
    another request needs it, which then reads only what its prompt does not begin with.

    Not to be used by several threads at once.
    """

    def __init__(
        self,
        model: Model,
        slots: int,
        *,
        isolated: bool = False,
        note: Callable[[str], object] | None = None,
    ) -> None:
        """Make the slots, in a context of their own.

        Args:
            model: The model.
            slots: How many requests are computed at a time.
            isolated: Compute exactly what `generate` computes, which takes as long as one request after the other.
            note: Called with a sentence, once each, if the messages of a chat had to be changed for the template.

        Raises ``ModelError``.
        """
        self._model = model
        self._slots = model.make_slots(slots, isolated)
        self._free = list(self._slots.all)
        self._waiting: deque[GenerationRequest] = deque()
        self._running: dict[int, _SlotRequest] = {}
        self._note, self._noted = note, set[str]()

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
        """Let a request join at the next step, or as soon as a slot is free then."""
        self._waiting.append(request)

    def cancel(self, request_id: object) -> bool:
        """Let a request leave: no event of it comes after this, and its slot is free at the next step.

        Returns False if no request of this id waits or runs.
        """
        for waiting in self._waiting:
            if waiting.id == request_id:
                self._waiting.remove(waiting)
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
        return [(id_of_request, event) for id_of_request, _, events in self.advance() for event in events]

    def advance(self) -> Iterator[tuple[object, RunningRequest | None, list[Event | BatchFailure]]]:
        """Do what `step` does, and yield the events of each request as soon as they are there.

        Must be taken to its end. Yields the id, what runs (None if the request could not begin) and the events.
        """
        while self._waiting and self._free:
            yield self._begin(self._waiting.popleft())
        has_company = len(self._running) >= _COMPANY
        appends = [
            NewTokens(running.slot, running.next_tokens(self._slots, has_company))
            for running in self._running.values()
        ]
        for slot, rows in self._slots.push(appends):
            running = self._running[slot.number]
            yield running.request.id, running, self._events(running, partial(running.take, rows))

    def _begin(
        self, request: GenerationRequest
    ) -> tuple[object, RunningRequest | None, list[Event | BatchFailure]]:
        """Put a request into the slot that holds most of its prompt; returns what `advance` yields."""
        try:
            if request.keep_on_shift is not None:
                raise ModelError("keep_on_shift: a batch discards no older tokens when a context is full")
            running = _SlotRequest(self._model, request, note=self._note_once)
        except AbortedError:
            raise
        except _FAILURES as error:
            return request.id, None, [BatchFailure(request.id, error, has_begun=False)]
        running.slot = self._slots.best_of(self._free, running.prompt_ids)
        self._free.remove(running.slot)
        self._running[running.slot.number] = running
        return request.id, running, self._events(running, partial(running.read_prompt, self._slots))

    def _events(self, running: _SlotRequest, make_events: Callable[[], list[Event]]) -> list[Event | BatchFailure]:
        """Return what a request makes; one that fails, or ends, leaves its slot."""
        try:
            events: list[Event | BatchFailure] = [*make_events()]
        except AbortedError:
            self._release(running.slot)
            raise
        except _FAILURES as error:
            events = [BatchFailure(running.request.id, error)]
        if events and isinstance(events[-1], (Done, BatchFailure)):
            self._release(running.slot)
        return events

    def _release(self, slot: SequenceSlot) -> None:
        del self._running[slot.number]
        self._free.append(slot)

    def _note_once(self, sentence: str) -> None:
        if self._note is not None and sentence not in self._noted:
            self._noted.add(sentence)
            self._note(sentence)

    def close(self) -> None:
        """Free the memory of the slots. Do so before the model is closed."""
        self._slots.close()

    def __enter__(self) -> BatchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def generate_many(  # noqa: PLR0913 - the arguments are public
    model: Model,
    requests: Iterable[GenerationRequest | None],
    parallel: int,
    *,
    isolated: bool = False,
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
        isolated: See `BatchEngine`.
        should_stop: Called before a request is begun. Once it returns True, the running requests are finished and
            no other is begun.
        progress: Called after each step of a request with the number of tokens that it made.
        note: See `BatchEngine`.
    """
    with BatchEngine(model, parallel, isolated=isolated, note=note) as engine:
        waiting, is_over = iter(requests), False
        gathered: dict[RunningRequest | None, list[Event]] = {}
        while True:
            is_over = is_over or _fill(engine, waiting, should_stop)
            if is_over and engine.is_idle:
                return
            for request_id, running, events in engine.advance():
                if progress is not None:
                    progress(sum(isinstance(event, Token) for event in events))
                whole = gathered.setdefault(running, [])
                for event in events:
                    if isinstance(event, BatchFailure):
                        del gathered[running]
                        yield event
                    else:
                        whole.append(event)
                if whole and isinstance(whole[-1], Done):
                    start, prompt_tokens, tokens, done = split_events(gathered.pop(running))
                    yield BatchAnswer(request_id, start, tokens, done, prompt_tokens)


def _fill(
    engine: BatchEngine, waiting: Iterator[GenerationRequest | None], should_stop: Callable[[], bool] | None
) -> bool:
    """Add requests while slots are free; returns True if no other comes."""
    while engine.free_slots > 0:
        if should_stop is not None and should_stop():
            return True
        try:
            request = next(waiting)
        except StopIteration:
            return True
        if request is None:
            break
        engine.add(request)
    return False


class _SlotRequest(RunningRequest):
    """A request in its slot."""

    slot: SequenceSlot

    def read_prompt(self, slots: SequenceSlots) -> list[Event]:
        """Read the prompt, and make the tokens that its logits give."""
        self._rows: list[Logits] = []
        """Of the needed tokens, those that were read already."""
        slot, prompt_ids, logprobs = self.slot, self.prompt_ids, self.request.logprobs
        has_echo = self.request.echo
        began = perf_counter()
        echo: list[PromptToken] = []
        if has_echo:
            echo = list(scored_tokens(self.model, prompt_ids, slots.read_each(slot, prompt_ids), logprobs))
        is_read = has_echo and len(prompt_ids) <= slot.max_rows  # else tokens would depend on the echo
        cached_tokens = 0 if is_read else slots.read(slot, prompt_ids)
        self._began = perf_counter()
        self._prompt_seconds = self._began - began
        cached_tokens = 0 if has_echo else cached_tokens
        start = self.begin(slot, cached_tokens, slot.length, exactness=slots.exactness)
        tokens = list(self.resume())
        rows = slots.prompt_rows() if self.finish_reason is None else None
        return [start, *echo, *tokens, *self._tokens_and_end(rows)]

    def next_tokens(self, slots: SequenceSlots, has_company: bool) -> Sequence[int]:
        """Return the tokens that are to be read next; drops those that are in the slot in vain.

        Several tokens are read one by one beside those of other requests if that gives the same logits; guesses
        are not, since they are read in the hope that they all come at once.
        """
        needed = self.needed_tokens
        if not self._rows:
            slots.drop(self.slot, self.drop_count)
            is_divided = (
                len(needed) > 1 and has_company and not self.request.lookup and slots.reads_one_by_one(len(needed))
            )
            if not is_divided:
                return needed
        return needed[len(self._rows) : len(self._rows) + 1]

    def take(self, rows: Sequence[Logits]) -> list[Event]:
        """Take the logits of the tokens that were read, and make the tokens that they give."""
        if len(self._rows) + len(rows) < len(self.needed_tokens):
            self._rows += [row.copy() for row in rows]
            return []
        rows, self._rows = [*self._rows, *rows], []
        return self._tokens_and_end(rows)

    def _tokens_and_end(self, rows: Sequence[Logits] | None) -> list[Event]:
        """Return the tokens that these logits give, and the last event if the text ends."""
        events: list[Event] = [] if rows is None else list(self.resume(rows))
        if self.finish_reason is not None:
            events.append(self.done(self._prompt_seconds, perf_counter() - self._began))
        return events
