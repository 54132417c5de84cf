"""`gen compare`: the same prompts and seeds with several presets, chains or models, measured and shown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from ...common.errors import UsageError
from ...common.files import write_file_atomically
from ...common.flags import CompletionKind, Limit, within
from ...common.llama_cpp_limits import MAX_SLOTS
from ...common.seeds import SEED_MAX, SEED_MIN
from ...common.text import count_noun
from ..command_options import takes_options
from ..flags import Options, flag
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.overrides import flag_overrides
from ..inputs.settings import ChatTemplateFlags, reported_seed
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, flag_sentence, print_message, print_note
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import ChatOptions, ComparedLengthOptions, EscapeOptions, PromptOptions
from ..options.sampling import GrammarOptions
from ..options.text_rules import TextRuleOptions

if TYPE_CHECKING:
    from ...compare.arms import Arm
    from ...compare.distribution_measures import MeasuredArm, TokenPath
    from ...compare.plan import Plan, TextTable
    from ...engine.model import Model
    from ...presets.settings import Settings
    from ...requests.lines import RequestLine
    from ...requests.resolve import RequestDefaults

_compare = partial(flag, panel="Comparison")
_DEFAULT_TOKENS = 128
_ALONG = ("greedy", "texts", "none")  # values of --along that are not a file
_WINDOW = 512  # number of tokens of a window of --along FILE, as in llama.cpp's perplexity tool


class CompareFormat(StrEnum):
    """A format of the result."""

    table = "table"
    json = "json"
    csv = "csv"


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Options):
    """The options of `gen compare`."""

    advice_words: ClassVar[Mapping[str, str]] = {"--chain": "chain with --arm NAME=CHAIN"}

    prompt: PromptOptions
    arm: list[str] | None = _compare(
        "--arm",
        metavar="NAME=CHAIN",
        help="What is compared: NAME=CHAIN, NAME=PRESET or NAME=PRESET@MODEL, the name is optional; repeatable.",
        completion_kind=CompletionKind.PRESET_OR_CHAIN,
    )
    base: str | None = _compare(
        "--base",
        metavar="PRESET|CHAIN",
        help="Preset or chain of --grid, and of arms such as q4=@FILE. [default]",
        completion_kind=CompletionKind.PRESET_OR_CHAIN,
    )
    grid: list[str] | None = _compare(
        "--grid",
        metavar="NAME.PARAM=A,B",
        help="An arm for each value, and for each combination if repeated: min_p.p=0.02,0.05.",
    )
    seeds: int = _compare(
        "--seeds",
        metavar="N",
        help="Texts of each prompt and arm. [10]",
        default=10,
        limit=Limit("1 to 10,000", 1, 10_000),
    )
    seed: int = _compare(
        "-s",
        "--seed",
        help="Seed of the first text; the seeds count up, and each prompt has others; -1 = random. [0]",
        default=0,
        limit=within(SEED_MIN, SEED_MAX, minus_one_meaning="a random seed"),
    )
    along: str = _compare(
        "--along",
        metavar="TEXT",
        help="Compare distributions along greedy texts of the model, texts of the arms, none, or a FILE. [greedy]",
        default="greedy",
    )
    set: list[str] | None = _compare(
        "--set",
        metavar="NAME.PARAM=VALUE",
        help="Set one parameter in all arms; repeatable.",
        completion_kind=CompletionKind.SETTING,
    )
    parallel: int | None = _compare(
        "--parallel",
        "-np",
        metavar="N",
        help="Number of texts generated at a time. [by cores and memory, at most 8]",
        limit=within(1, MAX_SLOTS),
    )
    output: Path | None = _compare(
        "-o",
        "--output",
        metavar="FILE.html",
        help="Write a report for the browser, with all texts and blind votes.",
    )
    format: CompareFormat = _compare(
        "--format",
        help="Format on stdout: a table, json with everything, or csv. [table]",
        default=CompareFormat.table,
    )
    results: Path | None = _compare(
        "--results",
        metavar="FILE.jsonl",
        help="Store each text as soon as it is complete. [FILE.texts.jsonl of -o, otherwise none]",
    )
    resume: bool = _compare(
        "--resume",
        help="Continue with the stored texts; more arms, prompts and seeds may be added.",
        default=False,
    )
    length: ComparedLengthOptions
    grammar: GrammarOptions
    rules: TextRuleOptions
    escapes: EscapeOptions
    chat: ChatOptions
    model: ModelOptions
    log: LogOptions

    @property
    def results_path(self) -> Path | None:
        """The file of results; None if texts are not stored."""
        if self.results is not None:
            return self.results
        return None if self.output is None else self.output.with_suffix(".texts.jsonl")

    def check(self) -> None:
        if self.output is not None and self.output.suffix.lower() not in (".html", ".htm"):
            raise UsageError(f"-o: {self.output} is not a name of an HTML file, such as report.html")
        if self.output is not None and not self.output.parent.is_dir():
            raise UsageError(f"-o: there is no folder {self.output.parent}")
        if self.resume and self.results_path is None:
            raise UsageError("--resume needs a file of results: --results FILE.jsonl, or -o FILE.html")
        if self.along not in _ALONG and not Path(self.along).is_file():
            raise UsageError(f"--along: {self.along!r} is not greedy, texts, none, or a file")


@takes_options(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Compare presets, chains or models on the same prompts.

    Each arm continues each prompt with the same seeds. Differences of pairs of texts have intervals, and are shown
    if zero is not inside.

      gen compare "The sea was" --arm default --arm 'hot=temp1.5 > min-p0.05' --seeds 20
      gen compare -f prompts.jsonl --grid min_p.p=0.02,0.05,0.1 -o report.html
      gen compare -f prompts.jsonl --arm q8=@big.gguf --arm q4=@small.gguf
    """
    from ...compare.arms import make_arms
    from ...compare.plan import Plan
    from ...jobs.journal import closing_results
    from ...requests.errors import InvalidLineError

    show_llama_cpp_messages(options.log)
    arms = make_arms(options.arm or (), options.base, options.grid or ())
    try:
        prompts, piped = _read_prompts(options)
    except InvalidLineError as error:
        raise UsageError.of(error) from None
    seed = reported_seed(options.seed, "the seed")
    plan = Plan(arms, prompts, seed, options.seeds, _defaults(options))
    job = _Comparison(options, plan, piped)
    if all(arm.preset != "model" for arm in arms):
        job.check({})
    table = _open_table(options)
    with closing_results(table), interruptible() as interrupt, ExitStack() as models:
        job.run(table, interrupt, models)
    if interrupt.requested:
        if table.is_file:
            print_note("--resume continues from here")
        else:
            print_note("the texts were not stored; --results FILE.jsonl does")
        sys.stdout.flush()
        raise typer.Exit(interrupt.exit_code)
    if table.failures:
        raise typer.Exit(FAILED)


