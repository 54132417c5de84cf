"""Many requests at once: a slot that is free takes the next one, and all that are at work move on together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from ..grammars import GrammarError
from ..samplers import SamplingError
from .errors import ModelError
from .events import Done, Start, Token
from .job import Job, Request, Steps
from .model import Model
from .run import Logits
from .slots import Slot, Slots


@dataclass(frozen=True)
class BatchAnswer:
    """What came of a request: its run."""

    key: object
    start: Start
    tokens: tuple[Token, ...]
    done: Done


@dataclass(frozen=True)
class BatchFailure:
    """What came of a request that could not be answered: the reason."""

    key: object
    error: ModelError | SamplingError | GrammarError


_END = object()
Moved = tuple[BatchAnswer | BatchFailure | None, int]
"""What came of a request, if it is over, and how many tokens were made."""


def generate_many(  # noqa: PLR0913 - the contract's own names
    model: Model,
    requests: Iterable[Request | None],
    parallel: int,
    *,
    apart: bool = False,
    stopping: Callable[[], bool] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[BatchAnswer | BatchFailure]:
    """Answer requests, ``parallel`` at a time, each as soon as it is done.

    Each gets the tokens that it gets alone: what is drawn depends on its own chain only, and what is computed on
    its own tokens (`Slots` says how far). ``requests`` are asked for one by one, as slots are free; None says that
    there is none yet, and they are asked again after the next step. ``apart``: compute exactly what `generate`
    does, which takes as long. ``stopping`` is asked before a request is begun; once it returns True, those at work
    are finished, and no other is begun. ``progress`` is told, after each step, how many tokens were made.
    Raises ``ModelError`` where no request is to blame.
    """

    def told(moved: Moved) -> Iterator[BatchAnswer | BatchFailure]:
        outcome, made = moved
        if progress is not None:
            progress(made)
        if outcome is not None:
            yield outcome

    slots = model.slots(parallel, apart)
    try:
        board = _Board(model, slots)
        waiting = iter(requests)
        over = False
        while True:
            while board.free and not over:
                over = stopping is not None and stopping()
                request = None if over else next(waiting, _END)
                if request is None:
                    break
                if isinstance(request, Request):
                    yield from told(board.begin(request))
                else:
                    over = True
            if over and not board.working:
                return
            for moved in board.step():
                yield from told(moved)
    finally:
        slots.close()


class _Work:
    """A request in its slot."""

    def __init__(self, model: Model, request: Request, slot: Slot) -> None:
        self.slot = slot
        self._began = perf_counter()
        self._job = Job(model, request, slot)
        self._steps = Steps(self._job.moves())
        self._tokens: list[Token] = []

    def begin(self, slots: Slots) -> int:
        """Read the prompt, and write as far as that goes; returns how many tokens that made."""
        cached = slots.read(self.slot, self._job.ids)
        self._read = perf_counter()
        self._start = self._job.start(cached, self.slot.length)
        self.go_on(None)
        return self.go_on(slots.rows()) if self._steps.reason is None else 0

    def go_on(self, rows: Sequence[Logits] | None) -> int:
        """Write as far as these logits go; returns how many tokens that made."""
        before = len(self._tokens)
        self._tokens.extend(self._steps.go_on(rows))
        return len(self._tokens) - before

    @property
    def wants(self) -> Sequence[int]:
        """The tokens that are to be read next."""
        return self._steps.wants

    @property
    def back(self) -> int:
        """How many tokens are to be forgotten before that."""
        return self._steps.back

    @property
    def key(self) -> object:
        """The name of the request."""
        return self._job.request.key

    def answer(self) -> BatchAnswer | None:
        """The answer, if it is there."""
        if self._steps.reason is None:
            return None
        times = self._read - self._began, perf_counter() - self._read
        done = self._job.done(self._steps.reason, *times)
        return BatchAnswer(self.key, self._start, tuple(self._tokens), done)


class _Board:
    """Which slots are free, and which requests are in the others."""

    def __init__(self, model: Model, slots: Slots) -> None:
        self._model, self._slots = model, slots
        self.free = list(slots.all)
        self.working: dict[int, _Work] = {}

    def begin(self, request: Request) -> Moved:
        """Put a request into a free slot."""
        slot = self.free.pop(0)
        try:
            work = _Work(self._model, request, slot)
            made = work.begin(self._slots)
            answer = work.answer()
        except (ModelError, SamplingError, GrammarError) as error:
            self.free.append(slot)
            return BatchFailure(request.key, error), 0
        if answer is None:
            self.working[slot.number] = work
        else:
            self.free.append(slot)
        return answer, made

    def step(self) -> Iterator[Moved]:
        """Move all of them on."""
        for work in self.working.values():
            self._slots.back(work.slot, work.back)
        wanted = [(work.slot, work.wants) for work in self.working.values()]
        for slot, rows in self._slots.push(wanted):
            work = self.working[slot.number]
            found: BatchAnswer | BatchFailure | None
            made = 0
            try:
                made = work.go_on(rows)
                found = work.answer()
            except (ModelError, SamplingError, GrammarError) as error:
                found = BatchFailure(work.key, error)
            if found is not None:
                del self.working[slot.number]
                self.free.append(slot)
            yield found, made
