"""Functions that read files within limits, find them by name, write them atomically, and explain their errors.

Input may be endless, such as a device or a pipe, so every reader has a limit.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import os
import signal
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import IO, AnyStr, BinaryIO, NamedTuple, cast

from .text import UndecodableTextError, decode_text, encode_as_utf8, is_utf16

# Maximum size of a prompt, of a text to score or to check, and of other files without a smaller limit. The longest
# contexts of models have 10 million tokens, which are about 50 MB of text. The largest text that is commonly
# scored, enwik8, has exactly this size.
MAX_TEXT_BYTES = 100_000_000

# Maximum length of a line in a file of lines. The longest lines are results of a batch with traces, with about 5
# KB per token.
MAX_LINE_BYTES = 256_000_000


class InputTooLargeError(OSError):
    """Input that exceeds a limit. ``filename`` is None until the reader of the file sets it."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EFBIG, problem)


class DamagedInputError(OSError):
    """Input whose bytes cannot be decoded. ``filename`` is None until the reader of the file sets it."""

    def __init__(self, problem: str) -> None:
        super().__init__(errno.EILSEQ, problem)


def read_bounded(file: IO[bytes], max_bytes: int = MAX_TEXT_BYTES) -> bytes:
    """Return the rest of a file. Raises ``InputTooLargeError`` for more than ``max_bytes``, and ``OSError``."""
    data = file.read(max_bytes + 1)  # reading is the only way to learn the size of a device or a pipe
    if len(data) > max_bytes:
        raise InputTooLargeError(f"it is larger than {max_bytes // 1_000_000} MB; give a shorter text")
    return data


def bounded_lines(file: IO[AnyStr], max_length: int = MAX_LINE_BYTES) -> Iterator[AnyStr]:
    """Yield the lines of a file, each with its newline; the last line may have none."""
    # ``max_length``: bytes, or characters of a text file. Raises ``InputTooLargeError`` for a longer line, and
    # ``DamagedInputError`` for compressed data that is damaged.
    line_number = 0
    while line := _read_line(file, max_length + 1):
        line_number += 1
        if len(line) > max_length:
            raise InputTooLargeError(
                f"line {line_number} is longer than {max_length // 1_000_000} MB; give a file of shorter lines"
            )
        yield line


def _read_line(file: IO[AnyStr], max_length: int) -> AnyStr:
    try:
        return file.readline(max_length)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DamagedInputError("its compressed data is damaged, or ends too early") from None


_GZIP_MARK = b"\x1f\x8b"
# Formats that cannot be read, by the first bytes of their files. No text begins with these bytes.
_OTHER_FORMS = {
    b"PK\x03\x04": "a ZIP file; unpack it",
    b"(\xb5/\xfd": "compressed with zstd; decompress it: zstd -d",
    b"\xfd7zXZ": "compressed with xz; decompress it: xz -d",
    b"BZh91AY&SY": "compressed with bzip2; decompress it: bzip2 -d",
    b"PAR1\x15": "a Parquet file; write its rows as lines of JSON",
}