def _read_prompts(options: CompareOptions) -> tuple[Sequence[RequestLine], str]:
    """Return the prompts, and the text that was read from stdin."""
    # A JSONL file has several prompts; any other source is one prompt. Raises ``InvalidLineError``.
    from ...compare.plan import read_prompts, text_prompt
    from ..inputs.prompt import read_prompt_text

    file = options.prompt.file
    if file is not None and file.suffix.lower() in (".jsonl", ".ndjson"):
        if options.prompt.prompt is not None or options.prompt.prompt_option is not None:
            raise UsageError("the prompt is given twice, by -f and on the command line")
        return read_prompts(file), ""
    prompt = read_prompt_text(options.prompt)
    return [text_prompt(prompt.text)], prompt.piped


def _defaults(options: CompareOptions) -> RequestDefaults:
    """Return the settings that all arms have unless they override them."""
    from ...presets.overrides import Override, parse_set
    from ...requests.resolve import RequestDefaults

    sets = [parse_set(text) for text in options.set or ()]
    overrides = [*sets, *flag_overrides(options)]
    if options.length.max_tokens is None:
        overrides.insert(0, Override("-n", "max_tokens", _DEFAULT_TOKENS))
    template = ChatTemplateFlags(options.chat.template)
    return RequestDefaults(
        overrides=tuple(overrides),
        uses_chat_template=options.chat.chat,
        is_schema_lenient=options.grammar.schema_lenient,
        chat_template=template.source,
        chat_template_kwargs=template.variables,
    )


