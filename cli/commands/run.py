"""`gen run`: write on from a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from ..errors import INTERRUPTED, note, report_failures
from ..inputs.grammar import constraint_of, spec_of
from ..inputs.model import hear_llama_cpp, load_model
from ..inputs.prompt import read_prompt
from ..inputs.settings import preset_name, seed_of, settle
from ..interrupt import Interrupt, interruptible
from ..options import flags as o
from ..options.checks import check
from ..options.run_options import RunOptions

if TYPE_CHECKING:
    from ...engine import Done, Event, Model
    from ...grammars import GrammarSpec
    from ...presets import Settings


def run(
    prompt: o.Prompt = None,
    prompt_option: o.PromptOption = None,
    file: o.File = None,
    chat: o.Chat = None,
    system: o.System = None,
    echo: o.Echo = False,
    preset: o.Preset = None,
    chain: o.ChainText = None,
    set_: o.Set = None,
    seed: o.Seed = None,
    temp: o.Temp = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    repeat_penalty: o.RepeatPenalty = None,
    repeat_last_n: o.RepeatLastN = None,
    presence_penalty: o.PresencePenalty = None,
    frequency_penalty: o.FrequencyPenalty = None,
    typical: o.Typical = None,
    top_n_sigma: o.TopNSigma = None,
    xtc_probability: o.XtcProbability = None,
    xtc_threshold: o.XtcThreshold = None,
    dynatemp_range: o.DynatempRange = None,
    dynatemp_exp: o.DynatempExp = None,
    dry_multiplier: o.DryMultiplier = None,
    dry_base: o.DryBase = None,
    dry_allowed_length: o.DryAllowedLength = None,
    dry_penalty_last_n: o.DryPenaltyLastN = None,
    dry_sequence_breaker: o.DrySequenceBreaker = None,
    mirostat: o.Mirostat = None,
    mirostat_lr: o.MirostatLr = None,
    mirostat_ent: o.MirostatEnt = None,
    adaptive_target: o.AdaptiveTarget = None,
    adaptive_decay: o.AdaptiveDecay = None,
    samplers: o.Samplers = None,
    logit_bias: o.LogitBias = None,
    ignore_eos: o.IgnoreEos = False,
    grammar: o.Grammar = None,
    grammar_file: o.GrammarFile = None,
    json_schema: o.JsonSchema = None,
    json_schema_file: o.JsonSchemaFile = None,
    regex: o.Regex = None,
    lark_file: o.LarkFile = None,
    grammar_root: o.GrammarRoot = None,
    grammar_after: o.GrammarAfter = None,
    grammar_complete: o.GrammarComplete = False,
    no_jump: o.NoJump = False,
    max_tokens: o.MaxTokens = None,
    lookup: o.Lookup = 0,
    stop: o.Stop = None,
    model: o.ModelPath = None,
    context_size: o.ContextSize = None,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = 0,
    batch_size: o.BatchSize = 512,
    lora: o.Lora = None,
    no_mmap: o.NoMmap = False,
    mlock: o.Mlock = False,
    format_: o.FormatOption = o.Format.text,
    stream: o.Stream = False,
    logprobs: o.Logprobs = None,
    logprobs_from: o.LogprobsFrom = None,
    logprob_of: o.LogprobOf = None,
    stats: o.Stats = False,
    show_config: o.ShowConfig = False,
    verbose: o.Verbose = False,
) -> None:
    """Write on from a prompt, token by token, through your chain of samplers.

    A value comes from its flag, else from --set, else from the preset, else from the default.
    """
    options = RunOptions.of(locals())
    check(options)
    with report_failures():
        _run(options)


def _run(options: RunOptions) -> None:
    from ..render.config import show_settings

    hear_llama_cpp(options)
    # Everything that can be wrong without the model is found before it is loaded.
    settings = settle(options, None) if preset_name(options) != "model" else None
    spec = spec_of(options, settings) if settings is not None else None
    if options.show_config and settings is not None:
        show_settings(settings, spec)
        return
    text = "" if options.show_config else read_prompt(options)
    with interruptible() as interrupt, load_model(options, interrupt) as model:
        if settings is None:
            settings = settle(options, model.metadata)
            spec = spec_of(options, settings)
        if options.show_config:
            show_settings(settings, spec)
            return
        _generate(options, settings, model, spec, text, interrupt)


def _generate(
    options: RunOptions,
    settings: Settings,
    model: Model,
    spec: GrammarSpec | None,
    text: str,
    interrupt: Interrupt,
) -> None:
    """Build, iterate, render."""
    from ...engine import generate
    from ...samplers import build
    from ..inputs.logprobs import logprob_request
    from ..render.progress import reading

    logprobs = logprob_request(options, model.vocabulary)
    constraint = None if spec is None else constraint_of(spec, model)
    chain = build(settings.steps, seed=seed_of(settings), vocab=model.vocabulary)
    limit = settings.max_tokens.value
    prompt = _full_prompt(options, settings, model, text)
    with reading() as progress:
        events: Iterator[Event] = generate(
            model,
            prompt,
            chain,
            constraint,
            stop=settings.stop.value,
            max_tokens=None if limit == -1 else limit,
            top_logprobs=logprobs.top_count,
            logprobs_from=logprobs.source,
            logprob_of=logprobs.token_ids,
            echo=options.echo and logprobs.top_count is not None,
            jump=not options.no_jump,
            lookup=options.lookup,
            # Our own default length should not break off what the user wants whole.
            complete_sentence=constraint is not None
            and (options.grammar_complete or settings.max_tokens.origin == "default"),
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
        done = _render(events, options, text, prompt)
    if spec is not None and done.complete is False and done.finish_reason != "interrupted":
        note(_broken_off(done, options, spec))
    if options.stats:
        from ..render import stats

        stats.show(done, chain.seed)
    if done.finish_reason == "interrupted":
        sys.stdout.flush()
        raise typer.Exit(INTERRUPTED)


def _render(events: Iterator[Event], options: RunOptions, text: str, prompt: str) -> Done:
    """Write the events in the format that is asked for."""
    if options.format_ is o.Format.text:
        from ..render import text as plain

        return plain.render(events, sys.stdout, text if options.echo else "")
    if options.format_ is o.Format.jsonl:
        from ..render import jsonl

        return jsonl.render(events, sys.stdout)
    from ..render import api_shapes as shapes

    shape = shapes.ApiShape(options.format_.value, options.stream, options.echo, prompt != text)
    return shapes.render(events, sys.stdout, shape, prompt)


def _broken_off(done: Done, options: RunOptions, spec: GrammarSpec) -> str:
    """What to say when the grammar's sentence is not at its end."""
    hint = "" if spec.after is None else f"; the grammar begins after {spec.after!r}"
    if done.finish_reason == "stop":
        where = "the model ended the text" if done.stop is None else f"the stop text {done.stop!r} came"
    elif done.finish_reason == "context":
        where = "the context is full"
    else:
        where = f"{done.completion_tokens} tokens, see -n"
        tried = options.grammar_complete or options.max_tokens is None
        hint = (", and it could not be closed" if tried else "; --grammar-complete closes the sentence") + hint
    return f"the text does not complete the grammar: {where}{hint}"


def _full_prompt(options: RunOptions, settings: Settings, model: Model, text: str) -> str:
    """The prompt as the model gets it: in its chat template, if chat is on or a system message is set."""
    from ...engine import build_prompt

    return build_prompt(model, text, system=settings.system.value, chat=options.chat)
