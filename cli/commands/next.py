"""`gen next`: show the candidates for the next token after each step of the chain."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.flags import CompletionKind, at_least
from ...requests.sources import open_preset, preset_of_model
from ..command_options import takes_options
from ..flags import Options, flag
from ..inputs.model import load_model, show_llama_cpp_messages
from ..inputs.prompt import after_template, prepare_prompt, read_prompt
from ..inputs.settings import ChatTemplateFlags, preset_name, seed_of
from ..inputs.setup import Setup, resolve_setup
from ..interrupt import Interrupt, interruptible
from ..messages import print_note
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import ChatOptions, EscapeOptions, PromptAffixOptions, PromptOptions
from ..options.sampling import ConstraintOptions, FullSamplingOptions
from ..options.text_rules import GuidanceOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...samplers.chain import StepSpec


class NextFormat(StrEnum):
    """A format of the shown candidates."""

    table = "table"
    json = "json"


@dataclass(frozen=True, kw_only=True)
class NextOptions(Options):
    """The options of `gen next`: those of `gen run` that influence the next token, and output options."""

    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    affixes: PromptAffixOptions
    top: int = flag(
        "--top",
        metavar="N",
        panel="Output",
        help="Show the N most likely tokens after each step. [10]",
        default=10,
        limit=at_least(1),
    )
    against: list[str] | None = flag(
        "--against",
        metavar="PRESET|CHAIN",
        panel="Output",
        help="Show what another chain keeps, and its distance from the first chain; repeatable.",
        completion_kind=CompletionKind.PRESET_OR_CHAIN,
    )
    format: NextFormat = flag(
        "--format",
        panel="Output",
        help="Format of the output; json = one object. [table]",
        default=NextFormat.table,
    )
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    rules: GuidanceOptions
    model: ModelOptions
    log: LogOptions

    def check(self) -> None:
        """Raise ``UsageError`` if affixes are combined with a chat template, or for ``--grammar-complete``."""
        self.affixes.reject_combination(
            {str(self.chat.implied_by): self.chat.implied_by is not None, "--chat": self.chat.chat}
        )
        if self.grammar.grammar_complete:
            raise UsageError("--grammar-complete has no effect, because gen next shows one token; omit it")

    @property
    def is_chat(self) -> bool | None:
        """True if the chat template is used, False if not; None: only if there is a system message."""
        return self.chat.chat


@takes_options(NextOptions)
def next(options: NextOptions) -> None:  # noqa: A001 - a command's function has its name
    """Show the candidates for the next token after each step of the chain. No token is drawn.

    Rows are tokens, and columns are steps; · means that the token was dropped.

      gen next "The sea was"
      gen next "The sea was" --against creative --against min-p0.1
    """
    # errors are reported before the model is loaded, unless settings are read from the model's file
    needs_model = "model" in (preset_name(options.sampling.preset), *(options.against or ()))
    setup = None if needs_model else _resolve_setup(options, None)
    named_chains = None if needs_model else _named_chains(options, None)
    template = ChatTemplateFlags(options.chat.template)
    raw_prompt = read_prompt(options.prompt)
    show_llama_cpp_messages(options.log)
    with interruptible() as interrupt, load_model(options.model, interrupt) as model:
        if setup is None or named_chains is None:
            setup = _resolve_setup(options, model.metadata)
            named_chains = _named_chains(options, model.metadata)
        _trace_and_print(setup, named_chains, model, raw_prompt, template, interrupt)


def _resolve_setup(options: NextOptions, metadata: Mapping[str, str] | None) -> Setup[NextOptions]:
    return resolve_setup(options, options.sampling, options.grammar, metadata)


def _named_chains(options: NextOptions, metadata: Mapping[str, str] | None) -> list[NamedChain]:
    return [named_chain(text, metadata) for text in options.against or ()]


@dataclass(frozen=True)
class NamedChain:
    """A chain with the name or the notation that the user typed."""

    name: str
    steps: tuple[StepSpec, ...]


def named_chain(text: str, metadata: Mapping[str, str] | None) -> NamedChain:
    """Return the chain of a preset, or the chain in compact notation if no preset has this name."""
    # ``metadata`` of the GGUF is needed for ``model`` only. Raises ``PresetError`` for an error in the preset, and
    # ``UsageError`` if the text is neither a preset nor a chain.
    from ...presets.errors import PresetError
    from ...presets.search import is_file_reference, list_presets
    from ...presets.settings import resolve_settings

    if text == "model":
        preset = preset_of_model(metadata or {}, print_note)
        if preset is None:
            raise UsageError("--against model: this model has no sampling settings (general.sampling.*)")
        return NamedChain(text, resolve_settings(preset).steps)
    if is_file_reference(text) or text in {entry.name for entry in list_presets()}:
        return NamedChain(text, resolve_settings(open_preset(text, print_note)).steps)
    try:
        return NamedChain(text, resolve_settings(None, chain=text, chain_origin="--against").steps)
    except PresetError as error:
        problem = f"{text!r} is not a preset or a chain: {error.at('', error.place)}"
        raise UsageError(problem, origin="--against") from None


def _trace_and_print(
    setup: Setup[NextOptions],
    named_chains: Sequence[NamedChain],
    model: Model,
    raw_prompt: str,
    template: ChatTemplateFlags,
    interrupt: Interrupt,
) -> None:
    """Read the prompt (without a chat template), trace the chains, and print the candidates."""
    from ...engine.next_token import trace_request
    from ...requests.engine_request import make_request
    from ...samplers.building import build
    from ..render.progress import reading_bar
    from ..render.trace import TracedNextToken, show_next_token, write_next_token_json

    options = setup.options
    settings = setup.settings
    vocabulary = model.vocabulary
    if options.top > vocabulary.size:
        raise UsageError(f"--top: {options.top:,} is more than the {vocabulary.size:,} tokens of the vocabulary")
    seed = seed_of(settings)
    chain = build(settings.steps, seed=seed, vocab=vocabulary)
    against = [build(named.steps, seed=seed, vocab=vocabulary) for named in named_chains]
    prompt = prepare_prompt(model, raw_prompt, settings, options.affixes, template, options.is_chat)
    request = make_request(settings, prompt.tokens, setup.grammar, seed)
    request = after_template(model, request, prompt, options.is_chat)
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
    traced = TracedNextToken(model, chain, result, [each.name for each in named_chains], against)
    if options.format is NextFormat.json:
        write_next_token_json(traced, sys.stdout)
    else:
        show_next_token(traced)
