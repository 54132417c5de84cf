"""Result files that are written atomically, and ``.npz`` files that are read although they may be damaged."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..common.files import file_problem, write_file_atomically
from .errors import RecoverError


def write_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically: a failure leaves an existing file unchanged. Raises ``RecoverError``."""
    try:
        write_file_atomically(path, write)
    except OSError as error:
        raise RecoverError(f"{path}: cannot be written: {error.strerror}") from None


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], save: Callable[..., None]) -> None:
    """Write arrays atomically with ``np.savez`` or ``np.savez_compressed``. Raises ``RecoverError``."""
    write_file(path, lambda file: save(file, **arrays))


# Deflate can compress data to about 1/1032 of its size, so a larger ratio is a sign of damage
_MAX_COMPRESSION_RATIO = 1100

# The exceptions that zipfile and NumPy raise for damaged files. A flipped bit in the archive directory may name an
# unknown compression method (NotImplementedError) or a password (RuntimeError).
_DAMAGES = (
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


def read_npz(path: Path, names: tuple[str, ...], damage: str) -> list[NDArray[Any]]:
    """Return arrays of an ``.npz`` file. Raises ``RecoverError``, which says ``damage`` about another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            archive_size = sum(member.file_size for member in archive.infolist())
            if archive_size > _MAX_COMPRESSION_RATIO * path.stat().st_size:
                raise ValueError("the arrays are larger than the archive can contain")
            return [_read_array(archive, f"{name}.npy") for name in names]
    except OSError as error:
        raise RecoverError(f"{path}: {file_problem(error, path) if error.strerror else damage}") from None
    except _DAMAGES:
        raise RecoverError(f"{path}: {damage}") from None


def _read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    with archive.open(name) as file:
        # An array whose shape needs more bytes than the file has is an error, so that a damaged shape cannot
        # exhaust the memory.
        is_version_1 = np.lib.format.read_magic(file) == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if is_version_1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if dtype.itemsize * np.prod(shape, dtype=object) > archive.getinfo(name).file_size:
            raise ValueError(f"{name} is shorter than its shape")
        file.seek(0)
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def pack_bytes(pieces: Iterable[bytes]) -> dict[str, NDArray[Any]]:
    """Return byte strings as two arrays: piece i is ``bytes[offsets[i]:offsets[i+1]]``."""
    pieces = list(pieces)
    return {
        "bytes": np.frombuffer(b"".join(pieces), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, pieces)], dtype=np.int64),
    }
