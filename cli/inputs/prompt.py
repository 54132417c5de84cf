"""Where the prompt comes from: the argument, -p, -f, stdin, or stdin and one of these."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

from ...common.errors import UsageError
from ...common.files import STDIN, input_name, is_stdin, read_input
from ..errors import fail, note
from ..options.prompt import PromptOptions
from .files import input_path, read_piped


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
        return _join(_text(read_piped("goes before the prompt") or b"", STDIN), text)
    stdin = input_path(path)
    if stdin is None:
        raise UsageError('there is no prompt: give one ("gen PROMPT"), -f FILE, or pipe it in')
    if is_stdin(stdin) and sys.stdin.isatty():
        note("type the prompt; Ctrl-D on a line of its own ends it")
    piped = _read(stdin)
    if not piped:
        raise UsageError('there is no prompt: stdin is empty; "" is a prompt without text')
    return PromptText(piped, piped)


def _join(piped: str, text: str) -> PromptText:
    """What is piped in, then the prompt on a line of its own."""
    return PromptText(f"{piped}\n{text}" if piped and text else piped or text, piped)


def _read(path: Path) -> str:
    return _text(read_input(path), path)


def _text(data: bytes, path: Path) -> str:
    """The text of a file's bytes, without one newline at its end."""
    from ...common.text import NotUTF8Error, decode_utf8

    try:
        return decode_utf8(data).removesuffix("\n")
    except NotUTF8Error as error:
        fail(f"{input_name(path)} is {error}")
