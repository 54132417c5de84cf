"""`gen batch`: a file of requests in, a file of results out."""

from __future__ import annotations

import secrets
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import FAILED, INTERRUPTED, note, report_failures, say
from ..inputs.grammar import folders
from ..inputs.model import hear_llama_cpp, load_model
from ..inputs.settings import overrides
from ..interrupt import Interrupt, interruptible
from ..options import flags as o
from ..options.batch_options import BatchOptions, check_batch

if TYPE_CHECKING:
    from ...engine import Model
    from ..batch.journal import ResultSink
    from ..batch.request_builder import BatchDefaults
    from ..batch.template import PromptTemplate
    from ..render.batch import BatchProgress


def batch(
    requests: o.Requests,
    output: o.Output = Path("-"),
    template: o.TemplateText = None,
    format_: o.BatchFormatOption = o.BatchFormat.openai,
    resume: o.Resume = False,
    parallel: o.Parallel = None,
    deterministic: o.Deterministic = False,
    preset: o.Preset = None,
    chain: o.ChainText = None,
    set_: o.Set = None,
    seed: o.BatchSeed = 0,
    temp: o.Temp = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    repeat_penalty: o.RepeatPenalty = None,
    grammar: o.Grammar = None,
    grammar_file: o.GrammarFile = None,
    json_schema: o.JsonSchema = None,
    json_schema_file: o.JsonSchemaFile = None,
    regex: o.Regex = None,
    lark_file: o.LarkFile = None,
    logprobs: o.BatchLogprobs = None,
    max_tokens: o.MaxTokens = None,
    stop: o.Stop = None,
    chat: o.Chat = None,
    system: o.System = None,
    model: o.ModelPath = None,
    context_size: o.ContextSize = None,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    batch_size: o.BatchSize = 512,
    lora: o.Lora = None,
    no_mmap: o.NoMmap = False,
    mlock: o.Mlock = False,
    verbose: o.Verbose = False,
) -> None:
    """Answer a file of requests, several at a time, each as if it were alone.

    A line is OpenAI's batch format, or {"id", "prompt" or "messages", "preset", "chain", "set", "seed",
    "max_tokens", "stop", "grammar" or "json_schema", "logprobs"}. The flags hold for what a line leaves open.
    """
    options = BatchOptions.of(locals())
    check_batch(options)
    with report_failures():
        _batch(options)


def _batch(options: BatchOptions) -> None:
    from ..batch.journal import ResultJournal, StdoutSink
    from ..render.batch import BatchProgress

    hear_llama_cpp(options)
    template, total = _template(options)
    defaults = _defaults(options)
    openai = options.format_ is o.BatchFormat.openai
    results: ResultSink = StdoutSink() if options.pipes else ResultJournal(options.output, options.resume, openai)
    with closing(results), interruptible() as interrupt, load_model(options, interrupt) as model:
        tally = BatchProgress(total)
        _answer(options, (model, defaults, template), results, tally, interrupt)
    say(f"gen: {tally.summary()}")
    if interrupt.requested:
        if isinstance(results, ResultJournal):
            note("--resume goes on from here")
        raise typer.Exit(INTERRUPTED)
    if tally.failed or tally.existing_failures:
        raise typer.Exit(FAILED)


def _template(options: BatchOptions) -> tuple[PromptTemplate | None, int | None]:
    """The template, if there is to be one, and how many requests there are, if that can be known."""
    from ..batch.request import InvalidLineError
    from ..batch.template import PromptTemplate

    try:
        template = None if options.template is None else PromptTemplate(options.template)
        return template, _count(options.requests, template)
    except InvalidLineError as error:
        raise typer.BadParameter(f"--template: {error}") from None


def _defaults(options: BatchOptions) -> BatchDefaults:
    """What the flags say, as far as it can be wrong without a model."""
    from ...grammars import resolve_grammar
    from ...presets import load_preset, parse_set, resolve_settings, user_config
    from ..batch.request_builder import BatchDefaults

    settings = (*map(parse_set, options.set_ or ()), *overrides(options))
    name = options.preset or user_config().preset or "default"
    found = resolve_settings(None if name == "model" else load_preset(name), chain=options.chain, flags=settings)
    if found.grammar.value is not None:
        resolve_grammar(found.grammar.value, folders(), found.grammar_base).check()
    return BatchDefaults(name, options.chain, settings, _seed(options), options.chat, options.logprobs)


def _seed(options: BatchOptions) -> int:
    """What seeds come from; a fresh one is told, so that the run can be repeated and gone on with."""
    if options.seed >= 0:
        return options.seed
    fresh = secrets.randbits(32)
    note(f"seeds come from --seed {fresh}")
    return fresh


def _count(requests: Path, template: PromptTemplate | None) -> int | None:
    """How many requests there are, if that can be known before they are read."""
    from ..batch.input_lines import open_input, read_input_lines

    if not requests.is_file():
        return None
    with open_input(requests) as file:
        if template is None:
            return sum(1 for line in file if line.strip())
        return sum(1 for _ in read_input_lines(file, template))


def _answer(
    options: BatchOptions,
    parts: tuple[Model, BatchDefaults, PromptTemplate | None],
    results: ResultSink,
    tally: BatchProgress,
    interrupt: Interrupt,
) -> None:
    from ..batch.input_lines import BackgroundLines, open_input, read_input_lines
    from ..batch.request_builder import RequestBuilder
    from ..batch.result_format import ResultFormat
    from ..batch.runner import BatchPolicy, BatchRunner
    from ..render.batch import show_progress

    model, defaults, template = parts
    parallel = options.parallel or model.default_parallel
    is_announced = False

    def should_stop() -> bool:
        nonlocal is_announced
        if interrupt.requested and not is_announced:
            is_announced = True
            note("what is begun is being finished; Ctrl-C again stops at once")
        return interrupt.requested

    work = BatchRunner(RequestBuilder(model, defaults), ResultFormat(options.format_.value), results, tally)
    screen = options.pipes and sys.stdout.isatty()
    with open_input(options.requests) as file, show_progress(tally, screen) as watch:
        lines = read_input_lines(file, template)
        # What is not a file may come slowly, and nobody who is at work should wait for it.
        come = lines if options.requests.is_file() else BackgroundLines(lines)
        work.run(model, come, BatchPolicy(parallel, options.deterministic, should_stop), watch)
    if work.unmatched_results and not interrupt.requested:
        note(
            f"{options.output} also holds {work.unmatched_results:,} results of requests that are not in this file"
        )
