"""Settings that win over those of requests: `gen serve --force NAME=VALUE`, by the name of any client."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from ..common.errors import InvalidFieldError
from ..presets.errors import PresetError
from ..presets.overrides import Override
from ..presets.setting_table import SETTINGS
from ..presets.yaml_reader import parse_yaml_scalar
from .asked import AskedRequest, ask
from .fields import PromptFields, read_body
from .sampler_fields import (
    CHAIN_FIELDS,
    HIGH_FIELDS,
    LOW_FIELDS,
    MIROSTAT_FIELDS,
    ORDER_FIELDS,
    SamplerFields,
    field_names,
    is_effective,
    parameter_targets,
)

_FLAG = "--force"
_PLACE = f"{_FLAG} "
_SYNONYMS = (MIROSTAT_FIELDS, LOW_FIELDS, HIGH_FIELDS, ORDER_FIELDS)


def read_forced(arguments: Iterable[str]) -> AskedRequest:
    """Return what the arguments of ``--force`` ask for. Raises ``PresetError``, which names the argument."""
    record: dict[str, Any] = {}
    for argument in arguments:
        name, equals_sign, text = argument.partition("=")
        if not equals_sign or not name:
            raise PresetError("write NAME=VALUE, such as temperature=0.7", origin=_PLACE + argument)
        record[name] = parse_yaml_scalar(text, _PLACE + name)
    try:
        fields, _ = read_body(PromptFields, {"prompt": "", **record}, is_strict=True)
        asked = ask(fields, place=_PLACE)
    except InvalidFieldError as error:
        raise PresetError(error.problem, origin=_FLAG, place=error.place) from None
    settings_of = {override.origin for override in asked.overrides}
    for name in record:
        is_setting = name in ("chain", "preset") or name in SamplerFields.model_fields
        if not is_setting and _PLACE + name not in settings_of:
            raise PresetError("it is no setting; gen settings lists the names", origin=_PLACE + name)
    return asked


def with_forced_settings(asked: AskedRequest, forced: AskedRequest, unused: list[str]) -> AskedRequest:
    """Return a request with forced settings, except parameters of samplers, which change its chain at the end."""
    # Its own fields for the same settings are left out. Those with other values are appended to ``unused``.
    sampler_values = _sampler_values(forced)
    forced_overrides = [*forced.overrides]
    for name, value in sampler_values.items():
        forced_overrides += (Override(name, target, value) for target in parameter_targets(name))
    for override in asked.overrides:
        if any(_sets_otherwise(override, other) for other in forced_overrides):
            unused.append(override.origin)
    for name, value in sampler_values.items():
        asked = _without_fields(asked, _synonyms(name), unused, partial(_differs, value))
    if forced.sets_chain:
        asked = _without_chain(asked, unused)
        asked = replace(asked, chain=forced.chain, preset=forced.preset or asked.preset)
    return replace(asked, overrides=(*asked.overrides, *forced.overrides))


def _differs(value: object, fields: SamplerFields, name: str) -> bool:
    return bool(getattr(fields, name) != value)


def _sampler_values(forced: AskedRequest) -> dict[str, Any]:
    """Return the forced fields of samplers."""
    fields = forced.sampler_fields
    names = set() if fields is None else fields.model_fields_set
    return {name: getattr(fields, name) for name in SamplerFields.model_fields if name in names}


def _sets_otherwise(override: Override, forced: Override) -> bool:
    """Return whether an override sets another value than the forced one for the same setting."""
    if override.target != forced.target:
        return False
    has_parts = forced.target in SETTINGS and SETTINGS[forced.target].kind.has_parts
    if has_parts and isinstance(override.value, dict) and isinstance(forced.value, dict):
        common_parts = override.value.keys() & forced.value.keys()
        return any(override.value[part] != forced.value[part] for part in common_parts)
    return bool(override.value != forced.value)


def _synonyms(name: str) -> Iterable[str]:
    for names in (*_SYNONYMS, field_names(parameter_targets(name))):
        if name in names:
            return names
    return (name,)


def _without_chain(asked: AskedRequest, unused: list[str]) -> AskedRequest:
    """Return a request without its chain, and without the fields that change the chain."""
    if asked.chain is not None:
        unused.append(f"{asked.place}chain")
    kept_overrides = [each for each in asked.overrides if each.target in SETTINGS and each.target != "phases"]
    unused += [override.origin for override in asked.overrides if override not in kept_overrides]
    asked = _without_fields(asked, sorted(CHAIN_FIELDS), unused, is_effective)
    return replace(asked, chain=None, overrides=tuple(kept_overrides))


def _without_fields(
    asked: AskedRequest, names: Iterable[str], unused: list[str], is_told: Callable[[SamplerFields, str], bool]
) -> AskedRequest:
    """Return a request without fields for samplers. Those that ``is_told`` selects are appended to ``unused``."""
    fields = asked.sampler_fields
    if fields is None:
        return asked
    given_names = [name for name in names if getattr(fields, name) is not None]
    unused += [asked.place + name for name in given_names if is_told(fields, name)]
    return replace(asked, sampler_fields=fields.model_copy(update=dict.fromkeys(given_names)))
