"""The list of all settings: those of the table, and the parameters of all samplers, with their names elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from ..common.text import unknown_name
from ..samplers.base import Sampler
from ..samplers.building import allowed_values
from ..samplers.registry import catalogue
from .errors import PresetError
from .parameter_names import PARAMETERS, names_by_tool
from .setting_table import SETTINGS

# Where a setting can be set: the command line, a chat, lines of a batch, requests to the server, presets.
DOORS = ("run", "chat", "batch", "serve", "preset")


@dataclass(frozen=True)
class ListedSetting:
    """A setting as `gen settings` lists it.

    Attributes:
        name: its name for ``--set``, which is the key of presets, too; ``sampler.parameter`` for a sampler's.
        kind: the allowed values, as a noun phrase.
        default: the value if nothing sets it; of a sampler's parameter, the one of a step that names the sampler.
        help: what it is, in one line.
        flags: the flags that set it.
        names: its names in other tools, by tool.
        doors: where it can be set.
    """

    name: str
    kind: str
    default: Any
    help: str
    flags: tuple[str, ...]
    names: Mapping[str, list[str]]
    doors: tuple[str, ...] = DOORS

    def as_json(self) -> dict[str, Any]:
        fields = ("name", "kind", "default", "help", "flags", "names", "doors")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in fields}


def list_settings() -> list[ListedSetting]:
    """Return all settings: first those beside the samplers, then the parameters of each sampler."""
    own = [
        ListedSetting(
            setting.name,
            setting.kind.allowed,
            setting.unset_value,
            setting.help,
            setting.flags,
            names_by_tool(setting.names),
        )
        for setting in SETTINGS.values()
    ]
    return [*own, *(listed for cls in catalogue().values() for listed in _parameters(cls))]


def find_settings(name: str) -> list[ListedSetting]:
    """Return the setting with this name, or all parameters of the sampler with this name."""
    wanted = name.strip().lower().replace("-", "_")
    settings = list_settings()
    found = [each for each in settings if each.name == wanted or each.name.partition(".")[0] == wanted]
    if not found:
        parameters = [each.name for each in settings if "." in each.name]
        raise PresetError(unknown_name("setting", name, [*SETTINGS, *catalogue()], aliases=parameters))
    return found


def _parameters(cls: type[Sampler]) -> Iterator[ListedSetting]:
    rows = {row.target: row for row in PARAMETERS}
    for name, field in cls.model_fields.items():
        target = f"{cls.about.name}.{name}"
        row = rows.get(target)
        yield ListedSetting(
            target,
            _kind(field),
            field.get_default(call_default_factory=True),
            field.description or "",
            () if row is None else row.flags,
            {} if row is None else names_by_tool(row.names),
        )


_NOUNS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


def _kind(field: FieldInfo) -> str:
    """Return the allowed values of a parameter as a noun phrase, such as ``a number within 0..1``."""
    types = [field.annotation, *get_args(field.annotation)]
    allowed = allowed_values(field)
    if any(get_origin(each) is Literal for each in types[:1]):
        return allowed
    nouns = [_NOUNS[kind] for each in types if (kind := get_origin(each) or each) in _NOUNS]
    noun = " or ".join(dict.fromkeys(nouns)) or "a value"
    if not allowed:
        return noun
    return f"{noun} within {allowed}" if ".." in allowed else f"{noun} {allowed}"
