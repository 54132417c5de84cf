"""Several continuations of one prompt, generated side by side, and the answer that most of them give."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, cast

from ..common.seeds import fixed_seed, following_seed
from ..engine.batch import BatchEngine, BatchFailure, RequestProgress
from ..engine.model import Model
from ..engine.request import GenerationRequest
from ..logprobs.events import Done, Event, Token
from ..models.errors import AbortedError


def sample_requests(request: GenerationRequest, count: int) -> list[GenerationRequest]:
    """Return the request of each sample. Seeds count up from the seed of ``request``, and ids count up from 0."""
    first_seed = fixed_seed(request.seed)
    return [replace(request, id=index, seed=following_seed(first_seed, index)) for index in range(count)]


def generate_samples(
    model: Model,
    requests: Sequence[GenerationRequest],
    is_interrupted: Callable[[], bool] | None = None,
    progress: Callable[[int], object] | None = None,
) -> Iterator[list[Event]]:
    """Answer requests with the same prompt side by side. Yield the events of each answer, in order."""
    # The prompt is read once. ``Start.batch_exactness`` says whether an answer has the tokens of a run by itself.
    # Once ``is_interrupted`` returns True, all samples end, and those that have not begun are left out. Raises the
    # error of a sample, such as a ``ModelError`` for a prompt that is too long.
    events_of_sample: dict[object, list[Event]] = {request.id: [] for request in requests}
    samples_to_yield = deque(events_of_sample)
    token_count = 0
    with BatchEngine(model, min(len(requests), model.default_parallel)) as engine:
        for request in requests:
            engine.add(request)
        while not engine.is_idle:
            if is_interrupted is not None and is_interrupted():
                new_progress = _interrupt_all(engine, events_of_sample)
            else:
                new_progress = _advance(engine, is_interrupted)
            for sample_progress in new_progress:
                for event in sample_progress.events:
                    if isinstance(event, BatchFailure):
                        raise event.error
                    events_of_sample[sample_progress.request.id].append(cast("Event", event))
                    if isinstance(event, Token):
                        token_count += 1
            if progress is not None:
                progress(token_count)
            while samples_to_yield and _is_complete(events_of_sample[samples_to_yield[0]]):
                yield events_of_sample[samples_to_yield.popleft()]


def _is_complete(events: Sequence[Event]) -> bool:
    return bool(events) and isinstance(events[-1], Done)


def _interrupt_all(engine: BatchEngine, samples: Iterable[object]) -> list[RequestProgress]:
    """End all samples. Return the progress of those that had begun."""
    ended = [engine.interrupt(sample) for sample in samples]
    return [progress for progress in ended if progress is not None and progress.running]


def _advance(engine: BatchEngine, is_interrupted: Callable[[], bool] | None) -> list[RequestProgress]:
    """Advance all samples, and return their progress."""
    # If an interruption aborts the step, the progress before it is returned.
    new_progress: list[RequestProgress] = []
    try:
        for advance in (engine.begin_waiting, engine.advance_running):
            with closing(advance()) as progress_of_samples:
                new_progress.extend(progress_of_samples)
    except AbortedError:
        if is_interrupted is None:
            raise
    return new_progress


@dataclass(frozen=True)
class Answer:
    text: str
    samples: tuple[int, ...]  # the numbers of the texts that give this answer, counted from 0


@dataclass(frozen=True)
class Vote:
    """The answers of several texts (self-consistency, Wang et al. 2022)."""

    # sorted by frequency, the most frequent first; equally frequent ones in the order in which they were given
    answers: tuple[Answer, ...]
    sample_count: int  # number of texts, including those without an answer

    def share(self, answer: Answer) -> float:
        """Return the share of the texts that give an answer."""
        return len(answer.samples) / self.sample_count

    def as_json(self) -> dict[str, Any]:
        """Return the JSON fields ``answer, share, texts, answers[], without_answer``."""
        winner = self.answers[0] if self.answers else None
        answered_count = sum(len(answer.samples) for answer in self.answers)
        return {
            "answer": None if winner is None else winner.text,
            "share": 0.0 if winner is None else self.share(winner),
            "texts": self.sample_count,
            "answers": [
                {"answer": answer.text, "share": self.share(answer), "samples": list(answer.samples)}
                for answer in self.answers
            ],
            "without_answer": self.sample_count - answered_count,
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
    """Return the last match, or its first group if the pattern has groups; None if there is no match or group."""
    matches = list(extract.finditer(text))
    if not matches:
        return None
    last_match = matches[-1]
    return last_match[1] if extract.groups else last_match[0]
