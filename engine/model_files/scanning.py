"""Looks for model files: in plain folders, in Hugging Face's cache, and in the folders of LM Studio and Jan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .entry import ModelEntry
from .folder_walk import REPOSITORY, Report, read_text, subfolders, time_of_change, walk
from .parts import part_paths
from .quantization import choose_file, is_model_name, quantization_tag

_MODEL_PATH = re.compile(r"^model_path:\s*[\"']?(.+?)[\"']?\s*$", re.MULTILINE)
"""In the model.yml of a model of Jan."""


class FoundFile(NamedTuple):
    """A model below a folder. ``relative``: its path from there, with slashes; ``parts``: all files that exist."""

    relative: str
    path: Path
    parts: tuple[Path, ...]


def find_in_folder(folder: Path, report: Report) -> Iterator[FoundFile]:
    """Yield the models below a folder, sorted; all parts of one model are one. Links are followed once."""
    seen: set[Path] = set()
    for directory, files in walk(folder, report):
        for name in files:
            path = directory / name
            if path in seen or not is_model_name(name) or not path.is_file():
                continue
            parts = tuple(part for part in part_paths(path) if part.is_file())
            seen.update(parts)
            yield FoundFile(parts[0].relative_to(folder).as_posix(), parts[0], parts)


def find_in_hub_cache(cache: Path, report: Report) -> Iterator[ModelEntry]:
    """Yield the models in a folder with the layout of Hugging Face's cache."""
    for folder in subfolders(cache, report):
        if folder.name.startswith(REPOSITORY):
            repository = folder.name[len(REPOSITORY) :].replace("--", "/")
            files = repository_files(folder, report)
            for file in files.values():
                yield ModelEntry(
                    _hub_name(repository, file.relative, files), "Hugging Face", file.path, file.parts
                )


def repository_folder(cache: Path, repository: str) -> Path:
    """Return the folder of a repository ``USER/REPO`` in Hugging Face's cache."""
    return cache / (REPOSITORY + repository.replace("/", "--"))


def repository_files(folder: Path, report: Report) -> Mapping[str, FoundFile]:
    """Return the models of a repository in Hugging Face's cache by their paths in it.

    The snapshot of ``main`` counts first. Files that only an older one has are added.
    """
    snapshots = folder / "snapshots"
    current = read_text(folder / "refs" / "main").strip()
    newest_first = sorted(subfolders(snapshots, report), key=time_of_change, reverse=True)
    files: dict[str, FoundFile] = {}
    for snapshot in sorted(newest_first, key=lambda path: path.name != current):
        for file in find_in_folder(snapshot, report):
            known = files.get(file.relative)
            if known is None or len(known.parts) < len(file.parts):
                files[file.relative] = file
    return files


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
    for directory, files in walk(folder, report):
        if "model.yml" not in files:
            continue
        match = _MODEL_PATH.search(read_text(directory / "model.yml"))
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
