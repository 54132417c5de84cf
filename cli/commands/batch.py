"""`gen batch`: a file of requests in, a file of results out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.files import file_errors_in_words, is_stdin, open_input
from ..command_options import takes_options
from ..inputs.model import show_llama_cpp_messages
from ..inputs.settings import ChatTemplateFlags, fresh_seed, open_chosen_preset, overrides, preset_name
from ..interrupt import interruptible
from ..jobs.sources import grammar_folders, report_schema
from ..messages import FAILED, note, say
from ..options.batch import BatchFormat, BatchOptions

if TYPE_CHECKING:
    from ..jobs.journal import ResultSink
    from ..jobs.lines import PromptTemplate
    from ..jobs.resolve import BatchDefaults


@takes_options(BatchOptions)
def batch(options: BatchOptions) -> None:
    """Answer a file of requests, several at a time, each as if it were alone.

    A line is OpenAI's batch format, or {"id", "prompt" or "messages", "preset", "chain", "set", "seed",
    "max_tokens", "stop", "grammar" or "json_schema", "logprobs", "trace", "chat_template",
    "chat_template_kwargs"}. The flags hold for what a line leaves open.
    """
    from ..jobs.batch import BatchParts, answer_here
    from ..jobs.journal import closed_at_end
    from ..render.batch_progress import BatchProgress

    show_llama_cpp_messages(options.log)
    template = _read_template(options)
    progress = BatchProgress(_count_requests(options, template))
    defaults = _check_defaults(options)
    results = _open_results(options)
    parts = BatchParts(options, defaults, template, results, progress)
    with closed_at_end(results), interruptible() as interrupt:
        if options.cluster.on is None:
            answer_here(parts, interrupt)
        else:
            from ..jobs.workers import answer_on_cluster

            answer_on_cluster(parts, interrupt)
    say(f"gen: {progress.summary()}")
    if interrupt.requested:
        if not options.prints_results:
            note("--resume goes on from here")
        raise typer.Exit(interrupt.exit_code)
    if progress.failed or progress.existing_failures:
        raise typer.Exit(FAILED)


def _read_template(options: BatchOptions) -> PromptTemplate | None:
    from ..jobs.lines import InvalidLineError, PromptTemplate

    try:
        return None if options.template is None else PromptTemplate(options.template)
    except InvalidLineError as error:
        raise UsageError(f"--template: {error}") from None


def _count_requests(options: BatchOptions, template: PromptTemplate | None) -> int | None:
    """How many requests there are; None if they can be read only once."""
    from ..jobs.lines import InvalidLineError, count_input_lines

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
    from ...presets.overrides import parse_set
    from ...presets.settings import resolve_settings
    from ..jobs.resolve import BatchDefaults, batch_grammar

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
    from ..jobs.journal import ResultJournal, StdoutSink

    if options.prints_results:
        return StdoutSink()
    return ResultJournal(options.output, options.resume, options.format is BatchFormat.openai)
