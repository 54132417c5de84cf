"""Presets by name or path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.files import SearchFolder, find_named_files, search_path
from ..common.renamed import supports_old_names
from .errors import PresetError, preset_hint

BUILT_IN = Path(__file__).parent / "builtin"
"""The folder of the presets that come with the package."""

_SUFFIXES = (".yaml", ".yml")
_FOREIGN_SUFFIXES = (".json", ".ini", ".presets", ".settings", ".gguf", ".txt", ".modelfile")
"""Of other tools' presets, besides those of YAML files."""
_SECTION_MARK = "#"
"""Stands between the path of a file and the name of one of its presets."""


@supports_old_names
@dataclass(frozen=True)
class PresetEntry:
    """A preset file.

    Attributes:
        name: the name of the file without its suffix.
        origin: its folder as text, ``built-in``, or ``path`` if the user gave its path.
        path: the file.
        is_shadowed: True if a file of the same name comes earlier on the search path.
    """

    name: str
    origin: str
    path: Path
    is_shadowed: bool = False


def find_preset(name_or_path: str) -> PresetEntry:
    """Return the preset of a name, or of a path: what has a separator or ends in ``.yaml`` or ``.yml``.

    A name is looked for in ``./presets``, then in the user's folder, then among the built-in presets. A path
    is not opened. Raises ``PresetError`` for an unknown name, with the nearest and the known ones.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        return PresetEntry(path.stem, "path", path)
    known = {entry.name: entry for entry in list_presets() if not entry.is_shadowed}
    if name_or_path in known:
        return known[name_or_path]
    if _looks_like_file(split_section(name_or_path)[0]):
        raise PresetError(f"{name_or_path}: there is no such file; gen presets lists what has a name")
    raise PresetError(f"unknown preset {name_or_path!r}; {preset_hint(name_or_path, sorted(known))}")


def names_file(text: str) -> bool:
    """True if ``-P TEXT`` is a file, and no name: a path, or an existing file while no preset has this name."""
    if is_path(text):
        return True
    return _is_file(split_section(text)[0]) and all(entry.name != text for entry in list_presets())


def split_section(text: str) -> tuple[str, str | None]:
    """Return the file and the section of ``FILE#SECTION``; the section is None if no such file exists."""
    start = 0
    while not _is_file(text) and (start := text.find(_SECTION_MARK, start) + 1):
        if _is_file(text[: start - 1]):
            return text[: start - 1], text[start:]
    return text, None


def is_path(text: str) -> bool:
    """True if the text is a path: it has a separator or a suffix of YAML files."""
    return text.lower().endswith(_SUFFIXES) or "/" in text


def _looks_like_file(text: str) -> bool:
    """True if the text ends as files of other tools' presets do."""
    name = text.partition(_SECTION_MARK)[0].lower()
    return name.endswith(_FOREIGN_SUFFIXES) or name == "modelfile"


def list_presets() -> list[PresetEntry]:
    """Return every preset on the search path, in its order, then by name; of equal names the first one counts.

    Raises ``PresetError`` for a folder that may not be read.
    """
    entries: list[PresetEntry] = []
    seen: set[str] = set()
    for origin, folder in _folders():
        for path in _files(folder):
            entries.append(PresetEntry(path.stem, origin, path, is_shadowed=path.stem in seen))
            seen.add(path.stem)
    return entries


def config_folder() -> Path:
    """Return ``$XDG_CONFIG_HOME/logitsmith`` or ``~/.config/logitsmith``."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("~")  # a user without a home folder: this one does not exist either
    return _config_home(os.environ, home) / "logitsmith"


def _config_home(environment: Mapping[str, str], home: Path) -> Path:
    configured = Path(environment.get("XDG_CONFIG_HOME", ""))
    # The XDG specification has relative paths ignored.
    return configured if configured.is_absolute() else home / ".config"


def _folders() -> list[SearchFolder]:
    """Return the search path of presets."""
    user = config_folder() / "presets"
    return search_path([("./presets", Path("presets")), (str(user), user)], BUILT_IN)


def _files(folder: Path) -> list[Path]:
    """Return the preset files of a folder, by name; of the same name, .yaml before .yml."""
    try:
        return find_named_files(folder, _SUFFIXES)
    except OSError as error:
        raise PresetError(f"{folder}: the folder may not be read ({error.strerror})") from None


def _is_file(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists() and not Path(path).is_dir()
    except (OSError, ValueError):  # longer than a name may be, or with a NUL in it
        return False
