"""The calibration of answers, fitted to labelled inputs, and the file that stores it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from ..common.errors import wrong_value
from ..common.files import read_input, write_file_atomically
from ..common.strict_json import json_problem, parse_strict_json
from ..common.text import count_noun, short_repr
from .answers import OptionCalibration
from .errors import QuestionError
from .questions import Question, order_count, read_question

# Data that the answers separate completely have no best fit: the temperature would fall without end.
MIN_TEMPERATURE, MAX_TEMPERATURE = 0.01, 100.0
MAX_BIAS = 20.0  # nats, of either sign
FEW_ROWS = 10  # labelled rows of an option; with fewer, a fit says little about it

_MAX_FILE_BYTES = 20_000_000

# the words of messages for what a calibration depends on, see `Decider.conditions`
_CONDITION_WORDS = {
    "method": "the method",
    "permutations": "the number of permutations",
    "prior": "the input of the prior",
    "reasoning_budget": "the budget of reasoning",
    "chat_template": "the chat template",
    "prompt_template": "the prompt template",
    "lora": "the LoRA adapters",
    "overrides": "--override-kv",
    "compute": "the options of computing",
}


class Measured(NamedTuple):
    """A measure of answers with known labels, and its confidence interval of 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """How good answers with known labels are.

    Attributes:
        accuracy: share of rows in which the most probable option is right.
        log_loss: mean of -ln of the probability of the right option, nats.
        brier: mean of the squared differences between probabilities and truth, summed over the options: 0 to 2.
        ece: expected calibration error: the mean distance between confidence and accuracy, over ten equal bins
            of confidence, each weighted by its rows.
    """

    accuracy: Measured
    log_loss: Measured
    brier: Measured
    ece: Measured

    def as_json(self) -> dict[str, Any]:
        """Return the values by name, with the ends of their intervals in ``intervals``."""
        measures: dict[str, Measured] = {name: getattr(self, name) for name in _MEASURES}
        values: dict[str, Any] = {name: measured.value for name, measured in measures.items()}
        return {**values, "intervals": {name: [one.low, one.high] for name, one in measures.items()}}


_MEASURES = tuple(Quality.__dataclass_fields__)


@dataclass(frozen=True)
class QuestionCalibration:
    """The calibration of one question.

    Attributes:
        question: the question.
        values: the temperature and the biases, fitted on all rows.
        rows: number of labelled rows of each option.
        before: the quality of the answers of the model itself.
        after: the quality of calibrated answers: each row by a fit without the rows of its part of the data.
    """

    question: Question
    values: OptionCalibration
    rows: tuple[int, ...]
    before: Quality
    after: Quality

    @property
    def note(self) -> str | None:
        """A sentence about a fit that says little; None for any other."""
        if self.values.temperature >= MAX_TEMPERATURE:
            return (
                f"{self.question.title}: the temperature is the highest that is allowed, because the answers do"
                " not tell which option is right; ask in other words, or ask a larger model"
            )
        if self.values.temperature <= MIN_TEMPERATURE:
            return (
                f"{self.question.title}: the temperature is the lowest that is allowed, because the answers are"
                " right in all labelled rows; more rows tell more"
            )
        few = [
            f"{option.label!r} {count}"
            for option, count in zip(self.question.options, self.rows, strict=True)
            if count < FEW_ROWS
        ]
        if not few:
            return None
        return (
            f"{self.question.title}: of {count_noun(sum(self.rows), 'labelled row')}, few have one of the options"
            f" ({', '.join(few)}): the fit says little about it"
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "question": self.question.as_json(),
            "temperature": self.values.temperature,
            "bias": list(self.values.bias),
            "rows": list(self.rows),
            "before": self.before.as_json(),
            "after": self.after.as_json(),
        }


