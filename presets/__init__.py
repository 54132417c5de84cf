"""Presets: YAML files of settings, the search path, and the settings of a run; presets of other tools."""

from typing import TYPE_CHECKING

from ..common.lazy_exports import lazy_exports
from .chain_arrangement import Arrangement, arrange_by_adaptive_p, arrange_by_mirostat, arrange_by_samplers
from .errors import PresetError
from .gguf_preset import preset_from_metadata
from .override import Override, parse_set
from .preset import Preset
from .preset_loader import load_preset
from .resolve import Settings, SettingValue, preset_folder, resolve_settings
from .schema import preset_json_schema
from .search import PresetEntry, config_folder, find_preset, list_presets
from .user_defaults import UserConfig, user_config
from .yaml_reader import parse_yaml_scalar

if TYPE_CHECKING:
    from .foreign import EXPORT_FORMATS, FORMATS, Exported, Imported, export_preset, import_preset

__all__ = [
    "EXPORT_FORMATS",
    "FORMATS",
    "Arrangement",
    "Exported",
    "Imported",
    "Override",
    "Preset",
    "PresetEntry",
    "PresetError",
    "SettingValue",
    "Settings",
    "UserConfig",
    "arrange_by_adaptive_p",
    "arrange_by_mirostat",
    "arrange_by_samplers",
    "config_folder",
    "export_preset",
    "find_preset",
    "import_preset",
    "list_presets",
    "load_preset",
    "parse_set",
    "parse_yaml_scalar",
    "preset_folder",
    "preset_from_metadata",
    "preset_json_schema",
    "resolve_settings",
    "user_config",
]

# Few runs read a file of another tool.
__getattr__ = lazy_exports(
    __name__, {"foreign": "EXPORT_FORMATS FORMATS Exported Imported export_preset import_preset"}
)
