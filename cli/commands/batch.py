"""`gen batch`: a file of requests in, a file of results out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ...common import count_noun
from ..errors import FAILED, note, say
from ..inputs.chat_template import ChatTemplateFlags
from ..inputs.files import open_input
from ..inputs.grammar import grammar_folders, report_schema
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.settings import fresh_seed, open_chosen_preset, overrides, preset_name
from ..interrupt import Interrupt, interruptible
from ..options.batch import BatchFormat, BatchOptions
from ..options.signature import takes_options

if TYPE_CHECKING:
    from ...engine import Model
    from ..batch.journal import ResultSink
    from ..batch.request_resolver import BatchDefaults
    from ..batch.runner import BatchRunner
    from ..batch.template import PromptTemplate
    from ..render.batch import BatchProgress


@takes_options(BatchOptions)
def batch(options: BatchOptions) -> None:
    """Answer a file of requests, several at a time, each as if it were alone.

    A line is OpenAI's batch format, or {"id", "prompt" or "messages", "preset", "chain", "set", "seed",
    "max_tokens", "stop", "grammar" or "json_schema", "logprobs", "trace", "chat_template",
    "chat_template_kwargs"}. The flags hold for what a line leaves open.
    """
    from ..batch.journal import closed_at_end
    from ..render.batch import BatchProgress

    show_llama_cpp_messages(options.log)
    template = _read_template(options)
    progress = BatchProgress(_count_requests(options, template))
    defaults = _check_defaults(options)
    results = _open_results(options)
    with closed_at_end(results), interruptible() as interrupt, load_model(options.model, interrupt) as model:
        _answer(options, _BatchParts(model, defaults, template, results, progress), interrupt)
    say(f"gen: {progress.summary()}")
    if interrupt.requested:
        if not options.prints_results:
            note("--resume goes on from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed or progress.existing_failures:
        raise typer.Exit(FAILED)


@dataclass(frozen=True)
class _BatchParts:
    """What a batch is made of; ``template``: None for JSON lines."""

    model: Model
    defaults: BatchDefaults
    template: PromptTemplate | None
    results: ResultSink
    progress: BatchProgress


def _read_template(options: BatchOptions) -> PromptTemplate | None:
    from ..batch.template import PromptTemplate
    from ..inputs.json_lines import InvalidLineError

    try:
        return None if options.template is None else PromptTemplate(options.template)
    except InvalidLineError as error:
        raise typer.BadParameter(f"--template: {error}") from None


def _count_requests(options: BatchOptions, template: PromptTemplate | None) -> int | None:
    """How many requests there are; None if they can be read only once."""
    from ..batch.input_lines import count_input_lines
    from ..inputs.json_lines import InvalidLineError

    if not options.reads_file:
        return None
    try:
        with open_input(options.requests) as file:
            return count_input_lines(file, template)
    except InvalidLineError as error:
        raise typer.BadParameter(f"--template: {error}") from None


def _check_defaults(options: BatchOptions) -> BatchDefaults:
    """What the flags set for all lines, checked as far as that needs no model."""
    from ...grammars import resolve_grammar
    from ...presets import parse_set, resolve_settings
    from ..batch.request_resolver import BatchDefaults, batch_grammar

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
        report_schema(spec)
        left_out = spec.left_out
    seed = _base_seed(sampling.seed)
    chat_template = ChatTemplateFlags(options.chat.template)
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
    from ..batch.journal import ResultJournal, StdoutSink

    if options.prints_results:
        return StdoutSink()
    return ResultJournal(options.output, options.resume, options.format is BatchFormat.openai)


def _answer(options: BatchOptions, parts: _BatchParts, interrupt: Interrupt) -> None:
    """Answer all requests that have no result yet."""
    from ..batch.input_lines import BackgroundLines, read_input_lines
    from ..batch.runner import BatchPolicy
    from ..render.batch import show_progress

    model = parts.model
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            note("what is begun is being finished; Ctrl-C again stops at once")
        return interrupt.requested

    runner = _make_runner(options, parts)
    policy = BatchPolicy(options.parallel or model.default_parallel, options.deterministic, should_stop)
    results_on_terminal = options.prints_results and sys.stdout.isatty()
    with open_input(options.requests) as file, show_progress(parts.progress, results_on_terminal) as display:
        lines = read_input_lines(file, parts.template)
        # Lines of a pipe may come slowly, and the requests that are being answered should not wait for them.
        runner.run(model, lines if options.reads_file else BackgroundLines(lines), policy, display)
    if runner.unmatched_results and not interrupt.requested:
        results = count_noun(runner.unmatched_results, "result")
        note(f"{options.output} also holds {results} for requests that are not in this file")


def _make_runner(options: BatchOptions, parts: _BatchParts) -> BatchRunner:
    """What answers the requests. Raises ``JournalError`` if there are results of other settings or requests."""
    from ..batch.batch_settings import batch_settings
    from ..batch.input_lines import read_input_lines
    from ..batch.request_builder import RequestBuilder
    from ..batch.request_resolver import RequestResolver
    from ..batch.result_format import ResultFormat
    from ..batch.runner import BatchRunner
    from ..batch.settings_file import keep_settings, settings_digest

    resolver = RequestResolver(parts.defaults, parts.model.metadata)
    settings = batch_settings(parts.model, parts.defaults, resolver, options.answer_form)
    existing = parts.results.existing
    result_format = ResultFormat(options.format.value, settings_digest(settings))
    builder = RequestBuilder(parts.model)
    runner = BatchRunner(
        resolver, builder, result_format, parts.results, parts.progress, keeps_others=options.force
    )
    if parts.results.is_file:
        keep_settings(options.output, settings, has_results=bool(existing), is_forced=options.force)
    untold = sum(isinstance(key, str) and request_id is None for key, request_id in existing.items())
    if untold:
        results = count_noun(untold, "result")
        note(f"{options.output} has {results} without a request_id: what made them cannot be checked")
    if existing and options.reads_file and not options.force:
        with open_input(options.requests) as file:
            runner.check_results(read_input_lines(file, parts.template))
    return runner
