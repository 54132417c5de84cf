"""`gen run`: continue a prompt. All checks that need no model run before the model is loaded.

Completion in shells imports this module to read its flags. Modules that only a run needs are imported by
functions.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from ...common.errors import UsageError
from ...common.flags import Limit
from ...common.text import count_noun
from ...presets.setting_table import UNTIL_CONTEXT_IS_FULL
from ..command_options import TypedFlags, takes_options
from ..flags import Options, flag
from ..interrupt import Interrupt, interruptible
from ..messages import FAILED, end_open_line, print_note
from ..options.drafts import DraftingOptions
from ..options.model import LogOptions, ModelOptions
from ..options.output import Format, OutputOptions
from ..options.prompt import (
    ChatOptions,
    ContextShiftOptions,
    EscapeOptions,
    LengthOptions,
    PromptAffixOptions,
    PromptOptions,
    length_flag,
)
from ..options.sampling import BeamOptions, ConstraintOptions, FullSamplingOptions
from ..options.text_rules import MeasuredTextOptions

if TYPE_CHECKING:
    from ...engine.drafts import DraftOptions
    from ...engine.model import Model
    from ...engine.request import GenerationRequest
    from ...grammars.spec import GrammarSpec
    from ...logprobs.events import Done
    from ...presets.settings import Settings
    from ..inputs.prompt import PreparedPrompt, PromptText
    from ..inputs.settings import ChatTemplateFlags
    from ..inputs.setup import Setup


@dataclass(frozen=True, kw_only=True)
class CompatibilityOptions(Options):
    """Flags of llama.cpp without effect, because `gen run` always behaves as they request."""

    single_turn: bool = flag(
        "-st",
        "--single-turn",
        help="Accepted for llama.cpp compatibility; gen run always ends after one text.",
        default=False,
        panel="llama.cpp",
    )
    simple_io: bool = flag(
        "--simple-io",
        help="Accepted for llama.cpp compatibility; gen run always writes plain text.",
        default=False,
        panel="llama.cpp",
    )
    no_timings: bool = flag(
        "--no-perf",
        "--no-show-timings",
        help="Accepted for llama.cpp compatibility; only --stats shows timings.",
        default=False,
        panel="llama.cpp",
    )


def _parse_regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None


@dataclass(frozen=True, kw_only=True)
class RunOptions(Options):
    """The options of `gen run`."""

    typed_flags: TypedFlags
    prompt: PromptOptions
    escapes: EscapeOptions
    chat: ChatOptions
    affixes: PromptAffixOptions
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: LengthOptions
    rules: MeasuredTextOptions
    context: ContextShiftOptions
    samples: int = length_flag(
        "--samples",
        metavar="N",
        help="Write N texts, with the seeds --seed, --seed + 1 …. They are generated side by side. [1]",
        default=1,
        limit=Limit("1 to 1,000", 1, 1000),
    )
    vote: bool = length_flag(
        "--vote",
        help="With --samples and a grammar or --extract: write the answer that most texts give.",
        default=False,
    )
    extract: re.Pattern[str] | None = length_flag(
        "--extract",
        metavar="REGEX",
        help="With --vote: the answer is the last match in a text, or its first group.",
        parse=_parse_regex,
    )
    drafts: DraftingOptions
    beam_search: BeamOptions
    model: ModelOptions
    output: OutputOptions
    log: LogOptions
    compatibility: CompatibilityOptions

    def check(self) -> None:
        if self.vote:
            self._check_vote()
        elif self.extract is not None:
            raise UsageError("--extract finds the answers that --vote counts; add --vote")
        self._check_beams()
        if self.samples > 1 and self.output.stream:
            raise UsageError("--stream writes one text while it is generated; leave --samples out")
        if self.samples > 1 and self.context.context_shift:
            raise UsageError("--context-shift needs a context for one text; leave --samples out")
        self.affixes.reject_combination(
            {
                str(self.chat.implied_by): self.chat.implied_by is not None,
                "--chat": self.chat.chat,
                "--format openai-chat": self.output.format is Format.openai_chat,
            }
        )

    def _check_beams(self) -> None:
        """Raise ``UsageError`` for flags that a beam search does not support, or that need one."""
        if self.beam_search.beams is None:
            self.typed_flags.reject_unavailable(BeamOptions, available=())
            return
        given = {
            "--samples draws several texts (--n-best writes several)": self.samples > 1,
            "--stream writes one text while it is drawn": self.output.stream,
            "--trace records how tokens are drawn": self.output.trace is not None,
            "--lookup drafts one text that is drawn": self.drafts.lookup > 0,
            "-md drafts one text that is drawn": self.drafts.draft_model is not None,
            "--context-shift needs a context for one text": self.context.context_shift,
        }
        for reason, is_given in given.items():
            if is_given:
                raise UsageError(f"--beams draws no token, but {reason}; leave one out")

    def _check_vote(self) -> None:
        """Raise ``UsageError`` if ``--vote`` has nothing to count, or a format without a place for the vote."""
        if self.samples == 1:
            raise UsageError("--vote counts the answers of several texts; add --samples N")
        if self.output.format not in (Format.text, Format.jsonl):
            raise UsageError(f"--vote: not supported by --format {self.output.format.value}; use text or jsonl")

    @property
    def kept_tokens_on_shift(self) -> int | None:
        """Number of prompt tokens that a context shift keeps; None if a full context ends the text."""
        if not self.context.context_shift or self.length.max_tokens == UNTIL_CONTEXT_IS_FULL:
            return None
        return self.context.keep or 0

    @property
    def is_chat(self) -> bool | None:
        """True if the chat template is used, False if not; None: only if there is a system message."""
        # ``--format openai-chat`` implies the chat template.
        if self.chat.chat is None and self.output.format is Format.openai_chat:
            return True
        return self.chat.chat


@takes_options(RunOptions)
def run(options: RunOptions) -> None:
    """Continue a prompt, choosing each token with your chain of samplers.

    The value of a setting comes from the first of these that sets it: its flag, --set, the preset, the default.
    """
    from ..inputs.model import find_draft_model, load_model, open_draft_model, show_llama_cpp_messages
    from ..inputs.prompt import PromptText, read_prompt_text
    from ..inputs.settings import MODEL_PRESET, ChatTemplateFlags, preset_name

    # Errors that are found without the model are reported before errors of the model.
    needs_model = preset_name(options.sampling.preset) == MODEL_PRESET
    setup = None if needs_model else _resolve_setup(options, None)
    if options.output.show_config and setup is not None:
        _show_config(setup, None)
        return
    template = ChatTemplateFlags(options.chat.template)
    typed_prompt = PromptText("", "") if options.output.show_config else read_prompt_text(options.prompt)
    show_llama_cpp_messages(options.log)
    with interruptible() as interrupt:
        draft = find_draft_model(options.drafts, interrupt)
        slots = _slots(options, setup)
        with load_model(options.model, interrupt, slots=slots, draft=draft) as model:
            setup = setup or _resolve_setup(options, model.metadata)
            if options.output.show_config:
                _show_config(setup, model)
            else:
                open_draft_model(draft, model)
                _generate_text(setup, draft, model, typed_prompt, template, interrupt)


def _slots(options: RunOptions, setup: Setup[RunOptions] | None) -> int | None:
    """Return the number of sequences that are decoded together, see `LoadOptions`."""
    is_guided = setup is not None and bool(setup.settings["guidance"].value)
    single_slots = 2 if is_guided else 1  # guidance has a second context
    return options.beam_search.beams or (None if options.samples > 1 else single_slots)


def _resolve_setup(options: RunOptions, metadata: Mapping[str, str] | None) -> Setup[RunOptions]:
    from ..inputs.setup import resolve_setup

    setup = resolve_setup(options, options.sampling, options.grammar, metadata)
    if options.beam_search.beams is not None:
        _reject_rules_of_drawn_text(setup.settings)
    if options.vote and setup.grammar is None and options.extract is None:
        raise UsageError("--vote needs a grammar, or --extract REGEX that finds the answer in a text")
    return setup


def _reject_rules_of_drawn_text(settings: Settings) -> None:
    """Raise ``UsageError`` for settings with which a text goes back or has phases."""
    for name in ("bans", "loop_guard", "phases"):
        setting = settings[name]
        if setting.value:
            place = f"{name} ({setting.origin})"
            raise UsageError(f"--beams draws no token, but {place} is for a text that is drawn; leave one out")


def _show_config(setup: Setup[RunOptions], model: Model | None) -> None:
    from ..inputs.model import chosen_model, computing_device
    from ..render.settings import show_settings

    options = setup.options
    model_options = options.model
    slots = _slots(options, setup)
    device = computing_device(model_options, model, slots=slots, draft_model=options.drafts.draft_model)
    show_settings(setup.settings, setup.grammar, chosen_model(model_options), device)


def _generate_text(
    setup: Setup[RunOptions],
    draft: DraftOptions | None,
    model: Model,
    typed_prompt: PromptText,
    template: ChatTemplateFlags,
    interrupt: Interrupt,
) -> None:
    """Generate the text, write it in the requested format, and report how it ended."""
    from ...engine.generation import generate
    from ...requests.engine_request import make_request
    from ..inputs.prompt import after_template, prepare_prompt
    from ..inputs.settings import logprob_request, seed_of
    from ..render.answers import AnswerWriter
    from ..render.progress import erase_bar_before_done, reading_bar

    options = setup.options
    settings = setup.settings
    logprobs = logprob_request(options.output, model.vocabulary)
    if options.context.keep is not None and not options.context.context_shift:
        print_note("--keep has no effect without --context-shift")
    prompt = prepare_prompt(model, typed_prompt.text, settings, options.affixes, template, options.is_chat)
    request = make_request(settings, prompt.tokens, setup.grammar, seed_of(settings))
    request = after_template(model, request, prompt, options.is_chat)
    must_complete_grammar = setup.grammar is not None and options.grammar.grammar_complete
    request = replace(
        request,
        logprobs=logprobs,
        echo=options.output.echo and logprobs.top_count is not None,
        jump=not options.grammar.no_jump,
        lookup=options.drafts.lookup,
        draft=draft,
        keep_on_shift=options.kept_tokens_on_shift,
        trace=options.output.trace,
        confidence=options.output.format is not Format.text or options.output.stats,
        complete_sentence=request.complete_sentence or must_complete_grammar,
    )
    if request.rules.field_confidence and not request.confidence:
        print_note("--field-confidence: a text shows no probabilities; add --stats, or --format jsonl")
    if options.beam_search.beams is not None:
        _search_beams(setup, model, request, prompt, typed_prompt.piped, interrupt)
        return
    if options.samples > 1:
        _generate_samples(setup, model, request, prompt, typed_prompt.piped, interrupt)
        return
    with reading_bar() as progress, interrupt.graceful_shutdown():
        events = generate(model, request, progress=progress, is_interrupted=lambda: interrupt.requested)
        command = replay_command(_random_seed(settings, request), typed_prompt.piped)
        with AnswerWriter(options.output, prompt, command, sys.stdout) as writer:
            done = writer.write(erase_bar_before_done(events, progress))
    _report_end(done, setup, prompt.shown, request, model, interrupt)


def _random_seed(settings: Settings, request: GenerationRequest) -> int | None:
    """Return the seed of a request if it was chosen randomly; None if a flag or a preset sets the seed."""
    return request.seed if settings["seed"].value is None else None


def _generate_samples(
    setup: Setup[RunOptions],
    model: Model,
    request: GenerationRequest,
    prompt: PreparedPrompt,
    piped: str,
    interrupt: Interrupt,
) -> None:
    """Generate several texts side by side, and write each one when those before it are written."""
    from ...jobs.samples import generate_samples, sample_requests
    from ..render.progress import sample_bar
    from ..render.samples import SampleWriter

    output = setup.options.output
    counts_votes = setup.options.vote
    requests = sample_requests(request, setup.options.samples)
    command = replay_command(_random_seed(setup.settings, request), piped)
    token_limit = sum(request.max_tokens or 0 for request in requests)
    with (
        sample_bar() as bar,
        SampleWriter(output, prompt, command, requests, shows_texts=not counts_votes) as writer,
        interrupt.graceful_shutdown(),
    ):
        progress = None if bar is None else lambda token_count: bar(token_count, token_limit)
        for events in generate_samples(model, requests, lambda: interrupt.requested, progress):
            if bar is not None:
                bar.erase()  # before the text moves the cursor
            done = writer.write(events)
            end_note = _note_on_end(done, setup, request, model)
            if end_note is not None:
                print_note(f"text {writer.count} of {len(requests)}: {end_note}")
    has_answer = writer.write_vote(setup.options.extract) if counts_votes else True
    if output.stats:
        writer.show_stats(model.name, str(model.placement))
    if not has_answer:
        raise typer.Exit(FAILED)
    if interrupt.requested:
        sys.stdout.flush()
        raise typer.Exit(interrupt.exit_code)


def _search_beams(
    setup: Setup[RunOptions],
    model: Model,
    request: GenerationRequest,
    prompt: PreparedPrompt,
    piped: str,
    interrupt: Interrupt,
) -> None:
    """Search for the texts with the best scores, and write them."""
    from ...engine.beams import generate_beams
    from ..render.progress import sample_bar
    from ..render.samples import BeamWriter

    output = setup.options.output
    flags = setup.options.beam_search
    best_count = flags.n_best  # None: all texts
    if best_count is None and output.format is not Format.jsonl:
        best_count = 1
    # No random number is drawn, so a random seed would only make two equal runs look different.
    request = replace(request, beams=flags.settings(best_count), seed=setup.settings["seed"].value or 0)
    with sample_bar() as bar, interrupt.graceful_shutdown():
        limit = request.max_tokens or 0
        progress = None if bar is None else lambda token_count: bar(token_count, limit)
        texts = generate_beams(model, request, progress=progress, is_interrupted=lambda: interrupt.requested)
        if bar is not None:
            bar.erase()
    with BeamWriter(output, prompt, replay_command(None, piped), [request] * len(texts)) as writer:
        for events in texts:
            done = writer.write(events)
            end_note = _note_on_end(done, setup, request, model)
            if end_note is not None:
                place = f"text {writer.count} of {len(texts)}: " if len(texts) > 1 else ""
                print_note(f"{place}{end_note}")
    if output.stats:
        writer.show_stats(model.name, str(model.placement))
    if interrupt.requested:
        sys.stdout.flush()
        raise typer.Exit(interrupt.exit_code)


# The environment variable that names the model of a run without -m. A replay command must include it.
_MODEL_VARIABLE = "GEN_MODEL"


def replay_command(random_seed: int | None, piped: str) -> str:
    """Return a shell command that repeats the run, with the seed, the model's variable and the piped input."""
    # ``random_seed``: see `_random_seed`. ``piped``: the text of stdin, without the newline at its end; empty if
    # stdin was not read.
    words = ["gen", *sys.argv[1:]]
    if random_seed is not None:
        # It is the last flag, because the last --seed counts. Words after `--` are not flags.
        flag_end = words.index("--") if "--" in words else len(words)
        words = [*words[:flag_end], "--seed", str(random_seed), *words[flag_end:]]
    model = os.environ.get(_MODEL_VARIABLE)
    command = shlex.join(words)
    if model:
        command = f"{_MODEL_VARIABLE}={shlex.quote(model)} {command}"
    return f"printf %s {shlex.quote(piped)} | {command}" if piped else command


