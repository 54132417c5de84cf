"""`gen batch`: a file of requests in, a file of results out."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import typer

from ...common.errors import UsageError
from ...common.files import file_errors_in_words, is_stdin, open_input
from ...common.text import count_noun
from ...jobs.sources import grammar_folders, report_schema
from ..command_options import takes_options
from ..inputs.model import find_model, load_model, show_llama_cpp_messages
from ..inputs.settings import ChatTemplateFlags, fresh_seed, open_chosen_preset, overrides, preset_name
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, line_sentence, note, say
from ..options.batch import BatchFormat, BatchOptions

if TYPE_CHECKING:
    from ...jobs.batch import BatchRun
    from ...jobs.journal import ExistingResults, ResultSink
    from ...jobs.lines import BackgroundItems, InputLine, PromptTemplate
    from ...jobs.resolve import BatchDefaults, ModelDescription
    from ..render.batch_progress import BatchProgress


@takes_options(BatchOptions)
def batch(options: BatchOptions) -> None:
    """Answer a file of requests, several at a time, each as if it were alone.

    A line is OpenAI's batch format, or {"id", "prompt" or "messages", "preset", "chain", "set", "seed",
    "max_tokens", "stop", "grammar" or "json_schema", "logprobs", "trace", "chat_template",
    "chat_template_kwargs"}. The flags hold for what a line leaves open.
    """
    from ...jobs.journal import closed_at_end
    from ..render.batch_progress import BatchProgress

    show_llama_cpp_messages(options.log)
    template = _read_template(options)
    progress = BatchProgress(_count_requests(options, template))
    defaults = _check_defaults(options)
    results = _open_results(options)
    parts = _Parts(options, defaults, template, results, progress)
    with closed_at_end(results), interruptible() as interrupt:
        (_answer_here if options.cluster.on is None else _answer_on_cluster)(parts, interrupt)
    say(f"gen: {progress.summary()}")
    if interrupt.requested:
        if not options.prints_results:
            note("--resume goes on from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed or progress.existing_failures:
        raise typer.Exit(FAILED)


class _Parts(NamedTuple):
    """What a batch is made of before its model is known; ``template``: None for JSON lines."""

    options: BatchOptions
    defaults: BatchDefaults
    template: PromptTemplate | None
    results: ResultSink
    progress: BatchProgress


def _answer_here(parts: _Parts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ModelError``, ``JournalError``."""
    from ...jobs.resolve import describe_model
    from ..render.batch_progress import announcing_stop, show_progress

    options = parts.options
    with load_model(options.model, interrupt) as model:
        run = _begin(parts, describe_model(model))
        has_results_on_terminal = options.prints_results and sys.stdout.isatty()
        with _lines(parts) as lines, show_progress(parts.progress, has_results_on_terminal) as display:
            run.run(
                model,
                lines,
                options.parallel or model.default_parallel,
                isolated=options.deterministic,
                should_stop=announcing_stop(interrupt),
                on_progress=display.add_tokens,
                note=note,
            )
        if not interrupt.requested:
            _report_unmatched(options, run)


