"""Presets of other tools: read into presets of ours, and written from them. Each format has a module."""

from .imported import Imported
from .importing import import_preset
from .recognise import FORMATS

__all__ = ["FORMATS", "Imported", "import_preset"]
