"""Reads the metadata of a GGUF file without loading the model."""

from __future__ import annotations

import mmap
from pathlib import Path

from .errors import ModelError
from .gguf import _DamagedError, _Header, check_gguf


def read_metadata(path: Path) -> dict[str, str]:
    """Return the numbers and texts of a GGUF's metadata, as llama.cpp writes them as text; lists are left out.

    Raises ``ModelError`` for a file that `check_gguf` refuses.
    """
    check_gguf(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = _Header(data)
        try:
            header.bytes_needed()
        except _DamagedError as error:  # it was changed since the check
            raise ModelError(f"{path}: damaged GGUF file: {error}") from None
        return {key: _text(value) for key, value in header._values.items()}


def _text(value: int | float | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, float) else str(value)