def _report_end(
    done: Done,
    setup: Setup[RunOptions],
    prompt: str,
    request: GenerationRequest,
    model: Model,
    interrupt: Interrupt,
) -> None:
    """Print notes and statistics of the run, and end the command if the run was interrupted."""
    # ``prompt`` is as ``--echo`` shows it.
    output = setup.options.output
    end_note = _note_on_end(done, setup, request, model)
    if output.format is Format.text and (end_note is not None or output.stats):
        shown_prompt = prompt if output.echo else ""
        end_open_line(shown_prompt + (done.complete_text if output.show_reasoning else done.text))
    if end_note is not None:
        print_note(end_note)
    if output.stats:
        from ..render.stats import show_stats

        show_stats(done, model.name, str(model.placement), request.seed)
    if done.finish_reason == "interrupted":
        sys.stdout.flush()
        raise typer.Exit(interrupt.exit_code)


def _note_on_end(done: Done, setup: Setup[RunOptions], request: GenerationRequest, model: Model) -> str | None:
    """Return a note about the end of the text; None if the text ended as requested."""
    if setup.grammar is not None and done.complete is False and done.finish_reason != "interrupted":
        return _note_on_incomplete_grammar(done, setup.options, setup.grammar)
    if done.finish_reason == "banned":
        return "the text ends here because each token that was tried leads to a ban; see --ban-retries, --ban-then"
    if done.finish_reason == "loop":
        return f"the text ends here because its last {done.loop_period:,} tokens repeat; see --loop-guard"
    if done.finish_reason == "context":
        return _note_on_full_context(setup, request, model)
    return None if done.text else _note_on_missing_answer(done)


