"""Reading of input that may have no end, such as a device or a pipe, and the most that is read of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import IO, AnyStr

MAX_TEXT_BYTES = 100_000_000
"""Of a prompt, a text to score or to check, and of files that are read as a whole and have no smaller limit.

The longest contexts of models have 10 million tokens, which are about 50 MB of text. The largest text that is
commonly scored, enwik8, has exactly this size.
"""

MAX_LINE_BYTES = 256_000_000
"""Of a line in a file of lines. The longest are results of a batch with traces, about 5 KB a token."""


class InputTooLargeError(OSError):
    """Input that exceeds a limit. ``filename`` is None until the reader of the file sets it."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EFBIG, problem)


def read_bounded(file: IO[bytes], max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the rest of a file. Raises ``InputTooLargeError`` for more than ``max_bytes``, and ``OSError``."""
    data = file.read(max_bytes + 1)  # a device or a pipe has no size to ask for
    if len(data) > max_bytes:
        raise InputTooLargeError(f"it is larger than {max_bytes // 1_000_000} MB; give a shorter text")
    return data


def bounded_lines(file: IO[AnyStr], max_length: int = MAX_LINE_BYTES) -> Iterator[AnyStr]:
    """Yield the lines of a file, each with its newline; the last line may have none.

    ``max_length``: bytes, or characters of a text file. Raises ``InputTooLargeError`` for a longer line.
    """
    number = 0
    while line := file.readline(max_length + 1):
        number += 1
        if len(line) > max_length:
            raise InputTooLargeError(
                f"line {number} is longer than {max_length // 1_000_000} MB; give a file of shorter lines"
            )
        yield line
