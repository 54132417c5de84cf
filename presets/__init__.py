"""Presets: YAML files of settings, where they are found, and what a run goes by in the end."""

from .arrange import Arrangement, by_adaptive_p, by_mirostat, by_samplers
from .author import from_metadata
from .config import UserConfig, user_config
from .errors import PresetError
from .load import load
from .override import Override, parse_set
from .preset import Preset
from .read import parse_scalar
from .resolve import Settings, Value, folder_of, resolve
from .schema import json_schema
from .search import Entry, config_folder, find, listing
from .steps import ResolvedStep

__all__ = [
    "Arrangement",
    "Entry",
    "Override",
    "Preset",
    "PresetError",
    "ResolvedStep",
    "Settings",
    "UserConfig",
    "Value",
    "by_adaptive_p",
    "by_mirostat",
    "by_samplers",
    "config_folder",
    "find",
    "folder_of",
    "from_metadata",
    "json_schema",
    "listing",
    "load",
    "parse_scalar",
    "parse_set",
    "resolve",
    "user_config",
]
