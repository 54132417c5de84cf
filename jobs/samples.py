"""Several continuations of one prompt, generated side by side, and the answer that most of them give."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ..common.seeds import fixed_seed, following_seed
from ..engine.batch import BatchEngine, BatchFailure, RequestProgress
from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..logprobs.events import Done, Event, Token
from ..models.errors import AbortedError


def sample_requests(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Return the request of each sample: seeds count up from the seed of ``request``, and ids from 0."""
    first_seed = fixed_seed(request.seed)
    return [replace(request, id=index, seed=following_seed(first_seed, index)) for index in range(count)]


def generate_samples(
    model: Model,
    requests: Sequence[GenerationRequest],
    is_interrupted: Callable[[], bool] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[list[Event]]:
    """Answer requests with the same prompt side by side; yield the events of each answer, in their order."""
    # The prompt is read once. An answer has the tokens of a run by itself as far as its ``Start`` promises. Once
    # ``is_interrupted`` returns True, all samples end, and those that have not begun are left out. Raises the
    # error of a sample, such as a ``ModelError`` for a prompt that is too long.
    events: dict[object, list[Event]] = {request.id: [] for request in requests}
    unfinished, token_count = deque(events), 0
    with BatchEngine(model, min(len(requests), model.default_parallel)) as engine:
        for request in requests:
            engine.add(request)
        while not engine.is_idle:
            if is_interrupted is not None and is_interrupted():
                steps = [ended for sample in events if (ended := engine.interrupt(sample)) is not None]
                steps = [step for step in steps if step.running]
            else:
                steps = _advance(engine, is_interrupted)
            for sample, event in ((step.request.id, event) for step in steps for event in step.events):
                if isinstance(event, BatchFailure):
                    raise event.error
                events[sample].append(event)
                token_count += isinstance(event, Token)
            if progress is not None:
                progress(token_count)
            while unfinished and events[unfinished[0]] and isinstance(events[unfinished[0]][-1], Done):
                yield events[unfinished.popleft()]


def _advance(engine: BatchEngine, is_interrupted: Callable[[], bool] | None) -> list[RequestProgress]:
    """Advance all samples; return their progress. An interruption may abort the step, whose progress is kept."""
    steps: list[RequestProgress] = []
    try:
        for advance in (engine.begin_waiting, engine.advance_running):
            with closing(advance()) as progress_of_samples:
                steps.extend(progress_of_samples)
    except AbortedError:
        if is_interrupted is None:
            raise
    return steps


@dataclass(frozen=True)
class Answer:
    text: str
    samples: tuple[int, ...]  # the numbers of the texts that give it, counted from 0


@dataclass(frozen=True)
class Vote:
    """The answers of several texts (self-consistency, Wang et al. 2022)."""

    # the answers, the most frequent first; of equally frequent ones, the one that was given first
    answers: tuple[Answer, ...]
    sample_count: int  # number of texts, also of those without an answer

    def share(self, answer: Answer) -> float:
        """Return the share of the texts that give an answer."""
        return len(answer.samples) / self.sample_count

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``answer, share, texts, answers[], without_answer``."""
        first = self.answers[0] if self.answers else None
        answered = sum(len(answer.samples) for answer in self.answers)
        return {
            "answer": None if first is None else first.text,
            "share": 0.0 if first is None else self.share(first),
            "texts": self.sample_count,
            "answers": [
                {"answer": answer.text, "share": self.share(answer), "samples": list(answer.samples)}
                for answer in self.answers
            ],
            "without_answer": self.sample_count - answered,
        }


def count_votes(texts: Sequence[str], extract: re.Pattern[str] | None) -> Vote:
    """Return how often each answer is given, without spaces around it."""
    # ``extract``: see `_last_match`; None: whole texts.
    samples_of_answer: dict[str, list[int]] = {}
    for number, text in enumerate(texts):
        answer = text if extract is None else _last_match(extract, text)
        if answer is not None:
            samples_of_answer.setdefault(answer.strip(), []).append(number)
    answers = [Answer(answer, tuple(samples)) for answer, samples in samples_of_answer.items()]
    answers.sort(key=lambda answer: -len(answer.samples))
    return Vote(tuple(answers), len(texts))


def _last_match(extract: re.Pattern[str], text: str) -> str | None:
    """Return the last match, or its first group; None if there is no match, or no such group in it."""
    matches = list(extract.finditer(text))
    return matches[-1][1 if extract.groups else 0] if matches else None
