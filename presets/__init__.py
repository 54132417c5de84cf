"""Presets (YAML files of settings), the search path, the settings of a run, and presets of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .errors import PresetError
    from .foreign import EXPORT_FORMATS, FORMATS
    from .foreign.conversion import ImportedPreset, MissingSectionError
    from .foreign.exporter import ExportedPreset
    from .foreign.formats import (
        AmbiguousFormatError,
        LoadedPreset,
        export_preset,
        import_preset,
        import_text,
        load_any_preset,
    )
    from .overrides import Override
    from .preset import Preset, load_preset
    from .schema import preset_json_schema
    from .search import PresetEntry, config_folder, find_preset, list_presets
    from .settings import Settings, SettingValue, resolve_settings, settings_text
    from .user_config import UserConfig, config_file
__all__ = [
    "EXPORT_FORMATS",
    "FORMATS",
    "AmbiguousFormatError",
    "ExportedPreset",
    "ImportedPreset",
    "LoadedPreset",
    "MissingSectionError",
    "Override",
    "Preset",
    "PresetEntry",
    "PresetError",
    "SettingValue",
    "Settings",
    "UserConfig",
    "config_file",
    "config_folder",
    "export_preset",
    "find_preset",
    "import_preset",
    "import_text",
    "list_presets",
    "load_any_preset",
    "load_preset",
    "preset_json_schema",
    "resolve_settings",
    "settings_text",
]
__getattr__, __dir__ = lazy_exports(__name__)