def _note_on_missing_answer(done: Done) -> str | None:
    if done.reasoning:
        return "the text ends in the reasoning, before an answer; -n or --reasoning-budget leave room for one"
    if done.finish_reason == "stop" and done.stop is None:
        return "the model ended without writing any text; --ignore-eos makes it continue"
    return None


def _note_on_full_context(setup: Setup[RunOptions], request: GenerationRequest, model: Model) -> str:
    is_guided = request.rules.is_guided
    subject = "the context of the text or of the negative prompt" if is_guided else "the context"
    advice = "-c makes it larger"
    has_context_shift = setup.options.context.context_shift
    supports_context_shift = not request.beams and not is_guided
    if supports_context_shift and not has_context_shift:
        advice += ", --context-shift discards older tokens"
    return f"the text ends here because {subject} is full: it holds {model.context.length:,} tokens; {advice}"


def _note_on_incomplete_grammar(done: Done, options: RunOptions, grammar: GrammarSpec) -> str:
    """Return a note about a text that ends inside the grammar's sentence."""
    hint = "" if grammar.after is None else f"; the grammar begins after {grammar.after!r}"
    if done.finish_reason == "stop":
        reason = "the model ended the text" if done.stop is None else f"the stop string {done.stop!r} was reached"
    elif done.finish_reason == "context":
        reason = "the context is full, see -c and --context-shift"
    else:
        reason = f"{count_noun(done.completion_tokens, 'token')}, see -n"
        was_completion_tried = options.grammar.grammar_complete or options.length.max_tokens is None
        advice = ", and it could not be completed" if was_completion_tried else "; --grammar-complete completes it"
        hint = advice + hint
    return f"the text does not complete the grammar: {reason}{hint}"
