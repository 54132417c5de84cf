"""Journals: files of JSON lines, to which one run appends, and which another run continues after a crash."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, TypeVar

from .errors import LogitsmithError
from .files import InputTooLargeError, bounded_lines
from .strict_json import json_problem, parse_strict_json

_Record = TypeVar("_Record")


class JournalError(LogitsmithError):
    """A journal cannot be written, or an existing one cannot be continued. The message says why."""


class Journal:
    """A file of lines that is opened for appending, locked for this process, and created if it does not exist."""

    # A device or a pipe is written, and neither locked nor read. Raises ``JournalError`` if another process has
    # locked or removed the file. Every method raises ``OSError`` as the system does, with the file's name.
    # ``header``: the first line, without its newline; None if lines of this kind have no header.

    def __init__(self, path: Path, header: str | None = None) -> None:
        self.path = path
        self._has_header = header is not None
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            self.is_regular = stat.S_ISREG(os.fstat(self._handle).st_mode)  # False for a device or a pipe
            self._end_offset = self._size()
            if self.is_regular:
                self._lock()
            # whether the file is empty, or has only the beginning of a header, which a killed run leaves
            self.is_new = self._has_no_complete_line(header)
            if self.is_new and self.is_regular:
                self._start(header)
        except BaseException:
            self.close()
            raise

    def _size(self) -> int:
        return os.fstat(self._handle).st_size

    def _lock(self) -> None:
        try:
            flock(self._handle, LOCK_EX | LOCK_NB)
            # Another process may have removed the file meanwhile. Then the lock is one of the removed file.
            is_locked = os.path.samestat(os.fstat(self._handle), self.path.stat())
        except OSError:
            is_locked = False
        if not is_locked:
            raise JournalError(f"{self.path}: another run is writing to it")

    def _has_no_complete_line(self, header: str | None) -> bool:
        """Return whether the file is empty, or has only the beginning of the header."""
        if header is None or not self.is_regular:
            return self._size() == 0
        first_line = next(self.lines(), b"")
        is_complete = first_line.endswith(b"\n")
        return not is_complete and header.encode().startswith(first_line)

    def _start(self, header: str | None) -> None:
        if header is not None:
            self.truncate(0)
            self.append(header)
            self.sync()
        self._sync_folder()

    def header(self) -> Any:
        """Return the JSON value of the first line; None if the line is not JSON, or is incomplete."""
        line = next(self.lines(), b"")
        try:
            return parse_strict_json(line) if line.endswith(b"\n") else None
        except ValueError:
            return None

    def records(self, read: Callable[[Any], _Record], *, start: str, name: str, advice: str = "") -> list[_Record]:
        """Return the records of the lines after the header. An incomplete last line is removed."""
        # A killed run may leave an incomplete last line. Raises ``JournalError``, with the number of the line, for
        # a line that is no record; the file is then unchanged. ``read`` returns the record of a JSON value, and
        # raises ``ValueError`` for a value that is no record. ``start``: the text that each line of a record
        # begins with. ``name``: the content of a line in messages, such as ``a result``. ``advice``: for a line
        # that is no record.
        records: list[_Record] = []
        end_offset = 0
        for number, line in enumerate(self.lines(), 1):
            is_header = self._has_header and number == 1
            is_complete = line.endswith(b"\n")
            if not is_header:
                if not is_complete and _is_torn(line, start.encode()):
                    break
                try:
                    record = read(parse_strict_json(line))
                except ValueError as error:
                    problem = f"{self.path}: line {number} is not {name}: {_line_problem(error)}"
                    raise JournalError(problem, advice=advice) from None
                if not is_complete:  # only the newline is missing; the record is computed again
                    break
                records.append(record)
            end_offset += len(line)
        self.truncate(end_offset)
        return records

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the file, each with its newline; a torn last line has none."""
        try:
            with self.path.open("rb") as file, self._add_name_to_errors():
                yield from bounded_lines(file)
        except InputTooLargeError as error:
            raise JournalError(f"{self.path}: {error.strerror}; the file was not changed") from None

    def truncate(self, length: int) -> None:
        """Keep the first bytes only."""
        if self.is_regular and length < self._size():
            with self._add_name_to_errors():
                os.ftruncate(self._handle, length)
            self.sync()
        self._end_offset = self._size()

    def append(self, line: str) -> None:
        """Append a line, with one write if the system allows it. A failed write is undone."""
        data = f"{line}\n".encode()
        written_bytes = 0
        try:
            with self._add_name_to_errors():
                while written_bytes < len(data):
                    written_bytes += os.write(self._handle, data[written_bytes:])
        except OSError:
            if self.is_regular:
                with suppress(OSError):  # the next run that reads the file removes the torn line
                    os.ftruncate(self._handle, self._end_offset)
            raise
        self._end_offset += len(data)

    def sync(self) -> None:
        if self.is_regular:
            with self._add_name_to_errors():
                os.fsync(self._handle)

    def _sync_folder(self) -> None:
        """Force the name of a new file to the disk, if the system supports it."""
        with suppress(OSError):
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def _add_name_to_errors(self) -> Iterator[None]:
        """Add the file's name to errors of the block, whose calls only know the number of the open file."""
        try:
            yield
        except OSError as error:
            error.filename = str(self.path)
            raise

    def close(self) -> None:
        # Closing also unlocks the file.
        os.close(self._handle)


def _is_torn(line: bytes, start: bytes) -> bool:
    """Return whether a line without a newline is the beginning of a record."""
    may_be_record = line.startswith(start) or start.startswith(line)
    if not may_be_record:
        return False
    try:
        parse_strict_json(line)
    except ValueError:
        return True
    return False


def _line_problem(error: ValueError) -> str:
    """Return why a line is no record, in words that do not come from Python's exceptions."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, json.JSONDecodeError):
        return f"it is not JSON: {json_problem(error)}, at character {error.pos + 1}"
    return str(error)
