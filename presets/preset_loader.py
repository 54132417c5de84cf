"""Loads a preset by its name or path."""

from __future__ import annotations

from .preset import Preset
from .search import find_preset
from .yaml_reader import read_table


def load_preset(name_or_path: str) -> Preset:
    """Return the preset of a name on the search path, or of a path.

    Raises ``PresetError`` that names the file, the place in it, what is allowed and what came.
    """
    entry = find_preset(name_or_path)
    origin = name_or_path if entry.origin == "path" else entry.path.name
    source = "built-in" if entry.origin == "built-in" else str(entry.path)
    return Preset.from_table(read_table(entry.path, origin), origin=origin, name=entry.name, source=source)
