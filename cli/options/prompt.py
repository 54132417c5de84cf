"""The flags of the prompt, of the chat template, and of the length of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ...common.errors import UsageError
from ...common.flags import CompletionKind, at_least
from ...presets.setting_table import LENGTH, PROMPT, SETTINGS
from ..flags import Options, argument, flag, table_flag

_prompt = partial(flag, panel=PROMPT)
length_flag = partial(flag, panel=LENGTH)
_MAX_TOKENS = SETTINGS["max_tokens"].flag
_STOP = SETTINGS["stop"].flag


@dataclass(frozen=True, kw_only=True)
class PromptOptions(Options):
    """The sources of the prompt. At most one flag is given; piped input is placed before its text."""

    prompt: str | None = argument(
        "PROMPT",
        help="The text to continue; piped input is placed before it; - reads stdin.",
        display_name="the prompt",
        has_escapes=True,
    )
    prompt_option: str | None = _prompt(
        "-p",
        "--prompt",
        help="The prompt, as an option instead of an argument.",
        display_name="the prompt",
        has_escapes=True,
    )
    file: Path | None = _prompt("-f", "--file", help="Read the prompt from a file; - reads stdin.")


@dataclass(frozen=True, kw_only=True)
class EscapeOptions(Options):
    """The flag that controls whether escapes in strings of the command line are replaced."""

    escape: bool = _prompt(
        "-e",
        "--escape/--no-escape",
        help=r"Replace \n \r \t \' \" \\ \xHH in prompts and flags such as --stop, --choices; not in files. [on]",
        default=True,
    )


@dataclass(frozen=True, kw_only=True)
class ChatOptions(Options):
    """The flags that decide whether the prompt is inserted into a chat template."""

    chat: bool | None = _prompt(
        "--chat/--no-chat",
        "/--no-conversation",
        "/-no-cnv",
        "/--no-cnv",
        help="Use the chat template. [on with --system or a --chat-template flag, otherwise off]",
    )
    template: TemplateOptions

    def check(self) -> None:
        """Raise ``UsageError`` if ``--no-chat`` is combined with a flag that needs the chat template."""
        if self.chat is False and self.implied_by is not None:
            raise UsageError(f"{self.implied_by} needs the chat template; omit --no-chat")

    @property
    def implied_by(self) -> str | None:
        """The first flag that implies ``--chat``; None if no such flag is given."""
        return self.template.first_given


@dataclass(frozen=True, kw_only=True)
class SystemOptions(Options):
    """The flag of the system message."""

    system: str | None = table_flag(SETTINGS["system"].flag)


@dataclass(frozen=True, kw_only=True)
class ChatTemplateOptions(Options):
    """The flags of the chat template."""

    chat_template: str | None = _prompt(
        "--chat-template",
        "--chat-template-file",
        metavar="FILE",
        help="Replace the model's chat template: a name in llama.cpp, or a file with Jinja.",
        display_name="--chat-template",
        completion_kind=CompletionKind.FILE,
    )
    chat_template_kwargs: str | None = _prompt(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Variables of the chat template, as JSON: '{\"enable_thinking\": false}'.",
    )
    jinja: bool = _prompt(
        "--jinja", help="Accepted for llama.cpp compatibility; chat templates are always Jinja.", default=False
    )


@dataclass(frozen=True, kw_only=True)
class TemplateOptions(ChatTemplateOptions, SystemOptions):
    """The flags of the system message and of the chat template."""

    @property
    def first_given(self) -> str | None:
        """The first of these flags that is given, except ``--jinja``; None if none is given."""
        flags = {
            "--system": self.system,
            "--chat-template": self.chat_template,
            "--chat-template-kwargs": self.chat_template_kwargs,
        }
        return next((name for name, value in flags.items() if value is not None), None)


@dataclass(frozen=True, kw_only=True)
class PromptAffixOptions(Options):
    """Options for a prefix and a suffix of the prompt, which replace the chat template."""

    in_prefix: str | None = _prompt(
        "--in-prefix",
        metavar="TEXT",
        help="Insert this text before the prompt, in place of the chat template.",
        has_escapes=True,
    )
    in_suffix: str | None = _prompt(
        "--in-suffix",
        metavar="TEXT",
        help="Insert this text after the prompt, in place of the chat template.",
        has_escapes=True,
    )

    @property
    def typed_flag(self) -> str | None:
        """The first of the two flags that is given; None if neither is given."""
        if self.in_prefix is not None:
            return "--in-prefix"
        if self.in_suffix is not None:
            return "--in-suffix"
        return None

    def add_affixes(self, text: str) -> str:
        return f"{self.in_prefix or ''}{text}{self.in_suffix or ''}"

    def reject_combination(self, flags: Mapping[str, bool | None]) -> None:
        """Raise ``UsageError`` if a prefix or suffix is combined with a flag that needs the chat template."""
        # ``flags``: whether each flag that needs the chat template is given, by the flag's name.
        given = [flag for flag, is_given in flags.items() if is_given]
        if self.typed_flag is not None and given:
            raise UsageError(
                f"{self.typed_flag} replaces the chat template, which {given[0]} needs; give only one"
            )


@dataclass(frozen=True, kw_only=True)
class LengthOptions(Options):
    """The flags that limit the length of a text."""

    max_tokens: int | None = table_flag(_MAX_TOKENS)
    stop: list[str] | None = table_flag(_STOP)


@dataclass(frozen=True, kw_only=True)
class AnswerLengthOptions(Options):
    """The flags that limit the length of an answer in a chat."""

    max_tokens: int | None = table_flag(_MAX_TOKENS, help="Maximum number of tokens in an answer. [no limit]")
    stop: list[str] | None = table_flag(_STOP)


@dataclass(frozen=True, kw_only=True)
class ComparedLengthOptions(Options):
    """The flags that limit the length of the texts of a comparison."""

    max_tokens: int | None = table_flag(
        _MAX_TOKENS, help="Maximum number of tokens in a text; -1 = no limit. [128]"
    )
    stop: list[str] | None = table_flag(_STOP)


@dataclass(frozen=True, kw_only=True)
class ContextShiftOptions(Options):
    """The flags for a full context."""

    context_shift: bool = length_flag(
        "--context-shift/--no-context-shift",
        help="When the context is full, discard the oldest tokens and continue. [--no-context-shift]",
        default=False,
    )
    keep: int | None = length_flag(
        "--keep",
        metavar="N",
        help="Number of prompt tokens that --context-shift never discards; -1 = all. [0]",
        limit=at_least(0, minus_one_meaning="all"),
    )
