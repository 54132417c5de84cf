"""Result files: written whole or not at all, with errors as sentences."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from ..common.files import write_whole_file
from .errors import RecoverError


def check_writable(path: Path) -> None:
    """Raise ``RecoverError`` if no file can be written there: no folder, a folder of this name, no permission."""
    if not path.parent.is_dir():
        raise RecoverError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise RecoverError(f"{path}: it is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RecoverError(f"{path}: the folder {path.parent} cannot be written to")


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file whole, or leave it as it was, see `common.write_whole_file`. Raises ``RecoverError``."""
    try:
        write_whole_file(path, write)
    except OSError as error:
        raise RecoverError(f"{path}: cannot be written: {error.strerror}") from None
