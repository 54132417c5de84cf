"""Decisions about many inputs, whose prompts are read together on one model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from ..common.errors import LogitsmithError
from ..engine.batch import BatchAnswer, BatchEngine, BatchFailure
from ..engine.paths import PathsRead
from ..logprobs.events import Done, Start
from .decider import Asked, Asking, Decider, Decision, Place, next_step

_NO_MORE_INPUTS = object()


class Outcome(NamedTuple):
    """The answers about an input, or the reason why there are none.

    Attributes:
        number: the number of the input, from 0.
        result: the answers; or the input's error, or that of the first prompt that failed.
    """

    number: int
    result: Decision | Exception

    @property
    def decision(self) -> Decision:
        """The answers. Raises the error if there is one."""
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@dataclass
class _Input:
    """An input about which questions are being asked."""

    text: str
    waiting: deque[Place]
    asked: dict[Place, Asked] = field(default_factory=dict)
    running: int = 0
    error: Exception | None = None


@dataclass
class _Prompt:
    """A prompt that is being asked."""

    input: _Input
    place: Place
    asking: Asking
    start: Start | None = None


def decide(
    decider: Decider,
    inputs: Iterable[str | Exception | None],
    slots: int,
    *,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Outcome]:
    """Answer the questions about each input, and yield the outcomes in the order of the inputs.

    Args:
        decider: The questions.
        inputs: The texts. The next one is taken when a slot is free. None means that there is no text yet; then
            the next one is taken after the next step. An error stands for an input that has no text.
        slots: Number of prompts that are read together.
        should_stop: Called before a prompt is asked. Once it returns True, no other input begins, and inputs that
            have begun are finished.
        progress: Called with 1 after each prompt.

    Raises ``ModelError`` for an error that no input causes.
    """
    with BatchEngine(decider.model, slots) as engine:
        yield from _Run(decider, engine, iter(inputs), should_stop, progress).outcomes()


class _Run:
    def __init__(
        self,
        decider: Decider,
        engine: BatchEngine,
        inputs: Iterator[str | Exception | None],
        should_stop: Callable[[], bool] | None,
        progress: Callable[[int], object] | None,
    ) -> None:
        self._decider = decider
        self._engine = engine
        self._texts = inputs
        self._should_stop = should_stop
        self._progress = progress
        self._inputs: dict[int, _Input] = {}
        self._input_count = 0
        self._has_more_inputs = True
        self._prompts: dict[int, _Prompt] = {}
        self._prompt_count = 0
        self._places = [place for place in decider.places() if not place.is_prior]
        # The prior's input is the same for all inputs, so that its prompts are asked once.
        self._prior = _Input("", deque(place for place in decider.places() if place.is_prior))

    def outcomes(self) -> Iterator[Outcome]:
        for index in count():
            while index not in self._inputs or not self._is_complete(self._inputs[index]):
                if self._add_prompt():
                    continue
                if self._engine.is_idle and not self._inputs and not self._has_more_inputs:
                    return
                for request_id, event in self._engine.step():
                    self._receive(request_id, event)
            yield self._outcome(index, self._inputs.pop(index))

    def _error_of(self, one: _Input) -> Exception | None:
        return one.error or self._prior.error

    def _is_complete(self, one: _Input) -> bool:
        is_running = one.running or self._prior.running
        is_waiting = one.waiting or self._prior.waiting
        return not is_running and (not is_waiting or self._error_of(one) is not None)

    def _outcome(self, index: int, one: _Input) -> Outcome:
        error = self._error_of(one)
        if error is not None:
            return Outcome(index, error)
        decision = self._decider.answers(one.asked | self._prior.asked)
        self._prior.asked = {place: asked.without_usage() for place, asked in self._prior.asked.items()}
        return Outcome(index, decision)

    def _add_prompt(self) -> bool:
        """Begin an input, or ask a prompt of one that has begun; return False if neither is possible now."""
        # All prompts of an input come before those of the next one.
        if self._engine.free_slots <= 0:
            return False
        begun = [*self._inputs.values(), self._prior] if self._inputs else []
        for one in begun:
            if one.waiting and self._error_of(one) is None:
                self._ask(one)
                return True
        return self._begin_input()

    def _begin_input(self) -> bool:
        if not self._has_more_inputs or (self._should_stop is not None and self._should_stop()):
            self._has_more_inputs = False
            return False
        given = next(self._texts, _NO_MORE_INPUTS)
        if isinstance(given, str):
            one = _Input(given, deque(self._places))
        elif isinstance(given, Exception):
            one = _Input("", deque(), error=given)
        else:
            self._has_more_inputs = given is None  # there is none yet
            return False
        self._inputs[self._input_count] = one
        self._input_count += 1
        return True

    def _ask(self, one: _Input) -> None:
        place = one.waiting.popleft()
        prompt = _Prompt(one, place, self._decider.ask(place, one.text))
        one.running += 1
        self._advance(self._prompt_count, prompt, None)
        self._prompt_count += 1

    def _advance(self, request_id: int, prompt: _Prompt, outcome: PathsRead | BatchAnswer | None) -> None:
        """Hand an outcome to the generator of a prompt, and add its next request."""
        self._prompts.pop(request_id, None)
        try:
            step = next_step(prompt.asking, outcome)
        except LogitsmithError as error:
            self._fail(prompt, error)
            return
        if isinstance(step, Asked):
            self._finish(prompt, step)
        else:
            self._prompts[request_id] = prompt
            self._engine.add(replace(step, id=request_id))

    def _finish(self, prompt: _Prompt, asked: Asked) -> None:
        prompt.input.asked[prompt.place] = asked
        prompt.input.running -= 1
        if self._progress is not None:
            self._progress(1)

    def _fail(self, prompt: _Prompt, error: LogitsmithError) -> None:
        one, place = prompt.input, prompt.place
        title = self._decider.questions[place.question].title
        one.error = one.error or error.within(f"{title} about the prior" if place.is_prior else title)
        one.running -= 1

    def _receive(self, request_id: object, event: object) -> None:
        if not isinstance(request_id, int):
            return
        prompt = self._prompts[request_id]
        if isinstance(event, BatchFailure):
            if not isinstance(event.error, LogitsmithError):
                raise event.error
            del self._prompts[request_id]
            self._fail(prompt, event.error)
        elif isinstance(event, PathsRead):
            self._advance(request_id, prompt, event)
        elif isinstance(event, Start):
            prompt.start = event
        elif isinstance(event, Done) and prompt.start is not None:
            self._advance(request_id, prompt, BatchAnswer(request_id, prompt.start, (), event))
