"""The flags of `gen chat`, and the settings of a chat, which begin with the flags and change by commands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...common.errors import UsageError
from ...common.flags import CompletionKind, OptionalValue
from ...common.seeds import fixed_seed, following_seed
from ..flags import Options, flag
from ..inputs.model import chosen_model, computing_device
from ..inputs.settings import (
    MODEL_PRESET,
    ChatTemplateFlags,
    grammar_spec,
    note_unused_phases,
    preset_name,
    resolve_run_settings,
)
from ..messages import print_note
from ..options.drafts import DraftingOptions
from ..options.model import LogOptions, ModelOptions
from ..options.prompt import AnswerLengthOptions, EscapeOptions, TemplateOptions
from ..options.sampling import ConstraintOptions, FullSamplingOptions
from ..options.text_rules import TextRuleOptions

if TYPE_CHECKING:
    from ...engine.chat_template import ChatTemplate
    from ...engine.drafts import DraftOptions
    from ...engine.model import Model
    from ...engine.request import GenerationRequest
    from ...presets.settings import Settings, SettingValue

_chat = partial(flag, panel="Chats")


class OnFull(StrEnum):
    """The reaction to a conversation that no longer fits into the context."""

    stop = "stop"
    drop = "drop"


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Options):
    """The options that list, resume, search and delete stored chats."""

    list_chats: bool = _chat("--list", help="List the stored chats, and exit.", default=False)
    resume: str | None = _chat(
        "--resume",
        metavar="[ID]",
        help="Continue the chat with this ID or name; without a value, the latest chat.",
        completion_kind=CompletionKind.CHAT,
        optional_value=OptionalValue("", re.compile(r"[^-].*", re.DOTALL)),
    )
    search: str | None = _chat(
        "--search", metavar="TEXT", help="List all stored messages that contain TEXT, and exit."
    )
    delete: str | None = _chat(
        "--delete",
        metavar="ID",
        help="Delete the chat with this ID or name, and exit.",
        completion_kind=CompletionKind.CHAT,
    )
    no_log: bool = _chat("--no-log", help="Do not store this chat.", default=False)

    def check(self) -> None:
        is_typed_by_flag = {
            "--list": self.list_chats,
            "--resume": self.resume is not None,
            "--search": self.search is not None,
            "--delete": self.delete is not None,
            "--no-log": self.no_log,
        }
        flags = [flag for flag, is_typed in is_typed_by_flag.items() if is_typed]
        if len(flags) > 1:
            raise UsageError(f"{flags[0]} and {flags[1]} exclude each other; use only one")

    @property
    def needs_model(self) -> bool:
        """True if the chat generates answers; False for the flags that only read or change the store."""
        return not self.list_chats and self.search is None and self.delete is None


@dataclass(frozen=True, kw_only=True)
class ConversationOptions(Options):
    """The options of `gen chat`: those options of `gen run` that change an answer, and others for the chat."""

    store: StoreOptions
    prompt_cache: Path | None = _chat(
        "--prompt-cache",
        help="Load the model's state from this file, and save the new state there for the next session.",
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
    rules: TextRuleOptions
    drafts: DraftingOptions
    model: ModelOptions
    log: LogOptions


_RESUMED_ORIGIN = "of the resumed chat"  # the origin of settings that were read from the store
_STORED_KEY = "preset"  # The key of the settings in the store. Its value is the text of a preset.
_NO_LIMIT = -1  # the value of ``max_tokens`` for answers without a limit


class ChatSettings:
    """The settings of a chat. A change that fails leaves all settings unchanged."""

    draft: DraftOptions | None = None  # None without a draft model

    def __init__(
        self, options: ConversationOptions, metadata: Mapping[str, str] | None, stored: Mapping[str, Any]
    ) -> None:
        """Resolve the settings: flags override stored settings, which override the defaults."""
        # ``metadata`` is needed for ``--preset model`` only. ``stored`` is what `stored_fields` returned for the
        # resumed chat; empty for a new chat.
        from ...presets.settings import preset_of_text

        self._options = options
        is_new = options.sampling.preset is not None or _STORED_KEY not in stored
        preset = None if is_new else preset_of_text(str(stored[_STORED_KEY]), _RESUMED_ORIGIN)
        settings = resolve_run_settings(options, options.sampling, metadata, preset)
        if settings.has_default_length:
            settings = settings.with_value("max_tokens", _NO_LIMIT)
        self._grammar_options = options.grammar
        self.settings = settings  # each with its origin
        self.grammar = grammar_spec(options.grammar, settings)

    @staticmethod
    def needs_model(options: ConversationOptions) -> bool:
        """Return whether the settings are read from the model's file."""
        return preset_name(options.sampling.preset) == MODEL_PRESET

    def chosen_model(self) -> SettingValue:
        """Return the model that the command line, the environment or the user's config names."""
        return chosen_model(self._options.model)

    def computing_device(self, model: Model) -> SettingValue:
        """Return where the model of the chat is computed."""
        return computing_device(self._options.model, model)

    def open_template(self, model: Model) -> ChatTemplate | None:
        """Return the chat template with the switches of the settings; None if only the model chooses it."""
        template = ChatTemplateFlags(self._options.template).open(model, self.settings)
        note_unused_phases(self.settings, model, template)
        return template

    def stored_fields(self) -> dict[str, Any]:
        """Return the settings in a form that can be stored. A ``max_tokens`` of 0 is stored as no limit."""
        from ...presets.settings import settings_text

        settings = _with_absolute_files(self.settings)
        if settings["max_tokens"].value == 0:  # presets do not allow 0, so that the chat could not be resumed
            settings = settings.with_value("max_tokens", _NO_LIMIT)
        return {_STORED_KEY: settings_text(settings)}

    def set(self, text: str) -> str:
        """Change one value, such as ``min_p.p=0.1``, and return the change in words: ``min_p.p = 0.1``."""
        from ...presets.overrides import parse_set
        from ...presets.settings import override_settings

        override = parse_set(text, "/set")
        self._replace_settings(override_settings(self.settings, override))
        return f"{override.target} = {override.value!r}"

    def override(self, command: str, target: str, value: Any) -> None:
        """Change a setting on behalf of a command other than /set; None resets it."""
        # ``command``, with its slash, becomes the origin of the setting.
        from ...presets.overrides import Override
        from ...presets.settings import override_settings

        self._replace_settings(override_settings(self.settings, Override(command, target, value)))

    def replace_chain(self, text: str) -> None:
        from ...presets.settings import replace_chain

        self._replace_settings(replace_chain(self.settings, text, "/chain"))

    def replace_preset(self, name: str, metadata: Mapping[str, str]) -> None:
        """Replace the chain and the settings that a preset contains; ``model`` is the one in the model's file."""
        from ...presets.errors import PresetError
        from ...presets.settings import replace_preset
        from ...requests.sources import open_preset, preset_of_model

        preset = preset_of_model(metadata, print_note) if name == MODEL_PRESET else open_preset(name, print_note)
        if preset is None:
            raise PresetError("this model names no sampling settings (general.sampling.*)")
        self._replace_settings(replace_preset(self.settings, preset))

    def _replace_settings(self, settings: Settings) -> None:
        grammar_options = self._grammar_options
        if settings["grammar"] != self.settings["grammar"]:
            grammar_options = ConstraintOptions()  # the typed flags apply to the grammar of the command line only
        self.grammar = grammar_spec(grammar_options, settings)  # may raise, before anything is changed
        self.settings = settings
        self._grammar_options = grammar_options

    def next_request(self, earlier_count: int = 0) -> GenerationRequest:
        """Return the request for the next answer, without its prompt."""
        # ``earlier_count``: number of earlier answers to the same message. Each of them had another seed.
        from ...requests.engine_request import make_request

        first_seed = fixed_seed(self.settings["seed"].value)
        answer_seed = following_seed(first_seed, earlier_count)
        return replace(
            make_request(self.settings, "", self.grammar, answer_seed),
            complete_sentence=self.grammar is not None and self._grammar_options.grammar_complete,
            jump=not self._options.grammar.no_jump,
            lookup=self._options.drafts.lookup,
            draft=self.draft,
        )


def _with_absolute_files(settings: Settings) -> Settings:
    """Return the settings with absolute paths of grammar files, since a chat may be resumed in another folder."""
    grammar = settings["grammar"].value
    if not isinstance(grammar, dict):
        return settings
    folder = settings.grammar_folder or Path()
    absolute_files = {
        key: str((folder / str(path)).resolve()) for key, path in grammar.items() if key.endswith("file")
    }
    return settings.with_value("grammar", {**grammar, **absolute_files})
