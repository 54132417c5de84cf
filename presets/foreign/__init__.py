"""Presets of other tools: read into presets of ours, and written from them. Each format has a module."""

from .export import EXPORT_FORMATS, export_preset
from .imported import Imported
from .importing import import_preset
from .outgoing import Exported
from .recognise import FORMATS

__all__ = ["EXPORT_FORMATS", "FORMATS", "Exported", "Imported", "export_preset", "import_preset"]
