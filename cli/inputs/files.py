"""Files that a command line names: read, or stdin for ``-``."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import note

STDIN = Path("-")
_PATIENCE_SECONDS = 2.0
"""A program that writes into the pipe has begun by then; a pipe that was inherited by mistake stays silent."""


def is_stdin(path: Path) -> bool:
    """True for ``-``."""
    return path == STDIN


def input_path(path: Path | None) -> Path | None:
    """The path, or ``-`` if none is given and something is piped in; None: there is no input."""
    if path is not None and not is_stdin(path):
        return path
    if sys.stdin is None or (path is None and sys.stdin.isatty()):
        return None
    return STDIN


def input_name(path: Path) -> str:
    """What messages call the file."""
    return "stdin" if is_stdin(path) else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """Open the file, or stdin for ``-``. Raises ``OSError``; an ``InputTooLargeError`` gets the file's name."""
    from ...common import InputTooLargeError

    try:
        with _opened(path) as file:
            yield file
    except InputTooLargeError as error:
        error.filename = error.filename or input_name(path)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if is_stdin(path):
        if sys.stdin is None:
            raise OSError(None, "it is closed", "stdin")
        # A copy of stdin that is not closed: a thread may still read from it when the run ends.
        yield os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        return
    with file_errors_in_words(path):
        file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        with file:
            yield file
    else:  # a pipe, which such a thread may read as well
        yield file


@contextmanager
def file_errors_in_words(path: Path) -> Iterator[None]:
    """Raise an ``OSError`` again with the words of `file_problem`."""
    try:
        yield
    except OSError as error:
        from ...common import file_problem

        raise OSError(error.errno, file_problem(error, path), str(path)) from None


def read_input(path: Path, max_bytes: int | None = None) -> bytes:
    """Return all that the file holds, or stdin for ``-``. Raises ``OSError``.

    ``max_bytes``: a larger file is an error; None: `MAX_TEXT_BYTES`.
    """
    from ...common import MAX_TEXT_BYTES, read_bounded

    with open_input(path) as file:
        return read_bounded(file, MAX_TEXT_BYTES if max_bytes is None else max_bytes)


def read_piped(use: str) -> bytes | None:
    """Return what a pipe or a redirected file holds; None if stdin is neither, as a terminal or /dev/null.

    A pipe in which nothing arrives is named. ``use``: what it is read for, such as ``goes before the prompt``.
    Raises ``InputTooLargeError``.
    """
    from ...common import InputTooLargeError

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
            note(f"waiting for stdin, which {use}; < /dev/null says that there is none")
