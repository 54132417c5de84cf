"""What a model is called in outputs."""

from __future__ import annotations

import re
from pathlib import Path

_BLOB = re.compile(r"sha256[-:][0-9a-fA-F]{64}")
"""The name of a file in Ollama's store."""


def model_name(path: Path) -> str:
    """Return the file's name without its suffix; for a file of Ollama's store ``ollama:NAME:TAG``.

    Ollama names files by their digests, and in its manifests. Of several names, this is the shortest.
    """
    if _BLOB.fullmatch(path.name) and path.parent.name == "blobs":
        from .ollama_models import find_in_ollama  # noqa: PLC0415 - for few models, and not needed before

        names = [entry.name for entry in find_in_ollama(path.parents[1], lambda _: None) if entry.path == path]
        return min(names, key=lambda name: (len(name), name), default=path.name)
    return path.stem
