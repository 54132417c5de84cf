"""The settings of a run: the preset, and the flags of the command line that override it.

The grammar, the chat template and the requested logprobs are here, too. Their errors are reported before the model
is loaded, as far as possible.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import LogitsmithError, UsageError
from ...common.seeds import RANDOM_SEED, fixed_seed, fresh_seed
from ...common.strict_json import json_problem, parse_strict_json
from ...common.text import is_utf8
from ...requests.sources import chat_template_source, grammar_folders, open_preset, preset_of_model, report_schema
from ..flags import Options
from ..messages import print_note
from ..options.output import FORMATS, OutputOptions
from ..options.prompt import ChatTemplateOptions
from ..options.sampling import ConstraintOptions, FullSamplingOptions
from .overrides import chain_rearrangements, flag_overrides

if TYPE_CHECKING:
    from ...engine.chat_template import ChatTemplate
    from ...engine.model import Model
    from ...engine.token_records import LogprobRequest
    from ...engine.vocabulary import Vocabulary
    from ...grammars.spec import GrammarSpec
    from ...presets.preset import Preset
    from ...presets.settings import Settings


def resolve_run_settings(
    options: Options,
    sampling: FullSamplingOptions,
    metadata: Mapping[str, str] | None,
    preset: Preset | None = None,
) -> Settings:
    """Resolve the settings: flags override ``--set``, which overrides the preset, which overrides the defaults."""
    # ``metadata`` of the GGUF file is needed for ``--preset model`` only. ``preset`` replaces the one of the
    # command line.
    from ...presets.settings import resolve_settings

    preset = preset or _open_run_preset(sampling.preset, metadata)
    settings = resolve_settings(
        preset,
        chain=sampling.chain,
        sets=sampling.set or (),
        flags=tuple(flag_overrides(options)),
        rearrangements=tuple(chain_rearrangements(options)),
    )
    for flag, reason in settings.ignored_flags:
        print_note(f"{flag} has no effect: {reason}")
    return settings


def _open_run_preset(preset_flag: str | None, metadata: Mapping[str, str] | None) -> Preset:
    """Return the preset that the command line or the user's config names."""
    from ...presets.preset import load_preset

    name = preset_name(preset_flag)
    if name != MODEL_PRESET:
        return open_chosen_preset(name, preset_flag)
    preset = preset_of_model(metadata or {}, print_note)
    if preset is None:
        print_note("this model names no sampling settings (general.sampling.*); the preset default is used")
        preset = load_preset("default")
    return preset


MODEL_PRESET = "model"  # stands for the settings in the model's file


def preset_name(preset_flag: str | None) -> str:
    """Return the name of the preset: from ``--preset``, the user's config, or ``default``."""
    from ...presets.user_config import user_config

    return preset_flag or user_config().preset or "default"


def open_chosen_preset(name: str, preset_flag: str | None) -> Preset:
    """Open a preset by name or path. If the user's config names the preset, an error names that file, too."""
    from ...presets.errors import PresetError
    from ...presets.user_config import config_file, user_config

    try:
        return open_preset(name, print_note)
    except PresetError as error:
        if preset_flag or user_config().preset is None:
            raise
        raise error.within(f"{config_file()}: preset") from None


def seed_of(settings: Settings) -> int:
    """Return the seed of the settings, or a random seed if they have none."""
    return fixed_seed(settings["seed"].value)


def reported_seed(seed: int, what: str) -> int:
    """Return a seed of a command. A random one is printed, so that the command can be repeated and resumed."""
    # ``what``: the seed as a noun phrase, such as ``the base seed``.
    if seed == RANDOM_SEED:
        seed = fresh_seed()
        print_note(f"{what} is random: --seed {seed} repeats it")
    return seed


