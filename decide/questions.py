"""Questions with a closed list of answers: what is asked, and its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, Literal, cast, get_args

from ..common.errors import Place
from ..common.strict_json import encode_json
from ..common.text import count_noun, did_you_mean, join_alternatives, short_repr
from .errors import QuestionError

QuestionType = Literal["predicate", "choice", "score"]

MIN_OPTIONS = 2
MAX_OPTIONS = 255
MAX_QUESTIONS = 400

# the field with the options of a question, and in it the field with an option's value, by the type of the question
_OPTION_FIELDS = {"choice": ("choices", "value"), "score": ("levels", "label")}
_COMMON_FIELDS = ("name", "type", "instructions")

UnknownFieldReport = Callable[[Place, Iterable[str]], object]
"""Called with the whole place of a field that has no meaning there, and the names of those that have."""


@dataclass(frozen=True)
class Option:
    """One of the answers to a question.

    Attributes:
        value: its value, as JSON; that of a level is its number, counted from 0.
        label: the text that the model would write.
        description: what it means, for the model; None: nothing is said.
    """

    value: Any
    label: str
    description: str | None = None


_YES_NO = (Option(True, "Yes"), Option(False, "No"))


@dataclass(frozen=True)
class Question:
    """A question about an input.

    Attributes:
        type: ``predicate``: a statement, which is true (Yes) or not (No); ``choice``: one of several values;
            ``score``: one of several levels, the lowest first.
        instructions: the question, or the statement.
        options: its answers.
        name: its name in the output; None: it has none.
    """

    type: QuestionType
    instructions: str
    options: tuple[Option, ...]
    name: str | None = None

    @property
    def title(self) -> str:
        """What the question is called in messages: its name, else its text."""
        return short_repr(self.name or self.instructions)

    def as_json(self) -> dict[str, Any]:
        """Return the question as it is read by `read_question`."""
        record: dict[str, Any] = {} if self.name is None else {"name": self.name}
        record |= {"type": self.type, "instructions": self.instructions}
        if self.type in _OPTION_FIELDS:
            field, value_field = _OPTION_FIELDS[self.type]
            record[field] = [
                {value_field: option.label if self.type == "score" else option.value}
                | ({} if option.description is None else {"description": option.description})
                for option in self.options
            ]
        return record


def order_count(option_count: int, count: int) -> int:
    """Return how many distinct orders of options there are, but at most ``count``."""
    return min(count, factorial(option_count))


def predicate(instructions: str, name: str | None = None) -> Question:
    """Return the question whether a statement is true. Raises ``QuestionError``."""
    return _checked(Question("predicate", instructions, _YES_NO, name))


def choice(
    instructions: str,
    values: Sequence[Any],
    name: str | None = None,
    *,
    descriptions: Sequence[str | None] = (),
) -> Question:
    """Return the question which of several values, of any JSON type, is right. Raises ``QuestionError``."""
    descriptions = descriptions or [None] * len(values)
    options = [
        Option(value, _label(value, index), description)
        for index, (value, description) in enumerate(zip(values, descriptions, strict=True))
    ]
    return _checked(Question("choice", instructions, tuple(options), name))


def _label(value: Any, index: int) -> str:
    try:
        return label_of(value)
    except QuestionError as error:
        raise error.under("choices", index) from None


def label_of(value: Any) -> str:
    """Return the label of a value: a text itself, or the JSON of another value. Raises ``QuestionError``."""
    if isinstance(value, str):
        return value
    try:
        return encode_json(value)
    except (ValueError, TypeError, RecursionError):
        raise QuestionError(f"{short_repr(value)} is not JSON") from None


def score(
    instructions: str,
    labels: Sequence[str],
    name: str | None = None,
    *,
    descriptions: Sequence[str | None] = (),
) -> Question:
    """Return the question which of several levels, from the lowest to the highest, is right.

    Raises ``QuestionError``.
    """
    descriptions = descriptions or [None] * len(labels)
    pairs = zip(labels, descriptions, strict=True)
    options = [Option(number, label, description) for number, (label, description) in enumerate(pairs)]
    return _checked(Question("score", instructions, tuple(options), name))


def read_questions(value: Any, report_unknown: UnknownFieldReport | None = None) -> list[Question]:
    """Return the questions of a list, or of a table with a list ``questions``.

    Args:
        value: What a YAML or JSON file contains.
        report_unknown: Called for a field without meaning; None: such a field is an error.

    Raises ``QuestionError``.
    """
    if isinstance(value, Mapping):
        value = value.get("questions")
    if not isinstance(value, list):
        raise QuestionError("there is no list of questions")
    if not 1 <= len(value) <= MAX_QUESTIONS:
        raise QuestionError(f"there are {len(value)} questions, and 1 to {MAX_QUESTIONS} are allowed")
    questions: list[Question] = []
    for index, entry in enumerate(value):
        try:
            question = read_question(entry, _report_under(report_unknown, "questions", index))
            if question.name is not None and question.name in [other.name for other in questions]:
                raise QuestionError(f"two questions are named {question.name!r}", place=("name",))
        except QuestionError as error:
            raise error.under("questions", index) from None
        questions.append(question)
    return questions


def read_question(value: Any, report_unknown: UnknownFieldReport | None = None) -> Question:
    """Return the question of a table with ``type``, ``instructions``, ``name``, and ``choices`` or ``levels``.

    A choice or a level may also be given without a table, as its value. Raises ``QuestionError``.
    """
    if not isinstance(value, Mapping):
        raise QuestionError(f"{short_repr(value)} is not a table with type and instructions")
    kind: Any = value.get("type")
    if kind not in get_args(QuestionType):
        raise QuestionError(
            f"{short_repr(kind)} is not {join_alternatives(get_args(QuestionType))}", place=("type",)
        )
    instructions = _text(value, "instructions")
    name = None if value.get("name") is None else _text(value, "name")
    if kind == "predicate":
        _check_fields(value, _COMMON_FIELDS, report_unknown)
        return predicate(instructions, name)
    option_field, value_field = _OPTION_FIELDS[kind]
    _check_fields(value, (*_COMMON_FIELDS, option_field), report_unknown)
    entries = value.get(option_field)
    if not isinstance(entries, list):
        raise QuestionError(f"a {kind} needs a list", place=(option_field,))
    values: list[Any] = []
    descriptions: list[str | None] = []
    for index, entry in enumerate(entries):
        try:
            report = _report_under(report_unknown, option_field, index)
            option_value, description = _read_option(entry, value_field, report)
            if kind == "score" and not isinstance(option_value, str):
                raise QuestionError(f"{short_repr(option_value)} is not a text", place=(value_field,))
        except QuestionError as error:
            raise error.under(option_field, index) from None
        values.append(option_value)
        descriptions.append(description)
    make = score if kind == "score" else choice
    try:
        return make(instructions, values, name, descriptions=descriptions)
    except QuestionError as error:
        match error.place:
            case (_, int(index)) if isinstance(entries[index], Mapping):
                raise error.at(error.origin, (*error.place, value_field)) from None
        raise


def _read_option(
    entry: Any, value_field: str, report_unknown: UnknownFieldReport | None
) -> tuple[Any, str | None]:
    if not isinstance(entry, Mapping):
        return entry, None
    if value_field not in entry:
        raise QuestionError(
            f'there is no "{value_field}"',
            advice=f"an option is its {value_field}, or {{{value_field}: …, description: …}}",
        )
    _check_fields(entry, (value_field, "description"), report_unknown)
    description = None if entry.get("description") is None else _text(entry, "description")
    return entry[value_field], description


def _report_under(report_unknown: UnknownFieldReport | None, *place: str | int) -> UnknownFieldReport | None:
    if report_unknown is None:
        return None
    return lambda inner_place, names: report_unknown((*place, *inner_place), names)


def _check_fields(
    table: Mapping[Any, Any], known_fields: Iterable[str], report_unknown: UnknownFieldReport | None
) -> None:
    for field in table:
        if field in known_fields:
            continue
        if report_unknown is None:
            hint = did_you_mean(str(field), known_fields) or f"known: {', '.join(known_fields)}"
            raise QuestionError(f"the field {short_repr(field)} is unknown; {hint}")
        report_unknown((str(field),), known_fields)


def _text(table: Mapping[Any, Any], field: str) -> str:
    text = table.get(field)
    if text is None:
        raise QuestionError(f'there is no "{field}"')
    if not isinstance(text, str):
        raise QuestionError(f"{short_repr(text)} is not a text", place=(field,))
    return text


def _checked(question: Question) -> Question:
    """Return a question. Raises ``QuestionError`` if it cannot be asked."""
    _check_text(question.instructions, ("instructions",))
    _check_text(question.name or "", ("name",))
    if not question.instructions.strip():
        raise QuestionError("the text of the question is empty", place=("instructions",))
    field, _ = _OPTION_FIELDS.get(question.type, ("", ""))
    if not MIN_OPTIONS <= len(question.options) <= MAX_OPTIONS:
        options = count_noun(len(question.options), "level" if question.type == "score" else "option")
        raise QuestionError(f"it has {options}, and {MIN_OPTIONS} to {MAX_OPTIONS} are allowed", place=(field,))
    label_by_key: dict[str, str] = {}
    for index, option in enumerate(question.options):
        place = cast("Place", (field, index))
        _check_text(option.label, place)
        _check_text(option.description or "", (*place, "description"))
        key = label_key(option.label)
        if not key:
            raise QuestionError("it is empty without blanks and quotes", place=place)
        if key in label_by_key:
            raise QuestionError(
                f"{option.label!r} and {label_by_key[key]!r} are equal without blanks, case and quotes",
                place=place,
                advice="the model's answer could not be told apart; give other words",
            )
        label_by_key[key] = option.label
    return question


def _check_text(text: str, place: Place) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise QuestionError("it holds half of a surrogate pair", place=place) from None


_BLANKS_AND_QUOTES = re.compile(r"[\s\"'`\u00ab\u00bb\u2018-\u201f]+")


def label_key(label: str) -> str:
    """Return a label without what its spellings may differ in."""
    return _BLANKS_AND_QUOTES.sub("", label).casefold()
