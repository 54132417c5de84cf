"""Reads the metadata of a GGUF file without loading the model."""

from __future__ import annotations

from pathlib import Path

from .gguf import read_header


def read_metadata(path: str | Path) -> dict[str, str]:
    """Return the numbers and texts of a GGUF's metadata, as llama.cpp writes them as text; lists are left out.

    Raises ``ModelError`` for a file that `check_gguf` refuses.
    """
    return {key: metadata_text(value) for key, value in read_header(path).values.items()}


def metadata_text(value: int | float | bytes) -> str:
    """Return a value of a GGUF's metadata as llama.cpp writes it as text."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:f}" if isinstance(value, float) else str(value)
