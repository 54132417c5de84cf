"""Decisions about many inputs, whose prompts are read together on one model."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..common.errors import LogitsmithError
from ..engine.batch import BatchAnswer, BatchEngine, BatchFailure
from ..engine.paths import PathsRead
from ..logprobs.events import Done, Start
from .decider import Asked, Asking, Decider, Decision, Place

_NO_MORE_INPUTS = object()


class Outcome(NamedTuple):
    """The answers about an input, or the reason why there are none.

    Attributes:
        number: the number of the input, from 0.
        decision: the answers; None if one of the prompts failed.
        error: the error of the first prompt that failed; None if there are answers.
    """

    number: int
    decision: Decision | None
    error: Exception | None = None


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

    index: int  # number of the input
    place: Place
    asking: Asking
    start: Start | None = None


def decide(
    decider: Decider,
    inputs: Iterable[str | None],
    slots: int,
    *,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Outcome]:
    """Answer the questions about each input, and yield the outcomes in the order of the inputs.

    Args:
        decider: The questions.
        inputs: The texts. The next one is taken when a slot is free. None means that there is no text yet; then
            the next one is taken after the next step.
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
        inputs: Iterator[str | None],
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
        # The prior's input is the same for all inputs, so that its prompts are asked once.
        self._priors: dict[Place, Asked] = {}

    def outcomes(self) -> Iterator[Outcome]:
        next_index = 0
        while True:
            self._add_prompts()
            while next_index in self._inputs and self._is_complete(self._inputs[next_index]):
                yield self._outcome(next_index, self._inputs.pop(next_index))
                next_index += 1
            if self._engine.is_idle and not self._inputs and not self._has_more_inputs:
                return
            for request_id, event in self._engine.step():
                self._receive(request_id, event)

    def _is_complete(self, one: _Input) -> bool:
        return not one.running and (one.error is not None or not one.waiting)

    def _outcome(self, index: int, one: _Input) -> Outcome:
        if one.error is not None:
            return Outcome(index, None, one.error)
        return Outcome(index, self._decider.answers(one.asked))

    def _add_prompts(self) -> None:
        """Ask prompts as long as slots are free. All prompts of an input come before those of the next one."""
        while self._engine.free_slots > 0:
            begun = next((index for index, one in self._inputs.items() if one.waiting and one.error is None), None)
            if begun is None:
                begun = self._begin_input()
            if begun is None:
                return
            self._ask(begun, self._inputs[begun])

    def _begin_input(self) -> int | None:
        if not self._has_more_inputs or (self._should_stop is not None and self._should_stop()):
            self._has_more_inputs = False
            return None
        text = next(self._texts, _NO_MORE_INPUTS)
        if not isinstance(text, str):
            self._has_more_inputs = text is None  # there is none yet
            return None
        index = self._input_count
        self._input_count += 1
        self._inputs[index] = _Input(text, deque(self._decider.places()))
        return index

    def _ask(self, index: int, one: _Input) -> None:
        place = one.waiting.popleft()
        if place in self._priors:
            one.asked[place] = self._priors[place]
            return
        prompt = _Prompt(index, place, self._decider.ask(place, one.text))
        one.running += 1
        self._advance(self._prompt_count, prompt, None)
        self._prompt_count += 1

    def _advance(self, request_id: int, prompt: _Prompt, outcome: PathsRead | BatchAnswer | None) -> None:
        """Hand an outcome to the generator of a prompt, and add its next request."""
        one = self._inputs[prompt.index]
        try:
            request = next(prompt.asking) if outcome is None else prompt.asking.send(outcome)
        except StopIteration as end:
            self._prompts.pop(request_id, None)
            self._finish(one, prompt, end.value)
        except LogitsmithError as error:
            self._prompts.pop(request_id, None)
            self._fail(one, error)
        else:
            self._prompts[request_id] = prompt
            self._engine.add(replace(request, id=request_id))

    def _finish(self, one: _Input, prompt: _Prompt, asked: Asked) -> None:
        one.asked[prompt.place] = asked
        if prompt.place.is_prior:
            self._priors[prompt.place] = asked.without_usage()
        one.running -= 1
        if self._progress is not None:
            self._progress(1)

    def _fail(self, one: _Input, error: Exception) -> None:
        one.error = one.error or error
        one.running -= 1

    def _receive(self, request_id: object, event: object) -> None:
        if not isinstance(request_id, int):
            return
        prompt = self._prompts[request_id]
        if isinstance(event, BatchFailure):
            if not isinstance(event.error, LogitsmithError):
                raise event.error
            del self._prompts[request_id]
            self._fail(self._inputs[prompt.index], event.error)
        elif isinstance(event, PathsRead):
            self._advance(request_id, prompt, event)
        elif isinstance(event, Start):
            prompt.start = event
        elif isinstance(event, Done) and prompt.start is not None:
            self._advance(request_id, prompt, BatchAnswer(request_id, prompt.start, (), event))
