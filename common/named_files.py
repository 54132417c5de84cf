"""Files with a name: those in the folders of a search path."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple


class SearchFolder(NamedTuple):
    """A folder of a search path. ``origin``: how messages name it."""

    origin: str
    path: Path


def search_path(folders: Iterable[tuple[str, Path]], built_in: Path) -> list[SearchFolder]:
    """Return the user's ``folders``, as (origin, path), then the folder ``built_in``.

    A folder that occurs twice, as a link may, counts once: as the built-in one or at its first place.
    """
    by_real_path: dict[Path, SearchFolder] = {}
    for folder in folders:
        real_path = _resolve(folder[1])
        if real_path != built_in.resolve():
            by_real_path.setdefault(real_path, SearchFolder(*folder))
    return [*by_real_path.values(), SearchFolder("built-in", built_in)]


def _resolve(folder: Path) -> Path:
    """Return the path without links; the path itself if its links form a ring."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError):
        return folder  # reading it reports the ring


def find_named_files(folder: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files of a folder that end in one of these suffixes, sorted; hidden files are left out.

    A folder that does not exist holds none. Raises ``OSError`` for a folder that cannot be read.
    """
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.suffix in suffixes and not path.name.startswith(".") and path.is_file()
        )
    except (FileNotFoundError, NotADirectoryError):
        return []