def _answer_on_cluster(parts: _Parts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet. Raises ``ClusterError``, ``ModelError``, ``JournalError``."""
    from ...engine.native.options import default_slots
    from ...jobs.workers import BatchServiceSpec, answer_on_cluster, model_for_workers, wait_for_model
    from ..inputs.cluster import cluster_workers
    from ..render.batch_progress import announcing_stop, show_cluster_progress

    options = parts.options
    spec = model_for_workers(find_model(options.model, interrupt), options.cluster.worker_cpus)
    parallel = options.parallel or default_slots(spec.arguments["threads"])
    is_openai = options.format is BatchFormat.openai
    service = BatchServiceSpec(spec, parallel, options.deterministic, is_openai, line_sentence)
    with cluster_workers(
        options.cluster, spec, service, parallel, parallel, needs_same_kernels=options.deterministic
    ) as workers:
        run = _begin(parts, wait_for_model(workers, interrupt.raise_if_requested))
        with _lines(parts) as lines, show_cluster_progress(parts.progress, workers, options) as display:
            answer_on_cluster(run, workers, lines, announcing_stop(interrupt), display.refresh)
        if not interrupt.requested:
            _report_unmatched(options, run)


def _begin(parts: _Parts, model: ModelDescription) -> BatchRun:
    """Return the run of a batch with this model. Raises ``JournalError`` if the results are of another one."""
    from ...jobs.batch import BatchRun
    from ...jobs.journal import keep_settings, settings_digest
    from ...jobs.lines import read_input_lines
    from ...jobs.resolve import RequestResolver, batch_settings

    options, results = parts.options, parts.results
    existing = results.existing
    resolver = RequestResolver(parts.defaults, model.metadata, note)
    settings = batch_settings(model, parts.defaults, resolver, options.answer_form)
    run = BatchRun(
        resolver,
        results,
        parts.progress,
        settings_digest(settings),
        is_openai=options.format is BatchFormat.openai,
        keeps_others=options.force,
        sentence=line_sentence,
    )
    if results.is_file:
        keep_settings(options.output, settings, has_results=bool(existing), is_forced=options.force)
    unnamed = sum(isinstance(key, str) and request_id is None for key, request_id in existing.items())
    if unnamed:
        noun = count_noun(unnamed, "result")
        note(f"{options.output} has {noun} without a request_id: what made them cannot be checked")
    if existing and options.reads_file and not options.force:
        with open_input(options.requests) as file:
            run.check_results(read_input_lines(file, parts.template))
    return run


@contextmanager
def _lines(parts: _Parts) -> Iterator[Iterator[InputLine] | BackgroundItems[InputLine]]:
    """Open the input while inside.

    Lines of a pipe may come slowly, and the requests that are being answered should not wait for them.
    """
    from ...jobs.lines import BackgroundItems, read_input_lines

    with open_input(parts.options.requests) as file:
        lines = read_input_lines(file, parts.template)
        yield lines if parts.options.reads_file else BackgroundItems(lines)


def _report_unmatched(options: BatchOptions, run: BatchRun) -> None:
    """Print a note on results that belong to no request of the input."""
    if run.unmatched_results:
        results = count_noun(run.unmatched_results, "result")
        note(f"{options.output} also holds {results} for requests that are not in this file")


class StdoutSink:
    """Results on stdout, each written at once."""

    is_file = False

    def __init__(self) -> None:
        self.existing: ExistingResults = {}

    def add(self, line: str) -> None:
        """Write a result."""
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: stdout stays open."""


def _read_template(options: BatchOptions) -> PromptTemplate | None:
    from ...jobs.errors import InvalidLineError
    from ...jobs.lines import PromptTemplate

    try:
        return None if options.template is None else PromptTemplate(options.template)
    except InvalidLineError as error:
        raise UsageError(f"--template: {error}") from None


def _count_requests(options: BatchOptions, template: PromptTemplate | None) -> int | None:
    """How many requests there are; None if they can be read only once."""
    from ...jobs.errors import InvalidLineError
    from ...jobs.lines import count_input_lines

    if not options.reads_file:
        if not is_stdin(options.requests):
            with file_errors_in_words(options.requests):
                options.requests.stat()  # before a file of results is made
        return None
    try:
        with open_input(options.requests) as file:
            return count_input_lines(file, template)
    except InvalidLineError as error:
        raise UsageError(f"--template: {error}") from None


def _check_defaults(options: BatchOptions) -> BatchDefaults:
    """What the flags set for all lines, checked as far as that needs no model."""
    from ...grammars.spec import resolve_grammar
    from ...jobs.resolve import BatchDefaults, batch_grammar
    from ...presets.overrides import parse_set
    from ...presets.settings import resolve_settings

    sampling = options.sampling
    flags = (*map(parse_set, sampling.set or ()), *overrides(options))
    name = preset_name(sampling.preset)
    settings = resolve_settings(
        None if name == "model" else open_chosen_preset(name, sampling.preset), chain=sampling.chain, flags=flags
    )
    is_lenient = options.grammar.schema_lenient
    left_out: tuple[str, ...] = ()
    if settings.grammar.value is not None:
        value = batch_grammar(settings.grammar.value, is_lenient=is_lenient)
        spec = resolve_grammar(value, grammar_folders(), settings.grammar_base)
        spec.check()
        report_schema(spec, note)
        left_out = spec.left_out
    seed = _base_seed(sampling.seed)
    chat_template = ChatTemplateFlags(options.chat.template, options.given)
    return BatchDefaults(
        name,
        sampling.chain,
        flags,
        seed,
        options.chat.chat,
        options.logprobs,
        trace=options.trace,
        schema_lenient=is_lenient,
        left_out=left_out,
        chat_template=chat_template.source,
        chat_template_kwargs=chat_template.variables,
    )


def _base_seed(seed: int) -> int:
    """The base seed; a fresh one is printed, so that the batch can be repeated and resumed."""
    if seed >= 0:
        return seed
    seed = fresh_seed()
    note(f"seeds come from --seed {seed}")
    return seed


def _open_results(options: BatchOptions) -> ResultSink:
    from ...jobs.journal import ResultJournal

    if options.prints_results:
        return StdoutSink()
    return ResultJournal(options.output, options.resume, options.format is BatchFormat.openai)
