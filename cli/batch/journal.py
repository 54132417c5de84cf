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

from ...logprobs import encode_json

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: then nothing warns of two runs on one file
    flock = None  # type: ignore[assignment]

# Results in a group, and seconds at most, before they are forced to the disk.
_GROUP, _SECONDS = 32, 1.0


class JournalError(Exception):
    """Results that cannot be kept. The message says why, and what to do."""


class Results(Protocol):
    """What takes results, and knows which there were at the start; see `key_of`."""

    done: set[Hashable]

    def add(self, record: dict[str, Any]) -> None:
        """Keep a result."""
        ...

    def close(self) -> None:
        """Nothing more will come."""
        ...


def key_of(record: Any, openai: bool) -> Hashable:
    """What a result belongs to: a failure to a line's number and digest, else it is the request's id.

    Raises ``ValueError`` for what is no result, or one of the other format.
    """
    if not isinstance(record, dict) or "error" not in record or not (record["error"] or _ANSWER & record.keys()):
        raise ValueError("it has neither an answer nor an error")
    if ("response" in record) != openai:
        raise ValueError(f"it is in the other format; give --format {'jsonl' if openai else 'openai'}")
    error = record["error"]
    if error:
        return error.get("line"), error.get("digest")
    name = record["custom_id"] if openai else record["id"]
    if not isinstance(name, str):
        raise ValueError("it names no request")
    return name


_ANSWER = {"response", "text"}
# How each of our lines begins.
_BEGINNING = b'{"id": '


class Pipe:
    """Results on stdout."""

    def __init__(self) -> None:
        self.done: set[Hashable] = set()

    def add(self, record: dict[str, Any]) -> None:
        """Write a result, at once."""
        sys.stdout.write(encode_json(record) + "\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is left to do."""


class Journal:
    """Results in a file, each a line that is written with one call, and forced to the disk in groups.

    With ``resume``, a file that is there is gone on with: ``done`` holds the keys of its results, and a last
    line that was torn is cut off. Raises ``JournalError``: another run writes to it, it is there already, it is no
    file of results, the disk is full.
    """

    def __init__(self, path: Path, resume: bool, openai: bool) -> None:
        self._path, self._openai = path, openai
        self.done: set[Hashable] = set()
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
                whole = line.endswith(b"\n")
                if not whole and _is_torn(line):
                    break
                try:
                    key = key_of(json.loads(line), self._openai)
                except (ValueError, TypeError, AttributeError) as error:
                    raise JournalError(
                        f"{self._path}: line {number} is no result to go on with: {error}; it is left as it is"
                    ) from None
                if whole:  # else only its line end is missing, and it is made again
                    self.done.add(key)
                    end += len(line)
        return end

    def add(self, record: dict[str, Any]) -> None:
        """Write a result as one line."""
        data = (encode_json(record) + "\n").encode()
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


def _is_torn(line: bytes) -> bool:
    """Is a last line without a line end the beginning of one of ours?"""
    if not (line.startswith(_BEGINNING) or _BEGINNING.startswith(line)):
        return False
    try:
        json.loads(line)
    except ValueError:
        return True
    return False


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
