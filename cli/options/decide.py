"""The flags of `gen decide`, and what is checked of them before anything is read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from ...common.files import is_stdin
from ...common.flags import CompletionKind, Limit, at_least, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ..command_options import reject_same_file
from ..flags import Options, argument, flag
from .model import ClusterOptions, LogOptions, ModelOptions
from .prompt import ChatTemplateOptions, EscapeOptions, PromptOptions

_question = partial(flag, panel="Questions")
_decide = partial(flag, panel="Decision")
_table = partial(flag, panel="Table")

_MAX_PERMUTATIONS = 10_000
_SHARE = Limit("within 0..1", 0.0, 1.0)
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
        limit=within(1, _MAX_PERMUTATIONS),
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
        if self.writes_file:
            sources = [("--table", self.table), ("--fit", self.fit)]
            settings = [("--questions", self.questions), ("--calibration", self.calibration)]
            reject_same_file([("-o", self.output)], [*sources, *settings])

    @property
    def question_texts(self) -> dict[str, str]:
        """The question that a flag asks, by the flag; empty if the questions are in a file."""
        texts = {"--predicate": self.predicate, "--choice": self.choice, "--score": self.score}
        return {flag_name: text for flag_name, text in texts.items() if text is not None}

    def _check_questions(self) -> None:
        given = [*self.question_texts, *(["--questions"] if self.questions is not None else [])]
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
        }

    @property
    def writes_file(self) -> bool:
        return self.output is not None and not is_stdin(self.output)

    @property
    def writes_csv(self) -> bool:
        return self.is_csv and self.format is not DecideFormat.jsonl
