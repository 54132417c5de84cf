"""Looks for Ollama's models: manifests name blobs by their digests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .entry import ModelEntry
from .folder_walk import Report, read_text, walk

_ROOTS = ("manifests", "manifest-v2")
_DEFAULTS = ("registry.ollama.ai/library/", "ollama.com/library/", "registry.ollama.ai/", "ollama.com/")
"""What Ollama leaves out when it shows a name."""
_MODEL = "application/vnd.ollama.image.model"
_SETTINGS = "application/vnd.ollama.image.params"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


def find_in_ollama(root: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield Ollama's models: each manifest names the blob of its GGUF file, which may be missing."""
    names: set[str] = set()
    for manifests in (root / name for name in _ROOTS):
        for directory, files in walk(manifests, report):
            parent = directory.relative_to(manifests).as_posix()
            if parent.count("/") != 2:  # host/namespace/model, and the tags as files in it
                continue
            for tag in files:
                entry = _ollama_entry(root, f"{parent}:{tag}", _read_object(directory / tag))
                if entry is not None and entry.name not in names:
                    names.add(entry.name)
                    yield entry


def _ollama_entry(root: Path, full_name: str, manifest: Any) -> ModelEntry | None:
    layers = _ollama_layers(root, manifest)
    digests = {layer.get("mediaType"): layer.get("digest") for layer in reversed(layers)}
    path = _blob(root, digests.get(_MODEL), is_needed=True)
    if path is None:
        return None
    name = next((full_name[len(start) :] for start in _DEFAULTS if full_name.startswith(start)), full_name)
    parts = (path,) if path.is_file() else ()
    return ModelEntry(f"ollama:{name}", "Ollama", path, parts, _blob(root, digests.get(_SETTINGS)))


def _ollama_layers(root: Path, manifest: Any) -> list[Mapping[str, Any]]:
    """The layers of a manifest; of a list of manifests, those of the first one with a GGUF file."""
    if not isinstance(manifest, dict):
        return []
    children = manifest.get("manifests")
    if isinstance(children, list):
        for child in children:
            if isinstance(child, dict) and not child.get("layers"):
                blob = _blob(root, child.get("digest"))
                child = None if blob is None else _read_object(blob)  # noqa: PLW2901 - the manifest that it names
            layers = _ollama_layers(root, child)
            if any(layer.get("mediaType") == _MODEL for layer in layers):
                return layers
        return []
    listed = manifest.get("layers")
    return [layer for layer in listed if isinstance(layer, dict)] if isinstance(listed, list) else []


def _blob(root: Path, digest: object, *, is_needed: bool = False) -> Path | None:
    """The file of a digest; None if there is none. ``is_needed``: where it should lie, if it is missing."""
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        return None
    names = (f"sha256-{match[1]}", f"sha256:{match[1]}")  # versions before 0.1.33 wrote the colon
    paths = [root / "blobs" / name for name in names]
    return next((path for path in paths if path.is_file()), paths[0] if is_needed else None)


def _read_object(path: Path) -> Any:
    """The JSON in a file; None if it cannot be read."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None