@dataclass(frozen=True)
class Calibration:
    """The calibration of some questions, for one model and one way to ask.

    Attributes:
        model: the fingerprint of the model.
        conditions: what the model's answers depend on besides, see `Decider.conditions`.
        questions: the questions, with their calibrations.
    """

    model: str
    conditions: Mapping[str, Any]
    questions: Sequence[QuestionCalibration]

    def check(self, model: str, conditions: Mapping[str, Any], questions: Sequence[Question]) -> None:
        """Raise ``QuestionError`` if the calibration is for another model, another question or another way to ask.

        ``model``: the fingerprint of the model.
        """
        if self.model != model:
            raise QuestionError("the calibration is for another model")
        for name, words in _CONDITION_WORDS.items():
            fitted, wanted = self.conditions.get(name), conditions.get(name)
            if _amount(name, fitted, questions) != _amount(name, wanted, questions):
                values = "" if "template" in name else f" ({short_repr(fitted)}, and here {short_repr(wanted)})"
                raise QuestionError(
                    f"the calibration was fitted with another value of {words}{values}",
                    advice="ask as in the fit, or fit again",
                )
        for question in questions:
            self.of(question)

    def of(self, question: Question) -> OptionCalibration:
        """Return the calibration of a question. Raises ``QuestionError`` if there is none."""
        for one in self.questions:
            if one.question == question:
                return one.values
        raise QuestionError(
            f"the calibration has no question like {question.title}",
            advice="name, type, text and options must be those of the fit",
        )

    def as_json(self) -> dict[str, Any]:
        """Return the calibration as it is read by `read_calibration`."""
        questions = [one.as_json() for one in self.questions]
        return {"model": self.model, "conditions": dict(self.conditions), "questions": questions}

    def save(self, path: Path) -> None:
        """Write a file, which replaces an existing one only when it is complete. Raises ``OSError``."""
        text = json.dumps(self.as_json(), ensure_ascii=False, allow_nan=False, indent=2) + "\n"
        write_file_atomically(path, lambda file: file.write(text.encode()))


def _amount(name: str, value: Any, questions: Sequence[Question]) -> Any:
    """Return what a condition amounts to: of permutations, the number of orders of each question."""
    if name == "permutations" and isinstance(value, int):
        return [order_count(len(question.options), value) for question in questions]
    return value


def read_calibration(path: Path) -> Calibration:
    """Return the calibration that `Calibration.save` wrote. Raises ``QuestionError`` and ``OSError``."""
    data = read_input(path, _MAX_FILE_BYTES)
    try:
        value = parse_strict_json(data)
    except UnicodeDecodeError:
        raise QuestionError("it is not UTF-8", origin=str(path)) from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise QuestionError(f"it is not JSON: {json_problem(error)}, at {place}", origin=str(path)) from None
    except ValueError as error:
        raise QuestionError(f"it is not JSON: {error}", origin=str(path)) from None
    try:
        return _read_calibration(value)
    except QuestionError as error:
        raise error.within(str(path)) from None


def _read_calibration(value: Any) -> Calibration:
    model = _field(value, "model", str, "a text")
    conditions = _field(value, "conditions", dict, "an object")
    questions: list[QuestionCalibration] = []
    for index, entry in enumerate(_field(value, "questions", list, "a list")):
        try:
            questions.append(_read_question_calibration(entry))
        except QuestionError as error:
            raise error.under("questions", index) from None
    return Calibration(model, conditions, questions)


def _read_question_calibration(entry: Any) -> QuestionCalibration:
    written_question = _field(entry, "question", dict, "an object")
    try:
        question = read_question(written_question)
    except QuestionError as error:
        raise error.under("question") from None
    temperature = _number(entry, "temperature")
    if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        allowed = f"a number from {MIN_TEMPERATURE:g} to {MAX_TEMPERATURE:g}"
        raise QuestionError(wrong_value(temperature, allowed), place=("temperature",))
    bias = _numbers(entry, "bias", len(question.options))
    rows = _numbers(entry, "rows", len(question.options))
    before, after = (_read_quality(entry, name) for name in ("before", "after"))
    return QuestionCalibration(
        question, OptionCalibration(temperature, bias), tuple(map(int, rows)), before, after
    )


def _read_quality(entry: Any, name: str) -> Quality:
    table = _field(entry, name, dict, "an object")
    try:
        intervals = _field(table, "intervals", dict, "an object")
        return Quality(*(Measured(_number(table, one), *_numbers(intervals, one, 2)) for one in _MEASURES))
    except QuestionError as error:
        raise error.under(name) from None


def _field(table: Any, name: str, kind: type, words: str) -> Any:
    if not isinstance(table, dict):
        raise QuestionError(wrong_value(table, "an object"))
    if name not in table:
        raise QuestionError(f'there is no "{name}"')
    value = table[name]
    if not isinstance(value, kind):
        raise QuestionError(wrong_value(value, words), place=(name,))
    return value


def _number(table: Any, name: str) -> float:
    return _as_number(_field(table, name, object, ""), name)


def _numbers(table: Any, name: str, count: int) -> tuple[float, ...]:
    values = _field(table, name, list, "a list of numbers")
    if len(values) != count:
        raise QuestionError(f"it has {count_noun(len(values), 'number')} in place of {count}", place=(name,))
    return tuple(_as_number(value, name, index) for index, value in enumerate(values))


def _as_number(value: Any, *place: str | int) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # the text of a longer integer would not be a float
    if not is_number or abs(value) > 1e300 or not isfinite(value):
        raise QuestionError(wrong_value(value, "a number"), place=place)
    return float(value)