def grammar_spec(options: ConstraintOptions, settings: Settings) -> GrammarSpec | None:
    """Return the grammar of a run, checked as far as possible without a model."""
    grammar_value = settings["grammar"].value
    if grammar_value is None:
        _reject_grammar_flags(options)
        return None
    from ...grammars.errors import GrammarError
    from ...grammars.spec import grammar_table, resolve_grammar

    if options.grammar_root is not None:
        grammar_value = {**grammar_table(grammar_value), "root": options.grammar_root}
    if options.grammar_after is not None:
        grammar_value = {**grammar_table(grammar_value), "after": options.grammar_after}
    if options.schema_lenient:
        grammar_value = {**grammar_table(grammar_value), "schema_lenient": True}
    try:
        spec = resolve_grammar(grammar_value, grammar_folders(), settings.grammar_folder)
        spec.check()
    except GrammarError as error:
        if isinstance(settings["grammar"].value, str):
            _reject_file_name(settings["grammar"].origin, settings["grammar"].value)
        raise error.within(settings["grammar"].origin) from None
    report_schema(spec, print_note)
    return spec


# The flag or chat command that accepts a file, by the flag that was typed and the kind of the grammar.
# The kind "" stands for all kinds that are not listed.
_FLAGS_FOR_FILES = {
    "--grammar": {"json_schema": "-jf", "lark": "--lark-file", "": "--grammar-file"},
    "/grammar": {
        "json_schema": "/grammar json_schema_file",
        "lark": "/grammar lark_file",
        "": "/grammar file",
    },
}


def _reject_file_name(origin: str, name: str) -> None:
    """Raise ``GrammarError`` with the right flag if the value of a grammar flag is the name of a file."""
    # ``origin``: the flag or the chat command that was typed.
    from ...grammars.errors import GrammarError
    from ...grammars.spec import KIND_OF_SUFFIX

    flag_of_kind = _FLAGS_FOR_FILES.get(origin)
    path = Path(name)
    with suppress(OSError, ValueError):  # the text of a grammar may not be valid as a path
        if flag_of_kind is not None and path.is_file():
            kind = KIND_OF_SUFFIX.get(path.suffix, "")
            flag = flag_of_kind.get(kind, flag_of_kind[""])
            typed_name = shlex.quote(name) if origin.startswith("--") else name  # a chat needs no quotes
            raise GrammarError(f"{origin}: {name} is a file; use {flag} {typed_name}")


def _reject_grammar_flags(options: ConstraintOptions) -> None:
    for flag, is_given in (
        ("--grammar-root", options.grammar_root is not None),
        ("--grammar-after", options.grammar_after is not None),
        ("--grammar-complete", options.grammar_complete),
        ("--schema-lenient", options.schema_lenient),
    ):
        if is_given:
            raise UsageError(f"{flag} needs a grammar")


def logprob_request(options: OutputOptions, vocabulary: Vocabulary) -> LogprobRequest:
    """Return the logprobs that the flags request."""
    from ...engine.token_records import LogprobRequest

    top_count = options.logprobs
    if top_count is None:
        top_count = FORMATS[options.format].default_top_logprob_count
    if top_count is not None and top_count > vocabulary.size:
        raise UsageError(
            f"--logprobs: {top_count:,} is more than the {vocabulary.size:,} tokens of the vocabulary"
        )
    source = "model" if options.logprobs_from is None else options.logprobs_from.value
    token_ids = [] if options.logprob_of is None else _parse_tokens(options.logprob_of, vocabulary)
    return LogprobRequest(top_count, source, tuple(dict.fromkeys(token_ids)))


_ITEM_PATTERN = re.compile(
    r"""
    \s*
    (?P<text>
        "(?: [^"\\] | \\. )*"   # a JSON string
      | [^,"\s][^,]*            # a text without quotes
      |                         # nothing, which is an error
    )
    \s*
    (?P<comma>,|$)
    """,
    re.VERBOSE,
)
_TOKEN_ID_PATTERN = re.compile(r"<\[(\d{1,12})\]>")  # <[42]>


def _parse_tokens(texts: str, vocabulary: Vocabulary) -> list[int]:
    """Return the token ids of a list such as ``yes, " no", <[42]>``: bare texts, JSON strings and ids."""
    if not is_utf8(texts.encode(errors="surrogateescape")):
        raise UsageError("--logprob-of: the value is not UTF-8")
    tokens = []
    offset = 0
    while True:
        item = _ITEM_PATTERN.match(texts, offset)
        if item is None:
            raise UsageError(f'--logprob-of: {texts[offset:].strip()!r} is not TEXT, "TEXT" or <[ID]>')
        tokens.append(_parse_token(item["text"].strip(), vocabulary))
        if not item["comma"]:
            return tokens
        offset = item.end()


