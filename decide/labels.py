"""The labels of rows: which option of each question is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.errors import Place
from ..common.strict_json import without_whole_floats
from ..common.text import join_alternatives, short_repr, unknown_name
from .errors import QuestionError
from .questions import Question, label_key, label_of

_MAX_SHOWN_OPTIONS = 20
_PREDICATE_WORDS = {"true": 0, "false": 1}


def label_indices(questions: Sequence[Question], row: Mapping[str, Any]) -> list[int | None]:
    """Return the number of the right option of each question in a row; None for one without a label.

    Args:
        questions: The questions.
        row: A table with ``label``, the label of the only question, or with ``labels``, those of the questions by
            their names. The label of a predicate is true or false, or Yes or No; that of a choice its value, or
            the value's label; that of a score the label of a level, or its number, counted from 0, where the
            labels are no numbers themselves. Blanks, case and quotes do not count. Null and an empty text are no
            label.

    Raises ``QuestionError`` for a label that no option has, and for a row without labels.
    """
    if "label" in row and "labels" in row:
        raise QuestionError('there are both "label" and "labels"')
    if "label" in row:
        if len(questions) != 1:
            raise QuestionError(
                f"there are {len(questions)} questions", place=("label",), advice='give "labels": {NAME: LABEL}'
            )
        return [_option_number(questions[0], row["label"], ("label",))]
    if "labels" not in row:
        raise QuestionError('there is neither "label" nor "labels"')
    labels = row["labels"]
    if not isinstance(labels, Mapping):
        raise QuestionError(f"{short_repr(labels)} is not an object", place=("labels",))
    names = [question.name for question in questions if question.name is not None]
    for name in labels:
        if name not in names:
            raise QuestionError(unknown_name("question", name, names), place=("labels",))
    return [
        _option_number(question, labels[question.name], ("labels", question.name))
        if question.name is not None and question.name in labels
        else None
        for question in questions
    ]


def _option_number(question: Question, label: Any, place: Place) -> int | None:
    try:
        key = label_key(label_of(label))
    except QuestionError as error:
        raise error.at("", place) from None
    number_by_key = {label_key(option.label): number for number, option in enumerate(question.options)}
    if key in number_by_key:
        return number_by_key[key]
    if label is None or not key:
        return None
    if question.type == "predicate" and key in _PREDICATE_WORDS:
        return _PREDICATE_WORDS[key]
    has_level_numbers = question.type == "score" and not any(map(_is_number, number_by_key))
    if has_level_numbers:
        level_number = label_of(without_whole_floats(label))
        if level_number.isdecimal() and int(level_number) < len(question.options):
            return int(level_number)
    shown = [option.label for option in question.options[:_MAX_SHOWN_OPTIONS]]
    if len(question.options) > _MAX_SHOWN_OPTIONS:
        shown.append(f"one of {len(question.options) - _MAX_SHOWN_OPTIONS} more")
    if question.type == "predicate":
        shown += _PREDICATE_WORDS
    if has_level_numbers:
        shown.append(f"a number from 0 to {len(question.options) - 1}")
    raise QuestionError(f"{short_repr(label)} is not {join_alternatives(shown)}", place=place)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
