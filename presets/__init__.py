"""Presets: YAML files of settings, where they are found, and what a run goes by in the end."""

from .arrange import Arrangement, arrange_by_adaptive_p, arrange_by_mirostat, arrange_by_samplers
from .author import preset_from_metadata
from .config import UserConfig, user_config
from .errors import PresetError
from .load import load_preset
from .override import Override, parse_set
from .preset import Preset
from .read import parse_yaml_scalar
from .resolve import Settings, SettingValue, preset_folder, resolve_settings
from .schema import preset_json_schema
from .search import PresetEntry, config_folder, find_preset, list_presets
from .steps import ResolvedStep

__all__ = [
    "Arrangement",
    "Override",
    "Preset",
    "PresetEntry",
    "PresetError",
    "ResolvedStep",
    "SettingValue",
    "Settings",
    "UserConfig",
    "arrange_by_adaptive_p",
    "arrange_by_mirostat",
    "arrange_by_samplers",
    "config_folder",
    "find_preset",
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
