"""Files that a command line names: read, or stdin for ``-``."""

from __future__ import annotations

import os
import select
import stat
import sys
from contextlib import suppress
from pathlib import Path

from ...common.files import STDIN, is_stdin, read_input
from ..errors import note

_PATIENCE_SECONDS = 2.0
"""A program that writes into the pipe has begun by then; a pipe that was inherited by mistake stays silent."""


def input_path(path: Path | None) -> Path | None:
    """The path, or ``-`` if none is given and something is piped in; None: there is no input."""
    if path is not None and not is_stdin(path):
        return path
    if sys.stdin is None or (path is None and sys.stdin.isatty()):
        return None
    return STDIN


def read_piped(use: str) -> bytes | None:
    """Return what a pipe or a redirected file holds; None if stdin is neither, as a terminal or /dev/null.

    A pipe in which nothing arrives is named. ``use``: what it is read for, such as ``goes before the prompt``.
    Raises ``InputTooLargeError``.
    """
    from ...common.files import InputTooLargeError

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
