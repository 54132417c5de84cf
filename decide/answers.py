"""The answers to questions: probabilities of their options, from what was read in each order of the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..logprobs.records import finite_or_none
from .questions import Question
from .reading import OptionReading, SpellingReading, log_sum

_MIN_PROBABILITY = 1e-300  # so that the logarithm of a probability under a grammar is finite


class Measurement(NamedTuple):
    """What was read for a question in one order of its options.

    Attributes:
        order: the numbers of the options in the order in which they were shown.
        reading: the probabilities of the options, in the order of the question.
        reasoning: what the model thought before; None: it did not think.
    """

    order: tuple[int, ...]
    reading: OptionReading
    reasoning: str | None = None

    @property
    def log_values(self) -> NDArray[np.float64]:
        """The values whose softmax is the answer, float64 (K,): logprobs, or logs of shares under a grammar."""
        probabilities = self.reading.grammar_probabilities
        if probabilities is None:
            return np.array(self.reading.logprobs)
        return np.log(np.maximum(probabilities, _MIN_PROBABILITY))

    @property
    def finite_log_values(self) -> list[float | None]:
        """The values as JSON."""
        return [finite_or_none(value) for value in self.log_values.tolist()]


class OptionCalibration(NamedTuple):
    """The calibration of one question.

    Attributes:
        temperature: the number by which log values are divided.
        bias: the number that is added then, one an option, nats.
    """

    temperature: float
    bias: tuple[float, ...]


def log_values_of(
    measured: Sequence[Measurement], priors: Sequence[Measurement] | None = None
) -> NDArray[np.float64]:
    """Return the log values of each order, float64 (orders, K), with those of the prior's input subtracted."""
    values = np.stack([one.log_values for one in measured])
    return values if priors is None else values - np.stack([one.log_values for one in priors])


def log_probabilities(
    log_values: NDArray[np.float64], calibration: OptionCalibration | None = None
) -> NDArray[np.float64]:
    """Return ln of the softmax of the last axis, after a calibration."""
    if calibration is not None:
        log_values = log_values / calibration.temperature + np.array(calibration.bias)
    totals: NDArray[np.float64] = np.logaddexp.reduce(log_values, axis=-1, keepdims=True)
    return log_values - totals


