"""Decisions: the questions about an input, asked in all orders that are wanted, and their answers."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from math import factorial
from typing import Any, Literal, NamedTuple

from ..engine.batch import BatchAnswer
from ..engine.model import Model
from ..engine.paths import PathRequest, PathsRead
from ..engine.request import GenerationRequest
from ..logprobs.events import BatchExactness
from ..models.errors import ModelError
from .answers import Answer, Measurement, answer
from .calibration import Calibration
from .questions import Question, order_count
from .reading import OptionReader, OptionReading
from .spellings import spellings_of
from .wording import Wording

Method = Literal["sequence", "grammar"]

_GREEDY = ("greedy",)  # the chain with which a model thinks, so that the same question gets the same answer


@dataclass(frozen=True)
class DecideSettings:
    """How questions are asked and answered.

    Attributes:
        wording: the prompt of a question.
        method: ``sequence``: the model's probabilities of the options; ``grammar``: those of a run under a grammar
            that allows nothing but the options.
        permutations: number of orders in which the options are shown; the answer is the mean.
        prior: an input without content; its answer is subtracted from that of the input, in nats. None: no prior.
        reasoning_budget: number of tokens that the model may think before it answers; 0: none.
        calibration: temperatures and biases of a fit; None: the model's own probabilities.
        min_confidence: answers below it are marked as unsure; None: no answer is.
    """

    wording: Wording = field(default_factory=Wording)
    method: Method = "sequence"
    permutations: int = 1
    prior: str | None = None
    reasoning_budget: int = 0
    calibration: Calibration | None = None
    min_confidence: float | None = None


@dataclass
class Usage:
    """The number of tokens that decisions took.

    Attributes:
        input_tokens: tokens of all prompts.
        cached_tokens: those of them that were not read again.
        option_tokens: tokens of options that were read after the prompts.
        reasoning_tokens: tokens that the model thought.
    """

    input_tokens: int = 0
    cached_tokens: int = 0
    option_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def computed_tokens(self) -> int:
        """The number of tokens that the model computed."""
        return self.input_tokens - self.cached_tokens + self.option_tokens + self.reasoning_tokens

    def add(self, other: Usage) -> None:
        """Add the numbers of other decisions."""
        self.input_tokens += other.input_tokens
        self.cached_tokens += other.cached_tokens
        self.option_tokens += other.option_tokens
        self.reasoning_tokens += other.reasoning_tokens

    def as_json(self) -> dict[str, Any]:
        """Return the usage as OpenAI's field ``usage``, with ``option_tokens`` beside it."""
        return {
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": self.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": self.reasoning_tokens,
            "output_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            "total_tokens": self.input_tokens + self.reasoning_tokens,
            "option_tokens": self.option_tokens,
        }


class Decision(NamedTuple):
    """The answers about one input.

    Attributes:
        answers: the answers, in the order of the questions.
        usage: the tokens that they took.
        exactness: the promise about the logits that were read.
    """

    answers: list[Answer]
    usage: Usage
    exactness: BatchExactness | None


Asking = Generator[PathRequest | GenerationRequest, Any, "Asked"]
"""A generator of the requests for one prompt. It gets the `PathsRead` or the `BatchAnswer` of each."""


class Asked(NamedTuple):
    """A question that was asked once, in one order of its options."""

    measurement: Measurement
    usage: Usage
    exactness: BatchExactness

    def without_usage(self) -> Asked:
        """Return the same for an input that did not have to ask again."""
        return self._replace(usage=Usage())


def next_step(asking: Asking, outcome: PathsRead | BatchAnswer | None) -> PathRequest | GenerationRequest | Asked:
    """Return the next request for a prompt, or what was asked. ``outcome``: that of the request before."""
    try:
        return next(asking) if outcome is None else asking.send(outcome)
    except StopIteration as end:
        asked: Asked = end.value
        return asked


class Place(NamedTuple):
    """A prompt: the number of its question, the number of the order, and whether it asks about the prior."""

    question: int
    order: int
    is_prior: bool


def orders_of(option_count: int, count: int) -> list[tuple[int, ...]]:
    """Return ``count`` distinct orders of options, the given one first; all orders if there are not more."""
    # First those in which each option stands once in each place; then random ones, always the same.
    count = order_count(option_count, count)
    if count == factorial(option_count):
        return list(permutations(range(option_count)))
    given = tuple(range(option_count))
    orders = {given[shift:] + given[:shift]: None for shift in range(min(option_count, count))}
    generator = random.Random(0)  # noqa: S311 - the orders must be the same each time
    while len(orders) < count:
        orders.setdefault(tuple(generator.sample(given, option_count)))
    return list(orders)