def open_as_utf8(file: IO[bytes]) -> IO[bytes]:
    """Return a file's text as UTF-8, without a byte order mark, as it is read."""
    # gzip is decompressed. A text in UTF-16 with a byte order mark is read at once, so ``InputTooLargeError`` may
    # be raised. Raises ``DamagedInputError`` for other formats, such as a ZIP file.
    reader = _peekable(file)
    for mark, form in _OTHER_FORMS.items():
        if reader.peek(len(mark)).startswith(mark):
            raise DamagedInputError(f"it is {form}")
    if reader.peek(2).startswith(_GZIP_MARK):
        reader = BufferedReader(gzip.GzipFile(fileobj=reader))
    try:
        start = reader.peek(len(codecs.BOM_UTF8))
        if is_utf16(start):
            return BytesIO(encode_as_utf8(read_bounded(reader, MAX_LINE_BYTES)))
    except UndecodableTextError as error:
        raise DamagedInputError(f"it is {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DamagedInputError("its compressed data is damaged, or ends too early") from None
    if start.startswith(codecs.BOM_UTF8):
        reader.read(len(codecs.BOM_UTF8))
    return reader


def _peekable(file: IO[bytes]) -> BufferedReader:
    return file if isinstance(file, BufferedReader) else BufferedReader(cast(RawIOBase, file))


STDIN = Path("-")


def is_stdin(path: Path) -> bool:
    return path == STDIN


def input_name(path: Path) -> str:
    """Return the name of an input file in messages."""
    return "stdin" if is_stdin(path) else str(path)


@contextmanager
def open_input(path: Path) -> Iterator[BinaryIO]:
    """Open a file, or stdin for ``-``. Raises ``OSError``; errors of this module get the file's name."""
    try:
        with _open_unnamed(path) as file:
            yield file
    except (InputTooLargeError, DamagedInputError) as error:
        error.filename = error.filename or input_name(path)
        raise


@contextmanager
def _open_unnamed(path: Path) -> Iterator[BinaryIO]:
    if is_stdin(path):
        if sys.stdin is None:
            raise OSError(None, "it is closed", "stdin")
        # Yield a copy of stdin that is never closed, because a thread may still read from it when the run ends.
        yield os.fdopen(os.dup(sys.stdin.fileno()), "rb")
        return
    with file_errors_in_words(path):
        file = path.open("rb")
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        with file:
            yield file
    else:  # a pipe, from which a thread may still read, too
        yield file


@contextmanager
def file_errors_in_words(path: Path) -> Iterator[None]:
    """Give each ``OSError`` of the block the message of `file_problem`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, file_problem(error, path), str(path)) from None


def read_input(path: Path, max_bytes: int | None = None) -> bytes:
    """Return the content of a file, or of stdin for ``-``. ``max_bytes``: None for `MAX_TEXT_BYTES`."""
    with open_input(path) as file:
        return read_bounded(file, MAX_TEXT_BYTES if max_bytes is None else max_bytes)


class TextFileError(ValueError):
    """A file that cannot be read as text; the message does not name the file."""


def read_text_file(path: Path, max_bytes: int) -> str:
    """Return the text of a file, without a byte order mark. Raises ``TextFileError``."""
    # The text is UTF-8, or UTF-16 with a byte order mark.
    try:
        with path.open("rb") as file:
            data = read_bounded(file, max_bytes)
    except (OSError, ValueError) as error:
        raise TextFileError(file_problem(error, path)) from None
    return decode_text_file(data)


def decode_text_file(data: bytes) -> str:
    """Return the text in the bytes of a file, without a byte order mark. Raises ``TextFileError``."""
    try:
        return decode_text(data)
    except UndecodableTextError as error:
        raise TextFileError(f"line {error.line}: the file is {error}") from None


def file_problem(error: OSError | ValueError, path: Path) -> str:
    """Return why a file could not be opened or read; a ``ValueError`` is an error about its name."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, InputTooLargeError):
        return str(error.strerror)
    if isinstance(error, IsADirectoryError):
        return "it is a folder, not a file"
    if isinstance(error, OSError) and os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` may raise the error again
        return "it is a folder, not a file"
    if isinstance(error, PermissionError):
        return "the file may not be read (permission denied)"
    return f"the file cannot be read ({getattr(error, 'strerror', None) or error})"


def check_writable(path: Path) -> None:
    """Raise ``OSError`` if `write_file_atomically` could not write a file at this path."""
    is_device_or_pipe = path.exists() and not path.is_file() and not path.is_dir()
    if not path.parent.is_dir():
        problem = f"there is no folder {path.parent}"
    elif path.is_dir():
        problem = "it is a folder, not a file"
    elif not os.access(path if is_device_or_pipe else path.parent, os.W_OK):
        problem = "it cannot be written here (permission denied)"
    else:
        return
    raise OSError(errno.EACCES, problem, str(path))


def write_problem(error: OSError, path: Path) -> str:
    folder = os.path.dirname(path) or os.curdir  # noqa: PTH120 - for the checks of `os.path` below
    if isinstance(error, FileNotFoundError) and not os.path.isdir(folder):  # noqa: PTH112 - `Path.is_dir` may raise
        return f"there is no folder {folder}"
    if isinstance(error, IsADirectoryError) or os.path.isdir(path):  # noqa: PTH112
        return "it is a folder, not a file"
    return str(error.strerror)


class SearchFolder(NamedTuple):
    origin: str  # name of the folder's origin in messages, such as ``built-in``
    path: Path


def search_path(folders: Iterable[tuple[str, Path]], built_in: Path) -> list[SearchFolder]:
    """Return the user's ``folders``, given as (origin, path), and then the folder ``built_in``."""
    # A folder that occurs twice, for example through a link, is listed once, at its first place. The built-in
    # folder is always last.
    by_real_path: dict[Path, SearchFolder] = {}
    for origin, path in folders:
        real_path = _resolve(path)
        if real_path != built_in.resolve():
            by_real_path.setdefault(real_path, SearchFolder(origin, path))
    return [*by_real_path.values(), SearchFolder("built-in", built_in)]


def _resolve(folder: Path) -> Path:
    """Return a path with its links resolved; the unchanged path if its links form a ring."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):
        return folder  # reading the folder reports the ring


def find_named_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files of a folder with one of these suffixes, sorted; hidden files are left out."""
    # A missing folder counts as empty. Raises ``OSError`` for a folder that cannot be read.
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix in suffixes and not path.name.startswith(".") and path.is_file()
        )
    except (FileNotFoundError, NotADirectoryError):
        return []


def write_file_atomically(path: Path, write: Callable[[IO[bytes]], object], is_private: bool = False) -> None:
    """Write a temporary file in the same folder, force it to the disk, then rename it to ``path``."""
    # A device or a pipe, such as /dev/stdout, is not replaced: ``write`` writes directly into it. After an
    # ``OSError``, which has the name ``path``, an existing file is unchanged. ``is_private``: whether only the
    # owner may read the file; otherwise the umask determines its permissions.
    temporary_name = ""
    try:
        is_device_or_pipe = path.exists() and not path.is_file() and not path.is_dir()
        if is_device_or_pipe:
            with path.open("wb") as stream:
                write(stream)
            return
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            temporary_name = file.name
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if not is_private:  # a temporary file is private
            umask = os.umask(0)  # it can only be read by setting it
            os.umask(umask)
            Path(temporary_name).chmod(0o666 & ~umask)
        Path(temporary_name).replace(path)
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        if temporary_name:
            with suppress(OSError):
                Path(temporary_name).unlink(missing_ok=True)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Defer Ctrl-C until the end of the block. Can also decorate a function."""
    if current_thread() is not main_thread():  # Python calls signal handlers only in the main thread
        yield
        return
    deferred_calls: list[tuple[int, FrameType | None]] = []  # the arguments that the handler gets
    previous_handler = signal.signal(signal.SIGINT, lambda number, frame: deferred_calls.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
        if deferred_calls and callable(previous_handler):
            signal_number, frame = deferred_calls[0]
            previous_handler(signal_number, frame)
