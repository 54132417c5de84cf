"""The list of all settings: those of the table, and the parameters of all samplers, with their names elsewhere."""

from __future__ import annotations

import itertools
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

    @property
    def default_text(self) -> str:
        """The default as a preset writes it; empty if there is none."""
        if self.default in (None, [], {}):
            return ""
        return self.default if isinstance(self.default, str) else json.dumps(self.default)

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
            tuple(name for flag in setting.flags for name in flag.names),
            names_by_tool(setting.names),
            setting.doors,
        )
        for setting in SETTINGS.values()
    ]
    return [*own, *(listed for cls in catalogue().values() for listed in _parameters(cls))]


def find_settings(name: str) -> list[ListedSetting]:
    """Return the setting with this name, or all parameters of the sampler with this name or alias."""
    # Also the settings that have this flag, or this name in another tool.
    wanted = name.strip().lower().replace("-", "_")
    settings = {each.name: each for each in list_settings()}
    if wanted in settings:
        return [settings[wanted]]
    named = [
        each for each in settings.values() if name.strip() in (*each.flags, *itertools.chain(*each.names.values()))
    ]
    if named:
        return named
    sampler, dot, parameter = wanted.partition(".")
    try:
        about = find_sampler(sampler).about
    except SamplingError:
        parameters = [each for each in settings if "." in each]
        raise PresetError(unknown_name("setting", name, [*SETTINGS, *catalogue()], aliases=parameters)) from None
    if not dot:
        return [each for each in settings.values() if each.name.partition(".")[0] == about.name]
    if f"{about.name}.{parameter}" not in settings:
        known = [each for each in settings if each.startswith(f"{about.name}.")]
        raise PresetError(unknown_name("setting", name, known))
    return [settings[f"{about.name}.{parameter}"]]


def _parameters(cls: type[Sampler]) -> Iterator[ListedSetting]:
    """Yield the parameters of a sampler; one without parameters is a setting that turns it on or off."""
    about = cls.about
    if not cls.model_fields:
        yield ListedSetting(about.name, "true or false", False, about.summary, flags_of(about.name), {})
    for name, field in cls.model_fields.items():
        target = f"{about.name}.{name}"
        row = find_parameter(target)
        yield ListedSetting(
            target,
            _kind(field),
            field.get_default(call_default_factory=True),
            field.description or "",
            flags_of(target),
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
    allowed = allowed_values(field)
    if get_origin(field.annotation) is Literal:
        return allowed
    is_union = get_origin(field.annotation) in (Union, UnionType)
    types = get_args(field.annotation) if is_union else (field.annotation,)
    nouns = [_NOUNS[kind] for each in types if (kind := get_origin(each) or each) in _NOUNS]
    if any(isinstance(rule, ListParameter) for rule in field.metadata):
        nouns.append("a single value")
    noun = " or ".join(dict.fromkeys(nouns))
    if not allowed:
        return noun
    return f"{noun} within {allowed}" if ".." in allowed else f"{noun} {allowed}"
