"""Result files that are written atomically, and ``.npz`` files that are read although they may be damaged."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import write_file_atomically
from .errors import RecoverError


def check_writable(path: Path) -> None:
    """Raise ``RecoverError`` if no file can be written at this path."""
    if not path.parent.is_dir():
        raise RecoverError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise RecoverError(f"{path}: this is a folder, not a file")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise RecoverError(f"{path}: the folder {path.parent} cannot be written to")


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: a failure leaves an existing file unchanged. Raises ``RecoverError``."""
    try:
        write_file_atomically(path, write)
    except OSError as error:
        raise RecoverError(f"{path}: cannot be written: {error.strerror}") from None


# Deflate can compress data to about 1/1032 of its size, so a larger ratio is a sign of damage
_MAX_COMPRESSION_RATIO = 1100

# The exceptions that zipfile and NumPy raise for damaged files. A flipped bit in the archive directory may name an
# unknown compression method (NotImplementedError) or a password (RuntimeError).
DAMAGED_NPZ_ERRORS = (
    ValueError,
    KeyError,
    IndexError,
    EOFError,
    AttributeError,
    TypeError,
    MemoryError,
    SyntaxError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@contextmanager
def open_npz(path: Path) -> Iterator[Mapping[str, NDArray[Any]]]:
    """Open an ``.npz`` file. Opening and reading raise ``OSError`` or one of `DAMAGED_NPZ_ERRORS`."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        archive = data.zip if isinstance(data, np.lib.npyio.NpzFile) else None
        if archive is None:
            raise ValueError("this is not an .npz file")
        if (
            sum(int(member.file_size) for member in archive.infolist())
            > _MAX_COMPRESSION_RATIO * path.stat().st_size
        ):
            raise ValueError("the arrays are larger than the archive can contain")
        yield _SizedArrays(data, archive)


class _SizedArrays(Mapping[str, NDArray[Any]]):
    """The arrays of an archive by name."""

    # Reading an array whose shape needs more bytes than the file has is an error, so that a damaged shape cannot
    # exhaust the memory.

    def __init__(self, data: Mapping[str, NDArray[Any]], archive: zipfile.ZipFile) -> None:
        self._data = data
        self._archive = archive

    def __getitem__(self, name: str) -> NDArray[Any]:
        member = name if name in self._archive.namelist() else f"{name}.npy"
        with self._archive.open(member) as file:
            is_version_1 = np.lib.format.read_magic(file) == (1, 0)
            read_header = (
                np.lib.format.read_array_header_1_0 if is_version_1 else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read_header(file)
        needed_bytes = dtype.itemsize
        for length in shape:
            needed_bytes *= length
        if needed_bytes > self._archive.getinfo(member).file_size:
            raise ValueError(f"{name} is shorter than its shape")
        return self._data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)
