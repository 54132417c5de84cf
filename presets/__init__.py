"""Presets: YAML files of settings, the search path, and the settings of a run; presets of other tools."""

from typing import TYPE_CHECKING

from ..common.lazy import lazy_exports

if TYPE_CHECKING:
    from .chain_arrangement import Arrangement, arrange_by_adaptive_p, arrange_by_mirostat, arrange_by_samplers
    from .errors import PresetError
    from .foreign.any_preset import LoadedPreset, is_foreign, load_any_preset
    from .foreign.export import export_preset
    from .foreign.imported import Imported, MissingSectionError
    from .foreign.importing import import_metadata, import_preset, import_text
    from .foreign.outgoing import Exported
    from .foreign.recognise import AmbiguousFormatError
    from .foreign_formats import EXPORT_FORMATS, FORMATS
    from .gguf_preset import preset_from_metadata
    from .llama_cpp_names import LLAMA_CPP_SAMPLERS
    from .override import Override, parse_set
    from .preset import Preset
    from .preset_loader import load_preset
    from .resolve import Settings, SettingValue, preset_folder, resolve_settings
    from .schema import preset_json_schema
    from .search import PresetEntry, config_folder, find_preset, list_presets, names_file, split_section
    from .settings_changes import override_settings, preset_of_text, replace_chain, replace_preset, settings_text
    from .user_defaults import UserConfig, user_config
    from .written_config import config_file
    from .yaml_reader import parse_yaml_scalar

__all__ = [
    "EXPORT_FORMATS",
    "FORMATS",
    "LLAMA_CPP_SAMPLERS",
    "AmbiguousFormatError",
    "Arrangement",
    "Exported",
    "Imported",
    "LoadedPreset",
    "MissingSectionError",
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
    "config_file",
    "config_folder",
    "export_preset",
    "find_preset",
    "import_metadata",
    "import_preset",
    "import_text",
    "is_foreign",
    "list_presets",
    "load_any_preset",
    "load_preset",
    "names_file",
    "override_settings",
    "parse_set",
    "parse_yaml_scalar",
    "preset_folder",
    "preset_from_metadata",
    "preset_json_schema",
    "preset_of_text",
    "replace_chain",
    "replace_preset",
    "resolve_settings",
    "settings_text",
    "split_section",
    "user_config",
]

# Few runs read a file of another tool, and a search for presets needs no samplers.
__getattr__ = lazy_exports(__name__)
