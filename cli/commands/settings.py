"""`gen settings`: list all settings, or show one: allowed values, default, flags, names in other tools."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from ...common.flags import CompletionKind
from ..command_options import takes_options
from ..flags import Options, argument, flag
from ..messages import BAD_USAGE, fail


class SettingsFormat(StrEnum):
    """A format of the settings."""

    text = "text"
    json = "json"


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(Options):
    """The options of `gen settings`."""

    name: str | None = argument(
        None,
        display_name="the setting's name",
        help="A setting, such as top_p.p or max_tokens, or a sampler. [list all settings]",
        completion_kind=CompletionKind.SETTING_NAME,
    )
    format: SettingsFormat = flag(
        "--format", help="Format of the settings; json = a list of objects. [text]", default=SettingsFormat.text
    )


@takes_options(SettingsOptions)
def settings(options: SettingsOptions) -> None:
    """List all settings, or show one: values, default, flags, names in other tools."""
    from ...presets.errors import PresetError
    from ...presets.settings_list import find_settings, list_settings
    from ..render.settings_list import show_setting, show_settings_list

    try:
        found = list_settings() if options.name is None else find_settings(options.name)
    except PresetError as error:
        fail(str(error), BAD_USAGE)
    if options.format is SettingsFormat.json:
        print(json.dumps([each.as_json() for each in found], indent=2, ensure_ascii=False))
    elif len(found) == 1:
        show_setting(found[0])
    else:
        show_settings_list(found)
