"""The flags of `gen chat`, and the settings of a chat: those of the flags, and what was changed since."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import UsageError
from ..command_options import TypedFlags
from ..flags import CompletionKind, OptionalValue, Options, flag, options_class
from ..inputs.model import chosen_model
from ..inputs.settings import fresh_seed, grammar_spec, preset_name, resolve_run_settings
from ..messages import print_note
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import AnswerLengthOptions, EscapeOptions, TemplateOptions, lookup_flag
from ..options.sampling import ConstraintOptions, FullSamplingOptions

if TYPE_CHECKING:
    from ...engine.request import GenerationRequest
    from ...presets.settings import Settings, SettingValue

_chat = partial(flag, panel="Chats")


class OnFull(StrEnum):
    """What happens when the conversation does not fit into the context any more."""

    stop = "stop"
    drop = "drop"


@options_class
class StoreOptions(Options):
    """Which of the stored chats is meant, and what to do with it."""

    list_chats: bool = _chat("--list", help="List the chats that are stored, and stop.", default=False)
    resume: str | None = _chat(
        "--resume",
        metavar="[ID]",
        help="Go on with a chat: its number, name, or the latest one.",
        completion_kind=CompletionKind.CHAT,
        optional_value=OptionalValue("", re.compile(r"[^-].*", re.DOTALL)),
    )
    search: str | None = _chat("--search", metavar="TEXT", help="Find messages in all chats, and stop.")
    delete: str | None = _chat(
        "--delete", metavar="ID", help="Delete a chat, and stop.", completion_kind=CompletionKind.CHAT
    )
    no_log: bool = _chat("--no-log", help="Store nothing.", default=False)

    def check(self) -> None:
        """Refuse what excludes each other. Raises ``UsageError``."""
        given = {
            "--list": self.list_chats,
            "--resume": self.resume is not None,
            "--search": self.search is not None,
            "--delete": self.delete is not None,
            "--no-log": self.no_log,
        }
        names = [name for name, is_given in given.items() if is_given]
        if len(names) > 1:
            raise UsageError(f"{names[0]} and {names[1]} exclude each other; give one")

    @property
    def needs_model(self) -> bool:
        """False if the store alone is looked at."""
        return not self.list_chats and self.search is None and self.delete is None


@options_class
class ConversationOptions(Options):
    """The options of `gen chat`: those of `gen run` that an answer depends on, and the chat's own."""

    typed_flags: TypedFlags
    store: StoreOptions
    prompt_cache: Path | None = _chat(
        "--prompt-cache",
        help="Keep what the model has read in this file, for the next time.",
        completion_kind=CompletionKind.FILE,
    )
    on_full: OnFull = _chat(
        "--on-full",
        help="When the context is full: stop, or drop the oldest turns. [stop]",
        default=OnFull.stop,
    )
    escapes: EscapeOptions
    template: TemplateOptions
    sampling: FullSamplingOptions
    grammar: ConstraintOptions
    length: AnswerLengthOptions
    lookup: int = lookup_flag()
    model: ModelOptions
    log: LogOptions


_RESUMED = "of the resumed chat"
"""The origin of settings that the store kept."""
_KEY = "preset"
"""Under this key the store keeps the settings, as the text of a preset."""
_SEEDS = 1 << 32
"""Number of seeds."""
_UNTIL_THE_END = -1
"""The length of an answer that has no limit."""


