"""The list of all settings: those of the table, and the parameters of all samplers, with their names elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ..common.text import unknown_name
from ..samplers.base import ListParameter, Sampler
from ..samplers.building import allowed_values
from ..samplers.errors import SamplingError
from ..samplers.registry import catalogue, find_sampler
from .errors import PresetError
from .parameter_names import find_parameter, flags_of, names_by_tool
from .setting_table import DOORS, SETTINGS


@dataclass(frozen=True)
class ListedSetting:
    """A setting as `gen settings` lists it.

    Attributes:
        name: the name for ``--set`` and in presets; ``sampler.parameter`` for the parameter of a sampler.
        kind: the allowed values, as a noun phrase.
        default: the value if nothing sets it. A parameter has it in a step that only names the sampler.
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

    @property
    def default_text(self) -> str:
        """The default as a preset writes it; empty if there is none."""
        if self.default in (None, [], {}):
            return ""
        return self.default if isinstance(self.default, str) else json.dumps(self.default)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "default": self.default,
            "help": self.help,
            "flags": list(self.flags),
            "names": self.names,
            "doors": list(self.doors),
        }

    def is_named(self, name: str) -> bool:
        """Return whether the setting has this flag, or this name in another tool."""
        # A flag may be given without its dashes, as ``n-predict``.
        flags = {*self.flags, *(flag.lstrip("-") for flag in self.flags)}
        return name in flags or any(name in names for names in self.names.values())


def list_settings() -> list[ListedSetting]:
    """Return all settings: first those beside the samplers, then the parameters of each sampler."""
    settings = [
        ListedSetting(
            name=setting.name,
            kind=setting.kind.allowed,
            default=setting.unset_value,
            help=setting.help,
            flags=tuple(name for flag in setting.flags for name in flag.names),
            names=names_by_tool(setting.names),
            doors=setting.doors,
        )
        for setting in SETTINGS.values()
    ]
    for sampler_class in catalogue().values():
        settings += _parameters(sampler_class)
    return settings


def find_settings(name: str) -> list[ListedSetting]:
    """Return the settings that a name means.

    It is the name of a setting, of a sampler, whose parameters are all returned, of a flag, or of a setting in
    another tool.
    """
    name_here = name.strip().lower().replace("-", "_")
    settings = {setting.name: setting for setting in list_settings()}
    if name_here in settings:
        return [settings[name_here]]
    named_settings = [setting for setting in settings.values() if setting.is_named(name.strip())]
    if named_settings:
        return named_settings
    sampler, dot, parameter = name_here.partition(".")
    try:
        sampler_name = find_sampler(sampler).about.name  # the sampler may be an alias
    except SamplingError:
        parameters = [target for target in settings if "." in target]
        raise PresetError(unknown_name("setting", name, [*SETTINGS, *catalogue()], aliases=parameters)) from None
    if not dot:
        return [setting for setting in settings.values() if setting.name.partition(".")[0] == sampler_name]
    target = f"{sampler_name}.{parameter}"
    if target not in settings:
        known_targets = [known for known in settings if known.startswith(f"{sampler_name}.")]
        raise PresetError(unknown_name("setting", name, known_targets))
    return [settings[target]]


def _parameters(sampler_class: type[Sampler]) -> Iterator[ListedSetting]:
    """Yield the parameters of a sampler. A sampler without parameters is a setting that turns it on or off."""
    about = sampler_class.about
    if not sampler_class.model_fields:
        yield ListedSetting(
            name=about.name,
            kind="true or false",
            default=False,
            help=about.summary,
            flags=flags_of(about.name),
            names={},
        )
    for name, field in sampler_class.model_fields.items():
        target = f"{about.name}.{name}"
        row = find_parameter(target)
        yield ListedSetting(
            name=target,
            kind=_kind(field),
            default=field.get_default(call_default_factory=True),
            help=field.description or "",
            flags=flags_of(target),
            names={} if row is None else names_by_tool(row.names),
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
    allowed = allowed_values(field)
    if get_origin(field.annotation) is Literal:
        return allowed
    is_union = get_origin(field.annotation) in (Union, UnionType)
    types = get_args(field.annotation) if is_union else (field.annotation,)
    plain_types = [get_origin(value_type) or value_type for value_type in types]  # list for list[int]
    nouns = [_NOUNS[plain_type] for plain_type in plain_types if plain_type in _NOUNS]
    if any(isinstance(rule, ListParameter) for rule in field.metadata):
        nouns.append("a single value")
    noun = " or ".join(dict.fromkeys(nouns))
    if not allowed:
        return noun
    return f"{noun} within {allowed}" if ".." in allowed else f"{noun} {allowed}"
