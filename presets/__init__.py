"""Presets (YAML files of settings), the search path, the settings of a run, and presets of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .errors import PresetError as PresetError
    from .foreign.conversion import (
        ForeignStep as ForeignStep,
        Imported as Imported,
        ImportedPreset as ImportedPreset,
    )
    from .foreign.exporter import ExportedPreset as ExportedPreset, PresetExporter as PresetExporter
    from .foreign.formats import (
        LoadedPreset as LoadedPreset,
        export_preset as export_preset,
        import_preset as import_preset,
        import_text as import_text,
        load_any_preset as load_any_preset,
    )
    from .foreign.preset_file import MissingSectionError as MissingSectionError, PresetFile as PresetFile
    from .foreign.recognition import AmbiguousFormatError as AmbiguousFormatError
    from .foreign.registry import EXPORT_FORMATS as EXPORT_FORMATS, FORMATS as FORMATS, Format as Format
    from .overrides import Override as Override
    from .preset import Preset as Preset, load_preset as load_preset
    from .schema import preset_json_schema as preset_json_schema
    from .search import (
        PresetEntry as PresetEntry,
        config_folder as config_folder,
        find_preset as find_preset,
        list_presets as list_presets,
    )
    from .settings import (
        Settings as Settings,
        SettingValue as SettingValue,
        resolve_settings as resolve_settings,
        settings_text as settings_text,
    )
    from .user_config import UserConfig as UserConfig, config_file as config_file

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        ".errors": ("PresetError",),
        ".foreign.conversion": (
            "ForeignStep",
            "Imported",
            "ImportedPreset",
        ),
        ".foreign.exporter": (
            "ExportedPreset",
            "PresetExporter",
        ),
        ".foreign.formats": (
            "LoadedPreset",
            "export_preset",
            "import_preset",
            "import_text",
            "load_any_preset",
        ),
        ".foreign.preset_file": (
            "MissingSectionError",
            "PresetFile",
        ),
        ".foreign.recognition": ("AmbiguousFormatError",),
        ".foreign.registry": (
            "EXPORT_FORMATS",
            "FORMATS",
            "Format",
        ),
        ".overrides": ("Override",),
        ".preset": (
            "Preset",
            "load_preset",
        ),
        ".schema": ("preset_json_schema",),
        ".search": (
            "PresetEntry",
            "config_folder",
            "find_preset",
            "list_presets",
        ),
        ".settings": (
            "Settings",
            "SettingValue",
            "resolve_settings",
            "settings_text",
        ),
        ".user_config": (
            "UserConfig",
            "config_file",
        ),
    },
)
