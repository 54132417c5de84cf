"""Reads text files, and says in words why a file cannot be read or written."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .bounded_reading import MAX_TEXT_BYTES, InputTooLargeError, read_bounded
from .text import NotUTF8Error, decode_utf8


class TextFileError(ValueError):
    """A file that cannot be read as text; its message does not name the file."""


def read_text_file(path: Path, max_bytes: int) -> str:
    """Return the text of a file, without a byte order mark.

    Raises ``TextFileError`` for a file that is missing, unreadable, a folder, larger than ``max_bytes``, or not
    UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = read_bounded(file, max_bytes)
    except (OSError, ValueError) as error:
        raise TextFileError(file_problem(error, path)) from None
    return decode_text_file(data)


def decode_text_file(data: bytes) -> str:
    """Return the bytes of a file as text, without a byte order mark. Raises ``TextFileError``."""
    try:
        return decode_utf8(data)
    except NotUTF8Error as error:
        raise TextFileError(f"line {error.line}: the file is not UTF-8") from None


def file_problem(error: OSError | ValueError, path: Path) -> str:
    """Return why a file could not be opened or read; a ``ValueError`` is one about its name."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, InputTooLargeError):
        return str(error.strerror)
    # Not `Path.is_dir`, which may raise the same error again.
    if isinstance(error, IsADirectoryError) or (isinstance(error, OSError) and os.path.isdir(path)):  # noqa: PTH112
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "the file may not be read (permission denied)"
    return f"the file cannot be read ({getattr(error, 'strerror', None) or error})"


def write_problem(error: OSError, path: Path) -> str:
    """Return why a file could not be written."""
    folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - as below
    if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):  # noqa: PTH112 - `Path.is_dir` may raise
        return f"there is no folder {folder}"
    if isinstance(error, IsADirectoryError) or os.path.isdir(path):  # noqa: PTH112
        return "it is a folder, not a file"
    return str(error.strerror)


STDIN = Path("-")


def is_stdin(path: Path) -> bool:
    """True for ``-``."""
    return path == STDIN


def input_name(path: Path) -> str:
    """What messages call the file."""
    return "stdin" if is_stdin(path) else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """Open the file, or stdin for ``-``. Raises ``OSError``; an ``InputTooLargeError`` gets the file's name."""
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
        raise OSError(error.errno, file_problem(error, path), str(path)) from None


def read_input(path: Path, max_bytes: int | None = None) -> bytes:
    """Return all that the file holds, or stdin for ``-``. Raises ``OSError``.

    ``max_bytes``: a larger file is an error; None: `MAX_TEXT_BYTES`.
    """
    with open_input(path) as file:
        return read_bounded(file, MAX_TEXT_BYTES if max_bytes is None else max_bytes)
