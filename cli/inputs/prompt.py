"""Where the prompt comes from: the argument, -p, -f, or stdin."""

from __future__ import annotations

import typer

from ..errors import fail
from ..options.prompt import PromptOptions
from .files import input_name, input_path, read_input


def read_prompt(options: PromptOptions) -> str:
    """Return the prompt's text. One source at a time; from a file or stdin, one newline at the end is cut.

    Ends the command with a message when there is none, more than one, or when the bytes are not UTF-8.
    """
    sources = {"PROMPT": options.prompt, "-p": options.prompt_option, "-f": options.file}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"the prompt is given twice, by {' and '.join(given)}")
    text = options.prompt if options.prompt is not None else options.prompt_option
    if text is not None:
        return text
    path = input_path(options.file)
    if path is None:
        raise typer.BadParameter('there is no prompt: give one ("gen PROMPT"), -f FILE, or pipe it in')
    return _decode(read_input(path), input_name(path)).removesuffix("\n")


def _decode(data: bytes, name: str) -> str:
    from ...common import NotUTF8Error, decode_utf8

    try:
        return decode_utf8(data)
    except NotUTF8Error as error:
        fail(f"{name} is {error}")
