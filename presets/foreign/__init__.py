"""Presets of other tools: read into presets of ours, and written from them. Each format has a module."""

from .any_preset import LoadedPreset, is_foreign, load_any_preset
from .export import export_preset
from .imported import Imported, MissingSectionError
from .importing import import_metadata, import_preset, import_text
from .outgoing import Exported
from .recognise import AmbiguousFormatError

__all__ = [
    "AmbiguousFormatError",
    "Exported",
    "Imported",
    "LoadedPreset",
    "MissingSectionError",
    "export_preset",
    "import_metadata",
    "import_preset",
    "import_text",
    "is_foreign",
    "load_any_preset",
]
