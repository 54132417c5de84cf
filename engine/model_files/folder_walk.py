"""Walks folders of models, and reads the small files that lie in them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

Report = Callable[[str], object]
"""Takes a sentence about a folder that cannot be read."""

REPOSITORY = "models--"
"""What a folder of Hugging Face's cache begins with."""
_MAX_DEPTH = 8
"""Folders below a model folder that are looked into; tools use four."""
_MAX_SETTINGS_BYTES = 1 << 20
"""Of a manifest or a model.yml; real ones have a few kilobytes."""


def walk(folder: Path, report: Report) -> Iterator[tuple[Path, list[str]]]:
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
                if not name.startswith((".", REPOSITORY)) and _is_first_visit(directory / name, seen)
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


def subfolders(folder: Path, report: Report) -> list[Path]:
    """Return the folders in a folder, sorted; none if it does not exist or may not be read."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        report(f"{folder}: the folder may not be read ({error.strerror})")
        return []


def time_of_change(path: Path) -> float:
    """Return when a file was changed, in seconds since 1970; 0 if it cannot be told."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def read_text(path: Path) -> str:
    """Return the text of a small file; an empty one if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SETTINGS_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
