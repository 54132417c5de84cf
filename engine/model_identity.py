"""What tells one model from another: a fingerprint of its files, and the settings that its logits depend on."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from ..models.errors import ModelError
from ..models.names import part_paths

_BLOCK_BYTES, _BLOCKS = 65_536, 64
"""What is read of a file: so many blocks, evenly spread. A whole file would take seconds."""


def fingerprint(path: Path) -> str:
    """SHA-256, in hexadecimal, of the size of a model's files and of 4 MB that are spread evenly over each.

    Two models differ in it unless they agree in all these places. Raises ``ModelError``.
    """
    parts = part_paths(path)
    try:
        return _fingerprint(tuple((part, *_size_and_time(part)) for part in parts))
    except OSError as error:
        raise ModelError(f"{error.filename}: the file cannot be read ({error.strerror})") from None


def _size_and_time(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=16)
def _fingerprint(parts: Iterable[tuple[Path, int, int]]) -> str:
    """The fingerprint of files with their sizes, and with their times, which tell whether it is still the same."""
    digest = hashlib.sha256()
    for path, size, _ in parts:
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as file:
            _add_blocks(file, size, digest)
    return digest.hexdigest()


def _add_blocks(file: BinaryIO, size: int, digest: hashlib._Hash) -> None:
    step = max(_BLOCK_BYTES, (size - _BLOCK_BYTES) // (_BLOCKS - 1))
    for start in [*range(0, max(1, size - _BLOCK_BYTES), step)][: _BLOCKS - 1]:
        file.seek(start)
        digest.update(file.read(_BLOCK_BYTES))
    file.seek(-min(size, _BLOCK_BYTES), io.SEEK_END)
    digest.update(file.read(_BLOCK_BYTES))
