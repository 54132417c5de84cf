"""Files: read within limits, found by name, written atomically or by appending, with errors as sentences.

Input may have no end, such as a device or a pipe. For this reason every reader has a limit. A file of lines that
one process appends to survives a crash of this process.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import IO, AnyStr, BinaryIO, NamedTuple

from .text import NotUTF8Error, decode_utf8

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


STDIN = Path("-")


def is_stdin(path: Path) -> bool:
    """True for ``-``."""
    return path == STDIN


def input_name(path: Path) -> str:
    """What messages call the file."""
    return "stdin" if is_stdin(path) else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """Open the file, or stdin for ``-``. Raises ``OSError``; an ``InputTooLargeError`` gets the file's name."""
    try:
        with _opened(path) as file:
            yield file
    except InputTooLargeError as error:
        error.filename = error.filename or input_name(path)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if is_stdin(path):
        if sys.stdin is None:
            raise OSError(None, "it is closed", "stdin")
        # A copy of stdin that is not closed: a thread may still read from it when the run ends.
        yield os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        return
    with file_errors_in_words(path):
        file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        with file:
            yield file
    else:  # a pipe, which such a thread may read as well
        yield file


@contextmanager
def file_errors_in_words(path: Path) -> Iterator[None]:
    """Raise an ``OSError`` again with the words of `file_problem`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, file_problem(error, path), str(path)) from None


def read_input(path: Path, max_bytes: int | None = None) -> bytes:
    """Return all that the file holds, or stdin for ``-``. Raises ``OSError``.

    ``max_bytes``: a larger file is an error; None: `MAX_TEXT_BYTES`.
    """
    with open_input(path) as file:
        return read_bounded(file, MAX_TEXT_BYTES if max_bytes is None else max_bytes)


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


class SearchFolder(NamedTuple):
    """A folder of a search path. ``origin``: how messages name it."""

    origin: str
    path: Path


def search_path(folders: Iterable[tuple[str, Path]], built_in: Path) -> list[SearchFolder]:
    """Return the user's ``folders``, as (origin, path), then the folder ``built_in``.

    A folder that occurs twice, as a link may, counts once: as the built-in one or at its first place.
    """
    by_real_path: dict[Path, SearchFolder] = {}
    for folder in folders:
        real_path = _resolve(folder[1])
        if real_path != built_in.resolve():
            by_real_path.setdefault(real_path, SearchFolder(*folder))
    return [*by_real_path.values(), SearchFolder("built-in", built_in)]


def _resolve(folder: Path) -> Path:
    """Return the path without links; the path itself if its links form a ring."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):
        return folder  # reading it reports the ring


def find_named_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files of a folder that end in one of these suffixes, sorted; hidden files are left out.

    A folder that does not exist holds none. Raises ``OSError`` for a folder that cannot be read.
    """
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix in suffixes and not path.name.startswith(".") and path.is_file()
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_file_atomically(path: Path, write: Callable[[IO[bytes]], object], private: bool = False) -> None:
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
