"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import IO


def write_whole_file(path: Path, write: Callable[[IO[bytes]], object], private: bool = False) -> None:
    """Let ``write`` fill a temporary file beside ``path``, force it to the disk, then rename it to ``path``.

    The file gets the permissions that the umask leaves a new file; ``private``: only its owner may read it. A
    device or a pipe, such as /dev/stdout, is not replaced: ``write`` writes into it. Raises ``OSError`` with the
    name ``path``; a file is then as before.
    """
    name = ""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            with path.open("wb") as stream:
                write(stream)
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            name = file.name
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if not private:  # as the temporary file is
            mask = os.umask(0)  # the only way to read the umask is to set it
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        if name:
            with suppress(OSError):
                Path(name).unlink(missing_ok=True)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """While inside, Ctrl-C waits; it takes effect behind the block. Also a decorator."""
    if current_thread() is not main_thread():  # Python calls handlers in the main thread
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if waiting and callable(previous):
            previous(*waiting[0])
