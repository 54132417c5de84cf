"""The search for grammars by name, in the user's folders and in the library of built-in grammars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..common.files import find_named_files, search_path
from ..common.text import nearest_name
from .errors import GrammarError

BUILT_IN = Path(__file__).parent / "library"
"""The folder of the built-in grammars."""

_FIRST_LINE_CHARACTERS = 500
"""Maximum length of a first line, which is a grammar's description."""


@dataclass(frozen=True)
class GrammarEntry:
    """A grammar file.

    Attributes:
        name: the file's name without its suffix.
        description: the comment in the file's first line; empty if there is none.
        origin: the folder, as messages show it, or ``built-in``.
        path: the path of the file.
    """

    name: str
    description: str
    origin: str
    path: Path


def list_grammars(folders: Iterable[tuple[str, Path]] = ()) -> list[GrammarEntry]:
    """Return the grammars of the folders and of the library, sorted by name.

    Args:
        folders: folders that are searched before the library, as (origin, path). If several grammars have one
            name, only the first is returned.
    """
    entries: dict[str, GrammarEntry] = {}
    for origin, folder in search_path(folders, BUILT_IN):
        for path in _grammar_files(folder):
            entries.setdefault(path.stem, GrammarEntry(path.stem, _read_description(path), origin, path))
    return sorted(entries.values(), key=lambda entry: entry.name)


def find_grammar(name: str, folders: Iterable[tuple[str, Path]] = ()) -> GrammarEntry:
    """Return the grammar of this name. A dash matches an underscore. Raises ``GrammarError``."""
    entries = {entry.name: entry for entry in list_grammars(folders)}
    entry = entries.get(name) or entries.get(name.replace("-", "_"))
    if entry is not None:
        return entry
    nearest = nearest_name(name, entries)
    hint = f"did you mean {nearest!r}?" if nearest else f"available are {', '.join(entries)}"
    raise GrammarError(f"no grammar is named {name!r}; {hint}")


def _grammar_files(folder: Path) -> list[Path]:
    try:
        return find_named_files(folder, (".gbnf",))
    except OSError as error:
        raise GrammarError(f"{folder}: the folder may not be read ({error.strerror})") from None


def _read_description(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        first_line = file.readline(_FIRST_LINE_CHARACTERS).strip()
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""
