"""Where results go: whole lines, that outlive the process; and what an earlier run left there."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Hashable
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from ...logprobs import encode

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: then nothing warns of two runs on one file
    flock = None  # type: ignore[assignment]

# Results in a group, and seconds at most, before they are forced to the disk.
_GROUP, _SECONDS = 32, 1.0


class JournalError(Exception):
    """Results that cannot be kept. The message says why, and what to do."""


class Results(Protocol):
    """What takes results, and knows which there were at the start, see `key_of`, and how many of these failed."""

    done: set[Hashable]
    failed: int

    def add(self, record: dict[str, Any]) -> None:
        """Keep a result."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


def key_of(record: dict[str, Any]) -> Hashable:
    """What a result belongs to: the number of a line that could not be answered, else the request's id."""
    error = record.get("error")
    line = error.get("line") if isinstance(error, dict) else None
    if line is not None:
        return int(line)
    name = record.get("custom_id", record.get("id"))
    if not isinstance(name, str):
        raise ValueError("it names no request")
    return name


class Pipe:
    """Results on stdout."""

    def __init__(self) -> None:
        self.done: set[Hashable] = set()
        self.failed = 0

    def add(self, record: dict[str, Any]) -> None:
        """Write a result, at once."""
        sys.stdout.write(encode(record) + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is left to do."""


class Journal:
    """Results in a file, each a line that is written with one call, and forced to the disk in groups.

    With ``resume``, a file that is there is gone on with: ``done`` holds the keys of its results, and a last
    line that was torn is cut off. Raises ``JournalError``: another run writes to it, it is there already, it is no
    file of results, the disk is full.
    """

    def __init__(self, path: Path, resume: bool) -> None:
        self._path = path
        self.done: set[Hashable] = set()
        self.failed = 0
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            raise JournalError(f"{path}: {error.strerror}") from None
        try:
            self._regular = stat.S_ISREG(os.fstat(self._file).st_mode)
            if self._regular:
                self._begin(resume)
        except BaseException:
            os.close(self._file)
            raise
        self._end = os.fstat(self._file).st_size
        self._unsafe, self._moment = 0, monotonic()

    def _begin(self, resume: bool) -> None:
        if flock is not None:
            try:
                flock(self._file, LOCK_EX | LOCK_NB)
            except OSError:
                raise JournalError(f"{self._path}: another run is writing to it") from None
        if os.fstat(self._file).st_size and not resume:
            raise JournalError(
                f"{self._path} is there already; --resume goes on with it, or give another file with -o"
            )
        end = self._read()
        if end < os.fstat(self._file).st_size:
            os.ftruncate(self._file, end)
        self._force()
        _force_folder(self._path.parent)

    def _read(self) -> int:
        """Read what is there; returns where its last whole line ends."""
        end = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    key = key_of(json.loads(line))
                except (ValueError, TypeError, AttributeError) as error:
                    raise JournalError(
                        f"{self._path}: line {number} is no result of `gen batch`: {error}; it is left as it is"
                    ) from None
                self.done.add(key)
                self.failed += isinstance(key, int)
                end += len(line)
        return end

    def add(self, record: dict[str, Any]) -> None:
        """Write a result as one line."""
        data = (encode(record) + "\n").encode()
        try:
            written = 0
            while written < len(data):
                written += os.write(self._file, data[written:])
            self._end += len(data)
            self._unsafe += 1
            if self._unsafe >= _GROUP or monotonic() - self._moment >= _SECONDS:
                self._force()
        except OSError as error:
            self._take_back()
            raise JournalError(
                f"{self._path}: {error.strerror}; all results before this one are kept, "
                f"and --resume goes on from there"
            ) from None

    def _take_back(self) -> None:
        """Cut off what a write that failed left."""
        if self._regular:
            try:
                os.ftruncate(self._file, self._end)
            except OSError:
                return  # then the next run cuts it off

    def _force(self) -> None:
        if self._regular:
            os.fsync(self._file)
        self._unsafe, self._moment = 0, monotonic()

    def close(self) -> None:
        """Force what is left to the disk."""
        try:
            self._force()
        except OSError as error:
            raise JournalError(f"{self._path}: {error.strerror}") from None
        finally:
            os.close(self._file)


def _force_folder(folder: Path) -> None:
    """Force the name of a new file to the disk, where the system has a way to."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
