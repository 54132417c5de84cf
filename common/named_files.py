"""Files with a name: those in the folders of a search path."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path


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
