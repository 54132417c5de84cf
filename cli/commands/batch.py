"""`gen batch`: answer a file of requests, and write a file of results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ...common.errors import UsageError
from ...common.files import file_errors_in_words, is_stdin, open_input
from ...common.flags import within
from ...common.llama_cpp_limits import MAX_SLOTS
from ...common.seeds import SEED_MAX, SEED_MIN
from ...common.text import count_noun
from ...requests.sources import report_schema
from ..command_options import TypedFlags, takes_options
from ..flags import REQUIRED, Options, argument, flag
from ..inputs.model import (
    find_draft_model,
    find_model,
    load_model,
    open_draft_model,
    show_llama_cpp_messages,
)
from ..inputs.overrides import flag_overrides
from ..inputs.settings import (
    MODEL_PRESET,
    ChatTemplateFlags,
    open_chosen_preset,
    preset_name,
    reported_seed,
)
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, line_sentence, print_message, print_note
from ..options.drafts import DraftingOptions
from ..options.model import ClusterOptions, LogOptions, ModelOptions
from ..options.output import output_flag, trace_flag
from ..options.prompt import ChatOptions, EscapeOptions, LengthOptions
from ..options.sampling import BeamSearchOptions, GrammarOptions, SamplingOptions
from ..options.text_rules import MeasuredTextOptions

if TYPE_CHECKING:
    from ...jobs.batch import BatchRun
    from ...jobs.journal import ExistingResults, ResultSink
    from ...jobs.lines import BackgroundReader, InputLine, PromptTemplate
    from ...requests.recorded_settings import ModelDescription
    from ...requests.resolve import RequestDefaults
    from ...requests.story_reader import StoryReader
    from ..render.batch_progress import BatchProgress


_batch = partial(flag, panel="Batch")


class BatchFormat(StrEnum):
    """A format of results."""

    openai = "openai"
    jsonl = "jsonl"


@dataclass(frozen=True, kw_only=True)
class BatchSamplingOptions(SamplingOptions):
    """The flags of sampling, with a base seed for all lines."""

    seed: int = flag(
        "-s",
        "--seed",
        panel="Sampling",
        help="Base seed for lines without a seed, combined with the line's id; -1 = random. [0]",
        default=0,
        display_name="--seed",
        limit=within(SEED_MIN, SEED_MAX, minus_one_meaning="a random seed"),
    )


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Options):
    """The options of `gen batch`."""

    typed_flags: TypedFlags
    requests: Path = argument(
        "REQUESTS",
        display_name="the file of requests",
        help="File with one request per line, or CSV with --template; - reads stdin.",
        default=REQUIRED,
    )
    output: Path = _batch(
        "-o",
        "--output",
        help="File of results, each written as soon as it is complete; - = stdout. [-]",
        default=Path("-"),
    )
    template: str | None = _batch(
        "--template",
        metavar="TEXT",
        help="Prompt for each row of a CSV file: 'Summarize: {text}'.",
        has_escapes=True,
    )
    delimiter: str | None = _batch(
        "--delimiter",
        metavar="C",
        help="Character between the fields of a CSV file, or 'tab'. [the one with which --template's columns are"
        " found]",
    )
    format: BatchFormat = _batch(
        "--format",
        help="Format of results: OpenAI's batch output, or shorter lines with jsonl. [openai]",
        default=BatchFormat.openai,
    )
    resume: bool = _batch(
        "--resume", help="Continue the file of results; requests with a result are skipped.", default=False
    )
    force: bool = _batch(
        "--force", help="With --resume: continue even if the model, flags or requests have changed.", default=False
    )
    strict_fields: bool = _batch(
        "--strict-fields",
        help="Reject lines in OpenAI's format with an unknown field, instead of a note about the field.",
        default=False,
    )
    parallel: int | None = _batch(
        "--parallel",
        "-np",
        metavar="N",
        help="Number of requests computed at a time. [by cores and memory, at most 8]",
        limit=within(1, MAX_SLOTS),
    )
    deterministic: bool = _batch(
        "--deterministic",
        help="Compute each request exactly as gen run does, to the last bit; slower.",
        default=False,
    )
    sampling: BatchSamplingOptions
    beam_search: BeamSearchOptions
    grammar: GrammarOptions
    logprobs: int | None = output_flag(
        "--logprobs",
        metavar="N",
        help="Write logprobs of the chosen and the N most likely tokens; -1 = all (jsonl only).",
    )
    trace: int | None = trace_flag()
    length: LengthOptions
    rules: MeasuredTextOptions
    escapes: EscapeOptions
    chat: ChatOptions
    drafts: DraftingOptions
    model: ModelOptions
    cluster: ClusterOptions
    log: LogOptions

    @property
    def needs_stdout(self) -> bool:
        return self.prints_results

    @property
    def prints_results(self) -> bool:
        return str(self.output) == "-"

    @property
    def answer_form(self) -> dict[str, Any]:
        """The flags that change results and that only `gen batch` has, by name, and the context length."""
        return {
            "context": self.model.context_size,
            "deterministic": self.deterministic,
            "template": self.template,
            "format": self.format.value,
        }

    @property
    def reads_file(self) -> bool:
        """True if the requests are in a file, which can be read twice, unlike a pipe."""
        return str(self.requests) != "-" and self.requests.is_file()

    def check(self) -> None:
        min_logprobs = -1 if self.format is BatchFormat.jsonl else 0
        if self.logprobs is not None and self.logprobs < min_logprobs:
            raise UsageError(f"--logprobs: {self.logprobs} is not ≥ 0, nor -1 for all with --format jsonl")
        if self.trace is not None and self.format is not BatchFormat.jsonl:
            raise UsageError(f"--trace: not supported by --format {self.format.value}; use --format jsonl")
        self._check_beams()
        if self.resume and self.prints_results:
            raise UsageError("--resume needs a file of results; name it with -o")
        if self.force and not self.resume:
            raise UsageError("--force needs --resume")
        suffix = Path(self.requests.name.lower().removesuffix(".gz")).suffix
        if self.template is None and suffix in (".csv", ".tsv"):
            raise UsageError("a CSV file needs a prompt for each row, such as --template 'Summarize: {text}'")
        self._check_delimiter()
        if self.cluster.on is not None and self.drafts.draft_model is not None:
            raise UsageError("-md: workers of a cluster have no draft model; leave out -md or --on")
        both_exist = self.requests.exists() and self.output.exists()
        if not self.prints_results and both_exist and self.requests.samefile(self.output):
            raise UsageError(f"-o: {self.output} is the file of the requests; name another file")

    @property
    def field_delimiter(self) -> str | None:
        """The character between the fields of a CSV file; None if it is to be found."""
        return "\t" if self.delimiter in ("tab", "\\t") else self.delimiter

    def _check_delimiter(self) -> None:
        if self.field_delimiter is None:
            return
        if self.template is None:
            raise UsageError("--delimiter is for CSV files, which need --template")
        if len(self.field_delimiter) != 1 or self.field_delimiter in '"\r\n ':
            raise UsageError(f"--delimiter: {self.delimiter!r} is not one character, such as ';', nor 'tab'")

    def _check_beams(self) -> None:
        """Raise ``UsageError`` for flags that a beam search does not support, or that need one."""
        if self.beam_search.beams is None:
            self.typed_flags.reject_unavailable(BeamSearchOptions, available=())
        elif self.trace is not None:
            raise UsageError("--beams draws no token, but --trace records how tokens are drawn; leave one out")
        elif not self.drafts.is_off:
            name = "-md" if self.drafts.draft_model is not None else "--lookup"
            raise UsageError(f"--beams draws no token, but {name} drafts a text that is drawn; leave one out")


@takes_options(BatchOptions)
def batch(options: BatchOptions) -> None:
    """Answer a file of requests, several at a time, each as if it ran alone.

    A line has OpenAI's batch format, or {"id", "prompt" or "messages", "preset", "chain", "set", "seed",
    "max_tokens", "stop", "grammar" or "json_schema", "logprobs", "logprobs_from", "trace", "chat_template",
    "chat_template_kwargs", "beams", "length_penalty", "early_stopping"}. A flag applies to all lines that do not
    set the value themselves.
    """
    from ...jobs.journal import closing_results
    from ..render.batch_progress import BatchProgress

    show_llama_cpp_messages(options.log)
    template = _read_template(options)
    progress = BatchProgress(_count_requests(options, template))
    defaults = _check_defaults(options)
    base_seed = reported_seed(options.sampling.seed, "the base seed")
    results = _open_results(options)
    job = _BatchJob(options, defaults, base_seed, template, results, progress)
    with closing_results(results), interruptible() as interrupt:
        (_run_batch_locally if options.cluster.on is None else _run_batch_on_cluster)(job, interrupt)
    print_message(f"gen: {progress.summary()}")
    if progress.first_failure is not None:
        number, reason = progress.first_failure
        print_note(f"line {number} is the first that failed: {reason}")
    if interrupt.requested:
        if not options.prints_results:
            print_note("--resume continues from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed_count or progress.existing_failure_count:
        raise typer.Exit(FAILED)


class _BatchJob(NamedTuple):
    """A batch whose model is not loaded yet."""

    options: BatchOptions
    defaults: RequestDefaults  # the settings of lines that do not set them
    base_seed: int  # number from which the seed of a line is computed, together with the line's id
    template: PromptTemplate | None  # the prompt of a CSV file's rows; None for JSON lines
    results: ResultSink
    progress: BatchProgress


def _run_batch_locally(job: _BatchJob, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet."""
    from ...requests.recorded_settings import describe_model
    from ...requests.story_reader import StoryReader
    from ..render.batch_progress import show_progress, stop_check_with_note

    options = job.options
    draft = find_draft_model(options.drafts, interrupt)
    job = job._replace(defaults=replace(job.defaults, draft=draft))
    with load_model(options.model, interrupt, slots=options.parallel, draft=draft) as model:
        open_draft_model(draft, model)
        run = _make_run(job, describe_model(model), StoryReader(model, print_note))
        with _open_lines(job) as lines, show_progress(job.progress, _prints_on_terminal(options)) as display:
            run.run(
                model,
                lines,
                options.parallel or model.default_parallel,
                deterministic=options.deterministic,
                should_stop=stop_check_with_note(interrupt),
                on_progress=display.add_tokens,
                note=print_note,
            )
        if not interrupt.requested:
            _report_unmatched(options, run)


