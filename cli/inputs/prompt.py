"""The prompt: from the argument, -p, -f, stdin, or stdin and one of these, to what the model reads.

The chat template, or what takes its place, is put around the text. ``-`` as a file is stdin.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...common.errors import UsageError
from ...common.files import STDIN, InputTooLargeError, input_name, is_stdin, read_input
from ...common.text import NotUTF8Error, decode_utf8
from ..messages import fail, print_note
from ..options.prompt import PromptAffixOptions, PromptOptions

if TYPE_CHECKING:
    from ...engine.model import Model
    from ...presets.settings import Settings
    from .settings import ChatTemplateFlags


class PromptText(NamedTuple):
    """A prompt, and the part of it that came from stdin; empty if none did."""

    text: str
    piped: str


def read_prompt(options: PromptOptions) -> str:
    """Return the prompt's text; see `read_prompt_text`."""
    return read_prompt_text(options).text


def read_prompt_text(options: PromptOptions) -> PromptText:
    """Return the prompt. From a file or stdin, one newline at the end is cut.

    What is piped in stands before a prompt that is given in another way, on lines of its own. Ends the command
    with a message when there is no prompt, more than one, when stdin is empty, or when the bytes are not UTF-8.
    """
    sources = {"PROMPT": options.prompt, "-p": options.prompt_option, "-f": options.file}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"the prompt is given twice, by {' and '.join(given)}")
    path = Path("-") if options.prompt == "-" else options.file
    text = options.prompt_option if options.prompt is None or options.prompt == "-" else options.prompt
    if path is not None and not is_stdin(path):
        text = _read(path)
    if text is not None:
        piped = _text(read_piped("goes before the prompt") or b"", STDIN)
        return PromptText(f"{piped}\n{text}" if piped and text else piped or text, piped)
    stdin = input_path(path)
    if stdin is None:
        raise UsageError('there is no prompt: give one ("gen PROMPT"), -f FILE, or pipe it in')
    if is_stdin(stdin) and sys.stdin.isatty():
        print_note("type the prompt; Ctrl-D on a line of its own ends it")
    piped = _read(stdin)
    if not piped:
        raise UsageError('there is no prompt: stdin is empty; "" is a prompt without text')
    return PromptText(piped, piped)


def _read(path: Path) -> str:
    return _text(read_input(path), path)


def _text(data: bytes, path: Path) -> str:
    """The text of a file's bytes, without one newline at its end."""
    try:
        return decode_utf8(data).removesuffix("\n")
    except NotUTF8Error as error:
        fail(f"{input_name(path)} is {error}")


def input_path(path: Path | None) -> Path | None:
    """The path, or ``-`` if none is given and something is piped in; None: there is no input."""
    if path is not None and not is_stdin(path):
        return path
    if sys.stdin is None or (path is None and sys.stdin.isatty()):
        return None
    return STDIN


_PATIENCE_SECONDS = 2.0
"""A program that writes into the pipe has begun by then; a pipe that was inherited by mistake stays silent."""


def read_piped(use: str) -> bytes | None:
    """Return what a pipe or a redirected file holds; None if stdin is neither, as a terminal or /dev/null.

    A pipe in which nothing arrives is named. ``use``: what it is read for, such as ``goes before the prompt``.
    Raises ``InputTooLargeError``.
    """
    try:
        if sys.stdin is None or stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
            return None
        _wait_for_stdin(use)
        return read_input(STDIN)
    except InputTooLargeError:
        raise
    except OSError:  # nohup opens stdin so that it cannot be read
        return None


def _wait_for_stdin(use: str) -> None:
    """Print a note if nothing arrives for a while; see `read_piped`."""
    with suppress(OSError, ValueError):  # not every stdin can be waited for
        if not select.select([sys.stdin], [], [], _PATIENCE_SECONDS)[0]:
            print_note(f"waiting for stdin, which {use}; < /dev/null says that there is none")


@dataclass(frozen=True)
class PreparedPrompt:
    """A prompt as the model reads it.

    Attributes:
        tokens: its text, or its token ids where parts of it are tokenized one by one.
        text: the whole text, with the chat template or with what takes its place.
        shown: the same without the chat template.
    """

    tokens: str | list[int]
    text: str
    shown: str


def prepare_prompt(
    model: Model,
    text: str,
    settings: Settings,
    affixes: PromptAffixOptions,
    template: ChatTemplateFlags,
    is_chat: bool | None,
) -> PreparedPrompt:
    """Put a prompt into the chat template or between prefix and suffix, or leave it as it is.

    Args:
        model: the model.
        text: what the user wrote.
        settings: the system message is one of them.
        affixes: the flags of prefix and suffix.
        template: the flags of the chat template.
        is_chat: whether the template is used; None: if there is a system message.
    """
    from ...engine.templates import build_prompt, tokenize_with_affixes

    system = settings.system.value
    if affixes.typed_flag is None:
        built = build_prompt(
            model, text, system=system, chat=is_chat, template=template.open(model), report=print_note
        )
        return PreparedPrompt(built, built, text)
    if system is not None:
        print_note(f"{affixes.typed_flag} takes the place of the chat template: the system message is left out")
    tokens = tokenize_with_affixes(model.vocabulary, text, affixes.in_prefix or "", affixes.in_suffix or "")
    framed = affixes.add_affixes(text)
    return PreparedPrompt(tokens, framed, framed)
