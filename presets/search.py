"""Finding presets by name or path."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.files import SearchFolder, find_named_files, search_path
from ..common.text import unknown_name
from .errors import PresetError

BUILT_IN = Path(__file__).parent / "builtin"  # the folder of the presets that come with the package

_SUFFIXES = (".yaml", ".yml")
# suffixes of other tools' presets, in addition to the YAML suffixes
_FOREIGN_SUFFIXES = (".json", ".ini", ".presets", ".settings", ".gguf", ".txt", ".modelfile")
# the character between the path of a file and the name of a preset in it
_SECTION_MARK = "#"


@dataclass(frozen=True)
class PresetEntry:
    """A preset file.

    Attributes:
        name: name of the file without its suffix.
        origin: path of the folder as a string; ``built-in``; or ``path`` if the user gave the path of the file.
        path: path of the file.
        is_shadowed: True if a file with the same name comes earlier on the search path.
    """

    name: str
    origin: str
    path: Path
    is_shadowed: bool = False


def find_preset(name_or_path: str) -> PresetEntry:
    """Return the file of a preset, given by name or path; the file is not opened.

    Args:
        name_or_path: a path if it contains a separator or ends in ``.yaml`` or ``.yml``; otherwise the name of a
            preset in ``./presets``, in the user's folder, or among the built-in presets, searched in this order.

    Raises ``PresetError`` for an unknown name, with the most similar name and the known names.
    """
    if is_path(name_or_path):
        path = Path(name_or_path)
        return PresetEntry(path.stem, "path", path)
    entry_by_name = {entry.name: entry for entry in list_presets() if not entry.is_shadowed}
    if name_or_path in entry_by_name:
        return entry_by_name[name_or_path]
    if _is_folder(name_or_path):
        raise PresetError("it is a folder, not a preset; name the file in it", origin=name_or_path)
    if _looks_like_file(split_section(name_or_path)[0]):
        raise PresetError("there is no such file; gen presets lists all presets with a name", origin=name_or_path)
    raise PresetError(unknown_name("preset", name_or_path, sorted(entry_by_name)))


def is_file_reference(text: str) -> bool:
    """Return True if ``-P TEXT`` names a file: a path, or an existing file whose name no preset has."""
    if is_path(text):
        return True
    return _is_file(split_section(text)[0]) and all(entry.name != text for entry in list_presets())


def split_section(text: str) -> tuple[str, str | None]:
    """Return the file and the section of ``FILE#SECTION``; the whole text and None if no such file exists."""
    start = 0
    while not _is_file(text) and (start := text.find(_SECTION_MARK, start) + 1):
        if _is_file(text[: start - 1]):
            return text[: start - 1], text[start:]
    return text, None


def is_path(text: str) -> bool:
    """Return True if the text contains a separator of paths, or ends in a YAML suffix."""
    return text.lower().endswith(_SUFFIXES) or "/" in text


def _looks_like_file(text: str) -> bool:
    """Return True if the text, without a section, has a suffix or name of other tools' preset files."""
    name = text.partition(_SECTION_MARK)[0].lower()
    return name.endswith(_FOREIGN_SUFFIXES) or name == "modelfile"


def list_presets() -> list[PresetEntry]:
    """Return every preset on the search path, by folder and then by name.

    Of several files with one name, only the first is not shadowed. Raises ``PresetError`` for a folder without
    read permission.
    """
    entries: list[PresetEntry] = []
    seen_names: set[str] = set()
    for origin, folder in _search_folders():
        for path in _preset_files(folder):
            entries.append(PresetEntry(path.stem, origin, path, is_shadowed=path.stem in seen_names))
            seen_names.add(path.stem)
    return entries


def config_folder() -> Path:
    """Return ``$XDG_CONFIG_HOME/logitsmith`` or ``~/.config/logitsmith``."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("~")  # a path that does not exist, because the user has no home folder
    return _config_home(os.environ, home) / "logitsmith"


def _config_home(environment: Mapping[str, str], home: Path) -> Path:
    configured_folder = Path(environment.get("XDG_CONFIG_HOME", ""))
    # By the XDG specification, relative paths are ignored.
    return configured_folder if configured_folder.is_absolute() else home / ".config"


def _search_folders() -> list[SearchFolder]:
    user_folder = config_folder() / "presets"
    return search_path([("./presets", Path("presets")), (str(user_folder), user_folder)], BUILT_IN)


def _preset_files(folder: Path) -> list[Path]:
    """Return the preset files of a folder, sorted by name; X.yaml comes before X.yml."""
    try:
        return find_named_files(folder, _SUFFIXES)
    except OSError as error:
        raise PresetError(f"the folder cannot be read ({error.strerror})", origin=str(folder)) from None


def _is_folder(path: str) -> bool:
    try:
        return bool(path) and Path(path).is_dir()
    except (OSError, ValueError):
        return False


def _is_file(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists() and not Path(path).is_dir()
    except (OSError, ValueError):  # the name is too long, or contains a NUL
        return False
