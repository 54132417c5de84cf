"""Many requests at once: a free slot takes the next request, and all running requests advance together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..grammars.errors import GrammarError
from ..logprobs.events import EXACT, BatchExactness, Done, Event, Start, Token
from ..models.errors import AbortedError, ModelError
from ..samplers.errors import SamplingError
from .decoder import DecoderDriver
from .generation import GenerationRequest, GenerationTask
from .model import Model
from .native.context import Logits
from .slots import NewTokens, SequenceSlot, SequenceSlots


@dataclass(frozen=True)
class BatchAnswer:
    """The events of a request that was answered; ``key`` is the request's."""

    key: object
    start: Start
    tokens: tuple[Token, ...]
    done: Done

    @property
    def events(self) -> tuple[Event, ...]:
        """The events of the run, in order."""
        return (self.start, *self.tokens, self.done)

    @property
    def exactness(self) -> BatchExactness:
        """What holds for this answer, whose length is known now."""
        exactness = self.start.batch_exactness or EXACT
        return exactness.of_text(self.done.prompt_tokens + self.done.completion_tokens)


@dataclass(frozen=True)
class BatchFailure:
    """The reason why a request could not be answered; ``key`` is the request's."""

    key: object
    error: ModelError | SamplingError | GrammarError


BatchOutcome = BatchAnswer | BatchFailure
"""What becomes of a request."""

_NO_MORE_REQUESTS = object()
_COMPANY = 3
"""From so many running requests on, a row more in a decode that is made anyway costs less than a decode."""


def generate_many(  # noqa: PLR0913 - the arguments are public
    model: Model,
    requests: Iterable[GenerationRequest | None],
    parallel: int,
    *,
    isolated: bool = False,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[BatchOutcome]:
    """Answer requests, several at a time, and yield each answer as soon as it is complete.

    Each request's tokens are drawn by its own chain. Whether they are those that it gets alone depends on the
    model's tensors and the processor; it is measured, and each answer's ``exactness`` tells it (before the batch:
    `Model.batch_exactness`). Raises ``ModelError`` for an error that no request causes.

    Args:
        model: The model. The slots have a context of their own.
        requests: The next request is taken when a slot is free. None means that there is none yet: the next one is
            asked for after the next step.
        parallel: How many requests are computed at a time.
        isolated: Compute exactly what `generate` computes, which takes as long as one request after the other.
        should_stop: Called before a request is begun. Once it returns True, the running requests are finished and
            no other is begun.
        progress: Called after each step of a request with the number of tokens that it made.
    """
    slots = model.make_slots(parallel, isolated)
    try:
        scheduler = _Scheduler(model, slots, progress or (lambda _: None))
        waiting = iter(requests)
        is_over = False
        while True:
            while scheduler.free and not is_over:
                is_over = should_stop is not None and should_stop()
                request = None if is_over else next(waiting, _NO_MORE_REQUESTS)
                if request is None:
                    break
                if isinstance(request, GenerationRequest):
                    yield from scheduler.begin(request)
                else:
                    is_over = True
            if is_over and not scheduler.running:
                return
            yield from scheduler.step()
    finally:
        slots.close()


class _RunningRequest:
    """A request in its slot."""

    def __init__(self, model: Model, request: GenerationRequest, slot: SequenceSlot) -> None:
        self.slot = slot
        self.key = request.key
        self._drafts = request.lookup > 0
        self._rows: list[Logits] = []
        """Of the tokens that the decoder needs, those that were read already."""
        self._began = perf_counter()
        self._task = GenerationTask(model, request, slot)
        self.driver = DecoderDriver(self._task.decode())
        self._tokens: list[Token] = []

    def begin(self, slots: SequenceSlots) -> int:
        """Read the prompt, and make the tokens that its logits give; returns their number."""
        cached_tokens = slots.read(self.slot, self._task.prompt_ids)
        self._prompt_read = perf_counter()
        self._start = self._task.start_event(cached_tokens, self.slot.length, slots.exactness)
        self.resume(None)
        return self.resume(slots.prompt_rows()) if self.driver.finish_reason is None else 0

    def next_tokens(self, slots: SequenceSlots, has_company: bool) -> Sequence[int]:
        """The tokens that are to be read next; drops those that are in the slot in vain.

        Several tokens are read one by one beside those of other requests if that gives the same logits; guesses
        are not, since they are read in the hope that they all come at once.
        """
        needed = self.driver.needed_tokens
        if not self._rows:
            slots.drop(self.slot, self.driver.drop_count)
            is_divided = (
                len(needed) > 1 and has_company and not self._drafts and slots.reads_one_by_one(len(needed))
            )
            if not is_divided:
                return needed
        return needed[len(self._rows) : len(self._rows) + 1]

    def take(self, rows: Sequence[Logits]) -> int:
        """Take the logits of the tokens that were read; returns how many tokens were made."""
        if len(self._rows) + len(rows) < len(self.driver.needed_tokens):
            self._rows += [row.copy() for row in rows]
            return 0
        rows, self._rows = [*self._rows, *rows], []
        return self.resume(rows)

    def resume(self, rows: Sequence[Logits] | None) -> int:
        """Make the tokens that these logits give; returns their number."""
        before = len(self._tokens)
        self._tokens.extend(self.driver.resume(rows))
        return len(self._tokens) - before

    def answer_if_done(self) -> BatchAnswer | None:
        """The answer, None until it is complete."""
        reason = self.driver.finish_reason
        if reason is None:
            return None
        done = self._task.done_event(reason, self._prompt_read - self._began, perf_counter() - self._prompt_read)
        return BatchAnswer(self.key, self._start, tuple(self._tokens), done)


class _Scheduler:
    """Knows which slots are free and which requests run in the others.

    ``progress`` is called after each step of a request with the number of tokens that it made.
    """

    def __init__(self, model: Model, slots: SequenceSlots, progress: Callable[[int], object]) -> None:
        self._model, self._slots, self._progress = model, slots, progress
        self.free = list(slots.all)
        self.running: dict[int, _RunningRequest] = {}

    def begin(self, request: GenerationRequest) -> Iterator[BatchOutcome]:
        """Put a request into a free slot; yields its outcome if it is over already."""
        slot = self.free.pop(0)
        outcome: BatchOutcome | None
        token_count = 0
        try:
            running = _RunningRequest(self._model, request, slot)
            token_count = running.begin(self._slots)
            outcome = running.answer_if_done()
        except AbortedError:
            raise
        except (ModelError, SamplingError, GrammarError) as error:
            outcome = BatchFailure(request.key, error)
        if outcome is None:
            self.running[slot.number] = running
        else:
            self.free.append(slot)
        self._progress(token_count)
        if outcome is not None:
            yield outcome

    def step(self) -> Iterator[BatchOutcome]:
        """Advance all running requests; yields the outcomes of those that are over."""
        has_company = len(self.running) >= _COMPANY
        appends = [
            NewTokens(running.slot, running.next_tokens(self._slots, has_company))
            for running in self.running.values()
        ]
        for slot, rows in self._slots.push(appends):
            running = self.running[slot.number]
            outcome: BatchOutcome | None
            token_count = 0
            try:
                token_count = running.take(rows)
                outcome = running.answer_if_done()
            except (ModelError, SamplingError, GrammarError) as error:
                outcome = BatchFailure(running.key, error)
            if outcome is not None:
                del self.running[slot.number]
                self.free.append(slot)
            self._progress(token_count)
            if outcome is not None:
                yield outcome
