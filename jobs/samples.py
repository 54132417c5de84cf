"""Several continuations of one prompt, generated side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..common.machine import SEED_MAX
from ..engine.batch import BatchEngine, BatchFailure
from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..logprobs.events import Done, Event, Token


def sample_requests(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Return the request of each sample: seeds count up from the seed of ``request``, and ids from 0."""
    return [replace(request, id=index, seed=(request.seed + index) & SEED_MAX) for index in range(count)]


def generate_samples(
    model: Model,
    requests: Sequence[GenerationRequest],
    is_interrupted: Callable[[], bool] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[list[Event]]:
    """Answer requests with the same prompt side by side; yield the events of each answer, in their order.

    The prompt is read once. An answer has the tokens of a run by itself as far as its ``Start`` promises.

    Args:
        model: the model. The samples have a context of their own.
        requests: the requests, each with an id of its own.
        is_interrupted: called before each step. Once it returns True, all samples end, and those that have not
            begun are left out.
        progress: called after each step with the number of tokens of all samples so far.

    Raises the error of a sample, such as a ``ModelError`` for a prompt that is too long.
    """
    events: dict[object, list[Event]] = {request.id: [] for request in requests}
    unfinished, token_count = deque(events), 0
    with BatchEngine(model, min(len(requests), model.default_parallel)) as engine:
        for request in requests:
            engine.add(request)
        while not engine.is_idle:
            if is_interrupted is not None and is_interrupted():
                steps = [ended for sample in events if (ended := engine.interrupt(sample)) is not None]
                new_events = [(step.request.id, event) for step in steps if step.running for event in step.events]
            else:
                new_events = engine.step()
            for sample, event in new_events:
                if isinstance(event, BatchFailure):
                    raise event.error
                events[sample].append(event)
                token_count += isinstance(event, Token)
            if progress is not None:
                progress(token_count)
            while unfinished and events[unfinished[0]] and isinstance(events[unfinished[0]][-1], Done):
                yield events[unfinished.popleft()]
