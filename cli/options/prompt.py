"""The flags of a prompt, of the chat template, and of where a text ends."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...common.errors import UsageError
from ..flags import CompletionKind, Limit, Options, argument, at_least, flag, options_class

_prompt = partial(flag, panel="Prompt")
length_flag = partial(flag, panel="Length")

UNTIL_CONTEXT_IS_FULL = -2
"""llama.cpp's number for it: also with ``--context-shift``. Else -1, no limit, means the same."""


@options_class
class PromptOptions(Options):
    """Where the prompt comes from: one of these, stdin, or stdin and then one of these."""

    prompt: str | None = argument(
        "PROMPT",
        help="The text to write on from, after what is piped in; - is stdin.",
        display_name="the prompt",
        has_escapes=True,
    )
    prompt_option: str | None = _prompt(
        "-p", "--prompt", help="The prompt, as an option.", display_name="the prompt", has_escapes=True
    )
    file: Path | None = _prompt("-f", "--file", help="Read the prompt from a file; - is stdin.")


@options_class
class EscapeOptions(Options):
    """Whether the escapes in texts of the command line are processed."""

    escape: bool = _prompt(
        "-e",
        "--escape/--no-escape",
        help=r"Process \n \r \t \' \" \\ \xHH in prompts, --stop and breakers typed here; not in files. [on]",
        default=True,
    )


@options_class
class ChatOptions(Options):
    """Whether the prompt goes through the model's chat template."""

    chat: bool | None = _prompt(
        "--chat/--no-chat",
        "/--no-conversation",
        "/-no-cnv",
        help="Put the prompt into the model's chat template; the next three flags imply it.",
    )
    template: TemplateOptions

    def check(self) -> None:
        """Refuse what needs the template, where it is left out."""
        if self.chat is False and self.implied_by is not None:
            raise UsageError(f"{self.implied_by} needs the chat template, and --no-chat leaves it out")

    @property
    def implied_by(self) -> str | None:
        """The first flag that implies ``--chat``; None: none is given."""
        return self.template.first_given


@options_class
class TemplateOptions(Options):
    """The system message, and the chat template."""

    system: str | None = _prompt(
        "--system", "--system-prompt", "-sys", help="System message.", setting_name="system"
    )
    chat_template: str | None = _prompt(
        "--chat-template",
        "--chat-template-file",
        metavar="NAME|FILE",
        help="Another template: llama.cpp's name, or Jinja.",
        display_name="--chat-template",
        completion_kind=CompletionKind.FILE,
    )
    chat_template_kwargs: str | None = _prompt(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Its variables: '{\"enable_thinking\": false}'.",
    )
    jinja: bool = _prompt("--jinja", help="As ever: the chat template is read as Jinja.", default=False)

    @property
    def first_given(self) -> str | None:
        """The first of these flags that is given, save ``--jinja``; None: none is."""
        flags = {
            "--system": self.system,
            "--chat-template": self.chat_template,
            "--chat-template-kwargs": self.chat_template_kwargs,
        }
        return next((name for name, value in flags.items() if value is not None), None)


@options_class
class PromptAffixOptions(Options):
    """What stands around the prompt, in place of a chat template."""

    in_prefix: str | None = _prompt(
        "--in-prefix",
        metavar="TEXT",
        help="Before the prompt, in place of a chat template.",
        has_escapes=True,
    )
    in_suffix: str | None = _prompt(
        "--in-suffix", metavar="TEXT", help="After the prompt, likewise.", has_escapes=True
    )

    @property
    def typed_flag(self) -> str | None:
        """The flag that is given, the first one of both; None: none."""
        if self.in_prefix is not None:
            return "--in-prefix"
        return None if self.in_suffix is None else "--in-suffix"

    def add_affixes(self, text: str) -> str:
        """The text between the prefix and the suffix."""
        return f"{self.in_prefix or ''}{text}{self.in_suffix or ''}"

    def reject_combination(self, flags: Mapping[str, bool | None]) -> None:
        """Raise ``UsageError`` if a flag of the chat template is given too, whose place these take.

        ``flags``: the names of those flags, and whether each is given.
        """
        given = [flag for flag, is_given in flags.items() if is_given]
        if self.typed_flag is not None and given:
            raise UsageError(
                f"{self.typed_flag} takes the place of the chat template, which {given[0]} needs; give one"
            )


def _max_tokens_flag(meaning: str) -> Any:
    return length_flag(
        "-n",
        "--predict",
        "--n-predict",
        help=meaning,
        setting_name="max_tokens",
        limit=Limit("≥ 0, nor -1 or -2 for no limit", UNTIL_CONTEXT_IS_FULL),
    )


def _stop_flag() -> Any:
    return length_flag(
        "--stop",
        "-r",
        "--reverse-prompt",
        help="End before this text; repeatable.",
        setting_name="stop",
        has_escapes=True,
    )


@options_class
class LengthOptions(Options):
    """Where a text ends."""

    max_tokens: int | None = _max_tokens_flag(
        "Tokens at most; 0 = only read, -1, -2 = until the context is full. [256, then a sentence is closed]"
    )
    stop: list[str] | None = _stop_flag()


@options_class
class AnswerLengthOptions(Options):
    """Where an answer of a chat ends."""

    max_tokens: int | None = _max_tokens_flag("Tokens of an answer at most. [until the model ends it]")
    stop: list[str] | None = _stop_flag()


@options_class
class ContextShiftOptions(Options):
    """What happens when the context is full."""

    context_shift: bool = length_flag(
        "--context-shift/--no-context-shift",
        help="When the context is full, discard older tokens and go on. [--no-context-shift]",
        default=False,
    )
    keep: int | None = length_flag(
        "--keep",
        metavar="N",
        help="Tokens of the prompt that are never discarded; -1 = all. [0]",
        limit=at_least(0, minus_one_meaning="all"),
    )


def lookup_flag() -> Any:
    """The flag of prompt lookup."""
    return length_flag(
        "--lookup",
        metavar="N",
        help="Guess up to N tokens from the text so far; 0 = off. [0]",
        default=0,
        limit=at_least(0),
    )
