"""The page of the settings: their values, flags, and names in other tools."""

from __future__ import annotations

from collections.abc import Sequence

from logitsmith.presets.settings_list import ListedSetting, list_settings

from .markdown import code, plain, table

_HEAD = """# Settings

`--set NAME=VALUE` takes every setting of this page, and so do requests to [`gen serve`](../serve/index.md), whose
system message is one of the messages; presets and short lines of [batches](../batches.md) have those of the first
table as keys, those of samplers in their chain.
`gen settings NAME` shows one of them in the terminal.

"""
_NAMES_HEAD = """## Names in other tools

Requests to the server may use the names that OpenAI, llama-server, vLLM, text-generation-webui (webui), KoboldAI,
KoboldCpp, SillyTavern, TabbyAPI and other clients have; [presets](../presets.md) are imported and exported with
the names of their tool.

"""


def settings_page() -> str:
    """Markdown of the settings beside the samplers, those of the samplers, and the names in other tools."""
    settings = list_settings()
    own = [each for each in settings if "." not in each.name]
    of_samplers = [each for each in settings if "." in each.name]
    named = [each for each in settings if each.names]
    names = table(("setting", "names"), [(code(each.name), "; ".join(_names(each))) for each in named])
    return f"{_HEAD}{_table(own)}\n## Samplers\n\n{_table(of_samplers)}\n{_NAMES_HEAD}{names}"


def _table(settings: Sequence[ListedSetting]) -> str:
    return table(("setting", "default", "allowed", "meaning", "flags"), map(_row, settings))


def _row(setting: ListedSetting) -> tuple[str, ...]:
    flags = ", ".join(map(code, setting.flags))
    return code(setting.name), code(setting.default_text), plain(setting.kind), plain(setting.help), flags


def _names(setting: ListedSetting) -> list[str]:
    return [f"{tool} {', '.join(map(code, names))}" for tool, names in setting.names.items()]