def _run_batch_on_cluster(job: _BatchJob, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet."""
    from ...engine.slots import default_slots
    from ...jobs.workers import BatchServiceSpec, answer_on_cluster, model_for_workers, wait_for_model
    from ..inputs.model import cluster_workers
    from ..render.batch_progress import show_cluster_progress, stop_check_with_note

    options = job.options
    spec = find_model(options.model, interrupt, slots=options.parallel)
    spec = model_for_workers(spec, options.cluster.worker_cpus)
    parallel = options.parallel or default_slots(spec.options.thread_count)
    service = BatchServiceSpec(
        spec,
        options.parallel,
        deterministic=options.deterministic,
        is_openai=options.format is BatchFormat.openai,
        describe_error=line_sentence,
    )
    with cluster_workers(
        options.cluster,
        spec,
        service,
        sequences=parallel,
        shard_size=parallel,
        needs_same_kernels=options.deterministic,
    ) as workers:
        run = _make_run(job, wait_for_model(workers, interrupt.raise_if_requested))
        with (
            _open_lines(job) as lines,
            show_cluster_progress(job.progress, workers, _prints_on_terminal(options)) as display,
        ):
            answer_on_cluster(run, workers, lines, stop_check_with_note(interrupt), display.refresh)
        if not interrupt.requested:
            _report_unmatched(options, run)


def _prints_on_terminal(options: BatchOptions) -> bool:
    return options.prints_results and sys.stdout.isatty()


def _make_run(job: _BatchJob, model: ModelDescription, story_reader: StoryReader | None = None) -> BatchRun:
    """Return the run of a batch with a model. Raises ``JournalError`` if existing results are of another model."""
    from ...jobs.batch import BatchRun
    from ...jobs.journal import check_and_write_settings, settings_digest
    from ...jobs.lines import read_input_lines
    from ...requests.recorded_settings import batch_settings
    from ...requests.resolve import RequestResolver

    options = job.options
    results = job.results
    existing_results = results.existing_results
    resolver = RequestResolver(job.defaults, model.metadata, print_note, model.name, story_reader)
    settings = batch_settings(model, resolver, job.base_seed, options.answer_form)
    run = BatchRun(
        resolver,
        results,
        job.progress,
        settings_digest(settings),
        base_seed=job.base_seed,
        note=print_note,
        is_openai=options.format is BatchFormat.openai,
        keeps_mismatched_results=options.force,
        has_strict_fields=options.strict_fields,
        describe_error=line_sentence,
    )
    if results.is_file:
        check_and_write_settings(
            options.output, settings, has_results=bool(existing_results), overwrite=options.force
        )
    # the key of an answer is a string; that of a failed line is not
    answers_without_id = [
        key for key, request_id in existing_results.items() if isinstance(key, str) and request_id is None
    ]
    if answers_without_id:
        count = count_noun(len(answers_without_id), "result")
        print_note(
            f"{options.output} has {count} without a request_id: whether they fit the requests cannot be checked"
        )
    if existing_results and options.reads_file and not options.force:
        with open_input(options.requests) as file:
            run.check_results(read_input_lines(file, job.template, options.field_delimiter))
    return run


@contextmanager
def _open_lines(job: _BatchJob) -> Iterator[Iterator[InputLine] | BackgroundReader[InputLine]]:
    """Yield the lines of the input, which is closed at the end of the block."""
    # A pipe is read in the background, because its lines may arrive slowly, and running requests should not wait.
    from ...jobs.lines import BackgroundReader, read_input_lines

    with open_input(job.options.requests) as file:
        lines = read_input_lines(file, job.template, job.options.field_delimiter)
        yield lines if job.options.reads_file else BackgroundReader(lines)


def _report_unmatched(options: BatchOptions, run: BatchRun) -> None:
    """Print a note about results that belong to no request of the input."""
    if run.unmatched_result_count:
        results = count_noun(run.unmatched_result_count, "result")
        print_note(f"{options.output} also holds {results} for requests that are not in this file")


class StdoutSink:
    """Writer of results to stdout, each written immediately."""

    is_file = False

    def __init__(self) -> None:
        self.existing_results: ExistingResults = {}

    def add(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Keep stdout open."""


def _read_template(options: BatchOptions) -> PromptTemplate | None:
    from ...jobs.lines import PromptTemplate
    from ...requests.errors import InvalidLineError

    if options.template is None:
        return None
    try:
        return PromptTemplate(options.template)
    except InvalidLineError as error:
        raise UsageError(f"--template: {error}") from None


def _count_requests(options: BatchOptions, template: PromptTemplate | None) -> int | None:
    """Return the number of requests; None if they can be read only once."""
    from ...jobs.lines import count_input_lines
    from ...requests.errors import InvalidLineError

    if not options.reads_file:
        if not is_stdin(options.requests):
            with file_errors_in_words(options.requests):
                options.requests.stat()  # raises before a file of results is created
        return None
    try:
        with open_input(options.requests) as file:
            return count_input_lines(file, template, options.field_delimiter)
    except InvalidLineError as error:
        raise UsageError(f"--template: {error}") from None


def _check_defaults(options: BatchOptions) -> RequestDefaults:
    """Return the settings that the flags give to all lines, checked as far as possible without the model."""
    from ...presets.overrides import parse_set
    from ...presets.settings import resolve_settings
    from ...requests.resolve import RequestDefaults, grammar_of

    sampling = options.sampling
    sets = [parse_set(text) for text in sampling.set or ()]
    flags = (*sets, *flag_overrides(options))
    name = preset_name(sampling.preset)
    preset = None if name == MODEL_PRESET else open_chosen_preset(name, sampling.preset)
    settings = resolve_settings(preset, chain=sampling.chain, flags=flags)
    is_lenient = options.grammar.schema_lenient
    ignored_schema_paths: tuple[str, ...] = ()
    grammar = grammar_of(settings, is_lenient=is_lenient)
    if grammar is not None:
        grammar.check()
        report_schema(grammar, print_note)
        ignored_schema_paths = grammar.ignored_schema_paths
    chat_template = ChatTemplateFlags(options.chat.template)
    return RequestDefaults(
        name,
        sampling.chain,
        flags,
        uses_chat_template=options.chat.chat,
        top_logprob_count=options.logprobs,
        trace_top_count=options.trace,
        is_schema_lenient=is_lenient,
        ignored_schema_paths=ignored_schema_paths,
        chat_template=chat_template.source,
        chat_template_kwargs=chat_template.variables,
        lookup=options.drafts.lookup,
        beams=options.beam_search.settings(best_count=1),
    )


def _open_results(options: BatchOptions) -> ResultSink:
    from ...jobs.journal import ResultJournal

    if options.prints_results:
        return StdoutSink()
    is_openai = options.format is BatchFormat.openai
    return ResultJournal(options.output, should_resume=options.resume, is_openai=is_openai)