def mean_log_probabilities(
    log_values: NDArray[np.float64], calibration: OptionCalibration | None = None
) -> NDArray[np.float64]:
    """Return ln of the mean probability over the orders, which are the last axis but one."""
    logs = log_probabilities(log_values, calibration)
    means: NDArray[np.float64] = np.logaddexp.reduce(logs, axis=-2) - np.log(logs.shape[-2])
    return means


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        question: the question.
        probabilities: the probability of each option.
        measured: what was read, one for each order of the options; the given order is the first.
        log_values: the log values of each order without those of the prior, float64 (orders, K); a calibration
            begins with them.
        spread: the standard deviation of each option's probability over the orders; None with one order.
        is_unsure: whether the confidence is below the wanted one; None if none is wanted.
        priors: what was read about the prior's input, in the same orders; empty if there is no prior.
    """

    question: Question
    probabilities: tuple[float, ...]
    measured: tuple[Measurement, ...]
    log_values: NDArray[np.float64]
    spread: tuple[float, ...] | None = None
    is_unsure: bool | None = None
    priors: tuple[Measurement, ...] = ()

    @property
    def logprobs(self) -> list[float]:
        """The model's own logprob of each option, in the given order of the options, nats."""
        return self.measured[0].reading.logprobs

    @property
    def mass(self) -> float:
        """The model's probability of all options together, in the given order of the options."""
        return exp(min(0.0, log_sum(self.logprobs)))

    @property
    def undecided(self) -> float:
        """The probability of texts under the grammar that were followed to no option, the mean over the orders."""
        return fsum(one.reading.undecided for one in self.measured) / len(self.measured)

    @property
    def best(self) -> int:
        """The number of the most probable option."""
        return self.probabilities.index(self.confidence)

    @property
    def confidence(self) -> float:
        """The highest probability."""
        return max(self.probabilities)

    @property
    def mean_value(self) -> float:
        """Of a score: the mean of the levels' values."""
        pairs = zip(self.question.options, self.probabilities, strict=True)
        return sum(float(option.value) * probability for option, probability in pairs)

    @property
    def main_value(self) -> Any:
        """The probability of a predicate, the value of a choice, or the mean of a score."""
        if self.question.type == "predicate":
            return self.probabilities[0]
        return self.mean_value if self.question.type == "score" else self.question.options[self.best].value

    def as_json(self, *, with_tokens: bool = False) -> dict[str, Any]:
        """Return the answer as OpenAI's, with the numbers behind it.

        ``with_tokens``: whether to add the tokens of all spellings.
        """
        reading = self.measured[0].reading
        record: dict[str, Any] = {"type": self.question.type, "name": self.question.name, **self._type_fields()}
        record["mass"] = self.mass
        record["logprobs"] = [finite_or_none(value) for value in self.logprobs]
        record["spellings"] = [[spelling.text for spelling in spellings] for spellings in reading.spellings]
        if reading.shared:
            record["shared_spellings"] = list(reading.shared)
        if self.undecided:
            record["undecided"] = self.undecided
        if self.spread is not None:
            record["spread"] = list(self.spread)
            record["orders"] = [list(one.order) for one in self.measured]
        if self.is_unsure is not None:
            record["unsure"] = self.is_unsure
        if self.measured[0].reasoning is not None:
            record["reasoning"] = [one.reasoning for one in self.measured]
        if with_tokens:
            record["tokens"] = [
                [_spelling_json(spelling) for spelling in spellings] for spellings in reading.spellings
            ]
            record["log_values"] = [one.finite_log_values for one in self.measured]
            if self.priors:
                record["prior_log_values"] = [one.finite_log_values for one in self.priors]
        return record

    def _type_fields(self) -> dict[str, Any]:
        question = self.question
        if question.type == "predicate":
            return {"probability": self.probabilities[0]}
        pairs = list(zip(question.options, self.probabilities, strict=True))
        if question.type == "choice":
            return {
                "choice": question.options[self.best].value,
                "probabilities": [{"value": option.value, "probability": share} for option, share in pairs],
                "confidence": self.confidence,
            }
        return {
            "score": self.mean_value,
            "probabilities": [
                {"label": option.label, "value": option.value, "probability": share} for option, share in pairs
            ],
            "confidence": self.confidence,
        }


def _spelling_json(spelling: SpellingReading) -> dict[str, Any]:
    return {
        "text": spelling.text,
        "ids": [token.id for token in spelling.tokens],
        "token_logprobs": [finite_or_none(token.logprob) for token in spelling.tokens],
        "end_logprob": finite_or_none(spelling.end_logprob),
        "logprob": finite_or_none(spelling.logprob),
    }


def answer(
    question: Question,
    measured: Sequence[Measurement],
    priors: Sequence[Measurement] | None = None,
    calibration: OptionCalibration | None = None,
    min_confidence: float | None = None,
) -> Answer:
    """Return the answer to a question: the mean over the orders in which its options were shown.

    Args:
        question: The question.
        measured: What was read about the input, one for each order.
        priors: What was read about the prior's input, in the same orders; None: no prior.
        calibration: The temperature and the biases; None: those of the model.
        min_confidence: The confidence below which the answer is unsure; None: it is not asked.
    """
    log_values = log_values_of(measured, priors)
    shares = np.exp(log_probabilities(log_values, calibration))
    probabilities = tuple(shares.mean(axis=0).tolist())
    spread = tuple(shares.std(axis=0).tolist()) if len(measured) > 1 else None
    is_unsure = None if min_confidence is None else max(probabilities) < min_confidence
    return Answer(question, probabilities, tuple(measured), log_values, spread, is_unsure, tuple(priors or ()))