class ChatSettings:
    """The settings of a chat. Each change is made whole, or not at all.

    Attributes: ``settings``, each with its origin; ``spec``, the grammar, None without one.
    """

    def __init__(
        self, options: ConversationOptions, metadata: Mapping[str, str] | None, stored: Mapping[str, Any]
    ) -> None:
        """Resolve the flags over the stored settings over the defaults.

        Args:
            options: the command line.
            metadata: the model's, for ``--preset model``.
            stored: what `table` returned, of a chat that is resumed; else empty.

        Raises ``PresetError``, ``GrammarError``.
        """
        from ...presets.settings import preset_of_text

        self._options = options
        is_new = options.sampling.preset is not None or _KEY not in stored
        preset = None if is_new else preset_of_text(str(stored[_KEY]), _RESUMED)
        settings = resolve_run_settings(options, options.sampling, metadata, preset)
        if settings.has_default_length:
            settings = replace(settings, max_tokens=replace(settings.max_tokens, value=_UNTIL_THE_END))
        self._grammar_options = options.grammar
        self.settings, self.spec = settings, grammar_spec(options.grammar, settings)

    @staticmethod
    def needs_model(options: ConversationOptions) -> bool:
        """True if the settings come from the model's file."""
        return preset_name(options.sampling.preset) == "model"

    def chosen_model(self) -> SettingValue:
        """Return the model that the command line, the environment or the user's config names."""
        return chosen_model(self._options.model)

    def table(self) -> dict[str, Any]:
        """The settings, in a form that can be stored; a length of 0 tokens is left out."""
        from ...presets.settings import settings_text

        settings = _with_absolute_files(self.settings)
        if settings.max_tokens.value == 0:  # no preset may have it: the chat could not be resumed
            settings = replace(settings, max_tokens=replace(settings.max_tokens, value=_UNTIL_THE_END))
        return {_KEY: settings_text(settings)}

    def set(self, text: str) -> str:
        """Change one value, ``min_p.p=0.1``; returns what is set, ``min_p.p = 0.1``. Raises ``PresetError``."""
        from ...presets.errors import PresetError
        from ...presets.overrides import parse_set
        from ...presets.settings import override_settings

        try:
            override = parse_set(text)
        except PresetError as error:
            raise PresetError(f"/{str(error).removeprefix('--')}") from None
        origin = f"/{override.origin.removeprefix('--')}"
        self._use(override_settings(self.settings, replace(override, origin=origin)))
        return f"{override.target} = {override.value!r}"

    def override(self, command: str, target: str, value: Any) -> None:
        """Change a setting that has a command of its own. Raises ``PresetError``, ``GrammarError``."""
        from ...presets.overrides import Override
        from ...presets.settings import override_settings

        self._use(override_settings(self.settings, Override(command, target, value)))

    def replace_chain(self, text: str) -> None:
        """Use another chain. Raises ``PresetError``."""
        from ...presets.settings import replace_chain

        self._use(replace_chain(self.settings, text, "/chain"))

    def replace_preset(self, name: str, metadata: Mapping[str, str]) -> None:
        """Use a preset's chain, and what else it sets. ``metadata``: the model's. Raises ``PresetError``."""
        from ...jobs.sources import open_preset, preset_of_model
        from ...presets.errors import PresetError
        from ...presets.settings import replace_preset

        preset = preset_of_model(metadata, print_note) if name == "model" else open_preset(name, print_note)
        if preset is None:
            raise PresetError("this model names no sampling settings (general.sampling.*)")
        self._use(replace_preset(self.settings, preset))

    def _use(self, settings: Settings) -> None:
        options = self._grammar_options
        if settings.grammar != self.settings.grammar:
            options = ConstraintOptions()  # the flags were about the grammar of the command line
        self.spec = grammar_spec(options, settings)
        self.settings, self._grammar_options = settings, options

    def for_answer(self, earlier: int = 0) -> GenerationRequest:
        """What the next answer is made with, without its prompt.

        ``earlier``: how many answers to the same message were made before. Each has a seed of its own.
        """
        from ...jobs.resolve import make_request

        settings, spec, seed = self.settings, self.spec, self.settings.seed.value
        return replace(
            make_request(settings, "", spec, fresh_seed() if seed is None else (seed + earlier) % _SEEDS),
            complete_sentence=spec is not None and self._grammar_options.grammar_complete,
            jump=not self._options.grammar.no_jump,
            lookup=self._options.lookup,
        )


def _with_absolute_files(settings: Settings) -> Settings:
    """The settings with a grammar's file by its whole path: a chat may be resumed in another folder."""
    value = settings.grammar.value
    if not isinstance(value, dict):
        return settings
    base = settings.grammar_folder or Path()
    files = {key: str((base / str(path)).resolve()) for key, path in value.items() if key.endswith("file")}
    return replace(settings, grammar=replace(settings.grammar, value={**value, **files}))
