"""The search for grammars by name, in the user's folders and in the library of built-in grammars."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..common.files import DamagedInputError, find_named_files, open_as_utf8, search_path
from ..common.text import unknown_name
from .errors import GrammarError

BUILT_IN = Path(__file__).parent / "library"  # the folder of the built-in grammars

_FIRST_LINE_BYTES = 500  # maximum number of bytes of a first line, which is a grammar's description


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
    raise GrammarError(unknown_name("grammar", name, entries))


def _grammar_files(folder: Path) -> list[Path]:
    try:
        return find_named_files(folder, (".gbnf",))
    except OSError as error:
        raise GrammarError(f"{folder}: the folder may not be read ({error.strerror})") from None


def _read_description(path: Path) -> str:
    try:
        with path.open("rb") as file:
            first_line_bytes = open_as_utf8(file).readline(_FIRST_LINE_BYTES)
    except DamagedInputError:  # A ZIP file, for example, is listed without a description. Its use is an error.
        return ""
    first_line = first_line_bytes.decode("utf-8", "replace").strip()
    return first_line.removeprefix("#").strip() if first_line.startswith("#") else ""
