"""Every model on this machine, from all the folders where tools keep them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ..model_path import bundled_model
from . import locations, scanning
from .entry import ModelEntry
from .folder_walk import Report
from .locations import SystemFolders
from .ollama_models import find_in_ollama


def list_models(
    folders: Iterable[str | Path] = (),
    report: Report = lambda sentence: None,
    *,
    has_all_names: bool = False,
    has_missing: bool = False,
) -> list[ModelEntry]:
    """Return every model on this machine, by its name; no header is read.

    A file that two tools name counts once, for the first of: Hugging Face, Ollama, LM Studio, llama.cpp, GPT4All,
    Jan, the user's folders, the bundled one.

    Args:
        folders: The user's own model folders.
        report: Called with a sentence for each folder that cannot be read.
        has_all_names: True: a file that two tools name is listed under each of the names.
        has_missing: True: models of Ollama whose file is missing are listed, too; see `ModelEntry.is_missing`.
    """
    entries: list[ModelEntry] = []
    names: set[str] = set()
    sources: dict[object, str] = {}
    for entry in _find(current_system(), [Path(folder) for folder in folders], report):
        if entry.is_missing and not has_missing:
            continue
        first_source = sources.setdefault(_identity(entry.path), entry.source)
        if first_source != entry.source and not has_all_names:
            continue  # another tool has it, too
        name = entry.name if entry.name.lower() not in names else str(entry.path)
        if name.lower() in names:
            continue
        names.add(name.lower())
        entries.append(replace(entry, name=name))
    return sorted(entries, key=lambda entry: entry.name.lower())


def current_system() -> SystemFolders:
    """Return the folders of this user."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("~")  # a user without a home folder: none of them exists
    return SystemFolders(os.environ, home)


def tool_folders() -> list[Path]:
    """Return the folders of other tools in which models are looked for; they need not exist."""
    system = current_system()
    return [
        *locations.hugging_face_folders(system),
        *locations.ollama_folders(system),
        *locations.lm_studio_folders(system),
        *locations.llama_cpp_folders(system),
        *locations.gpt4all_folders(system),
        *locations.jan_folders(system),
    ]


def find_of_ollama(system: SystemFolders, report: Report) -> Iterator[ModelEntry]:
    """Yield the models of Ollama."""
    for folder in _unique(locations.ollama_folders(system)):
        yield from find_in_ollama(folder, report)


def find_of_lm_studio(system: SystemFolders, report: Report) -> Iterator[ModelEntry]:
    """Yield the models of LM Studio."""
    for folder in _unique(locations.lm_studio_folders(system)):
        yield from scanning.find_in_lm_studio(folder, report)


def find_of_hugging_face(system: SystemFolders, report: Report) -> Iterator[ModelEntry]:
    """Yield the models in Hugging Face's cache."""
    for folder in _unique(locations.hugging_face_folders(system)):
        yield from scanning.find_in_hub_cache(folder, report)


def _find(system: SystemFolders, folders: list[Path], report: Report) -> Iterator[ModelEntry]:
    yield from find_of_hugging_face(system, report)
    yield from find_of_ollama(system, report)
    yield from find_of_lm_studio(system, report)
    for folder in _unique(locations.llama_cpp_folders(system)):
        yield from scanning.find_plain(folder, "llama.cpp", report)
    for folder in _unique(locations.gpt4all_folders(system)):
        yield from scanning.find_plain(folder, "GPT4All", report)
    for folder in _unique(locations.jan_folders(system)):
        yield from scanning.find_in_jan(folder, report)
    for folder in _unique(folders):
        if not folder.is_dir():
            report(f"model_folders: {folder}: there is no such folder")
        yield from scanning.find_in_hub_cache(folder, report)
        yield from scanning.find_plain(folder, str(folder), report)
    bundled = bundled_model()
    if bundled is not None and bundled.is_file():
        yield ModelEntry(bundled.stem, "bundled", bundled, (bundled,))


def _unique(folders: Iterable[Path]) -> list[Path]:
    """The folders without those that are reached twice, as by a link."""
    by_identity: dict[object, Path] = {}
    for folder in folders:
        by_identity.setdefault(_identity(folder), folder)
    return list(by_identity.values())


def _identity(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return str(path)
    return status.st_dev, status.st_ino
