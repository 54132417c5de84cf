"""Files that are there whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from .errors import RecoverError


def check_writable(path: Path) -> None:
    """Raise ``RecoverError`` where no file can be put in place: no folder, a folder of this name, no leave."""
    if not path.parent.is_dir():
        raise RecoverError(f"{path}: there is no folder {path.parent}")
    if path.is_dir():
        raise RecoverError(f"{path}: it is a folder")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RecoverError(f"{path}: the folder {path.parent} cannot be written to")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in its place. Raises ``RecoverError``."""
    name = ""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            name = file.name
            write(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except OSError as error:
        raise RecoverError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        if name:
            Path(name).unlink(missing_ok=True)
