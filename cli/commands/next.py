"""`gen next`: what the next token would be drawn from, and how the chain came to that."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...jobs.sources import open_preset, preset_of_model
from ..command_options import TypedFlags, takes_options
from ..flags import CompletionKind, Options, at_least, flag, options_class
from ..inputs.model import BackgroundModel, load_in_background, load_model, show_llama_cpp_messages
from ..inputs.prompt import prepare_prompt, read_prompt
from ..inputs.settings import ChatTemplateFlags, grammar_spec, preset_name, resolve_run_settings, seed_of
from ..interrupt import Interrupt, interruptible
from ..messages import print_note
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import ChatOptions, EscapeOptions, PromptAffixOptions, PromptOptions
from ..options.sampling import ConstraintOptions, FullSamplingOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...grammars.spec import GrammarSpec
    from ...presets.settings import Settings
    from ...samplers.chain import StepSpec


class NextFormat(StrEnum):
    """How the next token is shown."""

    table = "table"
    json = "json"


@options_class
class NextOptions(Options):
    """The options of `gen next`: those of `gen run` on which the next token depends, and how it is shown."""

    typed_flags: TypedFlags
    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    affixes: PromptAffixOptions
    top: int = flag(
        "--top",
        metavar="N",
        panel="Output",
        help="The N likeliest tokens of each stage. [10]",
        default=10,
        limit=at_least(1),
    )
    against: list[str] | None = flag(
        "--against",
        metavar="PRESET|CHAIN",
        panel="Output",
        help="What another chain leaves, and how far it is from the first; repeatable.",
        completion_kind=CompletionKind.PRESET_OR_CHAIN,
    )
    format: NextFormat = flag(
        "--format", panel="Output", help="table, or json: one JSON object. [table]", default=NextFormat.table
    )
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    model: ModelOptions
    log: LogOptions

    def check(self) -> None:
        """Refuse a chat template beside what takes its place, and what is about the end of a text."""
        self.affixes.reject_combination(
            {str(self.chat.implied_by): self.chat.implied_by is not None, "--chat": self.chat.chat}
        )
        if self.grammar.grammar_complete:
            raise UsageError("--grammar-complete is about the end of a text; gen next shows one token")

    @property
    def is_chat(self) -> bool | None:
        """Whether the prompt goes through the chat template; None: if there is a system message."""
        return self.chat.chat


@takes_options(NextOptions)
def next(options: NextOptions) -> None:  # noqa: A001 - a command's function has its name
    """Show what the next token would be drawn from, step by step of the chain. No token is drawn.

    Rows are tokens, columns are stages; · stands where a step has dropped the token.

      gen next "The sea was"
      gen next "The sea was" --against creative --against min-p0.1
    """
    show_llama_cpp_messages(options.log)
    with load_in_background(options.model, options.log, max_tokens=1) as background_model:
        _next(options, background_model)


def _next(options: NextOptions, background_model: BackgroundModel | None) -> None:
    needs_model = "model" in (preset_name(options.sampling.preset), *(options.against or ()))
    setup = None if needs_model else _set_up(options, None)
    raw_prompt = read_prompt(options.prompt)
    with (
        interruptible() as interrupt,
        load_model(options.model, interrupt, background_model, max_tokens=1) as model,
    ):
        _show(setup or _set_up(options, model.metadata), model, raw_prompt, interrupt)


@dataclass(frozen=True)
class NamedChain:
    """A chain, under the name or the text that the user gave."""

    name: str
    steps: tuple[StepSpec, ...]


def named_chain(text: str, metadata: Mapping[str, str] | None) -> NamedChain:
    """Return the chain of a preset, else the one that is written there. A preset's name goes first.

    ``metadata``: the GGUF's, needed for the preset ``model`` only. Raises ``PresetError``, or
    ``UsageError`` for a text that is neither.
    """
    from ...presets.errors import PresetError
    from ...presets.search import list_presets, names_file
    from ...presets.settings import resolve_settings

    if text == "model":
        preset = preset_of_model(metadata or {}, print_note)
        if preset is None:
            raise UsageError("--against: this model names no sampling settings (general.sampling.*)")
        return NamedChain(text, resolve_settings(preset).steps)
    if names_file(text) or text in {entry.name for entry in list_presets()}:
        return NamedChain(text, resolve_settings(open_preset(text, print_note)).steps)
    try:
        return NamedChain(text, resolve_settings(None, chain=text).steps)
    except PresetError as error:
        message = str(error).removeprefix("--chain: ")
        raise UsageError(f"--against {text!r}: no preset, and no chain: {message}") from None


@dataclass(frozen=True)
class _Setup:
    """The command line and what follows from it.

    ``spec``: the grammar, None if there is none; ``against``: the chains to compare with; ``template``: the flags
    of the chat template.
    """

    options: NextOptions
    settings: Settings
    spec: GrammarSpec | None
    against: Sequence[NamedChain]
    template: ChatTemplateFlags


def _set_up(options: NextOptions, metadata: Mapping[str, str] | None) -> _Setup:
    settings = resolve_run_settings(options, options.sampling, metadata)
    against = [named_chain(text, metadata) for text in options.against or ()]
    spec = grammar_spec(options.grammar, settings)
    return _Setup(options, settings, spec, against, ChatTemplateFlags(options.chat.template, options.typed_flags))


def _show(setup: _Setup, model: Model, raw_prompt: str, interrupt: Interrupt) -> None:
    """Read the prompt, trace the chains, and print.

    Args:
        setup: the command line, the settings, the grammar and the chains.
        model: the model.
        raw_prompt: the prompt without a chat template.
        interrupt: tells whether Ctrl-C was pressed.
    """
    from ...engine.next_token import trace_request
    from ...jobs.resolve import make_request
    from ...samplers.building import build
    from ..render.progress import reading_bar
    from ..render.trace import TracedNextToken, show_next_token, write_next_token_json

    options, settings, vocabulary = setup.options, setup.settings, model.vocabulary
    if options.top > vocabulary.size:
        raise UsageError(f"--top: {options.top:,} is more than the {vocabulary.size:,} tokens of the vocabulary")
    seed = seed_of(settings)
    chain = build(settings.steps, seed=seed, vocab=vocabulary)
    against = [build(named.steps, seed=seed, vocab=vocabulary) for named in setup.against]
    prompt = prepare_prompt(model, raw_prompt, settings, options.affixes, setup.template, options.is_chat)
    request = make_request(settings, prompt.tokens, setup.spec, seed)
    with reading_bar() as progress, interrupt.graceful_shutdown():
        result = trace_request(
            model,
            replace(request, chain=chain, jump=not options.grammar.no_jump),
            top=options.top,
            against=against,
            progress=progress,
            is_interrupted=lambda: interrupt.requested,
        )
    if result is None:
        raise typer.Exit(interrupt.exit_code)
    traced = TracedNextToken(model, chain, result, [each.name for each in setup.against], against)
    if options.format is NextFormat.json:
        write_next_token_json(traced, sys.stdout)
    else:
        show_next_token(traced)
