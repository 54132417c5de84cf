"""What the flags of `gen decide` name: the questions and how they are asked, and the rows of a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import LogitsmithError, UsageError
from ...common.files import input_name, is_stdin, open_input
from ...common.strict_json import json_problem, parse_strict_json
from ..messages import print_note
from ..options.decide import DecideOptions
from .settings import ChatTemplateFlags

if TYPE_CHECKING:
    from ...decide.decider import Decider
    from ...decide.questions import Question
    from ...engine.model import Model
    from ...jobs.decisions import CsvRows, DecisionPlan, JsonRows, Row


def read_plan(options: DecideOptions) -> DecisionPlan:
    """Return the questions and how they are asked. Raises ``UsageError`` and ``QuestionError``."""
    from ...decide.calibration import read_calibration
    from ...decide.decider import DecideSettings
    from ...decide.wording import DEFAULT_TEMPLATE, Wording
    from ...jobs.decisions import DecisionPlan
    from ...presets.yaml_reader import read_text

    template = DEFAULT_TEMPLATE
    if options.prompt_template is not None:
        template = read_text(options.prompt_template, str(options.prompt_template))
    chat_template = ChatTemplateFlags(options.template)
    settings = DecideSettings(
        Wording(template),
        options.method.value,
        options.permutations,
        options.prior,
        options.reasoning_budget,
        None if options.calibration is None else read_calibration(options.calibration),
        options.min_confidence,
    )
    plan = DecisionPlan(
        _read_questions(options), settings, options.chat, chat_template.source, chat_template.variables
    )
    try:
        plan.check()
    except LogitsmithError as error:
        raise UsageError(f"--prompt-template: {error}") from None
    return plan


def _read_questions(options: DecideOptions) -> list[Question]:
    from ...decide.errors import QuestionError
    from ...decide.questions import choice, predicate, read_questions, score
    from ...presets.yaml_reader import parse_yaml, read_text

    if options.questions is not None:
        origin = str(options.questions)
        text = read_text(options.questions, origin)
        try:
            # A JSON file may hold what YAML does not allow, such as tabs.
            is_json = options.questions.suffix.lower() == ".json"
            return read_questions(_parse_json(text) if is_json else parse_yaml(text, origin))
        except QuestionError as error:
            raise UsageError(str(error.within(origin))) from None
    ((flag, text),) = options.question_texts.items()
    try:
        if flag == "--choice":
            return [choice(text, options.options or ())]
        if flag == "--score":
            return [score(text, options.levels or ())]
        return [predicate(text)]
    except QuestionError as error:
        flags_of_lists = {"choices": "--options", "levels": "--levels"}
        (place, *_) = error.place or ("",)
        raise UsageError(str(error.at(flags_of_lists.get(str(place), flag)))) from None


def _parse_json(text: str) -> Any:
    """Return the value of a text. Raises ``QuestionError``."""
    from ...decide.errors import QuestionError

    try:
        return parse_strict_json(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise QuestionError(f"{place}: it is not JSON: {json_problem(error)}") from None
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"it is not JSON that can be read: {error}") from None


def make_decider(plan: DecisionPlan, model: Model) -> Decider:
    """Return what asks the questions, with a note if the model cannot think before it answers."""
    decider = plan.decider(model)
    if plan.settings.reasoning_budget and not decider.thinks:
        print_note("--reasoning-budget has no effect: the prompt has no place for reasoning")
    return decider


def read_rows(options: DecideOptions, path: Path) -> CsvRows | JsonRows:
    """Return the kind of rows of a file, whose first row is read if it is CSV. Raises ``UsageError``."""
    from ...jobs.decisions import RESULT_FIELDS, JsonRows, csv_rows
    from ...requests.errors import InvalidLineError

    if not options.is_csv:
        return JsonRows(options.column, RESULT_FIELDS if options.fit is None else ())
    if is_stdin(path):
        raise UsageError("a table in CSV must be a file; a pipe can have JSON lines")
    try:
        with open_input(path) as file:
            return csv_rows(file, options.column)
    except InvalidLineError as error:
        raise UsageError(f"{path}: {error}") from None


def count_rows(options: DecideOptions, rows: CsvRows | JsonRows, path: Path) -> int | None:
    """Return the number of rows; None if they can be read only once. Raises ``UsageError`` if there are none."""
    if not options.rows_can_be_counted:
        return None
    with open_rows(rows, path) as found:
        count = sum(1 for _ in found)
    if not count:
        raise UsageError(f"{path} has no rows")
    return count


@contextmanager
def open_rows(rows: CsvRows | JsonRows, path: Path) -> Iterator[Iterator[Row]]:
    """Open the rows of a file. Raises ``UsageError`` if they lack the column with the texts."""
    from ...requests.errors import InvalidLineError

    try:
        with open_input(path) as file, rows.open(file) as found:
            yield found
    except InvalidLineError as error:
        raise UsageError(str(error.within(input_name(path)))) from None
