"""`gen run`: write on from a prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from ..errors import note
from ..inputs.grammar import grammar_spec, start_constraint
from ..inputs.logprobs import logprob_request
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import read_prompt
from ..inputs.settings import has_default_length, preset_name, resolve_run_settings, seed_of, token_limit
from ..interrupt import Interrupt, interruptible
from ..options.output import Format, OutputOptions
from ..options.run import RunOptions
from ..options.signature import takes_options

if TYPE_CHECKING:
    from ...engine import Done, Event, Model
    from ...grammars import GrammarSpec
    from ...presets import Settings


@takes_options(RunOptions)
def run(options: RunOptions) -> None:
    """Write on from a prompt, token by token, through your chain of samplers.

    A value comes from its flag, else from --set, else from the preset, else from the default.
    """
    from ..render.config import show_settings

    show_llama_cpp_messages(options.log)
    # Everything that can be wrong without the model is found before it is loaded.
    needs_model = preset_name(options.sampling.preset) == "model"
    setup = None if needs_model else _set_up(options, None)
    if options.output.show_config and setup is not None:
        show_settings(setup.settings, setup.spec)
        return
    raw_prompt = "" if options.output.show_config else read_prompt(options.prompt)
    with interruptible() as interrupt, load_model(options.model, interrupt) as model:
        setup = setup or _set_up(options, model.metadata)
        if options.output.show_config:
            show_settings(setup.settings, setup.spec)
        else:
            _generate(setup, model, raw_prompt, interrupt)


@dataclass(frozen=True)
class _Setup:
    """The command line and what follows from it; ``spec``: the grammar, None if there is none."""

    options: RunOptions
    settings: Settings
    spec: GrammarSpec | None


def _set_up(options: RunOptions, metadata: Mapping[str, str] | None) -> _Setup:
    settings = resolve_run_settings(options, metadata)
    return _Setup(options, settings, grammar_spec(options.grammar, settings))


def _generate(setup: _Setup, model: Model, raw_prompt: str, interrupt: Interrupt) -> None:
    """Build, iterate, render.

    Args:
        setup: the command line, the settings and the grammar.
        model: the model.
        raw_prompt: the prompt without a chat template.
        interrupt: tells whether Ctrl-C was pressed.
    """
    from ...engine import build_prompt, generate
    from ...samplers import build
    from ..render.progress import reading

    options, settings, spec = setup.options, setup.settings, setup.spec
    logprobs = logprob_request(options.output, model.vocabulary)
    constraint = None if spec is None else start_constraint(spec, model)
    chain = build(settings.steps, seed=seed_of(settings), vocab=model.vocabulary)
    prompt = build_prompt(model, raw_prompt, system=settings.system.value, chat=options.is_chat)
    with reading() as progress, interrupt.ending_soon():
        events: Iterator[Event] = generate(
            model,
            prompt,
            chain,
            constraint,
            stop=settings.stop.value,
            max_tokens=token_limit(settings),
            top_logprobs=logprobs.top_count,
            logprobs_from=logprobs.source,
            logprob_of=logprobs.token_ids,
            echo=options.output.echo and logprobs.top_count is not None,
            jump=not options.grammar.no_jump,
            lookup=options.lookup,
            complete_sentence=constraint is not None
            and (options.grammar.grammar_complete or has_default_length(settings)),
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
        done = _render(events, options.output, raw_prompt, prompt)
    _report(done, setup, chain.seed, model.context.length, interrupt)


def _render(events: Iterator[Event], options: OutputOptions, raw_prompt: str, prompt: str) -> Done:
    """Write the events in the requested format.

    Args:
        events: the events of the run.
        options: the format, and what goes into it.
        raw_prompt: the prompt without a chat template.
        prompt: the same in its chat template, if there is one.
    """
    if options.format is Format.text:
        from ..render.text import render as render_text

        return render_text(events, sys.stdout, raw_prompt if options.echo else "")
    if options.format is Format.jsonl:
        from ..render.jsonl import render as render_jsonl

        return render_jsonl(events, sys.stdout)
    from ..render.api_shapes import ApiShape, render

    is_templated = prompt != raw_prompt
    shape = ApiShape(options.format.value, options.stream, options.echo, is_templated)
    return render(events, sys.stdout, shape, prompt)


def _report(done: Done, setup: _Setup, seed: int, context_tokens: int, interrupt: Interrupt) -> None:
    """Print what there is to know about the run, and end the command if it was interrupted.

    Args:
        done: the last event.
        setup: the command line, the settings and the grammar.
        seed: the chain's.
        context_tokens: how many tokens the context holds.
        interrupt: tells whether Ctrl-C was pressed.
    """
    was_interrupted = done.finish_reason == "interrupted"
    if setup.spec is not None and done.complete is False and not was_interrupted:
        note(_why_incomplete(done, setup.options, setup.spec))
    elif done.finish_reason == "context":
        note(f"the text ends here because the context is full: it holds {context_tokens:,} tokens, see -c")
    if setup.options.output.stats:
        from ..render import stats

        stats.show(done, seed)
    if was_interrupted:
        sys.stdout.flush()
        raise typer.Exit(interrupt.exit_code)


def _why_incomplete(done: Done, options: RunOptions, spec: GrammarSpec) -> str:
    """A note on a text that ends inside the grammar's sentence."""
    hint = "" if spec.after is None else f"; the grammar begins after {spec.after!r}"
    if done.finish_reason == "stop":
        reason = "the model ended the text" if done.stop is None else f"the stop text {done.stop!r} came"
    elif done.finish_reason == "context":
        reason = "the context is full, see -c"
    else:
        reason = f"{done.completion_tokens} tokens, see -n"
        was_closed = options.grammar.grammar_complete or options.length.max_tokens is None
        advice = ", and it could not be closed" if was_closed else "; --grammar-complete closes the sentence"
        hint = advice + hint
    return f"the text does not complete the grammar: {reason}{hint}"