class Decider:
    """Asks questions about inputs. Each prompt is a request of its own, which any engine can answer."""

    def __init__(self, model: Model, questions: Sequence[Question], settings: DecideSettings) -> None:
        """Prepare questions.

        Raises ``QuestionError`` if the calibration is for another model, other questions or other settings, and
        ``ModelError`` if the chat template cannot be rendered.
        """
        self.model = model
        self.questions = list(questions)
        self.settings = settings
        self._reader = OptionReader(model.vocabulary, is_plain=settings.wording.chat is None)
        self.thinks = settings.reasoning_budget > 0 and settings.wording.can_think
        self._orders = [orders_of(len(question.options), settings.permutations) for question in questions]
        if settings.calibration is not None:
            settings.calibration.check(self.fingerprint, self.conditions, questions)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the model's file."""
        return str(self.model.identity()["fingerprint"])

    @property
    def conditions(self) -> dict[str, Any]:
        """What the log values of answers depend on besides the model and the questions, as JSON."""
        settings = self.settings
        chat = settings.wording.chat
        identity = self.model.identity()
        return {
            "method": settings.method,
            "permutations": settings.permutations,
            "prior": settings.prior,
            "reasoning_budget": settings.reasoning_budget,
            "chat_template": None if chat is None else chat.identity,
            "prompt_template": settings.wording.template,
            **{name: identity[name] for name in ("lora", "overrides", "compute")},
        }

    def places(self) -> list[Place]:
        """Return the prompts of one input, in the order in which they share the most tokens."""
        return [
            Place(number, order, is_prior)
            for is_prior in ((False, True) if self.settings.prior is not None else (False,))
            for number, orders in enumerate(self._orders)
            for order in range(len(orders))
        ]

    def ask(self, place: Place, input_text: str) -> Asking:
        """Return the generator of the requests for one prompt. Raises ``ModelError`` when it runs."""
        settings = self.settings
        question = self.questions[place.question]
        order = self._orders[place.question][place.order]
        if place.is_prior and settings.prior is not None:
            input_text = settings.prior
        text = settings.wording.text(question, [question.options[number] for number in order], input_text)
        usage = Usage()
        reasoning = (yield from self._think(text, usage)) if self.thinks else None
        prompt_text = settings.wording.prompt(text, reasoning)
        prompt = self.model.vocabulary.tokenize_prompt(prompt_text.encode())
        if not prompt:
            raise ModelError("the prompt is empty")
        read = partial(
            self._reader.read,
            previous_token=prompt[-1],
            spellings=[spellings_of(option.label) for option in question.options],
            with_grammar=settings.method == "grammar",
        )
        outcome: PathsRead = yield PathRequest(prompt, read)
        reading: OptionReading = outcome.result
        usage.add(Usage(outcome.prompt_tokens, outcome.cached_tokens, outcome.path_tokens))
        return Asked(Measurement(order, reading, reasoning), usage, outcome.exactness)

    def _think(self, text: str, usage: Usage) -> Generator[GenerationRequest, Any, str]:
        """Let the model think about a question; return what it thought."""
        prompt, reasoning = self.settings.wording.thinking_prompt(text)
        outcome: BatchAnswer = yield GenerationRequest(
            prompt,
            _GREEDY,
            max_tokens=self.settings.reasoning_budget,
            stop=() if reasoning is None else reasoning.tags.end,
            reasoning=reasoning,
        )
        done = outcome.done
        usage.add(Usage(done.prompt_tokens, outcome.start.cached_tokens, 0, done.completion_tokens))
        return (done.reasoning or "").strip()

    def answers(self, asked: dict[Place, Asked]) -> Decision:
        """Return the answers about one input, from all of its prompts."""
        settings = self.settings
        answers: list[Answer] = []
        usage = Usage()
        exactness: BatchExactness | None = None
        for one in asked.values():
            usage.add(one.usage)
            exactness = one.exactness if exactness is None else exactness.combined_with(one.exactness)
        for number, question in enumerate(self.questions):
            orders = range(len(self._orders[number]))
            measured = [asked[Place(number, order, False)].measurement for order in orders]
            priors = None
            if settings.prior is not None:
                priors = [asked[Place(number, order, True)].measurement for order in orders]
            calibrated = None if settings.calibration is None else settings.calibration.of(question)
            answers.append(answer(question, measured, priors, calibrated, settings.min_confidence))
        return Decision(answers, usage, exactness)
