"""Where the prompt comes from: the argument, -p, -f, or stdin."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from ..errors import fail
from ..options.run_options import PromptOptions


def read_prompt(options: PromptOptions) -> str:
    """Return the prompt's text. One source at a time; from a file or stdin, one newline at the end is cut.

    Leaves with a message when there is none, more than one, or when the bytes are not UTF-8.
    """
    given = {
        "PROMPT": options.prompt,
        "-p": options.prompt_option,
        "-f": options.file,
    }
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise typer.BadParameter(f"the prompt is given twice, by {' and '.join(named)}")
    text = options.prompt if options.prompt is not None else options.prompt_option
    if text is not None:
        return text
    if options.file is not None and str(options.file) != "-":
        return _decoded(_read_file(options.file), str(options.file))
    if sys.stdin is None or (options.file is None and sys.stdin.isatty()):
        raise typer.BadParameter('there is no prompt: give one ("gen PROMPT"), -f FILE, or pipe it in')
    return _decoded(sys.stdin.buffer.read(), "stdin")


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        fail(f"{path}: {error.strerror}")


def _decoded(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fail(f"{source} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}")
    return text.removesuffix("\n")
