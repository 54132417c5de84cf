"""The flags of a prompt and of the chat template."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from .flag import Options, argument, flag, options_class

_prompt = partial(flag, panel="Prompt")


@options_class
class PromptOptions(Options):
    """Where the prompt comes from: one of these, stdin, or stdin and then one of these."""

    prompt: str | None = argument(
        "PROMPT",
        help="The text to write on from, after what is piped in; - is stdin.",
        called="the prompt",
        has_escapes=True,
    )
    prompt_option: str | None = _prompt(
        "-p", "--prompt", help="The prompt, as an option.", called="the prompt", has_escapes=True
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

    chat: bool | None = _prompt("--chat/--no-chat", help="Put the prompt into the model's chat template.")
    system: str | None = _prompt("--system", "-sys", help="System message; implies --chat.", sets="system")

    jinja: bool = _prompt("--jinja", help="As ever: the chat template is read as Jinja.", default=False)

    def check(self) -> None:
        """Refuse a system message without the template that would hold it."""
        if self.chat is False and self.system is not None:
            raise typer.BadParameter("--system needs the chat template, and --no-chat leaves it out")
