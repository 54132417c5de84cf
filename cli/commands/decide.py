"""`gen decide`: the probabilities of the answers to questions about a text, or about each row of a table."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ...common.errors import LogitsmithError, UsageError
from ...common.files import input_name, is_stdin, open_input
from ...common.flags import CompletionKind, Limit, at_least, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ...common.strict_json import json_line, json_problem, parse_strict_json
from ..command_options import takes_options
from ..flags import Options, argument, flag
from ..inputs.model import find_model, load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..inputs.settings import ChatTemplateFlags
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, flag_sentence, print_message, print_note
from ..options.model import ClusterOptions, LogOptions, ModelOptions
from ..options.prompt import ChatTemplateOptions, EscapeOptions, PromptOptions

if TYPE_CHECKING:
    from ...decide.answers import Answer
    from ...decide.decider import Decider
    from ...decide.questions import Question
    from ...engine.model import Model
    from ...jobs.decisions import (
        CsvRows,
        DecisionJournal,
        DecisionPlan,
        JsonRows,
        ResultFormat,
        Row,
        TableRun,
    )
    from ...jobs.lines import BackgroundReader
    from ...requests.recorded_settings import ModelDescription
    from ..render.batch_progress import BatchProgress


_question = partial(flag, panel="Questions")
_decide = partial(flag, panel="Decision")
_table = partial(flag, panel="Table")

MAX_PERMUTATIONS = 10_000
_SHARE = Limit("within 0..1", 0.0, 1.0)
_PROMPTS_WITH_BAR = 8  # fewer are read in a moment
# exit codes of --exit-code
_NO = 10
_UNSURE = 11
_YES_FROM = 0.5  # a predicate is true from this probability on
_CSV_SUFFIXES = (".csv", ".tsv")


class DecideMethod(StrEnum):
    """What the probability of an option is, see `DecideSettings`."""

    sequence = "sequence"
    grammar = "grammar"


class DecideFormat(StrEnum):
    """A format of answers."""

    text = "text"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


@dataclass(frozen=True, kw_only=True)
class DecideInputOptions(PromptOptions):
    """The sources of the text that the questions are about."""

    prompt: str | None = argument(
        "INPUT",
        help="The text that the questions are about; piped input is placed before it; - reads stdin.",
        display_name="the input",
        has_escapes=True,
    )
    prompt_option: str | None = flag(
        "-p",
        "--prompt",
        panel="Prompt",
        help="The text that the questions are about, as an option.",
        display_name="the input",
        has_escapes=True,
    )
    file: Path | None = flag("-f", "--file", panel="Prompt", help="Read the text from a file; - reads stdin.")

    @property
    def is_given(self) -> bool:
        return any(source is not None for source in (self.prompt, self.prompt_option, self.file))


@dataclass(frozen=True, kw_only=True)
class DecideOptions(Options):
    """The options of `gen decide`."""

    input: DecideInputOptions
    predicate: str | None = _question(
        "--predicate", metavar="TEXT", help="Is this statement true of the text?", has_escapes=True
    )
    choice: str | None = _question(
        "--choice", metavar="TEXT", help="Which of the --options answers this question?", has_escapes=True
    )
    options: list[str] | None = _question(
        "--options", "--option", metavar="TEXT", help="An option of --choice; repeatable.", has_escapes=True
    )
    score: str | None = _question(
        "--score", metavar="TEXT", help="Which of the --levels answers this question?", has_escapes=True
    )
    levels: list[str] | None = _question(
        "--levels",
        "--level",
        metavar="TEXT",
        help="A level of --score, the lowest first; repeatable.",
        has_escapes=True,
    )
    questions: Path | None = _question(
        "--questions", help="Up to 400 questions, in YAML or JSON.", completion_kind=CompletionKind.FILE
    )
    method: DecideMethod = _decide(
        "--method",
        help="Probability of an option's whole text, or of what a grammar of the options would draw. [sequence]",
        default=DecideMethod.sequence,
    )
    permutations: int = _decide(
        "--permutations",
        metavar="N",
        help="Average over N orders in which the options are shown. [1]",
        default=1,
        limit=within(1, MAX_PERMUTATIONS),
    )
    prior: str | None = _decide(
        "--prior",
        metavar="TEXT",
        help="Divide by the answer about a text without content, such as 'N/A'.",
        has_escapes=True,
    )
    reasoning_budget: int = _decide(
        "--reasoning-budget",
        metavar="N",
        help="Let the model think up to N tokens before it answers. [0]",
        default=0,
        limit=at_least(0),
    )
    calibration: Path | None = _decide("--calibration", help="Apply a calibration that --fit wrote.")
    min_confidence: float | None = _decide(
        "--min-confidence", metavar="P", help="Mark answers below this probability as unsure.", limit=_SHARE
    )
    exit_code: bool = _decide(
        "--exit-code",
        help="Exit with 0 for yes, 10 for no, 11 for unsure; of a choice or a score with 0 or 11.",
        default=False,
    )
    prompt_template: Path | None = _decide(
        "--prompt-template",
        help="Wording of the prompt, in Jinja with input, question, options, type, name.",
        completion_kind=CompletionKind.FILE,
    )
    chat: bool | None = flag(
        "--chat/--no-chat",
        panel="Prompt",
        help="Ask in the chat template, or in a plain prompt. [on if the model has a chat template]",
    )
    template: ChatTemplateOptions
    escapes: EscapeOptions
    table: Path | None = _table("--table", help="Ask about each row of a file, CSV or JSON lines; - reads stdin.")
    column: str | None = _table(
        "--column", metavar="NAME", help="The column or field with the texts. [input or text, or the only one]"
    )
    fit: Path | None = _table(
        "--fit", help='Fit a calibration to a file of rows with "input" and "label" or "labels"; needs -o.'
    )
    fit_bias: bool = _table("--fit-bias", help="Fit a bias for each option, too.", default=False)
    output: Path | None = _table("-o", "--output", help="File of the results, or of the calibration. [stdout]")
    resume: bool = _table(
        "--resume", help="Continue the file of results; rows with a result are skipped.", default=False
    )
    parallel: int | None = _table(
        "--parallel",
        "-np",
        metavar="N",
        help="Number of prompts computed at a time. [by cores and memory, at most 8]",
        limit=within(1, MAX_SLOTS),
    )
    format: DecideFormat | None = flag(
        "--format", panel="Output", help="Format of answers. [text; of a table the table's own]"
    )
    trace: bool = flag(
        "--trace", panel="Output", help="Add the tokens of every spelling, with logprobs.", default=False
    )
    model: ModelOptions
    cluster: ClusterOptions
    log: LogOptions

    @property
    def rows_file(self) -> Path | None:
        """The file of the rows; None if there is a single input."""
        return self.fit if self.table is None else self.table

    @property
    def is_csv(self) -> bool:
        """Whether the rows are CSV."""
        if self.rows_file is None or is_stdin(self.rows_file):
            return self.format is DecideFormat.csv
        return Path(self.rows_file.name.lower().removesuffix(".gz")).suffix in _CSV_SUFFIXES

    @property
    def rows_can_be_counted(self) -> bool:
        return self.rows_file is not None and not is_stdin(self.rows_file) and self.rows_file.is_file()

    def check(self) -> None:
        self._check_questions()
        for problems in (self._problems_of_prompt, self._problems_of_source, self._problems_of_results):
            for message, is_wrong in problems().items():
                if is_wrong:
                    raise UsageError(message)

    def _check_questions(self) -> None:
        kinds = {
            "--predicate": self.predicate,
            "--choice": self.choice,
            "--score": self.score,
            "--questions": self.questions,
        }
        given = [name for name, value in kinds.items() if value is not None]
        if not given:
            raise UsageError("there is no question; give --predicate, --choice, --score or --questions")
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} are given; several questions stand in a file of --questions")
        for name, value, owner in (("--options", self.options, "--choice"), ("--levels", self.levels, "--score")):
            if value and owner not in given:
                raise UsageError(f"{name} needs {owner}")
            if owner in given and not value:
                raise UsageError(f"{owner} needs {name}, one for each answer")

    def _problems_of_prompt(self) -> dict[str, bool]:
        needing_chat = {
            "--chat-template": self.template.chat_template is not None,
            "--chat-template-kwargs": self.template.chat_template_kwargs is not None,
            "--reasoning-budget": self.reasoning_budget > 0,
        }
        return {
            f"{name} needs the chat template; omit --no-chat": is_given and self.chat is False
            for name, is_given in needing_chat.items()
        }

    def _problems_of_source(self) -> dict[str, bool]:
        has_table, has_fit, has_rows = self.table is not None, self.fit is not None, self.rows_file is not None
        return {
            "--table and --fit are given; fit first, then apply the file with --calibration": has_table
            and has_fit,
            "there are a text and a file of rows, which are the inputs; omit the text": (
                has_rows and self.input.is_given
            ),
            "--exit-code is for a single input, not for a table": self.exit_code and has_rows,
            "--column needs --table or --fit": self.column is not None and not has_rows,
            "-o needs --table or --fit": self.output is not None and not has_rows,
            "--resume needs --table": self.resume and not has_table,
            "--on needs --table": self.cluster.on is not None and not has_table,
            "--format csv needs --table": self.format is DecideFormat.csv and not has_table,
            "--fit-bias needs --fit": self.fit_bias and not has_fit,
            "--fit needs a file for the calibration; name it with -o": has_fit and not self.writes_file,
            "--fit finds a calibration; omit --calibration": has_fit and self.calibration is not None,
            "--fit writes no answers; omit --min-confidence": has_fit and self.min_confidence is not None,
            "--fit writes no answers; omit --trace": has_fit and self.trace,
            "--fit writes no answers; omit --format": has_fit and self.format is not None,
        }

    def _problems_of_results(self) -> dict[str, bool]:
        if self.table is None:
            return {}
        is_overwritten = self.output is not None and self.output.exists() and self.table.exists()
        return {
            f"--format {self.format}: results of a table are jsonl or csv": (
                self.format in (DecideFormat.text, DecideFormat.json)
            ),
            "--format csv needs a table in CSV; results of JSON lines are jsonl": (
                self.format is DecideFormat.csv and not self.is_csv
            ),
            "--resume needs a file of results; name it with -o": self.resume and not self.writes_file,
            "--trace needs --format jsonl, because CSV has no place for the tokens": self.trace
            and self.writes_csv,
            f"-o: {self.output} is the table; name another file": (
                is_overwritten and self.table.samefile(self.output or self.table)
            ),
        }

    @property
    def writes_file(self) -> bool:
        return self.output is not None and not is_stdin(self.output)

    @property
    def writes_csv(self) -> bool:
        return self.is_csv and self.format is not DecideFormat.jsonl


@takes_options(DecideOptions)
def decide(options: DecideOptions) -> None:
    """Answer questions with a closed list of answers by the model's probabilities.

    The probability of an option is that of its whole text, in each spelling that means the same, and of the end
    after it. A table gets a result for each row.

      gen decide "I was charged twice!" --predicate "The customer complains."

      gen decide -f mail.txt --choice "What is it about?" --options billing --options cancellation

      gen decide "Please hurry" --predicate "It is urgent." --exit-code && ./page-someone

      gen decide --table mails.csv --column body --questions q.yaml -o out.csv

      gen decide --fit labelled.jsonl --questions q.yaml -o cal.json
    """
    show_llama_cpp_messages(options.log)
    plan = _read_plan(options)
    if options.exit_code and len(plan.questions) > 1:
        raise UsageError(f"--exit-code is for a single question, and there are {len(plan.questions)}")
    if options.table is not None:
        _decide_table(options, plan, options.table)
    elif options.fit is not None:
        _fit(options, plan, options.fit)
    else:
        _decide_text(options, plan, read_prompt(options.input))


def _read_plan(options: DecideOptions) -> DecisionPlan:
    """Return the questions and how they are asked. Raises ``UsageError`` and ``QuestionError``."""
    from ...decide.calibration import read_calibration
    from ...decide.wording import DEFAULT_TEMPLATE
    from ...jobs.decisions import DecisionPlan
    from ...presets.yaml_reader import read_text

    template = DEFAULT_TEMPLATE
    if options.prompt_template is not None:
        template = read_text(options.prompt_template, str(options.prompt_template))
    chat_template = ChatTemplateFlags(options.template)
    plan = DecisionPlan(
        _read_questions(options),
        options.method.value,
        options.permutations,
        options.prior,
        options.reasoning_budget,
        None if options.calibration is None else read_calibration(options.calibration),
        options.min_confidence,
        template,
        options.chat,
        chat_template.source,
        chat_template.variables,
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
    try:
        if options.choice is not None:
            return [choice(options.choice, options.options or ())]
        if options.score is not None:
            return [score(options.score, options.levels or ())]
        return [predicate(options.predicate or "")]
    except QuestionError as error:
        flags = {"choices": "--options", "levels": "--levels"}
        kind = (
            "--choice" if options.choice is not None else "--score" if options.score is not None else "--predicate"
        )
        name = flags.get(str(error.place[0]), kind) if error.place else kind
        raise UsageError(str(error.at(name))) from None


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


def _decide_text(options: DecideOptions, plan: DecisionPlan, text: str) -> None:
    """Print the answers about one text."""
    from ...decide.run import decide as decide_inputs
    from ..render.decisions import show_answers
    from ..render.progress import counting_bar

    with interruptible() as interrupt, load_model(options.model, interrupt, slots=options.parallel) as model:
        decider = _make_decider(plan, model)
        prompt_count = len(decider.places())
        slots = options.parallel or min(model.default_parallel, prompt_count)
        is_long = prompt_count >= _PROMPTS_WITH_BAR
        with counting_bar("Asking", prompt_count, "prompts", is_needed=is_long) as advance_bar:

            def report(_count: int) -> None:
                interrupt.raise_if_requested()
                advance_bar()

            (outcome,) = decide_inputs(decider, [text], slots, progress=report)
        if outcome.decision is None:
            raise outcome.error or UsageError("there is no answer")
        decision = outcome.decision
        if options.format in (None, DecideFormat.text):
            show_answers(decision.answers, model.vocabulary.pieces.__getitem__ if options.trace else None)
        else:
            answers = [answer.as_json(with_tokens=options.trace) for answer in decision.answers]
            fields = {"answers": answers, "usage": decision.usage.as_json(), "exactness": str(decision.exactness)}
            sys.stdout.write(json_line(fields))
    if options.exit_code:
        raise typer.Exit(_exit_code(decision.answers[0]))


def _make_decider(plan: DecisionPlan, model: Model) -> Decider:
    decider = plan.decider(model)
    if plan.reasoning_budget and decider.settings.wording.thinking_prompt("")[1] is None:
        print_note("--reasoning-budget has no effect: the prompt has no place for reasoning")
    return decider


def _exit_code(answer: Answer) -> int:
    if answer.is_unsure:
        return _UNSURE
    is_no = answer.question.type == "predicate" and answer.probabilities[0] < _YES_FROM
    return _NO if is_no else 0


def _read_rows(options: DecideOptions, path: Path) -> CsvRows | JsonRows:
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


def _count_rows(options: DecideOptions, rows: CsvRows | JsonRows, path: Path) -> int | None:
    """Return the number of rows; None if they can be read only once. Raises ``UsageError`` if there are none."""
    if not options.rows_can_be_counted:
        return None
    with open_input(path) as file, rows.open(file) as found:
        count = sum(1 for _ in found)
    if not count:
        raise UsageError(f"{path} has no rows")
    return count


class _TableJob(NamedTuple):
    """A table whose model is not loaded yet."""

    options: DecideOptions
    plan: DecisionPlan
    rows: CsvRows | JsonRows
    results: ResultFormat
    journal: DecisionJournal | None  # None: the results are printed
    progress: BatchProgress


def _decide_table(options: DecideOptions, plan: DecisionPlan, path: Path) -> None:
    """Write the answers about each row of a table."""
    from ...jobs.decisions import DecisionJournal
    from ...jobs.journal import closing_results
    from ..render.batch_progress import BatchProgress

    rows = _read_rows(options, path)
    results = _result_format(options, plan, rows)
    progress = BatchProgress(_count_rows(options, rows, path))
    journal = None
    if options.output is not None and options.writes_file:
        journal = DecisionJournal(options.output, results, options.resume)
    job = _TableJob(options, plan, rows, results, journal, progress)
    with nullcontext() if journal is None else closing_results(journal), interruptible() as interrupt:
        (_decide_locally if options.cluster.on is None else _decide_on_cluster)(job, path, interrupt)
    print_message(f"gen: {progress.summary()}")
    if progress.first_failure is not None:
        number, reason = progress.first_failure
        print_note(f"line {number} is the first that failed: {reason}")
    if interrupt.requested:
        if journal is not None:
            print_note("--resume continues from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed_count or progress.existing_failure_count:
        raise typer.Exit(FAILED)


def _result_format(options: DecideOptions, plan: DecisionPlan, rows: CsvRows | JsonRows) -> ResultFormat:
    from ...jobs.decisions import RESULT_FIELDS, CsvResults, CsvRows, JsonResults
    from ...requests.errors import InvalidLineError

    try:
        if isinstance(rows, CsvRows) and options.writes_csv:
            return CsvResults(rows, plan)
    except InvalidLineError as error:
        raise UsageError(f"{options.table}: {error}") from None
    if isinstance(rows, CsvRows):
        for name in RESULT_FIELDS:
            if name in rows.columns:
                raise UsageError(f'{options.table}: the results need a field "{name}"; rename this column')
    return JsonResults(with_tokens=options.trace)


def _decide_locally(job: _TableJob, path: Path, interrupt: Interrupt) -> None:
    from ...jobs.decisions import decided_rows
    from ...requests.recorded_settings import describe_model
    from ..render.batch_progress import show_progress, stop_check_with_note

    options = job.options
    with load_model(options.model, interrupt, slots=options.parallel) as model:
        decider = _make_decider(job.plan, model)
        run = _begin_run(job, describe_model(model))
        slots = options.parallel or model.default_parallel
        with (
            open_input(path) as file,
            job.rows.open(file) as rows,
            show_progress(job.progress, _prints_on_terminal(job)) as display,
        ):
            decided = decided_rows(
                decider,
                run.new_rows(_available_rows(options, rows)),
                slots,
                describe_error=flag_sentence,
                should_stop=stop_check_with_note(interrupt),
            )
            for row, result in decided:
                run.write(row, result)
                display.refresh()


def _decide_on_cluster(job: _TableJob, path: Path, interrupt: Interrupt) -> None:
    from ...engine.slots import default_slots
    from ...jobs.workers import DecideServiceSpec, decisions_on_cluster, model_for_workers, wait_for_model
    from ..inputs.model import cluster_workers
    from ..render.batch_progress import show_cluster_progress, stop_check_with_note

    options = job.options
    spec = model_for_workers(
        find_model(options.model, interrupt, slots=options.parallel), options.cluster.worker_cpus
    )
    parallel = options.parallel or default_slots(spec.options.thread_count)
    service = DecideServiceSpec(spec, job.plan, options.parallel, flag_sentence)
    with cluster_workers(options.cluster, spec, service, sequences=parallel, shard_size=parallel) as workers:
        run = _begin_run(job, wait_for_model(workers, interrupt.raise_if_requested))
        with (
            open_input(path) as file,
            job.rows.open(file) as rows,
            show_cluster_progress(job.progress, workers, _prints_on_terminal(job)) as display,
        ):
            new_rows = run.new_rows(_available_rows(options, rows))
            for row, result in decisions_on_cluster(workers, new_rows, stop_check_with_note(interrupt)):
                run.write(row, result)
                display.refresh()


def _prints_on_terminal(job: _TableJob) -> bool:
    return job.journal is None and sys.stdout.isatty()


def _available_rows(options: DecideOptions, rows: Iterator[Row]) -> Iterator[Row] | BackgroundReader[Row]:
    """Return the rows. A pipe is read in the background, because its rows may arrive slowly."""
    from ...jobs.lines import BackgroundReader

    return rows if options.rows_can_be_counted else BackgroundReader(rows)


def _begin_run(job: _TableJob, model: ModelDescription) -> TableRun:
    """Return the run over a table. Raises ``JournalError`` if existing results were made in another way."""
    from ...jobs.decisions import TableRun
    from ...jobs.journal import check_and_write_settings

    options, journal = job.options, job.journal
    if journal is None:
        if job.results.header is not None:
            print(job.results.header, flush=True)
        return TableRun(job.results, job.progress, partial(print, flush=True))
    if journal.is_file and options.output is not None:
        flags = {"context": options.model.context_size, "column": options.column, "trace": options.trace}
        check_and_write_settings(
            options.output,
            job.plan.recorded_settings(model, flags),
            has_results=bool(journal.existing_results),
            advice="use the same, or name another file with -o",
        )
    return TableRun(job.results, job.progress, journal.add, journal.existing_results)


def _fit(options: DecideOptions, plan: DecisionPlan, path: Path) -> None:
    """Write a calibration that is fitted to labelled rows, and print the quality before and after."""
    from ...decide.fitting import LabelledAnswers, check_label_counts, fit_calibration
    from ...jobs.batch import Failure
    from ...jobs.decisions import decided_rows
    from ..render.decisions import show_calibration
    from ..render.progress import counting_bar

    rows = _read_rows(options, path)
    row_count = _count_rows(options, rows, path)
    with open_input(path) as file, rows.open(file) as found:
        labelled_rows = [_labelled(plan.questions, row, path) for row in found]
    check_label_counts(plan.questions, [labels for _, labels in labelled_rows], with_bias=options.fit_bias)
    with interruptible() as interrupt, load_model(options.model, interrupt, slots=options.parallel) as model:
        decider = _make_decider(plan, model)
        slots = options.parallel or model.default_parallel
        answered = []
        with counting_bar("Asking", row_count, "rows", is_needed=True) as advance_bar:
            for row, result in decided_rows(decider, [row for row, _ in labelled_rows], slots):
                interrupt.raise_if_requested()
                if isinstance(result, Failure):
                    raise UsageError(f"{input_name(path)}: line {row.number}: {result.message}")
                answered.append(result.answers)
                advance_bar()
        labels = [labels for _, labels in labelled_rows]
        calibration = fit_calibration(decider, map(LabelledAnswers, answered, labels), with_bias=options.fit_bias)
    show_calibration(calibration)  # first, because the file may be one that cannot be written
    if options.output is not None:
        calibration.save(options.output)
    for note in dict.fromkeys(one.note for one in calibration.questions):
        if note is not None:
            print_note(note)


def _labelled(questions: Sequence[Question], row: Row, path: Path) -> tuple[Row, list[int | None]]:
    """Return a row with the numbers of its labels. Raises ``UsageError``."""
    from ...decide.labels import label_indices

    try:
        if row.error is not None:
            raise row.error
        return row, label_indices(questions, row.fields)
    except LogitsmithError as error:
        raise UsageError(f"{input_name(path)}: line {row.number}: {error}") from None