def _parse_token(written: str, vocabulary: Vocabulary) -> int:
    from ...models.errors import ModelError

    id_match = _TOKEN_ID_PATTERN.fullmatch(written)
    if id_match:
        token = int(id_match[1])
        if token >= vocabulary.size:
            raise UsageError(f"--logprob-of: {written}: token ids are 0 to {vocabulary.size - 1}")
        return token
    if not written:
        raise UsageError("--logprob-of: an empty text is not a token; remove a comma")
    text = written
    if written.startswith('"'):
        try:
            text = json.loads(written)
        except json.JSONDecodeError as error:
            raise UsageError(f"--logprob-of: {written} is not a JSON string: {json_problem(error)}") from None
    try:
        return vocabulary.single(text)
    except ModelError as error:
        raise UsageError(f"--logprob-of: {error}{_space_hint(written, text, vocabulary)}") from None


def _space_hint(written: str, text: str, vocabulary: Vocabulary) -> str:
    """Return advice if the text with a space in front is one token; otherwise an empty string."""
    from ...samplers.tokens import tokens_of_text

    is_quoted = written.startswith('"')
    if is_quoted or len(tokens_of_text(vocabulary, f" {text}".encode())) != 1:
        return ""
    return f"; with a space in front it is one token: write '\" {text}\"'"


class ChatTemplateFlags:
    """The flags ``--chat-template`` and ``--chat-template-kwargs``, checked before the model is loaded."""

    def __init__(self, options: ChatTemplateOptions) -> None:
        self.source: str | None = None  # None for the template of the model
        self.variables: dict[str, Any] | None = None  # None without the flag
        if options.chat_template_kwargs is not None:
            self.variables = _parse_variables(options.chat_template_kwargs)
        if options.chat_template is not None:
            self.source = _read_template_flag(options.chat_template, self.variables)

    def open(self, model: Model, settings: Settings) -> ChatTemplate | None:
        """Return the template of the flags, with the switches of settings; None if nothing sets any of them."""
        from ...engine.templates import open_chat_template
        from ...requests.thinking import template_switches, unread_switches

        has_template = self.source is not None or model.chat_template is not None
        plain_template = open_chat_template(model, self.source) if has_template else None
        for origin in unread_switches(settings, plain_template):
            print_note(f"{origin} has no effect: the chat template does not read it")
        switches = {} if plain_template is None else template_switches(settings, plain_template)
        if self.source is None and self.variables is None and not switches:
            return None
        return open_chat_template(model, self.source, switches | (self.variables or {}))


def note_unused_phases(settings: Settings, model: Model, template: ChatTemplate | None) -> None:
    """Print a note for a budget of a reasoning that the chat template, by default the model's, does not show."""
    from ...engine.templates import open_chat_template

    phases = settings["phases"]
    if phases.value is None or not any(phase.needs_reasoning for phase in settings.earlier_phases):
        return
    if (template or open_chat_template(model)).reasoning_tags is None:
        print_note(f"{phases.origin} has no effect: the chat template shows no reasoning")


def _read_template_flag(text: str, variables: dict[str, Any] | None) -> str:
    from ...engine.templates import check_chat_template

    try:
        source = chat_template_source(text)
        check_chat_template(source, variables)
        return source
    except LogitsmithError as error:
        raise UsageError(f"--chat-template: {error}") from None


def _parse_variables(text: str) -> dict[str, Any]:
    example = '{"enable_thinking": false}'
    try:
        variables = parse_strict_json(text)
    except ValueError as error:
        problem = json_problem(error) if isinstance(error, json.JSONDecodeError) else str(error)
        raise UsageError(f"--chat-template-kwargs is not JSON, such as {example}: {problem}") from None
    if not isinstance(variables, dict):
        raise UsageError(f"--chat-template-kwargs is not a JSON object, such as {example}")
    return variables
