"""Looks for model files: in plain folders, in Hugging Face's cache and in Ollama's."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .entry import ModelEntry
from .parts import part_paths
from .quantization import choose_file, is_model_name, quantization_tag

Report = Callable[[str], object]
"""Takes a sentence about a folder that cannot be read."""

_MAX_DEPTH = 8
"""Folders below a model folder that are looked into; tools use four."""
_REPOSITORY = "models--"
"""What a folder of Hugging Face's cache begins with."""
_OLLAMA_ROOTS = ("manifests", "manifest-v2")
_OLLAMA_DEFAULTS = ("registry.ollama.ai/library/", "ollama.com/library/", "registry.ollama.ai/", "ollama.com/")
"""What Ollama leaves out when it shows a name."""
_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_OLLAMA_SETTINGS = "application/vnd.ollama.image.params"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_MODEL_PATH = re.compile(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
"""In the model.yml of a model of Jan."""
_MAX_SETTINGS_BYTES = 1 << 20
"""Of a manifest or a model.yml; real ones have a few kilobytes."""


class FoundFile(NamedTuple):
    """A model below a folder. ``relative``: its path from there, with slashes; ``parts``: all files that exist."""

    relative: str
    path: Path
    parts: tuple[Path, ...]


def find_in_folder(folder: Path, report: Report) -> Iterator[FoundFile]:
    """Yield the models below a folder, sorted; all parts of one model are one. Links are followed once."""
    seen: set[Path] = set()
    for directory, files in _walk(folder, report):
        for name in files:
            path = directory / name
            if path in seen or not is_model_name(name) or not path.is_file():
                continue
            parts = tuple(part for part in part_paths(path) if part.is_file())
            seen.update(parts)
            yield FoundFile(parts[0].relative_to(folder).as_posix(), parts[0], parts)


def find_in_hub_cache(cache: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield the models in a folder with the layout of Hugging Face's cache."""
    for folder in _subfolders(cache, report):
        if folder.name.startswith(_REPOSITORY):
            repository = folder.name[len(_REPOSITORY) :].replace("--", "/")
            files = repository_files(folder, report)
            for file in files.values():
                yield ModelEntry(
                    _hub_name(repository, file.relative, files), "Hugging Face", file.path, file.parts
                )


def repository_folder(cache: Path, repository: str) -> Path:
    """Return the folder of a repository ``USER/REPO`` in Hugging Face's cache."""
    return cache / (_REPOSITORY + repository.replace("/", "--"))


def repository_files(folder: Path, report: Report) -> Mapping[str, FoundFile]:
    """Return the models of a repository in Hugging Face's cache by their paths in it.

    The snapshot of ``main`` counts first. Files that only an older one has are added.
    """
    snapshots = folder / "snapshots"
    current = _read_text(folder / "refs" / "main").strip()
    newest_first = sorted(_subfolders(snapshots, report), key=_time_of_change, reverse=True)
    files: dict[str, FoundFile] = {}
    for snapshot in sorted(newest_first, key=lambda path: path.name != current):
        for file in find_in_folder(snapshot, report):
            known = files.get(file.relative)
            if known is None or len(known.parts) < len(file.parts):
                files[file.relative] = file
    return files


def find_in_ollama(root: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield Ollama's models: each manifest names the blob of its GGUF file."""
    names: set[str] = set()
    for manifests in (root / name for name in _OLLAMA_ROOTS):
        for directory, files in _walk(manifests, report):
            parent = directory.relative_to(manifests).as_posix()
            if parent.count("/") != 2:  # host/namespace/model, and the tags as files in it
                continue
            for tag in files:
                entry = _ollama_entry(root, f"{parent}:{tag}", _read_object(directory / tag))
                if entry is not None and entry.name not in names:
                    names.add(entry.name)
                    yield entry


def find_in_lm_studio(folder: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield LM Studio's models, which lie in ``PUBLISHER/MODEL/FILE.gguf``."""
    by_model: dict[str, list[FoundFile]] = {}
    for file in find_in_folder(folder, report):
        model = "/".join(file.relative.split("/")[:-1][:2])
        by_model.setdefault(model or _stem(file.relative), []).append(file)
    for model, files in by_model.items():
        tags = [quantization_tag(file.path.name) for file in files]
        for file, tag in zip(files, tags, strict=True):
            is_known_by_tag = bool(tag) and tags.count(tag) == 1
            suffix = (
                "" if len(files) == 1 else f"@{tag.lower()}" if is_known_by_tag else f"/{_stem(file.path.name)}"
            )
            yield ModelEntry(f"lmstudio:{model}{suffix}", "LM Studio", file.path, file.parts)


def find_in_jan(folder: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield Jan's models: each lies in a folder that has its name, or its model.yml says where it is."""
    data = folder.parent.parent
    named: set[Path] = set()
    for directory, files in _walk(folder, report):
        if "model.yml" not in files:
            continue
        match = _MODEL_PATH.search(_read_text(directory / "model.yml"))
        path = data / match[1] if match else directory / "model.gguf"
        if path.is_file() and is_model_name(path.name):
            parts = tuple(part for part in part_paths(path) if part.is_file())
            named.update(parts)
            yield ModelEntry(directory.relative_to(folder).as_posix(), "Jan", parts[0], parts)
    for file in find_in_folder(folder, report):
        if file.path in named:
            continue
        name = file.relative.rpartition("/")[0] if _stem(file.path.name) == "model" else _stem(file.path.name)
        yield ModelEntry(name or _stem(file.path.name), "Jan", file.path, file.parts)


def find_plain(folder: Path, source: str, report: Report) -> Iterator[ModelEntry]:
    """Yield the models of a folder by the names of their files."""
    for file in find_in_folder(folder, report):
        yield ModelEntry(_stem(file.path.name), source, file.path, file.parts)


def _stem(name: str) -> str:
    return name[: -len(".gguf")] if name.lower().endswith(".gguf") else name


def _hub_name(repository: str, relative: str, files: Iterable[str]) -> str:
    tag = quantization_tag(relative.rpartition("/")[2])
    is_chosen = bool(tag) and choose_file(files, tag) == relative
    return f"hf:{repository}:{tag}" if is_chosen else f"hf:{repository}/{relative}"


def _ollama_entry(root: Path, full_name: str, manifest: Any) -> ModelEntry | None:
    layers = _ollama_layers(root, manifest)
    blobs = {layer.get("mediaType"): _blob(root, layer.get("digest")) for layer in reversed(layers)}
    path = blobs.get(_OLLAMA_MODEL)
    if path is None:
        return None
    name = next((full_name[len(start) :] for start in _OLLAMA_DEFAULTS if full_name.startswith(start)), full_name)
    return ModelEntry(f"ollama:{name}", "Ollama", path, (path,), blobs.get(_OLLAMA_SETTINGS))


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
            if any(layer.get("mediaType") == _OLLAMA_MODEL for layer in layers):
                return layers
        return []
    listed = manifest.get("layers")
    return [layer for layer in listed if isinstance(layer, dict)] if isinstance(listed, list) else []


def _blob(root: Path, digest: object) -> Path | None:
    """The file of a digest; None if there is none."""
    match = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if match is None:
        return None
    names = (f"sha256-{match[1]}", f"sha256:{match[1]}")  # versions before 0.1.33 wrote the colon
    return next((path for name in names if (path := root / "blobs" / name).is_file()), None)


def _walk(folder: Path, report: Report) -> Iterator[tuple[Path, list[str]]]:
    """Yield each folder with the names of its files, sorted. Hidden folders and repositories are left out."""

    def on_error(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            report(f"{error.filename}: the folder may not be read ({error.strerror})")

    seen: set[tuple[int, int]] = set()
    top = len(folder.parts)
    for text, folders, files in os.walk(folder, onerror=on_error, followlinks=True):
        directory = Path(text)
        is_deep = len(directory.parts) - top >= _MAX_DEPTH
        folders[:] = (
            []
            if is_deep
            else sorted(
                name
                for name in folders
                if not name.startswith((".", _REPOSITORY)) and _is_first_visit(directory / name, seen)
            )
        )
        yield directory, sorted(files)


def _is_first_visit(path: Path, seen: set[tuple[int, int]]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    identity = (status.st_dev, status.st_ino)
    is_first = identity not in seen
    seen.add(identity)
    return is_first


def _subfolders(folder: Path, report: Report) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        report(f"{folder}: the folder may not be read ({error.strerror})")
        return []


def _time_of_change(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SETTINGS_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _read_object(path: Path) -> Any:
    """The JSON in a file; None if it cannot be read."""
    try:
        return json.loads(_read_text(path))
    except (ValueError, RecursionError):
        return None
