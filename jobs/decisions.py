"""Decisions about the rows of a table: the plan, the table, its results, and the file of results."""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

from ..common.journal import Journal, JournalError
from ..common.strict_json import encode_json
from ..common.text import count_noun
from ..decide.decider import Decider, DecideSettings, Decision
from ..decide.questions import Question
from ..decide.run import decide
from ..decide.wording import DEFAULT_TEMPLATE, Wording
from ..logprobs.batch_results import batch_error
from ..requests.errors import InvalidLineError
from ..requests.recorded_settings import ModelDescription, model_settings
from .batch import BatchCounts, Failure, failure_of
from .journal import LineJournal
from .lines import BackgroundReader, CsvRow, InputLine, iterate_available, line_digest, open_csv, read_json_lines

if TYPE_CHECKING:
    from ..engine.model import Model


@dataclass(frozen=True)
class DecisionPlan:
    """The questions, and how they are asked, before the model is loaded.

    ``settings``: their wording has no chat template yet. The others are arguments of `Wording.for_model`.
    """

    questions: Sequence[Question]
    settings: DecideSettings = field(default_factory=DecideSettings)
    chat: bool | None = None
    chat_template: str | None = None
    chat_template_variables: Mapping[str, Any] | None = None

    def check(self) -> None:
        """Raise ``ModelError`` if the template of the prompt cannot be rendered."""
        for question in self.questions:
            self.settings.wording.text(question, question.options, "")

    def decider(self, model: Model) -> Decider:
        """Return what asks the questions. Raises ``ModelError`` and ``QuestionError``."""
        wording = Wording.for_model(
            model,
            chat=self.chat,
            chat_template=self.chat_template,
            variables=self.chat_template_variables,
            thinks=self.settings.reasoning_budget > 0,
            template=self.settings.wording.template,
        )
        return Decider(model, self.questions, replace(self.settings, wording=wording))

    def recorded_settings(self, model: ModelDescription, other_flags: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the results depend on, as JSON, under the names by which users set it."""
        settings = self.settings
        calibration = None if settings.calibration is None else settings.calibration.as_json()
        template = settings.wording.template
        return {
            **model_settings(model),
            "question list": [question.as_json() for question in self.questions],
            "method": settings.method,
            "permutations": settings.permutations,
            "prior": settings.prior,
            "reasoning_budget": settings.reasoning_budget,
            "calibration": None if calibration is None else line_digest(encode_json(calibration).encode()),
            "min_confidence": settings.min_confidence,
            "prompt_template": None if template == DEFAULT_TEMPLATE else template,
            "chat": self.chat,
            "chat_template": self.chat_template,
            "chat_template_kwargs": self.chat_template_variables,
            **other_flags,
        }


class Row(NamedTuple):
    """A row of a table."""

    number: int  # of its first line, counted from 1
    fields: Mapping[str, Any]  # what the result repeats
    digest: str  # by which its result is recognized
    text: str = ""  # what the questions are about
    error: InvalidLineError | None = None  # of a row that cannot be read


Result = Decision | Failure


class ExistingResult(NamedTuple):
    """A result that an earlier run has written."""

    digest: str  # of the row
    is_failure: bool


class ResultFormat(Protocol):
    """A format of results, each one line."""

    header: str | None  # the first line; None: there is none

    def line(self, row: Row, result: Result) -> str:
        """Return the line with a row's result."""
        ...

    def existing_results(self, journal: Journal) -> list[ExistingResult]:
        """Read the results of an earlier run, and remove the torn end of the file. Raises ``JournalError``."""
        ...


_DEFAULT_COLUMNS = ("input", "text")
RESULT_FIELDS = ("answers", "error")  # of results as JSON, beside those of the row


def _input_column(names: Sequence[str], column: str | None, kind: str) -> str:
    """Return the name of the column with the inputs. Raises ``InvalidLineError``."""
    candidates = _DEFAULT_COLUMNS if column is None else (column,)
    for name in candidates:
        if name in names:
            return name
    if column is None and len(names) == 1:
        return names[0]
    wanted = " or ".join(f'"{name}"' for name in candidates)
    listed = ", ".join(f'"{name}"' for name in names)
    raise InvalidLineError(f"there is no {kind} {wanted}, but {listed or 'none'}", advice="--column names another")


class JsonRows:
    """The rows of a file of JSON objects, one a line. A row with one of ``reserved_fields`` is an error."""

    def __init__(self, column: str | None, reserved_fields: Sequence[str] = ()) -> None:
        self._column = column
        self._reserved_fields = reserved_fields

    @contextmanager
    def open(self, file: BinaryIO) -> Iterator[Iterator[Row]]:
        """Yield the rows of a file. Raises ``InvalidLineError`` if the first object lacks the column."""
        yield self._rows(read_json_lines(file))

    def _rows(self, lines: Iterator[InputLine]) -> Iterator[Row]:
        column = None
        for line in lines:
            if column is None and not isinstance(line.content, InvalidLineError):
                try:
                    column = _input_column(list(line.content), self._column, "field")
                except InvalidLineError as error:
                    raise error.within(f"line {line.number}") from None
            yield self._row(line, column)

    def _row(self, line: InputLine, column: str | None) -> Row:
        fields = line.content
        if isinstance(fields, InvalidLineError):
            return Row(line.number, {}, line.digest, error=fields)
        try:
            digest = _fields_digest(fields)
        except (ValueError, RecursionError):
            error = InvalidLineError("it contains a number that is too large, or is nested too deeply")
            return Row(line.number, {}, line.digest, error=error)
        try:
            for name in self._reserved_fields:
                if name in fields:
                    fields = {key: value for key, value in fields.items() if key not in self._reserved_fields}
                    raise InvalidLineError(f'"{name}" is a field of the result; rename this field of the line')
            name = _input_column(list(fields), column, "field")
            if not isinstance(fields[name], str):
                raise InvalidLineError(f'"{name}" is not a string')
            return Row(line.number, fields, digest, fields[name])
        except InvalidLineError as error:
            return Row(line.number, fields, digest, error=error)


class CsvRows:
    """The rows of a CSV file."""

    def __init__(self, columns: Sequence[str], delimiter: str, column: str | None) -> None:
        """Raises ``InvalidLineError`` if the column is missing, or two have the same name."""
        if not columns:
            raise InvalidLineError("the file is empty; its first row names the columns")
        for number, name in enumerate(columns):
            if name in columns[:number]:
                raise InvalidLineError(f'two columns are named "{name}"')
        self.columns = list(columns)
        self.delimiter = delimiter
        self._column = _input_column(columns, column, "column")

    @contextmanager
    def open(self, file: BinaryIO) -> Iterator[Iterator[Row]]:
        """Yield the rows of a file."""
        with open_csv(file, lambda columns: columns == self.columns, self.delimiter) as table:
            yield map(self._row, table.rows)

    def _row(self, row: CsvRow) -> Row:
        # A row of another length is repeated as far as the columns go.
        values = [*row.fields, *[""] * len(self.columns)][: len(self.columns)]
        fields = {
            name: value.encode(errors="surrogateescape").decode(errors="replace")
            for name, value in zip(self.columns, values, strict=True)
        }
        return Row(row.number, fields, _fields_digest(fields), fields[self._column], row.error)


def csv_rows(file: BinaryIO, column: str | None) -> CsvRows:
    """Return the rows of a CSV file, whose first row is read. Raises ``InvalidLineError``."""
    wanted = set(_DEFAULT_COLUMNS) if column is None else {column}
    with open_csv(file, lambda columns: not wanted.isdisjoint(columns)) as table:
        return CsvRows(table.columns, table.delimiter, column)


def _fields_digest(fields: Mapping[str, Any]) -> str:
    """Return the digest of a row's fields. Raises ``ValueError`` for what is not JSON."""
    return line_digest(json.dumps(fields, sort_keys=True, allow_nan=False).encode())


class JsonResults:
    """Results as JSON lines: the fields of the row, ``answers`` and ``error``."""

    header: str | None = None

    def __init__(self, *, with_tokens: bool = False) -> None:
        self._with_tokens = with_tokens

    def line(self, row: Row, result: Result) -> str:
        answers = None
        error = None
        if isinstance(result, Failure):
            error = batch_error(result.code, result.message, row.number, row.digest, result.counts)
        else:
            answers = [answer.as_json(with_tokens=self._with_tokens) for answer in result.answers]
        return encode_json({**row.fields, "answers": answers, "error": error})

    def existing_results(self, journal: Journal) -> list[ExistingResult]:
        return journal.records(_existing_result, start="{", name="a result", advice="choose another file with -o")


def _existing_result(record: Any) -> ExistingResult:
    if not isinstance(record, dict) or not set(RESULT_FIELDS) <= record.keys():
        raise ValueError("it has neither answers nor an error")
    error = record["error"]
    if isinstance(error, dict):
        return ExistingResult(str(error.get("digest")), is_failure=True)
    fields = {name: value for name, value in record.items() if name not in RESULT_FIELDS}
    return ExistingResult(_fields_digest(fields), is_failure=False)


class CsvResults:
    """Results as CSV: the fields of the row, columns for each question, and ``error``."""

    def __init__(self, rows: CsvRows, plan: DecisionPlan) -> None:
        """Raises ``InvalidLineError`` if a column would be there twice."""
        self._columns = rows.columns
        self._delimiter = rows.delimiter
        self._has_unsure = plan.settings.min_confidence is not None
        self._has_undecided = plan.settings.method == "grammar"
        columns = list(rows.columns)
        for name in [*self._columns_of(plan.questions), "error"]:
            if name in rows.columns:
                raise InvalidLineError(
                    f'the results need a column "{name}", and there is one already; rename it, or the question'
                )
            if name in columns:
                raise InvalidLineError(f'the results would have two columns "{name}"; rename a question')
            columns.append(name)
        self._column_count = len(columns)
        self.header: str | None = self._row_text(columns)

    def _columns_of(self, questions: Sequence[Question]) -> Iterator[str]:
        for number, question in enumerate(questions, 1):
            name = question.name or ("answer" if len(questions) == 1 else f"answer_{number}")
            yield name
            yield f"{name}_confidence"
            if self._has_unsure:
                yield f"{name}_unsure"
            if self._has_undecided:
                yield f"{name}_undecided"

    def line(self, row: Row, result: Result) -> str:
        values = list(row.fields.values())
        if isinstance(result, Failure):
            values += [""] * (self._column_count - len(values) - 1)
            return self._row_text([*values, f"line {row.number}: {result.message}"])
        for answer in result.answers:
            value = answer.main_value
            values += [value if isinstance(value, str) else encode_json(value), encode_json(answer.confidence)]
            if self._has_unsure:
                values.append(encode_json(answer.is_unsure))
            if self._has_undecided:
                values.append(encode_json(answer.undecided))
        return self._row_text([*values, ""])

    def _row_text(self, values: Sequence[str]) -> str:
        out = io.StringIO()
        csv.writer(out, delimiter=self._delimiter, lineterminator="\r\n").writerow(values)
        return out.getvalue().removesuffix("\r\n")

    def existing_results(self, journal: Journal) -> list[ExistingResult]:
        results: list[ExistingResult] = []
        for number, values in enumerate(self._written_rows(journal)):
            if (number == 0 and self._row_text(values) != self.header) or len(values) != self._column_count:
                raise JournalError(
                    f"{journal.path}: row {number + 1} has other columns than these results; "
                    "choose another file with -o"
                )
            if number > 0:
                fields = dict(zip(self._columns, values, strict=False))
                results.append(ExistingResult(_fields_digest(fields), is_failure=bool(values[-1])))
        return results

    def _written_rows(self, journal: Journal) -> Iterator[list[str]]:
        """Yield the rows of a file of results, and remove the beginning of a row, which a killed run leaves."""
        complete_bytes = 0
        has_ended = False

        def lines() -> Iterator[str]:
            nonlocal complete_bytes, has_ended
            for line in journal.lines():
                if line.endswith(b"\n"):
                    complete_bytes += len(line)
                    yield line.decode(errors="replace")
            has_ended = True

        rows = csv.reader(lines(), strict=True, delimiter=self._delimiter)
        kept_bytes = 0
        try:
            for row in rows:
                kept_bytes = complete_bytes
                yield row
        except csv.Error as error:
            if not has_ended:
                raise JournalError(f"{journal.path}: line {rows.line_num} is not CSV: {error}") from None
        journal.truncate(kept_bytes)


class DecisionJournal(LineJournal):
    """The file of a table's results, in the order of the rows."""

    def __init__(self, path: Path, results: ResultFormat, should_resume: bool) -> None:
        self.existing_results: list[ExistingResult] = []

        def read(journal: Journal) -> None:
            self.existing_results = results.existing_results(journal)

        super().__init__(path, should_resume, read, header=results.header)


class TableRun:
    """A run over a table: selects the rows that have no result yet, and writes a result for each."""

    def __init__(
        self,
        results: ResultFormat,
        counts: BatchCounts,
        add_line: Callable[[str], object],
        existing_results: Sequence[ExistingResult] = (),
    ) -> None:
        self._results = results
        self._counts = counts
        self._add_line = add_line
        self._existing_results = existing_results
        self._pending_count = 0  # rows whose results are not written yet

    def new_rows(self, rows: Iterable[Row] | BackgroundReader[Row]) -> Iterator[Row | None]:
        """Yield the rows without a result; None means that no further row has arrived yet."""
        # Raises ``JournalError`` if a result belongs to another row.
        existing = iter(self._existing_results)
        for row in iterate_available(rows, is_idle=lambda: not self._pending_count):
            result = None if row is None else next(existing, None)
            if row is None or result is None:
                self._pending_count += row is not None
                yield row
                continue
            if result.digest != row.digest:
                raise JournalError(
                    f"the result for the row on line {row.number} belongs to another row; "
                    "give the same table, or another file with -o"
                )
            self._counts.existing_count += 1
            self._counts.existing_failure_count += result.is_failure
        excess = sum(1 for _ in existing)
        if excess:
            raise JournalError(
                f"there are results for {count_noun(excess, 'row')} more than the table has; "
                "give the same table, or another file with -o"
            )

    def write(self, row: Row, result: Result) -> None:
        """Write the result of a row."""
        self._add_line(self._results.line(row, result))
        self._pending_count -= 1
        counts = self._counts
        if isinstance(result, Failure):
            counts.failed_count += 1
            if counts.first_failure is None:
                counts.first_failure = (row.number, result.message)
            return
        counts.answered_count += 1
        counts.exactness.add(str(result.exactness))
        counts.token_count += result.usage.computed_tokens


def decided_rows(
    decider: Decider,
    rows: Iterable[Row | None],
    slots: int,
    *,
    describe_error: Callable[[Exception], str] = str,
    should_stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[Row, Result]]:
    """Yield each row with its result, in the order of the rows. For the arguments see `decide`."""
    taken_rows: deque[Row] = deque()

    def inputs() -> Iterator[str | Exception | None]:
        for row in rows:
            if row is not None:
                taken_rows.append(row)
            yield None if row is None else row.error or row.text

    for outcome in decide(decider, inputs(), slots, should_stop=should_stop):
        result = outcome.result
        row_result = failure_of(result, describe_error) if isinstance(result, Exception) else result
        yield taken_rows.popleft(), row_result
