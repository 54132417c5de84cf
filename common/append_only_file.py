"""A file of lines that one process appends to, and that outlives a crash of that process."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from .bounded_reading import bounded_lines


class AppendOnlyFile:
    """A file that is opened for appending, and created if it does not exist.

    A line is appended whole or not at all, as far as the system lets it; `sync` forces lines to the disk. What may
    be a pipe or a device (``is_regular`` is False) is neither locked nor truncated nor synced. Every method raises
    ``OSError`` as the system does, with the file's name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self.is_regular = stat.S_ISREG(os.fstat(self._handle).st_mode)
        self._end = self.size

    @property
    def size(self) -> int:
        """The size in bytes."""
        return os.fstat(self._handle).st_size

    def lock(self) -> bool:
        """Lock the file for this process; False if another process holds it, or removed it meanwhile."""
        if not self.is_regular:
            return True
        try:
            flock(self._handle, LOCK_EX | LOCK_NB)
            return os.path.samestat(os.fstat(self._handle), self.path.stat())
        except OSError:
            return False

    def lines(self) -> Iterator[bytes]:
        """Read line by line, each with its newline; an incomplete last line has none.

        Raises ``InputTooLargeError`` for a line longer than logitsmith appends.
        """
        with self.path.open("rb") as file, self._errors_named():
            yield from bounded_lines(file)

    def truncate(self, length: int) -> None:
        """Cut the file off behind its first ``length`` bytes, such as a line that a crash left torn."""
        if self.is_regular and length < self.size:
            with self._errors_named():
                os.ftruncate(self._handle, length)
        self._end = self.size

    def append(self, data: bytes) -> None:
        """Append bytes; what a failed write left of them is cut off again."""
        written = 0
        try:
            with self._errors_named():
                while written < len(data):
                    written += os.write(self._handle, data[written:])
        except OSError:
            self._cut_off_failed_write()
            raise
        self._end += len(data)

    def _cut_off_failed_write(self) -> None:
        if self.is_regular:
            try:
                os.ftruncate(self._handle, self._end)
            except OSError:
                return  # the next process that reads the file cuts it off

    def sync(self) -> None:
        """Force what was appended to the disk."""
        if self.is_regular:
            with self._errors_named():
                os.fsync(self._handle)

    def sync_folder(self) -> None:
        """Force the name of a new file to the disk, where the system has a way to; it raises nothing."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError:
            return
        try:
            os.fsync(folder)
        except OSError:
            return
        finally:
            os.close(folder)

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Errors of a call that takes a number instead of a name get the file's name."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.path)
            raise

    def close(self) -> None:
        """Close the file, which also unlocks it."""
        os.close(self._handle)
