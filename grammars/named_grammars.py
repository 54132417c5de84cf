"""The grammars that have a name: those that come with the package, and files in folders of the user's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .errors import GrammarError

BUILT_IN = Path(__file__).parent / "library"
"""The folder of the grammars that come with the package."""

SUFFIX = ".gbnf"


@dataclass(frozen=True)
class GrammarEntry:
    """A grammar file. ``description``: the comment in its first line; ``origin``: its folder, or ``built-in``."""

    name: str
    description: str
    origin: str
    path: Path


def list_grammars(folders: Iterable[tuple[str, Path]] = ()) -> list[GrammarEntry]:
    """Every grammar with a name, sorted.

    ``folders``: more places, as (origin, path); what is found in the first one hides others of its name.
    """
    found: dict[str, GrammarEntry] = {}
    seen: set[Path] = set()
    for origin, folder in (*folders, ("built-in", BUILT_IN)):
        if folder.resolve() in seen or (origin != "built-in" and folder.resolve() == BUILT_IN.resolve()):
            continue
        seen.add(folder.resolve())
        for path in _files(folder):
            found.setdefault(path.stem, GrammarEntry(path.stem, _description(path), origin, path))
    return sorted(found.values(), key=lambda entry: entry.name)


def find_grammar(name: str, folders: Iterable[tuple[str, Path]] = ()) -> GrammarEntry:
    """Return the grammar of this name; a dash counts as an underscore. Raises ``GrammarError``."""
    known = {entry.name: entry for entry in list_grammars(folders)}
    entry = known.get(name) or known.get(name.replace("-", "_"))
    if entry is not None:
        return entry
    close = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
    raise GrammarError(f"no grammar is named {name!r}; {hint}")


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise GrammarError(f"{folder}: the folder may not be read ({error.strerror})") from None


def _description(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline(500).strip()
    return first.removeprefix("#").strip() if first.startswith("#") else ""