def _open_table(options: CompareOptions) -> TextTable:
    from ...compare.plan import TextTable
    from ...jobs.journal import ResultJournal

    path = options.results_path
    if path is None:
        return TextTable()
    flag = "-o" if options.results is None else "--results"
    journal = ResultJournal(path, should_resume=options.resume, is_openai=False, flag=flag)
    return TextTable(journal, path)


class _Comparison:
    """A comparison of the command: its texts, measures and output."""

    def __init__(self, options: CompareOptions, plan: Plan, piped: str) -> None:
        self._options = options
        self._plan = plan
        self._piped = piped  # the text that was read from stdin
        self._file_paths: list[TokenPath] = []  # the windows of the file of ``--along``

    def check(self, metadata: Mapping[str, str]) -> None:
        """Check the settings of each arm, and note what is ignored."""
        from ...compare.plan import check_arms
        from ...requests.errors import InvalidLineError

        try:
            check_arms(self._plan, metadata, print_note)
        except InvalidLineError as error:
            raise UsageError.of(error) from None

    def run(self, table: TextTable, interrupt: Interrupt, stack: ExitStack) -> None:
        """Generate the texts, measure, and write the result; after a signal, the texts so far are measured."""
        # ``table`` gets the texts; ``stack`` closes the models.
        from ...compare.distribution_measures import check_vocabularies
        from ..render.comparison import write_result

        options = self._options
        model_of_arm = self._load_models(interrupt, stack)
        if options.along != "none":
            # errors are raised before texts are generated
            check_vocabularies(self._measured_arms(model_of_arm))
            self._read_along(model_of_arm[0])
        self._generate(table, model_of_arm, interrupt)
        distributions = None
        if options.along != "none" and not interrupt.requested:
            distributions = self._measure_distributions(table, model_of_arm, interrupt)
        result = self._result(table, model_of_arm, distributions)
        if options.output is not None:
            from ...compare.result import comparison_page

            page = comparison_page(result)
            write_file_atomically(options.output, lambda file: file.write(page.encode()))
        write_result(result, options.format.value, sys.stdout)
        if options.output is not None:
            print_message(f"gen: {options.output} has the texts and plots; open it in a browser")
        if table.failures:
            name, message = next(iter(table.failures.items()))
            print_note(f"{count_noun(len(table.failures), 'text')} failed, such as {name}: {message}")

    def _load_models(self, interrupt: Interrupt, stack: ExitStack) -> list[Model]:
        """Return the model of each arm. Each model is loaded once."""
        from ...models.errors import AbortedError

        loaded: dict[str | None, Model] = {}

        def abort() -> None:
            for model in loaded.values():
                model.abort()

        for arm in self._plan.arms:
            if arm.model not in loaded:
                options = self._options.model
                if arm.model is not None:
                    options = replace(options, model=arm.model, hub_repository=None, hub_file=None)
                loaded[arm.model] = stack.enter_context(
                    load_model(options, interrupt, slots=self._options.parallel)
                )
                interrupt.abort_with(abort, AbortedError)
                if arm.preset == "model":
                    self.check(loaded[arm.model].metadata)
        return [loaded[arm.model] for arm in self._plan.arms]

    def _generate(self, table: TextTable, model_of_arm: Sequence[Model], interrupt: Interrupt) -> None:
        """Generate all texts that the table does not have."""
        from ...compare.plan import make_run
        from ..render.batch_progress import BatchProgress, show_progress, stop_check_with_note

        plan = self._plan
        progress = BatchProgress(plan.text_count)
        should_stop = stop_check_with_note(interrupt)
        with show_progress(progress, prints_results=False) as display:
            for model, arms in self._arms_by_model(model_of_arm):
                if interrupt.requested:
                    break
                run = make_run(plan, arms, model, table, progress, describe_error=flag_sentence)
                run.run(
                    model,
                    plan.lines(arms),
                    self._options.parallel or model.default_parallel,
                    should_stop=should_stop,
                    on_progress=display.add_tokens,
                    note=print_note,
                )
        print_message(f"gen: {progress.summary()}")

    def _arms_by_model(self, model_of_arm: Sequence[Model]) -> list[tuple[Model, list[Arm]]]:
        """Return each model with its arms."""
        models = {id(model): model for model in model_of_arm}
        arms_of_model: dict[int, list[Arm]] = {key: [] for key in models}
        for arm, model in zip(self._plan.arms, model_of_arm, strict=True):
            arms_of_model[id(model)].append(arm)
        return [(model, arms_of_model[key]) for key, model in models.items()]

    def _settings(self, model_of_arm: Sequence[Model]) -> list[Settings]:
        return [
            self._plan.settings(arm, model.metadata)
            for arm, model in zip(self._plan.arms, model_of_arm, strict=True)
        ]

    def _measured_arms(self, model_of_arm: Sequence[Model]) -> list[MeasuredArm]:
        from ...compare.distribution_measures import MeasuredArm
        from ...requests.engine_request import text_rules

        return [
            MeasuredArm(arm.name, model, settings.steps, text_rules(settings))
            for arm, model, settings in zip(
                self._plan.arms, model_of_arm, self._settings(model_of_arm), strict=True
            )
        ]

    def _measure_distributions(
        self, table: TextTable, model_of_arm: Sequence[Model], interrupt: Interrupt
    ) -> dict[str, Any] | None:
        """Return the distances between distributions; None if there is no text along which to measure them."""
        from ...compare.distribution_measures import measure_paths
        from ...compare.result import distribution_fields
        from ..render.progress import scoring_bar

        plan = self._plan
        along, paths = self._paths(table, model_of_arm, interrupt)
        if not paths:
            print_note("distributions are not compared: there is no text along which to measure them")
            return None
        with scoring_bar() as progress, interrupt.graceful_shutdown():
            values = measure_paths(
                self._measured_arms(model_of_arm),
                paths,
                seed=plan.seed,
                progress=progress,
                is_interrupted=lambda: interrupt.requested,
            )
        has_grammar = any(settings["grammar"].value is not None for settings in self._settings(model_of_arm))
        if has_grammar:
            print_note("distributions are compared without the grammar")
        return distribution_fields([arm.name for arm in plan.arms], along, values)

    def _read_along(self, model: Model) -> None:
        """Read the file of --along if there is one. Raises ``UsageError`` for a text that is too short."""
        from ...compare.distribution_measures import text_windows
        from ..inputs.prompt import read_text

        along = self._options.along
        if along not in _ALONG:
            ids = model.vocabulary.tokenize_prompt(read_text(Path(along)).encode())
            self._file_paths = list(text_windows(model, ids, min(_WINDOW, model.context.length)))

    def _paths(
        self, table: TextTable, model_of_arm: Sequence[Model], interrupt: Interrupt
    ) -> tuple[str, list[TokenPath]]:
        """Return a description of the texts along which distributions are compared, and these texts."""
        from ...compare.distribution_measures import arm_paths, greedy_paths

        plan = self._plan
        model = model_of_arm[0]
        along = self._options.along
        requests = plan.requests(plan.arms[0], model)
        if along == "greedy":
            return "the model's greedy texts", greedy_paths(model, requests, lambda: interrupt.requested)
        if along == "texts":
            return "the texts of all arms", arm_paths(model, requests, plan, table)
        return along, self._file_paths

    def _result(
        self, table: TextTable, model_of_arm: Sequence[Model], distributions: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        from ...compare.result import ArmFacts, make_result
        from .run import replay_command

        facts = [
            ArmFacts(model.name, settings.steps)
            for model, settings in zip(model_of_arm, self._settings(model_of_arm), strict=True)
        ]
        command = replay_command(None, self._piped)
        return {"command": command, **make_result(self._plan, facts, table, distributions)}
