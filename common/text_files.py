"""Reads text files, and says in words why a file cannot be read or written."""

from __future__ import annotations

import os
from pathlib import Path

from .bounded_reading import InputTooLargeError, read_bounded
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
